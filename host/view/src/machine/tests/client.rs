//! A client of a world, and the watch that it has open.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::objects::{Obj, Out};
use crate::machine::{Frame, ViewWatch};

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) watch: ViewWatch<Obj>,
    /// What is on its way to the client.
    pub(super) frames: VecDeque<Frame<Obj>>,
    /// How far the events of the API server were sent, while they come from there.
    pub(super) caught: u64,
    /// The newest version that the stream has given.
    pub(super) highest: u64,
    /// The number of the chain that was in force when the request arrived.
    pub(super) began: u64,
    /// The version of the request, while the view has not reached it.
    pub(super) waits: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Client {
    pub(super) selects: bool,
    pub(super) held: BTreeMap<u64, (u64, Out)>,
    /// What it has made of the objects, by key and content, as kube-proxy opens the ports of a Service. It undoes what a deletion
    /// carries, and nothing else.
    pub(super) rules: BTreeSet<(u64, Option<u64>)>,
    pub(super) version: Option<u64>,
    /// All versions that it was given of what it holds.
    pub(super) given: Vec<u64>,
    pub(super) stream: Option<Stream>,
    pub(super) lists: usize,
    /// What was sent again had a lower version than it held already.
    pub(super) fell_back: bool,
}
