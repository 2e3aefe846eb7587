//! What happens in a world, and the rules without which it comes to a bad end.

#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    Write(u64, u64),
    Delete(u64),
    Tick,
    Follow,
    Jump,
    Flip,
    Refilter,
    Stamp,
    Evict,
    Crash(u64),
    Fail(u64),
    Recover,
    List(usize),
    ListView(usize),
    Watch(usize),
    WatchOld(usize, u64),
    Deliver(usize),
    Cut(usize),
}

/// A rule of how views are to be kept. Without any of them some client holds what it must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// The read for a stamp begins after the view has taken the change.
    StampAfter,
    /// A view takes a change before the first outcome that was made with it.
    MarkFirst,
    /// A start is a change.
    Start,
    /// A watch waits until its view has taken what was in force when it arrived, or nothing is known of its client.
    InStep,
    /// A list of the store begins a new history.
    NewHistory,
}

pub(super) const RULES: [Rule; 5] = [Rule::StampAfter, Rule::MarkFirst, Rule::Start, Rule::InStep, Rule::NewHistory];
