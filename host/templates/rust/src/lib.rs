//! Hides objects that have an annotation with the value `true`.

use serde::Deserialize;
use weir_filter::{Error, Filter, Object, Plan, Verdict};

/// The settings are the filter: it needs nothing else.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HideMarked {
    annotation: String,
}

impl Filter for HideMarked {
    type Settings = Self;

    fn configure(settings: Self) -> Result<Self, Error> {
        Ok(settings)
    }

    fn plan(&self) -> Plan {
        Plan::matching(["kube-proxy/services#get;list;watch"])
    }

    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
        let hidden = object.annotation(&self.annotation).is_some_and(|value| value == "true");
        Ok(if hidden { Verdict::Hide } else { Verdict::Keep })
    }
}

weir_filter::export!(HideMarked);
weir_filter::cases!(HideMarked);
