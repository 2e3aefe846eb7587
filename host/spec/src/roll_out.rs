//! How a filter is rolled out: what it may change, on which nodes it is active, and when it is taken back.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use weir_kube::LabelSelector;

/// The label that says to which node pool a node belongs.
const POOL_LABEL: &str = "apps.openyurt.io/nodepool";

/// Whether a filter changes what clients see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// It does.
    #[default]
    Enforce,
    /// It runs on the same objects, and what it would do is counted and logged. Clients do not notice it.
    Observe,
}

impl Mode {
    /// Returns the value in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "enforce" => Ok(Self::Enforce),
            "observe" => Ok(Self::Observe),
            other => Err(format!("{other:?} is not a mode: enforce or observe")),
        }
    }
}

/// The nodes on which a filter is active. All given conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeSelection {
    /// A selector of the node's labels.
    pub labels: Option<LabelSelector>,
    /// The node pools, by name. None: any, or none.
    pub pools: Option<Vec<String>>,
}

impl NodeSelection {
    /// Returns whether a node with these labels is selected.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let pool = labels.get(POOL_LABEL);
        self.labels.as_ref().is_none_or(|selector| selector.matches(|key| labels.get(key)))
            && self.pools.as_ref().is_none_or(|pools| pool.is_some_and(|pool| pools.contains(pool)))
    }
}

/// A share of objects, in hundredths of a percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

/// The share of everything.
const WHOLE: u32 = 10_000;

impl Share {
    /// Returns the share of `part` in `all`; nothing of nothing.
    #[must_use]
    pub fn of(part: u64, all: u64) -> Self {
        let share = u128::from(part) * u128::from(WHOLE) / u128::from(all.max(1));
        Self(u32::try_from(share).unwrap_or(WHOLE).min(WHOLE))
    }

    /// Returns the sum of two shares, at most everything.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self((self.0 + other.0).min(WHOLE))
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is not a percentage from 0% to 100%, such as 5% or 0.5%");
        let number = text.strip_suffix('%').ok_or_else(invalid)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
        if whole.is_empty() || whole.len() > 3 || fraction.len() > 2 || !is_number(whole) || !is_number(fraction) {
            return Err(invalid());
        }
        let whole: u32 = whole.parse().map_err(|_| invalid())?;
        let hundredths: u32 = format!("{fraction:0<2}").parse().map_err(|_| invalid())?;
        Some(whole * 100 + hundredths).filter(|share| *share <= WHOLE).map(Self).ok_or_else(invalid)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, hundredths) = (self.0 / 100, self.0 % 100);
        match hundredths {
            0 => write!(f, "{whole}%"),
            _ => write!(f, "{}%", format!("{whole}.{hundredths:02}").trim_end_matches('0')),
        }
    }
}

/// When a new filter is taken back: the bounds of what it may do in its first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rollback {
    /// The share of objects that it may fail on. None: any.
    pub failed: Option<Share>,
    /// The share of objects that it may hide beyond those that the filter of this name hid before it. None: any.
    pub hidden: Option<Share>,
    /// How long the bounds hold after it became active.
    pub within: Duration,
}

impl Rollback {
    /// How long the bounds hold unless the configuration says otherwise.
    pub const WITHIN: Duration = Duration::from_secs(300);
    /// The longest time for which they may hold.
    pub const MAX_WITHIN: Duration = Duration::from_secs(24 * 3600);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages() {
        for (text, shown) in [("0%", "0%"), ("5%", "5%"), ("0.5%", "0.5%"), ("12.25%", "12.25%"), ("100.00%", "100%")] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), shown);
        }
        for text in ["", "%", "5", "-1%", "101%", "100.01%", "1.234%", "1e2%", " 5%", "٣%", ".5%", "0000%"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
        assert_eq!(Share::of(1, 3).to_string(), "33.33%");
        assert_eq!(Share::of(0, 0).to_string(), "0%");
        assert_eq!(Share::of(u64::MAX, 1), Share::of(1, 1));
        assert!("5%".parse::<Share>().unwrap() < Share::of(51, 1000));
        assert_eq!(Share::of(2, 3).plus(Share::of(2, 3)).to_string(), "100%");
    }

    #[test]
    fn a_node_is_selected_by_all_conditions() {
        let node =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let (a, b, none) = (
            node(&[(POOL_LABEL, "hangzhou"), ("canary", "yes")]),
            node(&[(POOL_LABEL, "beijing"), ("canary", "yes")]),
            node(&[]),
        );
        let pool = NodeSelection { pools: Some(vec!["hangzhou".into()]), ..NodeSelection::default() };
        let canary = NodeSelection { labels: Some(LabelSelector::parse("canary=yes").unwrap()), pools: None };
        let both = NodeSelection { pools: pool.pools.clone(), ..canary.clone() };
        let selected = |of: &NodeSelection| [&a, &b, &none].map(|labels| of.selects(labels));
        assert_eq!(selected(&NodeSelection::default()), [true; 3]);
        assert_eq!(selected(&pool), [true, false, false]);
        assert_eq!(selected(&canary), [true, true, false]);
        assert_eq!(selected(&both), [true, false, false]);
        assert_eq!(selected(&NodeSelection { pools: Some(Vec::new()), labels: None }), [false; 3]);
    }
}
