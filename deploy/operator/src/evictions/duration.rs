//! How long the pods of a node stay.

use super::AUTONOMY_DURATION;
use crate::pools::NodeMeta;

/// How long pods stay on a node that is not reachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stay {
    /// For ever.
    Forever,
    /// For so many seconds.
    Seconds(i64),
}

/// How long the pods of a node stay; `None` if neither the Node nor its pool says so. The Node's word counts more.
///
/// # Errors
/// The value is no duration. The pods are left alone.
pub(super) fn stay(node: &NodeMeta) -> Result<Option<Stay>, String> {
    let value = node.own.get(AUTONOMY_DURATION).or_else(|| node.pool.get(AUTONOMY_DURATION));
    value
        .map(|text| parse(text).ok_or_else(|| format!("{AUTONOMY_DURATION}: {text:?} is not a duration such as 2h30m")))
        .transpose()
}

/// A duration as Go writes it: `1h30m`, `90s`, `1.5h`. Less than a second counts as one; `0` is for ever.
fn parse(text: &str) -> Option<Stay> {
    if text == "0" {
        return Some(Stay::Forever);
    }
    let (mut seconds, mut rest) = (0.0_f64, text);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at_checked(digits)?;
        let length = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(length)?;
        let unit = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" | "μs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * unit;
        rest = tail;
    }
    #[expect(clippy::cast_possible_truncation, reason = "bounded before")]
    let whole = seconds.ceil().min(1e12) as i64;
    match whole {
        _ if text.is_empty() => None,
        // As OpenYurt: no time is no limit.
        0 => Some(Stay::Forever),
        whole => Some(Stay::Seconds(whole)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (text, stay) in [
            ("0", Some(Stay::Forever)),
            ("0s", Some(Stay::Forever)),
            ("0h0m", Some(Stay::Forever)),
            ("2h", Some(Stay::Seconds(7200))),
            ("1h30m", Some(Stay::Seconds(5400))),
            ("1.5h", Some(Stay::Seconds(5400))),
            ("500ms", Some(Stay::Seconds(1))),
            ("99999999999999999999h", Some(Stay::Seconds(1_000_000_000_000))),
            ("", None),
            ("10", None),
            ("-1h", None),
            ("h", None),
            ("1d", None),
            ("1h ", None),
            ("1.2.3s", None),
            ("ä", None),
        ] {
            assert_eq!(parse(text), stay, "{text:?}");
        }
    }

    #[test]
    fn the_word_of_the_node_counts_more_than_that_of_its_pool() {
        let map = |value: Option<&str>| {
            value.map(|value| (AUTONOMY_DURATION.to_owned(), value.to_owned())).into_iter().collect()
        };
        let stay = |own, pool| stay(&NodeMeta { own: map(own), pool: map(pool) });
        assert_eq!(stay(None, None), Ok(None));
        assert_eq!(stay(None, Some("1h")), Ok(Some(Stay::Seconds(3600))));
        assert_eq!(stay(Some("0"), Some("1h")), Ok(Some(Stay::Forever)));
        assert!(stay(Some("x"), Some("1h")).is_err());
    }
}
