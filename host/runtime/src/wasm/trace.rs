//! The trace of one filter call: its host calls with their results, against one snapshot of the cluster.
//!
//! A filter is a pure function of what it reads. If the same host calls return the same results, the filter makes the
//! same next host call and finally returns the same verdict. A trace is therefore two things: an entry for the trace
//! cache, which replays host calls without the module, and the set of values that the verdict depends on.
//!
//! Bounds: at most [`CALLS`] host calls of a trace are recorded, and none with a long argument or result. The
//! dependencies are complete for traces of any length.

use super::dependency::Dependencies;
use super::host_call::{HostCall, Observed};

/// The maximum number of recorded host calls of one trace.
pub(super) const CALLS: usize = 32;

/// The part of a call that a trace records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Nothing. Recording was off, the call wrote a log line, or a result was too long.
    #[default]
    Nothing,
    /// The host calls before the first one that is not replayed.
    Prefix,
    /// All host calls of the call.
    Whole,
}

/// The trace of one filter call.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(super) extent: Extent,
    pub(super) calls: Vec<(HostCall, Observed<'static>)>,
    /// The dependencies of the call, besides its object.
    pub(crate) dependencies: Dependencies,
}

/// Records the host calls of a running filter call.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    extent: Extent,
    calls: Vec<(HostCall, Observed<'static>)>,
}

impl Recorder {
    /// Begins a call.
    pub(super) fn begin(&mut self, record: bool) {
        self.extent = if record { Extent::Whole } else { Extent::Nothing };
        self.calls.clear();
    }

    /// Records a host call and its result.
    pub(super) fn record(&mut self, call: HostCall, observed: &Observed<'_>) {
        if self.extent != Extent::Whole {
            return;
        }
        if !call.is_replayed() || self.calls.len() >= CALLS {
            self.extent = Extent::Prefix;
        } else if observed.is_long() || call.is_long() {
            self.discard();
        } else {
            self.calls.push((call, observed.to_owned()));
        }
    }

    /// Discards the trace: the call wrote a log line, or a result is too long. The call is then never replayed.
    pub(super) fn discard(&mut self) {
        self.extent = Extent::Nothing;
        self.calls.clear();
    }

    /// Ends the call and returns its trace.
    pub(super) fn end(&mut self, dependencies: Dependencies) -> Trace {
        let (extent, calls) = (std::mem::take(&mut self.extent), std::mem::take(&mut self.calls));
        Trace { extent, calls, dependencies }
    }
}

impl Trace {
    /// Returns the recorded part of the call.
    #[must_use]
    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    /// Returns the recorded host calls in order, with their results.
    #[must_use]
    pub(crate) fn calls(&self) -> &[(HostCall, Observed<'static>)] {
        &self.calls
    }
}

#[cfg(test)]
impl Trace {
    /// Creates a trace as a call would have recorded it.
    pub(crate) fn test(extent: Extent, calls: Vec<(HostCall, Observed<'static>)>) -> Self {
        Self { extent, calls, dependencies: Dependencies::default() }
    }
}

#[cfg(test)]
mod tests {
    use weir_document::{Column, Path};

    use super::super::host_call::{Edit, Read, Target};
    use super::*;

    fn name() -> HostCall {
        HostCall::Read(Target::Object, Read::Name)
    }

    fn path(text: &str) -> Path {
        Path::parse(text).unwrap()
    }

    fn recorder() -> Recorder {
        let mut recorder = Recorder::default();
        recorder.begin(true);
        recorder
    }

    fn end(mut recorder: Recorder) -> Trace {
        recorder.end(Dependencies::default())
    }

    #[test]
    fn a_trace_ends_before_the_first_host_call_that_is_not_replayed() {
        let mut recorder = recorder();
        recorder.record(name(), &Observed::Nothing);
        recorder.record(HostCall::Edit(Target::Object, Edit::Remove(path("x"))), &Observed::Number(1));
        recorder.record(HostCall::Read(Target::Object, Read::Column(path("x"))), &Observed::Column(Column::default()));
        recorder.record(name(), &Observed::Nothing);
        let trace = end(recorder);
        assert_eq!(trace.extent(), Extent::Prefix);
        assert_eq!(trace.calls().len(), 2, "the edit is part of it: a replay edits a copy");
    }

    #[test]
    fn a_result_that_is_too_long_discards_the_trace_and_too_many_calls_cut_it() {
        let mut long = recorder();
        long.record(name(), &Observed::Text("x".repeat(1024).into()));
        assert_eq!(end(long).extent(), Extent::Nothing);
        let mut many = recorder();
        for _ in 0..=CALLS {
            many.record(name(), &Observed::Lengths(vec![1; 8]));
        }
        let trace = end(many);
        assert_eq!((trace.extent(), trace.calls().len()), (Extent::Prefix, CALLS));
    }
}
