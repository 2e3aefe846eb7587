//! Traces of requests: a span per request of a client, per request to an API server and per batch of a filter.
//!
//! The crates create spans of the target [`SPANS`]. Without the feature `otlp`, and without `--otlp-endpoint`, nobody is
//! interested in this target, and a span costs a comparison. With both, they are sent to an OpenTelemetry collector, and the
//! trace context of a client (<https://www.w3.org/TR/trace-context/>) continues at the API server.

#[cfg(not(feature = "otlp"))]
mod none;
#[cfg(feature = "otlp")]
mod otlp;

#[cfg(not(feature = "otlp"))]
pub use self::none::TracesError;
#[cfg(not(feature = "otlp"))]
pub(crate) use self::none::{Traces, adopt_context, pass_context_on, rename};
#[cfg(feature = "otlp")]
pub use self::otlp::TracesError;
#[cfg(feature = "otlp")]
pub(crate) use self::otlp::{Traces, adopt_context, pass_context_on, rename};

/// The target of the spans that are sent: the same word in `weir_runtime` and `weir_upstream`. The log does not show them.
pub(crate) const SPANS: &str = "weir_trace";
