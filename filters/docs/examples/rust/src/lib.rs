//! Takes endpoints on nodes under maintenance out of use: kube-proxy gets EndpointSlices without them, or with them marked
//! as not ready. A Service keeps all endpoints with the annotation `example.com/drain: ignore`.

use serde::Deserialize;
use weir_filter::{Error, Filter, Lookup, Object, Path, Plan, Verdict, cluster, log};

const DRAIN: &str = "example.com/drain";

static SERVICE: Path = Path::new("metadata.labels['kubernetes.io/service-name']");
static NAME: Path = Path::new("metadata.name");
static NODES: Path = Path::new("endpoints[*].nodeName");
static READY: Path = Path::new("endpoints[*].conditions.ready");

/// The settings. serde rejects an unknown key and a wrong type, and the error names the key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// The label of nodes under maintenance.
    node_label: String,
    #[serde(default)]
    action: Action,
}

/// What happens to an endpoint on such a node.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    #[default]
    Remove,
    Unready,
}

/// The filter: its settings, checked.
pub struct Drain {
    node_label: String,
    action: Action,
}

impl Filter for Drain {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, Error> {
        // What serde cannot check.
        if settings.node_label.is_empty() || settings.node_label.contains(',') {
            return Err(Error::setting("nodeLabel", "expected one label"));
        }
        Ok(Self { node_label: settings.node_label, action: settings.action })
    }

    fn plan(&self) -> Plan {
        Plan::matching(["kube-proxy/endpointslices#get;list;watch"])
            .with(Lookup::of("services").metadata_only())
            .with(Lookup::of("nodes").selected(&self.node_label).metadata_only())
    }

    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
        // In most clusters no node is under maintenance most of the time: the reads up to here are all that most objects
        // cost, and the daemon replays them.
        let nodes = cluster::find("nodes", None, &self.node_label);
        if nodes.count() == 0 {
            return Ok(Verdict::Keep);
        }
        if object.kind() != "EndpointSlice" {
            return Err(Error::new(format!(
                "expected an EndpointSlice, got a {}: correct the match rules",
                object.kind()
            )));
        }
        // The Service that the slice names in its label.
        let service = cluster::referent("services", object, &SERVICE);
        match service.and_then(|service| service.annotation(DRAIN)).as_deref() {
            None | Some("") => {}
            Some("ignore") => return Ok(Verdict::Keep),
            Some(other) => {
                log::warn(format!("annotation {DRAIN} of the Service: expected ignore, got {other}"));
            }
        }

        // One host call reads a whole column, and one edit changes all rows.
        let drained = nodes.column(&NAME);
        let on_drained = |node: Option<&str>| node.is_some() && drained.iter().any(|name| name == node);
        let endpoints = object.column(&NODES);
        let rows = endpoints.rows(on_drained);
        if rows.none() {
            return Ok(Verdict::Keep);
        }
        log::debug(format!("endpoints of {} are on nodes under maintenance", object.name()));
        let remaining = endpoints.rows(|node| !on_drained(node));
        match self.action {
            Action::Remove if remaining.none() => return Ok(Verdict::Hide),
            Action::Remove => object.retain(&NODES, &remaining)?,
            Action::Unready => object.set_rows(&READY, &rows, false)?,
        }
        Ok(Verdict::Keep)
    }
}

weir_filter::export!(Drain);
weir_filter::cases!(Drain);
