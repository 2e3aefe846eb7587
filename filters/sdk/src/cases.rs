//! Cases as data: what a filter does to an object, in a file. The same file runs natively, with one line in the
//! filter's crate ([`macro@crate::cases`]), and through the built module in the host.
//!
//! A case file is YAML or JSON:
//!
//! ```yaml
//! node: {name: edge-1}               # what the filter can ask of the node
//! cluster: []                        # whole objects that lookups find
//! settings: {annotation: example.com/hidden}
//! cases:
//!   - name: a marked service is hidden
//!     rule: 1                        # the rule it keeps, for the reader
//!     input: {apiVersion: v1, kind: Service, metadata: {name: a, annotations: {example.com/hidden: "true"}}}
//!     expect: hidden                 # unchanged | hidden | object: {…} | error: text | configureError: text
//! ```
//!
//! A file may also say the plan that its settings give: `plan: {matches: […], lookups: [{resource: …, …}]}`.
//!
//! `settings`, `node` (key by key) and `cluster` of a case stand in for those of the file. An `input` that is a text is
//! taken as the object's very bytes. `unchanged` means byte for byte; the errors, that the message contains the text.
//!
//! Each case of a kind that is built in runs as protobuf too, and must come to the same. One that says what protobuf
//! cannot, such as an unknown field, is left out of that; but not all of a filter's may be.

mod judge;
mod protobuf;
mod run;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use weir_document::Document;

use crate::native::{Node, World};
use crate::node::{Address, Endpoint};
use crate::{Lookup, Plan};

pub use judge::Outcome;
pub use protobuf::{Message, Tally};
pub use run::{Failures, check};

/// A file of cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    #[serde(default)]
    node: NodeSpec,
    #[serde(default)]
    cluster: Vec<Value>,
    #[serde(default)]
    settings: Option<Value>,
    #[serde(default)]
    plan: Option<PlanSpec>,
    /// The cases, in the file's order.
    #[serde(default)]
    pub cases: Vec<Case>,
}

/// The plan of the file's settings, on the file's node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanSpec {
    matches: Vec<String>,
    lookups: Vec<LookupSpec>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct LookupSpec {
    resource: String,
    #[serde(default)]
    versions: Vec<String>,
    name: Option<String>,
    label_selector: Option<String>,
    #[serde(default)]
    metadata_only: bool,
    #[serde(default)]
    optional: bool,
}

/// One case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What it shows.
    pub name: String,
    /// The rule that it keeps: a number of the filter's rules, or words.
    rule: Value,
    #[serde(default)]
    settings: Option<Value>,
    #[serde(default)]
    node: NodeSpec,
    #[serde(default)]
    cluster: Option<Vec<Value>>,
    #[serde(default)]
    input: Value,
    /// What becomes of the input.
    pub expect: Expect,
}

/// What a case expects.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Expect {
    /// The very bytes of the input.
    Unchanged,
    /// The object does not pass.
    Hidden,
    /// An object equal to this one; the order of members does not count.
    Object(Value),
    /// The filter refuses its settings, with a message that contains this.
    ConfigureError(String),
    /// The filter fails on the object, with a message that contains this.
    Error(String),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeSpec {
    name: Option<String>,
    addresses: Option<Vec<AddressSpec>>,
    endpoint: Option<EndpointSpec>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AddressSpec {
    interface: String,
    ip: String,
    prefix_length: u8,
    #[serde(default)]
    default_route: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndpointSpec {
    host: String,
    port: u16,
}

/// Why case files cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaseError {
    /// The folder or a file in it cannot be read.
    #[error("{}", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file is no case file.
    #[error("{}: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        reason: String,
    },
    /// There is no case file in the folder.
    #[error("{}: no case files", path.display())]
    None {
        /// The folder.
        path: PathBuf,
    },
}

