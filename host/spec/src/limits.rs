//! The limits of a filter, in the notation of Kubernetes and Go: `64Mi`, `20ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use weir_kube::{duration, quantity};

/// The maximum size of a module in bytes.
pub const MAX_MODULE: usize = 64 << 20;

/// The limits of one call of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// The linear memory of one instance.
    pub memory: MemoryLimit,
    /// The time for one object.
    pub time: TimeLimit,
}

/// The limit of an instance's linear memory, in bytes: 1Mi to 512Mi, by default 64Mi.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemoryLimit(u64);

/// The time limit for one object: 1ms to 10s, by default 20ms, in whole nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeLimit(Duration);

/// The reason why a limit is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The text is not a quantity.
    #[error("{0:?} is not an amount of memory: write it as 64Mi, 1Gi or a number of bytes")]
    Quantity(String),
    /// The text is not a duration.
    #[error("{0:?} is not a duration: write it as 20ms or 1.5s")]
    Duration(String),
    /// The limit is out of range.
    #[error("{given} is outside {least} to {most}")]
    Range {
        /// The text.
        given: String,
        /// The lower bound.
        least: &'static str,
        /// The upper bound.
        most: &'static str,
    },
}

const MI: u64 = 1 << 20;

impl MemoryLimit {
    /// Returns the limit in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl TimeLimit {
    /// Returns the limit.
    #[must_use]
    pub fn duration(self) -> Duration {
        self.0
    }
}

impl Default for MemoryLimit {
    fn default() -> Self {
        Self(64 * MI)
    }
}

impl Default for TimeLimit {
    fn default() -> Self {
        Self(Duration::from_millis(20))
    }
}

impl FromStr for MemoryLimit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let bytes = quantity(text).ok_or_else(|| LimitError::Quantity(short(text)))?;
        if (MI..=512 * MI).contains(&bytes) {
            Ok(Self(bytes))
        } else {
            Err(LimitError::Range { given: short(text), least: "1Mi", most: "512Mi" })
        }
    }
}

impl FromStr for TimeLimit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let time = duration(text).ok_or_else(|| LimitError::Duration(short(text)))?;
        if (Duration::from_millis(1)..=Duration::from_secs(10)).contains(&time) {
            Ok(Self(time))
        } else {
            Err(LimitError::Range { given: short(text), least: "1ms", most: "10s" })
        }
    }
}

fn short(text: &str) -> String {
    text.chars().take(64).collect()
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(MI) { write!(f, "{}Mi", self.0 / MI) } else { write!(f, "{}", self.0) }
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_a_kubernetes_quantity() {
        for (text, bytes) in [
            ("64Mi", 64 * MI),
            ("1.5Mi", 3 * MI / 2),
            ("0.5Gi", 512 * MI),
            (".5Gi", 512 * MI),
            ("64.Mi", 64 * MI),
            ("2M", 2_000_000),
            ("1048576", MI),
            ("1024Ki", MI),
        ] {
            assert_eq!(text.parse::<MemoryLimit>().unwrap().bytes(), bytes, "{text}");
        }
        assert_eq!("64Mi".parse::<MemoryLimit>().unwrap().to_string(), "64Mi");
        for bad in ["", "Mi", "64MiB", "64 Mi", "-1Mi", "1..5Mi", "1.2.3Mi", ".", "64m", "99999999999999999999999"] {
            assert!(
                bad.parse::<MemoryLimit>().unwrap_err().to_string().contains("is not an amount of memory"),
                "{bad}"
            );
        }
    }

    #[test]
    fn time_is_a_go_duration() {
        for (text, micros) in [
            ("20ms", 20_000),
            ("1.5s", 1_500_000),
            (".5s", 500_000),
            ("1.s", 1_000_000),
            ("1s500ms", 1_500_000),
            ("1500us", 1500),
            ("1500\u{b5}s", 1500),
            ("1500\u{3bc}s", 1500),
            ("0.001h", 3_600_000),
            ("1000000ns", 1000),
        ] {
            assert_eq!(text.parse::<TimeLimit>().unwrap().duration(), Duration::from_micros(micros), "{text}");
        }
        assert_eq!("20ms".parse::<TimeLimit>().unwrap().to_string(), "20ms");
        for bad in ["", "20", ".", "ms", ".s", "1.2.3s", "20 ms", "-20ms", "20msec", "1d", "1h99999999999999999999h"] {
            assert!(bad.parse::<TimeLimit>().unwrap_err().to_string().contains("is not a duration"), "{bad}");
        }
    }

    #[test]
    fn the_message_names_the_bounds_of_a_limit() {
        assert_eq!("1Gi".parse::<MemoryLimit>().unwrap_err().to_string(), "1Gi is outside 1Mi to 512Mi");
        assert_eq!("0".parse::<TimeLimit>().unwrap_err().to_string(), "0 is outside 1ms to 10s");
        assert_eq!("11s".parse::<TimeLimit>().unwrap_err().to_string(), "11s is outside 1ms to 10s");
    }
}
