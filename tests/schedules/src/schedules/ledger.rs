//! Charges that grow, are counted and are given back at the same time.

use super::*;
use crate::{Schedules, join};
use shuttle::thread;

pub(crate) const ALL: Schedules = &[
    ("lists_of_one_store_grow_it_once", lists_of_one_store_grow_it_once),
    ("nothing_is_left_and_no_share_is_exceeded", nothing_is_left_and_no_share_is_exceeded),
];

fn client() -> Owner {
    Owner::Client("a".into())
}

fn lists_of_one_store_grow_it_once() {
    let ledger = Ledger::new(0);
    let charge = Arc::new(ledger.charge(&client(), Use::Views, 1).unwrap());
    let lists = [5, 7].map(|bytes| {
        let charge = charge.clone();
        thread::spawn(move || charge.grow_to(bytes).unwrap())
    });
    join(lists);
    assert_eq!(charge.bytes(), 7, "two lists have counted their bytes twice");
    assert_eq!(ledger.used(&client()), 7);
}

fn nothing_is_left_and_no_share_is_exceeded() {
    let ledger = Ledger::new(0);
    let half = ledger.share() / 2 + 1;
    let threads = [0, 1, 2].map(|n| {
        let ledger = ledger.clone();
        thread::spawn(move || {
            let Ok(charge) = ledger.charge(&client(), Use::Views, half) else { return };
            assert_eq!(ledger.excess(&client()), 0, "more than a share is charged");
            match n {
                0 => charge.set(3),
                1 => drop(charge.grow_to(half + 2)),
                _ => ledger.penalize(charge.owner()),
            }
        })
    });
    join(threads);
    assert_eq!((ledger.used(&client()), ledger.accounts().others), (0, 0), "something is charged for ever");
}
