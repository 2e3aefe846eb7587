//! The same work with each library. An engine owns a list's bytes and returns what it has made of them. The time of an
//! engine includes the release of its memory.
//!
//! None is called through `unsafe` functions, which skip validation.

mod simd;
mod sonic;
mod typed;
mod weir;

use std::hash::{BuildHasher, Hash, Hasher};

pub(crate) use typed::Typed;

use crate::lists::List;

/// How far the work goes. Each includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Split,
    Read,
    Edit,
    Encode,
}

/// What an engine has found, for comparison.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) objects: usize,
    /// A hash over the fields that were read.
    pub(crate) fields: u64,
    /// The edited list.
    pub(crate) list: Vec<u8>,
}

type Failure = Box<dyn std::error::Error>;

/// A library in one of its forms.
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    /// The last step that it can do.
    pub(crate) last: Step,
    pub(crate) run: fn(&List, Vec<u8>, Step) -> Result<Found, Failure>,
}

pub(crate) fn all<T: Typed>() -> [Engine; 6] {
    [
        Engine { name: "weir-document", last: Step::Encode, run: weir::run },
        Engine { name: "simd-json, tape", last: Step::Read, run: simd::tape },
        Engine { name: "simd-json, borrowed value", last: Step::Encode, run: simd::value },
        Engine { name: "sonic-rs, lazy value", last: Step::Encode, run: sonic::lazy },
        Engine { name: "sonic-rs, value", last: Step::Encode, run: sonic::value },
        Engine { name: "serde_json + k8s-openapi", last: Step::Encode, run: typed::run::<T> },
    ]
}

/// Adds up what is read.
pub(crate) struct Fields(foldhash::quality::FoldHasher<'static>);

impl Fields {
    pub(crate) fn new() -> Self {
        Self(foldhash::quality::FixedState::default().build_hasher())
    }

    /// Adds the three fields of one object.
    pub(crate) fn add(&mut self, fields: [Option<&str>; 3]) {
        fields.hash(&mut self.0);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.finish()
    }
}
