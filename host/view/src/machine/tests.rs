//! Random worlds: an API server, one view, and clients that are cut off between any two events. Whatever happens, each client
//! holds what the chain makes of the objects once the world has come to rest.
//!
//! `WEIR_SEED` is the first world, `WEIR_STEPS` the number of acts in all. A world that fails is printed with its seed and its
//! acts, and runs again from its seed.

mod act;
mod client;
pub(crate) mod objects;
mod table;
mod world;

use self::act::{Act, RULES, Rule};
use self::world::World;

const KEYS: u64 = 3;
const CLIENTS: usize = 3;
/// The events that the view keeps.
const EVENTS: usize = 20;
/// The acts of one world.
const ACTS: usize = 60;
/// The acts in all, unless `WEIR_STEPS` says otherwise.
const STEPS: usize = 300_000;

/// A sequence of numbers from a seed (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

fn acts(seed: u64) -> Vec<Act> {
    let mut numbers = Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    for _ in 0..4 {
        numbers.below(2);
    }
    let act = |numbers: &mut Numbers| {
        let n = usize::try_from(numbers.below(CLIENTS as u64)).unwrap();
        match numbers.below(60) {
            0..7 => Act::Write(numbers.below(KEYS), numbers.below(4)),
            7..9 => Act::Delete(numbers.below(KEYS)),
            9 => Act::Tick,
            10..17 => Act::Follow,
            17 => Act::Jump,
            18..22 => Act::Flip,
            22..24 => Act::Refilter,
            24..27 => Act::Stamp,
            27 => Act::Evict,
            28 => Act::Crash(numbers.below(3)),
            29 => Act::Fail(numbers.below(KEYS)),
            30 => Act::Recover,
            31..34 => Act::List(n),
            34..36 => Act::ListView(n),
            36..40 => Act::Watch(n),
            40 => Act::WatchOld(n, numbers.below(8)),
            41 => Act::Cut(n),
            _ => Act::Deliver(n),
        }
    };
    (0..ACTS).map(|_| act(&mut numbers)).collect()
}

fn run(acts: &[Act], without: Option<Rule>) -> Result<(), String> {
    for rest in 0..4 {
        let mut world = World::new(without);
        for act in acts {
            world.act(*act)?;
        }
        world.rest(rest & 1 == 0, rest & 2 == 0)?;
    }
    Ok(())
}

/// Leaves out acts as long as what is left fails.
fn shrunk(mut acts: Vec<Act>) -> Vec<Act> {
    let mut at = 0;
    while at < acts.len() {
        let mut fewer = acts.clone();
        fewer.remove(at);
        if run(&fewer, None).is_err() {
            (acts, at) = (fewer, 0);
        } else {
            at += 1;
        }
    }
    acts
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn clients_hold_what_the_chain_makes_whatever_happens() {
    let first = number("WEIR_SEED").filter(|seed| *seed > 0);
    let steps = number("WEIR_STEPS").map_or(STEPS, |steps| usize::try_from(steps).unwrap());
    let (first, worlds) = (first.unwrap_or(1), (steps / ACTS) as u64);
    for seed in first..first + worlds {
        let acts = acts(seed);
        if run(&acts, None).is_err() {
            let acts = shrunk(acts);
            let error = run(&acts, None).unwrap_err();
            panic!("WEIR_SEED={seed}: {error}\n{acts:?}");
        }
    }
}

/// A client that was cut off amid the difference of a change continues from before a hidden object that it holds. It is cut off again
/// amid the events of the API server, above the stamp.
#[test]
fn what_a_client_held_before_a_catch_up_that_was_cut_off_is_deleted() {
    use Act::{Cut, Deliver, Evict, Flip, Follow, List, Refilter, Stamp, Watch, Write};
    let before = [Write(0, 0), Write(1, 0), Follow, Follow, List(0), Watch(0), Flip, Refilter, Deliver(0), Cut(0)];
    let after = [Stamp, Write(2, 0), Write(2, 2), Follow, Follow, Evict, Watch(0)];
    for delivered in 0..6 {
        let acts = [&before[..], &after, &vec![Deliver(0); delivered], &[Cut(0)]].concat();
        assert_eq!(run(&acts, None), Ok(()), "{delivered} events of the last watch");
    }
}

/// The filter of an object fails in the view, and passes it in a list of the API server. The object is deleted before the view has
/// an outcome of it.
#[test]
fn what_a_client_has_of_an_object_without_an_outcome_is_not_kept_after_its_deletion() {
    use Act::{Delete, Deliver, Fail, Flip, Follow, Jump, List, Refilter, Stamp, Watch, Write};
    let before = [Flip, Fail(2), Write(2, 3), Refilter, Stamp, Write(0, 3), Follow, Follow, Fail(1), List(0), Watch(0)];
    for then in [Follow, Jump] {
        let acts = [&before[..], &[Delete(2), then, Deliver(0)]].concat();
        assert_eq!(run(&acts, None), Ok(()), "{then:?}");
    }
}

/// A client is cut off amid the changes of a present state, before those of an object that was gone in between. The object is hidden
/// when it comes back.
#[test]
fn what_a_client_holds_of_an_object_that_was_gone_in_between_is_deleted_as_it_holds_it() {
    use Act::{Delete, Deliver, Flip, Follow, ListView, WatchOld, Write};
    let before = [Write(1, 2), Follow, ListView(2), Delete(1), Follow, Write(0, 2), Write(1, 0), Follow, Follow];
    let acts = [&before[..], &[Flip, WatchOld(2, 3), Deliver(2)]].concat();
    assert_eq!(run(&acts, None), Ok(()));
}

#[test]
fn each_rule_is_needed() {
    for rule in RULES {
        let found = (1..1_000_000).find(|seed| run(&acts(*seed), Some(rule)).is_err());
        assert!(found.is_some(), "nothing fails without {rule:?}");
        println!("{rule:?}: world {}", found.unwrap_or_default());
    }
}
