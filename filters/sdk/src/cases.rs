//! Test cases as data files: an input object and its expected outcome. The same file runs natively, through one line in
//! the filter's crate ([`macro@crate::cases`]), and in the host with the built module.
//!
//! A case file is YAML or JSON:
//!
//! ```yaml
//! node: {name: edge-1}               # the node that the filter sees
//! cluster: []                        # complete objects that lookups return
//! settings: {annotation: example.com/hidden}
//! cases:
//!   - name: a marked service is hidden
//!     rule: 1                        # the rule that the case tests, for the reader
//!     input: {apiVersion: v1, kind: Service, metadata: {name: a, annotations: {example.com/hidden: "true"}}}
//!     expect: hidden                 # unchanged | hidden | object: {…} | error: text | configureError: text
//! ```
//!
//! A file may also contain the expected plan for its settings: `plan: {matches: […], lookups: [{resource: …, …}]}`.
//!
//! The `settings`, `node` (key by key) and `cluster` of a case override those of the file. If `input` is a string, it is
//! used as the object's bytes. `unchanged` compares byte for byte. An expected error is a part of the message.
//!
//! Each case of a built-in kind also runs in protobuf, and must have the same outcome. A case that protobuf cannot encode,
//! such as one with an unknown field, runs in JSON only. At least one case of a filter must run in protobuf.

mod outcome;
mod protobuf;
mod run;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use weir_document::Document;

use crate::native::{Environment, Node};
use crate::node::{Address, Endpoint};
use crate::{Lookup, Plan};

pub use outcome::{CaseOutcome, compare_plans};
pub use protobuf::{Coverage, ProtobufInput};
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
    /// The cases in the order of the file.
    #[serde(default)]
    pub cases: Vec<Case>,
}

/// The expected plan for the file's settings and node.
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
    /// The name, a sentence on what the case shows.
    pub name: String,
    /// The rule that the case tests: the number of one of the filter's rules, or words.
    rule: Value,
    #[serde(default)]
    settings: Option<Value>,
    #[serde(default)]
    node: NodeSpec,
    #[serde(default)]
    cluster: Option<Vec<Value>>,
    #[serde(default)]
    input: Value,
    /// The expected outcome.
    pub expect: Expect,
}

/// An expected outcome.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Expect {
    /// The input, byte for byte.
    Unchanged,
    /// The filter hides the object.
    Hidden,
    /// An object equal to this one, in any order of members.
    Object(Value),
    /// The filter rejects its settings with a message that contains this text.
    ConfigureError(String),
    /// The filter fails on the object with a message that contains this text.
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

/// The reason why case files cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaseError {
    /// The folder or a file in it cannot be read.
    #[error("{}", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file is not a valid case file.
    #[error("{}: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The folder contains no case file.
    #[error("{}: no case files", path.display())]
    None {
        /// The folder.
        path: PathBuf,
    },
}

impl CaseFile {
    /// Reads the case files of a folder (`.yaml`, `.yml`, `.json`), sorted by name.
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

    /// Reads one case file.
    pub fn read(path: &Path) -> Result<Self, CaseError> {
        let text = std::fs::read_to_string(path).map_err(|source| CaseError::Io { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|reason| CaseError::Format { path: path.to_owned(), reason })
    }

    /// Parses the text of a case file. The error gives the reason.
    pub fn parse(text: &str) -> Result<Self, String> {
        // Converted to JSON first, so that objects keep their order and enums have the same syntax in both formats.
        let value = weir_kube::yaml_document(text)?;
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    /// Returns the settings of a case as JSON text.
    pub fn settings(&self, case: &Case) -> String {
        settings(case.settings.as_ref().or(self.settings.as_ref()))
    }

    /// Returns the objects of a case's cluster as JSON text.
    pub fn cluster<'a>(&'a self, case: &'a Case) -> impl Iterator<Item = String> + 'a {
        case.cluster.as_ref().unwrap_or(&self.cluster).iter().map(Value::to_string)
    }

    /// Returns the environment of a case.
    pub fn environment(&self, case: &Case) -> Environment {
        Environment {
            node: self.node.overridden(&case.node),
            cluster: self.cluster(case).map(|json| Document::json(Bytes::from(json))).collect(),
        }
    }

    /// Returns the expected plan of the file, with the settings and the environment for it.
    pub fn plan(&self) -> Option<(Plan, String, Environment)> {
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
        let environment = Environment { node: self.node.overridden(&NodeSpec::default()), cluster: Vec::new() };
        Some((plan, settings(self.settings.as_ref()), environment))
    }
}

fn settings(settings: Option<&Value>) -> String {
    settings.map_or_else(|| "{}".to_owned(), Value::to_string)
}

impl NodeSpec {
    /// Returns the node, overridden key by key with `own`.
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
    /// Returns the rule that the case tests.
    pub fn rule(&self) -> String {
        self.rule.as_str().map_or_else(|| self.rule.to_string(), str::to_owned)
    }

    /// Returns the bytes of the input object.
    pub fn input(&self) -> Bytes {
        Bytes::from(self.input.as_str().map_or_else(|| self.input.to_string(), str::to_owned))
    }
}
