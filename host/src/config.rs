//! Configuration: flags, the filters' ConfigMap, match rules.

mod rule;

pub use rule::{Class, MatchRule};
