//! `weir explain`: why a client component sees an object as it does, from the daemon of this node, or for any node from the
//! objects of the cluster.

mod object;

use std::io::Write as _;
use std::time::Duration;

use http::{Method, Request, Uri};
use kube::Client;
use kube::config::AuthInfo;
use serde_json::Value;

use self::object::ObjectPath;
use super::CommandError;
use super::run::document;
use super::site::Site;
use super::workbench::block_on;
use crate::config::operator::{ExplainFlags, OutputFormat};
use crate::explanation::{Subject, of_node, write_text};
use weir_kube::{RequestInfo, VerbClass};
use weir_process::WatchedFiles;
use weir_runtime::FilterSet;
use weir_upstream::{ServerSource, error_report};

/// How long the daemon may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Where a pod has the token of its service account.
const POD_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Asks the daemon and prints its explanation.
///
/// # Errors
/// The daemon cannot be reached, or refuses: the object does not exist, or the user may not read it.
pub fn explain(flags: &ExplainFlags) -> Result<(), CommandError> {
    let object = ObjectPath::of(&flags.object, flags.name.as_deref(), flags.namespace.as_deref())?;
    let explained = block_on(async {
        match &flags.node {
            Some(node) => in_cluster(flags, node, object).await,
            None => by_daemon(flags, object).await,
        }
    })?;
    let text = match flags.output {
        OutputFormat::Json => format!("{explained:#}\n"),
        OutputFormat::Text => write_text(&explained),
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(CommandError::System)
}

/// Asks the daemon of this node.
async fn by_daemon(flags: &ExplainFlags, object: ObjectPath) -> Result<Value, CommandError> {
    let admin = AdminPort::connect(flags).await?;
    let path = match object {
        ObjectPath::Known(path) => path,
        ObjectPath::OfUnknownVersion(object) => object.path_in(&admin.get("/caches").await?)?,
    };
    let component = percent_encoding::utf8_percent_encode(&flags.component, percent_encoding::NON_ALPHANUMERIC);
    admin.get(&format!("/explain{path}?component={component}")).await
}

/// Runs the filters in force for another node, on the objects of the cluster.
async fn in_cluster(flags: &ExplainFlags, node: &str, object: ObjectPath) -> Result<Value, CommandError> {
    let site = Site::connect(&flags.site, node).await?;
    let path = match object {
        ObjectPath::Known(path) => path,
        ObjectPath::OfUnknownVersion(object) => object.path_in(&Value::Null)?,
    };
    let invalid = |reason: String| CommandError::invalid(&path, reason);
    let uri: Uri = path.parse().map_err(|error| invalid(format!("{error}")))?;
    let parsed = RequestInfo::parse(&Method::GET, &uri).map_err(|error| invalid(error.to_string()))?;
    let resource = parsed.resource().ok_or_else(|| invalid("not an object".to_owned()))?;
    let Some(found) = site.cluster.object(&path).await? else { return Err(invalid("not found".to_owned())) };
    let is_off = site.is_off();
    let set = match is_off {
        true => FilterSet::new(Vec::new()),
        false => site.load("the configuration in force", &site.configuration().await?).await?,
    };
    let chain = set.chain(&flags.component, &resource.resource, VerbClass::Read);
    let subject = Subject {
        object: resource,
        component: &flags.component,
        read_from: "API server",
        sent: None,
        offline_since: None,
        set: Some(&set),
        seen: None,
    };
    let explained = subject.explain(&document(&found), chain.as_ref()).await.map_err(invalid)?;
    Ok(of_node(explained, node, is_off))
}

/// The admin port of the daemon of this node.
struct AdminPort {
    client: Client,
    address: String,
    /// Whose credential is sent.
    credential: String,
}

impl AdminPort {
    /// Connects with the user's own credential: that of `--token-file` or `--kubeconfig`, else that of the pod. Without one the
    /// daemon decides by the uid.
    async fn connect(flags: &ExplainFlags) -> Result<Self, CommandError> {
        let address = flags.admin.address().to_string();
        let url: Uri = format!("http://{address}")
            .parse()
            .map_err(|error| CommandError::invalid("--admin-address", format!("{address}: {error}")))?;
        let mut config = kube::Config::new(url.clone());
        // An answer that asks for patience is the answer.
        config.default_retry = false;
        // The port has no TLS: an image without the system's CAs will do.
        config.root_cert = Some(Vec::new());
        let credential;
        let pod_token = || Some(POD_TOKEN.into()).filter(|file: &std::path::PathBuf| file.exists());
        match (&flags.token_file, &flags.site.kubeconfig) {
            (None, Some(file)) => {
                let invalid = |reason: String| CommandError::invalid(file.display(), reason);
                let loaded = ServerSource::Kubeconfig(file.clone()).load(&WatchedFiles::default()).await;
                config.auth_info = loaded.map_err(|error| invalid(error_report(&error)))?.config.auth_info;
                let has_token = config.auth_info.token.is_some();
                let AuthInfo { client_certificate_data, client_certificate, .. } = &config.auth_info;
                if !has_token && (client_certificate_data.is_some() || client_certificate.is_some()) {
                    return Err(invalid(
                        "its user has a client certificate, which cannot be sent to the admin port: give --token-file, or --node to \
                         explain without the daemon"
                            .to_owned(),
                    ));
                }
                credential = format!("the credential of {}", file.display());
            }
            (file, _) => {
                let file = file.clone().or_else(pod_token);
                credential = match &file {
                    Some(file) => format!("the token in {}", file.display()),
                    None => "no credential but the uid".to_owned(),
                };
                config.auth_info.token_file = file.map(|file| file.display().to_string());
            }
        }
        let client = Client::try_from(config).map_err(|error| CommandError::invalid(&address, error_report(&error)))?;
        Ok(Self { client, address, credential })
    }

    async fn get(&self, path: &str) -> Result<Value, CommandError> {
        let failed = |reason: String| CommandError::invalid(format!("the daemon at {}", self.address), reason);
        let request = Request::get(path).body(Vec::new()).map_err(|error| failed(error.to_string()))?;
        let answer = tokio::time::timeout(TIMEOUT, self.client.request(request)).await;
        match answer.map_err(|_| failed(format!("no answer within {TIMEOUT:?}")))? {
            Ok(found) => Ok(found),
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => {
                let reason = format!("{} (asked with {})", status.message.trim(), self.credential);
                Err(CommandError::invalid(path_of(path), reason))
            }
            // The daemon's own messages are plain text.
            Err(kube::Error::Api(status)) => Err(CommandError::invalid(path_of(path), status.message.trim())),
            Err(error) => Err(failed(error_report(&error))),
        }
    }
}

/// The path without what the user did not ask for.
fn path_of(path: &str) -> &str {
    path.trim_start_matches("/explain").split('?').next().unwrap_or_default()
}
