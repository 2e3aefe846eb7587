//! Parses how a filter is rolled out: `nodes` and `rollback`.

use std::time::Duration;

use weir_kube::{LabelSelector, duration};
use weir_spec::{NodeSelection, Rollback, Share};

use super::EntryKeys;
use crate::config::keys::{NODE_KEYS, ROLLBACK_KEYS};

impl EntryKeys<'_> {
    /// The nodes on which a filter is active.
    pub(super) fn nodes(&mut self) -> Option<NodeSelection> {
        let (at, map) = (format!("{}.nodes", self.at), self.mapping("nodes")?);
        let mut keys = EntryKeys { at: &at, map, report: self.report };
        let labels = keys.text("labelSelector").and_then(|text| {
            let parsed = LabelSelector::parse(&text).map_err(|error| format!("{text:?}: {error}"));
            keys.report.ok(format!("{at}.labelSelector"), parsed)
        });
        let pools = keys.list::<String>("pools");
        keys.unknown(NODE_KEYS);
        Some(NodeSelection { labels, pools })
    }

    /// When a filter is taken back.
    pub(super) fn rollback(&mut self) -> Option<Rollback> {
        let (at, map) = (format!("{}.rollback", self.at), self.mapping("rollback")?);
        let mut keys = EntryKeys { at: &at, map, report: self.report };
        let failed = keys.text("failed").and_then(|text| keys.parsed::<Share, _>("failed", &text));
        let hidden = keys.text("hidden").and_then(|text| keys.parsed::<Share, _>("hidden", &text));
        let within = keys.text("within").and_then(|text| keys.report.ok(format!("{at}.within"), within(&text)));
        if failed.is_none() && hidden.is_none() {
            keys.report.add(&at, "has neither `failed` nor `hidden`: give a bound");
        }
        keys.unknown(ROLLBACK_KEYS);
        Some(Rollback { failed, hidden, within: within.unwrap_or(Rollback::WITHIN) })
    }
}

fn within(text: &str) -> Result<Duration, String> {
    let time = duration(text).filter(|time| *time > Duration::ZERO && *time <= Rollback::MAX_WITHIN);
    time.ok_or_else(|| format!("{text:?} is not a duration up to 24h, such as 10m"))
}
