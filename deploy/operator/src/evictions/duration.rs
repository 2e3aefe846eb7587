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

/// A duration as Go writes it: `1h30m`, `90s`, `1.5h`. Less than a second counts as one. No time is no limit, as in OpenYurt.
fn parse(text: &str) -> Option<Stay> {
    let time = weir_kube::duration(text)?;
    let seconds = i64::try_from(time.as_secs()).ok()? + i64::from(time.subsec_nanos() > 0);
    Some(if seconds == 0 { Stay::Forever } else { Stay::Seconds(seconds) })
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
            // Go refuses it, too: it is longer than its longest duration.
            ("99999999999999999999h", None),
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
