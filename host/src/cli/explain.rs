//! `weir explain`: why a client component sees an object as it does, from the daemon of this node, or for any node from the
//! objects of the cluster.

mod object;

use std::io::Write as _;

use http::{Method, StatusCode, Uri};
use serde_json::Value;

use self::object::ObjectPath;
use super::CommandError;
use super::admin_port::{AdminPort, Credential};
use super::output::error_object;
use super::run::document;
use super::site::Site;
use super::workbench::block_on;
use crate::config::operator::{ExplainFlags, OutputFormat};
use crate::explanation::{Subject, of_node, write_text};
use weir_kube::{RequestInfo, VerbClass};
use weir_runtime::FilterSet;

/// Asks the daemon and prints its explanation.
///
/// # Errors
/// The daemon cannot be reached, or refuses: the object does not exist, or the user may not read it.
pub fn explain(flags: &ExplainFlags) -> Result<(), CommandError> {
    let explained = error_object(flags.output == OutputFormat::Json, block_on(explained(flags)))?;
    let text = match flags.output {
        OutputFormat::Json => format!("{explained:#}\n"),
        OutputFormat::Text => write_text(&explained, flags.verbosity > 0),
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(CommandError::System)
}

async fn explained(flags: &ExplainFlags) -> Result<Value, CommandError> {
    let object = ObjectPath::of(&flags.object, flags.name.as_deref(), flags.namespace.as_deref())?;
    match &flags.node {
        Some(node) => in_cluster(flags, node, object).await,
        None => by_daemon(flags, object).await,
    }
}

/// Asks the daemon of this node.
async fn by_daemon(flags: &ExplainFlags, object: ObjectPath) -> Result<Value, CommandError> {
    let credential = Credential::find(flags.token_file.as_deref(), flags.site.cluster.given()).await?;
    let admin = AdminPort::new(flags.admin, credential);
    let path = match object {
        ObjectPath::Known(path) => path,
        ObjectPath::OfUnknownVersion(object) => object.path_in(&read(&admin, "/caches").await?)?,
    };
    let component = percent_encoding::utf8_percent_encode(&flags.component, percent_encoding::NON_ALPHANUMERIC);
    read(&admin, &format!("/explain{path}?component={component}")).await
}

/// Runs the filters in force for another node, on the objects of the cluster.
async fn in_cluster(flags: &ExplainFlags, node: &str, object: ObjectPath) -> Result<Value, CommandError> {
    let site = Site::connect(&flags.site, node, flags.verbosity.saturating_sub(1)).await?;
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

/// What a path of the admin port has.
async fn read(admin: &AdminPort, path: &str) -> Result<Value, CommandError> {
    let answer = admin.get(path).await?;
    match answer.status {
        status if status.is_success() => serde_json::from_str(&answer.text).map_err(|error| admin.unexpected(error)),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            let reason = format!("{} (asked with {})", answer.text, admin.asked_with());
            Err(CommandError::invalid(path_of(path), reason))
        }
        _ => Err(CommandError::invalid(path_of(path), answer.text)),
    }
}

/// The path without what the user did not ask for.
fn path_of(path: &str) -> &str {
    path.trim_start_matches("/explain").split('?').next().unwrap_or_default()
}