impl CaseFile {
    /// The case files of a folder (`.yaml`, `.yml`, `.json`), sorted by name.
    pub fn read_all(folder: &Path) -> Result<Vec<(PathBuf, Self)>, CaseError> {
        let io = |source| CaseError::Io { path: folder.to_owned(), source };
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(io)? {
            let path = entry.map_err(io)?.path();
            if path.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known))
            {
                paths.push(path);
            }
        }
        paths.sort();
        if paths.is_empty() {
            return Err(CaseError::None { path: folder.to_owned() });
        }
        paths.into_iter().map(|path| Self::read(&path).map(|file| (path, file))).collect()
    }

    /// One case file.
    pub fn read(path: &Path) -> Result<Self, CaseError> {
        let text = std::fs::read_to_string(path).map_err(|source| CaseError::Io { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|reason| CaseError::Format { path: path.to_owned(), reason })
    }

    /// A case file's text, or what is wrong in it.
    pub fn parse(text: &str) -> Result<Self, String> {
        // By way of JSON, so that objects keep their order and enums read the same from both.
        let value: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    /// The settings of a case, as JSON text.
    pub fn settings(&self, case: &Case) -> String {
        settings(case.settings.as_ref().or(self.settings.as_ref()))
    }

    /// The objects of a case's cluster, as JSON text.
    pub fn cluster<'a>(&'a self, case: &'a Case) -> impl Iterator<Item = String> + 'a {
        case.cluster.as_ref().unwrap_or(&self.cluster).iter().map(Value::to_string)
    }

    /// The world of a case.
    pub fn world(&self, case: &Case) -> World {
        World {
            node: self.node.overridden(&case.node),
            cluster: self.cluster(case).map(|json| Document::json(Bytes::from(json))).collect(),
        }
    }

    /// The plan that the file expects, with the settings and the node it is for.
    fn plan(&self) -> Option<(Plan, String, World)> {
        let plan = self.plan.as_ref()?;
        let lookups = plan.lookups.iter().map(|lookup| Lookup {
            resource: lookup.resource.clone(),
            versions: lookup.versions.clone(),
            name: lookup.name.clone(),
            label_selector: lookup.label_selector.clone(),
            metadata_only: lookup.metadata_only,
            optional: lookup.optional,
        });
        let plan = Plan { matches: plan.matches.clone(), lookups: lookups.collect() };
        let world = World { node: self.node.overridden(&NodeSpec::default()), cluster: Vec::new() };
        Some((plan, settings(self.settings.as_ref()), world))
    }
}

fn settings(settings: Option<&Value>) -> String {
    settings.map_or_else(|| "{}".to_owned(), Value::to_string)
}

impl NodeSpec {
    /// The node, with what `own` says instead.
    fn overridden(&self, own: &Self) -> Node {
        let addresses = own.addresses.as_ref().or(self.addresses.as_ref());
        let addresses = addresses.into_iter().flatten().map(|address| Address {
            interface_name: address.interface.clone(),
            ip: address.ip.clone(),
            prefix_length: address.prefix_length,
            default_route: address.default_route,
        });
        let endpoint = own.endpoint.as_ref().or(self.endpoint.as_ref());
        Node {
            name: own.name.as_ref().or(self.name.as_ref()).cloned().unwrap_or_default(),
            addresses: addresses.collect(),
            endpoint: endpoint.map(|endpoint| Endpoint { host: endpoint.host.clone(), port: endpoint.port }),
        }
    }
}

impl Case {
    /// The rule that it keeps.
    pub fn rule(&self) -> String {
        self.rule.as_str().map_or_else(|| self.rule.to_string(), str::to_owned)
    }

    /// The bytes of the object that goes in.
    pub fn input(&self) -> Bytes {
        Bytes::from(self.input.as_str().map_or_else(|| self.input.to_string(), str::to_owned))
    }
}

/// An error with its sources.
fn told(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        message = format!("{message}: {error}");
        source = error.source();
    }
    message
}
