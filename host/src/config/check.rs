//! The flags of the self-check: how often watch caches are compared with the API server.

use std::time::Duration;

use clap::Args;

use super::serve::parse_duration;

/// The flags, before validation.
#[derive(Debug, Clone, Args)]
pub struct CheckFlags {
    /// Longest time between two comparisons of a watch cache with the API server itself, which find what a peer has forged; 0 compares none
    #[arg(long, env = "WEIR_CACHE_CHECK_INTERVAL", value_name = "DURATION", default_value = "24h")]
    cache_check_interval: String,
    /// Part of what a watch cache has received that comparisons may take beyond one each --cache-check-interval
    #[arg(long, env = "WEIR_CACHE_CHECK_SHARE", value_name = "PERCENT", default_value = "1%")]
    cache_check_share: String,
}

/// How watch caches are compared with the API server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CacheCheck {
    /// The longest time between two comparisons of one.
    pub interval: Duration,
    /// The part of what it has received that comparisons may take beyond that.
    pub share: f64,
}

impl CheckFlags {
    /// Returns `None` if nothing is compared, and after an error.
    pub(super) fn validate(&self, errors: &mut Vec<String>) -> Option<CacheCheck> {
        let interval = parse_duration("--cache-check-interval", &self.cache_check_interval, errors);
        let share = percent(&self.cache_check_share);
        if share.is_none() {
            let share = &self.cache_check_share;
            errors.push(format!("--cache-check-share: {share:?} is not a part up to 100%: write it as 1%"));
        }
        let interval = interval.filter(|interval| !interval.is_zero())?;
        Some(CacheCheck { interval, share: share? })
    }
}

fn percent(text: &str) -> Option<f64> {
    let digits = text.strip_suffix('%')?;
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let percent: f64 = digits.parse().ok().filter(|_| is_plain)?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage() {
        assert_eq!((percent("1%"), percent("0%"), percent("2.5%")), (Some(0.01), Some(0.0), Some(0.025)));
        for text in ["1", "", "%", "101%", "-1%", "nan%", "1e1%", "inf%"] {
            assert_eq!(percent(text), None, "{text}");
        }
    }

    #[test]
    fn an_interval_of_zero_compares_nothing() {
        let flags = |interval: &str| CheckFlags {
            cache_check_interval: interval.to_owned(),
            cache_check_share: "1%".to_owned(),
        };
        let mut errors = Vec::new();
        assert_eq!(flags("0").validate(&mut errors), None);
        let day = CacheCheck { interval: Duration::from_secs(86_400), share: 0.01 };
        assert_eq!((flags("24h").validate(&mut errors), errors.len()), (Some(day), 0));
        assert_eq!((flags("soon").validate(&mut errors), errors.len()), (None, 1));
    }
}
