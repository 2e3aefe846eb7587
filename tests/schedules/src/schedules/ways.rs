//! Ways that go down and come up at the same time.

use std::sync::Arc;

use super::*;
use crate::{Schedules, join};
use shuttle::thread;

pub(crate) const ALL: Schedules = &[
    ("two_servers_change", two_servers_change),
    ("one_server_changes_twice", one_server_changes_twice),
    ("a_peer_rests_while_the_server_goes_down_again", a_peer_rests_while_the_server_goes_down_again),
    ("the_outage_has_a_beginning", the_outage_has_a_beginning),
];

type All = Arc<Ways<Arc<Way>>>;

fn ways(direct: usize, relayed: usize) -> All {
    let all = (0..direct + relayed).map(|index| Arc::new(Way::new(index >= direct))).collect();
    Arc::new(Ways::new(all, direct))
}

fn set(ways: &All, index: usize, condition: Condition) -> thread::JoinHandle<bool> {
    let ways = ways.clone();
    thread::spawn(move || ways.change().set(index, condition))
}

/// What is published at the end is what the conditions are.
fn assert_published(ways: &All) {
    let published = (*ways.reachable().borrow(), *ways.used().borrow());
    assert_eq!(published, (!ways.are_down(), ways.in_use()), "what is published is stale");
}

fn two_servers_change() {
    let ways = ways(2, 1);
    ways.change().set(1, Condition::Down);
    let changes = [set(&ways, 0, Condition::Down), set(&ways, 1, Condition::Up), set(&ways, 2, Condition::Up)];
    join(changes);
    assert_published(&ways);
}

/// A request cannot connect, and a probe passes.
fn one_server_changes_twice() {
    let ways = ways(1, 0);
    let changes = [set(&ways, 0, Condition::Down), set(&ways, 0, Condition::Up)];
    join(changes);
    assert_published(&ways);
    assert_eq!(ways.all()[0].is_down(), ways.down_since().is_some(), "an outage has no beginning, or no end");
}

fn a_peer_rests_while_the_server_goes_down_again() {
    let ways = ways(1, 1);
    ways.change().set(0, Condition::Down);
    ways.change().set(1, Condition::Up);
    let up = set(&ways, 0, Condition::Up);
    let rest = thread::spawn({
        let ways = ways.clone();
        move || {
            // As the probes of the way do, once another one is published.
            let is_replaced = *ways.used().borrow() < 1;
            is_replaced && ways.change().rest(1)
        }
    });
    let down = set(&ways, 0, Condition::Down);
    join([up, rest, down]);
    assert_published(&ways);
}

fn the_outage_has_a_beginning() {
    let ways = ways(1, 0);
    let change = set(&ways, 0, Condition::Down);
    if ways.are_down() {
        assert!(ways.down_since().is_some(), "an outage has no beginning");
    }
    join([change]);
}
