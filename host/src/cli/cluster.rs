//! Reads objects of a cluster with the user's own credential.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::time::Duration;

use http::{Request, Uri};
use kube::Client;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::CommandError;
use crate::config::cluster::ClusterFlags;
use weir_kube::GroupResource;
use weir_kubeconfig::{ConfigError, KubeconfigFiles};
use weir_process::WatchedFiles;
use weir_runtime::RawLookup;
use weir_upstream::{ServerSource, SourceError, error_report};

/// The objects of one page.
const PAGE: usize = 500;
/// The longest time of a request. A page of large objects takes long over a slow link.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A cluster.
pub(super) struct Cluster {
    client: Client,
    /// The API server, and the kubeconfig that names it.
    server: Uri,
    files: KubeconfigFiles,
}

/// What to read.
pub(super) struct Wanted<'a> {
    pub(super) resource: GroupResource,
    /// The versions of its group that will do; none: the one that the server prefers.
    versions: &'a [String],
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    label_selector: Option<&'a str>,
    is_metadata_only: bool,
    is_optional: bool,
}

impl<'a> Wanted<'a> {
    /// All objects of a resource, in a namespace or in all of them.
    pub(super) fn all(resource: GroupResource, namespace: Option<&'a str>) -> Self {
        Self {
            resource,
            versions: &[],
            namespace,
            name: None,
            label_selector: None,
            is_metadata_only: false,
            is_optional: false,
        }
    }

    /// What a filter looks up.
    pub(super) fn of(lookup: &'a RawLookup) -> Result<Self, CommandError> {
        let resource = lookup.resource.parse();
        let resource = resource.map_err(|error| CommandError::invalid(&lookup.resource, format!("{error}")))?;
        Ok(Self {
            versions: &lookup.versions,
            name: lookup.name.as_deref(),
            label_selector: lookup.label_selector.as_deref(),
            is_metadata_only: lookup.metadata_only,
            is_optional: lookup.optional,
            ..Self::all(resource, None)
        })
    }
}

impl Cluster {
    /// Connects as the user of a kubeconfig.
    pub(super) async fn connect(flags: &ClusterFlags) -> Result<Self, CommandError> {
        let name_one = "name a kubeconfig with --kubeconfig or KUBECONFIG";
        let given = flags.given();
        let files = given.clone().or_else(|| KubeconfigFiles::of_user(std::env::var_os("HOME")));
        let files = files.ok_or_else(|| CommandError::invalid("HOME", format!("it is not set: {name_one}")))?;
        let loaded = match ServerSource::Kubeconfig(files.clone()).load(&WatchedFiles::default()).await {
            Err(SourceError::Kubeconfig(ConfigError::Unreadable { path, source }))
                if given.is_none() && source.kind() == ErrorKind::NotFound =>
            {
                return Err(CommandError::invalid(path.display(), format!("it does not exist: {name_one}")));
            }
            loaded => loaded?,
        };
        let server = loaded.config.cluster_url.clone();
        let client = Client::try_from(loaded.config);
        let client = client.map_err(|error| CommandError::invalid(&files, error_report(&error)))?;
        Ok(Self { client, server, files })
    }

    /// The client of the user.
    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Reads one object; `None` if it does not exist.
    pub(super) async fn object(&self, path: &str) -> Result<Option<Value>, CommandError> {
        match self.get(path).await {
            Ok(object) => Ok(Some(object)),
            Err(Failure::NotFound) => Ok(None),
            Err(failure) => Err(self.error(path, failure)),
        }
    }

    /// Reads objects, as an API server sends each alone, without what only the API server uses; `None` if the cluster does not serve
    /// an optional resource.
    pub(super) async fn list(&self, wanted: &Wanted<'_>) -> Result<Option<Vec<Value>>, CommandError> {
        let resource = &wanted.resource;
        if *resource == GroupResource::new("secrets", "") {
            return Err(CommandError::invalid(resource, "Secrets are not written into files"));
        }
        let Some(version) = self.version(wanted).await? else { return Ok(None) };
        let mut path = match &*resource.group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        // Writing to a String cannot fail.
        if let Some(namespace) = wanted.namespace {
            let _ = write!(path, "/namespaces/{}", encoded(namespace));
        }
        let _ = write!(path, "/{}?limit={PAGE}", resource.resource);
        if let Some(selector) = wanted.label_selector {
            let _ = write!(path, "&labelSelector={}", encoded(selector));
        }
        if let Some(name) = wanted.name {
            let _ = write!(path, "&fieldSelector={}", encoded(&format!("metadata.name={name}")));
        }
        let (mut objects, mut next) = (Vec::new(), String::new());
        loop {
            let page = match next.as_str() {
                "" => self.get(&path).await,
                next => self.get(&format!("{path}&continue={}", encoded(next))).await,
            };
            let mut page = match page {
                Err(Failure::NotFound) if wanted.is_optional => return Ok(None),
                page => page.map_err(|failure| self.error(&path, failure))?,
            };
            let text = |name: &str| page.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (api_version, kind) = (text("apiVersion"), text("kind").trim_end_matches("List").to_owned());
            next = page.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default().to_owned();
            let items = page.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
            objects.extend(items.into_iter().map(|item| alone(&api_version, &kind, item, wanted.is_metadata_only)));
            if next.is_empty() {
                return Ok(Some(objects));
            }
        }
    }

    /// The version to read; `None` if the cluster does not have an optional resource.
    async fn version(&self, wanted: &Wanted<'_>) -> Result<Option<String>, CommandError> {
        let group = &*wanted.resource.group;
        if group.is_empty() {
            return Ok(Some("v1".to_owned()));
        }
        let path = format!("/apis/{group}");
        let found = match self.get(&path).await {
            Err(Failure::NotFound) if wanted.is_optional => return Ok(None),
            found => found.map_err(|failure| self.error(&path, failure))?,
        };
        let served = found.get("versions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let is_served = |version: &&String| served.iter().any(|served| served["version"] == ***version);
        let preferred = || found.pointer("/preferredVersion/version").and_then(Value::as_str).map(str::to_owned);
        match wanted.versions.iter().find(is_served).cloned().or_else(|| wanted.versions.is_empty().then(preferred)?) {
            Some(version) => Ok(Some(version)),
            None if wanted.is_optional => Ok(None),
            None => {
                let reason = format!("the cluster serves none of its versions {}", wanted.versions.join(", "));
                Err(CommandError::invalid(&wanted.resource, reason))
            }
        }
    }

    async fn get(&self, path: &str) -> Result<Value, Failure> {
        let request = Request::get(path).body(Vec::new()).map_err(|error| Failure::Other(error.to_string()))?;
        let answer = tokio::time::timeout(TIMEOUT, self.client.request(request)).await;
        answer.map_err(|late| Failure::NoAnswer(late.into()))?.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 404 => Failure::NotFound,
            error @ kube::Error::Service(_) => Failure::NoAnswer(error.into()),
            error => Failure::Other(error_report(&error)),
        })
    }

    /// The error of a request for a path.
    fn error(&self, path: &str, failure: Failure) -> CommandError {
        match failure {
            Failure::NotFound => CommandError::invalid(path, "404: the cluster does not have it"),
            Failure::Other(reason) => CommandError::invalid(path, reason),
            Failure::NoAnswer(source) => {
                CommandError::Unreachable { server: self.server.clone(), files: self.files.clone(), source }
            }
        }
    }
}

enum Failure {
    NotFound,
    NoAnswer(Box<dyn std::error::Error + Send + Sync>),
    Other(String),
}

/// An item of a list as an object of its own.
fn alone(api_version: &str, kind: &str, mut item: Value, is_metadata_only: bool) -> Value {
    if let Some(metadata) = item.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
    }
    let mut object = json!({"apiVersion": api_version, "kind": kind});
    if let (Some(object), Value::Object(item)) = (object.as_object_mut(), item) {
        let is_kept = |key: &str| !is_metadata_only || key == "metadata";
        object.extend(item.into_iter().filter(|(key, _)| is_kept(key)));
    }
    object
}

fn encoded(text: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time is paused, and passes as soon as nothing else happens.
    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_named_with_the_kubeconfig() {
        // The system accepts the connection, and nobody reads from it.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server: Uri = format!("http://{}", silent.local_addr().unwrap()).parse().unwrap();
        let client = Client::try_from(kube::Config::new(server.clone())).unwrap();
        let files = KubeconfigFiles::from(std::path::PathBuf::from("/home/me/config"));
        let cluster = Cluster { client, server: server.clone(), files };
        let error = error_report(&cluster.object("/api/v1/nodes/a").await.unwrap_err());
        let named = format!(
            "no answer from the API server {} of the kubeconfig /home/me/config, ",
            server.to_string().trim_end_matches('/')
        );
        assert!(error.starts_with(&named) && error.contains("--kubeconfig"), "{error}");
    }
}
