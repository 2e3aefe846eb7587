//! `weir-operator remove-finalizers`: takes the operator's finalizer from all YurtIngresses, for a cluster without an operator.
//!
//! The finalizer keeps a YurtIngress until the operator has deleted its objects. Without an operator, no deletion would end. The
//! objects have the YurtIngress as their owner, so that the cluster's garbage collector deletes them with it. Finalizers of others
//! stay: each patch is for the version that was read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use kube::api::{ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::api::YurtIngress;
use crate::client::{client, cluster};
use crate::config::RemoveFinalizersFlags;
use crate::health::{explain, report};
use crate::ingress::FINALIZER;
use crate::metrics::Metrics;

/// The longest time of a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How often all YurtIngresses are read while others change them.
const ROUNDS: usize = 5;
/// The time between two rounds: an operator that still runs puts the finalizer back within it.
const PAUSE: Duration = Duration::from_secs(3);

/// What was done, a line for each YurtIngress that had the finalizer.
#[derive(Debug, Default)]
pub struct FinalizerRemoval {
    lines: Vec<String>,
    /// YurtIngresses in the cluster.
    all: usize,
}

/// Why a YurtIngress may still have the finalizer.
#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    /// There is no configuration of a cluster, or it cannot be used.
    #[error("the configuration of the cluster: {0}")]
    Cluster(String),
    /// The API server does not answer.
    #[error("{0}")]
    NoAnswer(String),
    /// The YurtIngresses cannot be listed.
    #[error("cannot list YurtIngresses: {0}")]
    List(String),
    /// Some were not changed. What was done before is the first part.
    #[error("these YurtIngresses have the finalizer {} still, run the command again: {}", FINALIZER, .1.join("; "))]
    Remaining(FinalizerRemoval, Vec<String>),
}

impl fmt::Display for FinalizerRemoval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "{} of {} YurtIngresses had the finalizer {FINALIZER}", self.lines.len(), self.all)
    }
}

/// Takes the finalizer from the YurtIngresses of the cluster.
///
/// # Errors
/// The cluster cannot be reached, or permits it not.
pub async fn remove_finalizers(flags: &RemoveFinalizersFlags) -> Result<FinalizerRemoval, RemovalError> {
    let cluster = cluster(&flags.cluster).await.map_err(RemovalError::Cluster)?;
    let client = client(&cluster.config, None, &Metrics::default());
    let removed = remove_in(client.map_err(|error| RemovalError::Cluster(report(&error)))?).await;
    removed.map_err(|error| match error {
        RemovalError::NoAnswer(reason) => RemovalError::NoAnswer(format!("{}: {reason}", cluster.no_answer())),
        error => error,
    })
}

async fn remove_in(client: Client) -> Result<FinalizerRemoval, RemovalError> {
    // Without their specs: those of OpenYurt's own definition have other fields.
    let api: Api<YurtIngress> = Api::all(client);
    let mut removal = FinalizerRemoval::default();
    let (mut remaining, mut released) = (BTreeMap::new(), BTreeSet::new());
    // The last one only looks.
    for round in 0..=ROUNDS {
        if round > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        let parameters = ListParams::default();
        let listed = match within(api.list_metadata(&parameters)).await {
            Ok(listed) => listed.items,
            Err(RequestError::Api(kube::Error::Api(status))) if status.code == 404 => Vec::new(),
            Err(error @ (RequestError::Late | RequestError::Api(kube::Error::Service(_)))) if round == 0 => {
                return Err(RemovalError::NoAnswer(error.to_string()));
            }
            Err(error) if round == 0 => return Err(RemovalError::List(error.to_string())),
            Err(error) => return Err(RemovalError::Remaining(removal, vec![format!("cannot look again: {error}")])),
        };
        removal.all = removal.all.max(listed.len());
        let before = std::mem::take(&mut remaining);
        let mut look_again = false;
        for ingress in listed.iter().filter(|ingress| has_finalizer(ingress)) {
            if released.contains(&ingress.uid()) {
                remaining.insert(ingress.name_any(), "an operator that still runs has put it back".to_owned());
                continue;
            }
            if round == ROUNDS {
                let reason = before.get(&ingress.name_any()).map_or("it is new", String::as_str);
                remaining.insert(ingress.name_any(), reason.to_owned());
                continue;
            }
            match within(release(&api, ingress)).await {
                Ok(others) => {
                    removal.lines.push(line(ingress, &others));
                    released.insert(ingress.uid());
                    look_again = true;
                }
                Err(RequestError::Api(kube::Error::Api(status))) if status.code == 404 => {}
                Err(error) => {
                    look_again |= matches!(&error, RequestError::Api(kube::Error::Api(status)) if status.code == 409);
                    remaining.insert(ingress.name_any(), error.to_string());
                }
            }
        }
        if !look_again {
            break;
        }
    }
    if remaining.is_empty() {
        return Ok(removal);
    }
    let remaining = remaining.into_iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
    Err(RemovalError::Remaining(removal, remaining))
}

fn has_finalizer(ingress: &PartialObjectMeta<YurtIngress>) -> bool {
    ingress.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// Takes the finalizer from one YurtIngress, if it is as it was read. Returns the finalizers of others.
async fn release(api: &Api<YurtIngress>, ingress: &PartialObjectMeta<YurtIngress>) -> Result<Vec<String>, kube::Error> {
    let others: Vec<_> = ingress.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).cloned().collect();
    let patch = json!({"metadata": {
        "uid": ingress.uid(),
        "resourceVersion": ingress.resource_version(),
        "finalizers": others,
    }});
    let _ = api.patch_metadata(&ingress.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(others)
}

fn line(ingress: &PartialObjectMeta<YurtIngress>, others: &[String]) -> String {
    let mut line = format!("yurtingress/{}: finalizer removed", ingress.name_any());
    if !others.is_empty() {
        line += &format!(", others stay: {}", others.join(", "));
    }
    if ingress.metadata.deletion_timestamp.is_some() {
        line += "; it is being deleted, and the garbage collector deletes its ingress controllers";
    }
    line
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("{}", said(.0))]
    Api(kube::Error),
    #[error("no response within {} s", TIMEOUT.as_secs())]
    Late,
}

fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            format!("it takes the verbs list and patch of yurtingresses.apps.openyurt.io: {}", status.message)
        }
        error => explain(error),
    }
}

async fn within<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, RequestError> {
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(result) => result.map_err(RequestError::Api),
        Err(_) => Err(RequestError::Late),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::Method;
    use serde_json::Value;

    use super::*;
    use crate::fake_server::{self, Reply};

    /// The YurtIngresses of a server, by name: version and finalizers.
    type Stored = Arc<Mutex<Vec<(String, u64, Vec<String>)>>>;

    fn stored(ingresses: &[(&str, &[&str])]) -> Stored {
        let owned = |finalizers: &[&str]| finalizers.iter().map(|&name| name.to_owned()).collect();
        Arc::new(Mutex::new(ingresses.iter().map(|(name, own)| ((*name).to_owned(), 1, owned(own))).collect()))
    }

    fn shown((name, version, finalizers): &(String, u64, Vec<String>)) -> Value {
        let metadata =
            json!({"name": name, "uid": name, "resourceVersion": version.to_string(), "finalizers": finalizers});
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata})
    }

    fn failure(code: u16, message: &str) -> Reply {
        let status =
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code});
        Reply::Json(code, status)
    }

    /// A client of the server. `before` runs before each patch.
    fn client_of(stored: &Stored, before: impl Fn(&mut (String, u64, Vec<String>)) + Clone + Send + 'static) -> Client {
        let stored = stored.clone();
        fake_server::client(move |(method, path, body)| {
            let mut ingresses = stored.lock().unwrap();
            if method == Method::GET {
                let items: Vec<_> = ingresses.iter().map(shown).collect();
                let kind = "PartialObjectMetadataList";
                return Reply::Json(
                    200,
                    json!({"apiVersion": "meta.k8s.io/v1", "kind": kind, "metadata": {}, "items": items}),
                );
            }
            assert_eq!(*method, Method::PATCH);
            let name = path.rsplit('/').next().unwrap().trim_end_matches('?');
            let ingress = ingresses.iter_mut().find(|ingress| ingress.0 == name).unwrap();
            before(ingress);
            let metadata = &body["metadata"];
            let is_current = metadata["resourceVersion"].as_str() == Some(ingress.1.to_string().as_str());
            if !is_current || metadata["uid"] != ingress.0 {
                return failure(409, "the object has been modified");
            }
            ingress.1 += 1;
            let finalizers = metadata["finalizers"].as_array().unwrap().iter();
            ingress.2 = finalizers.map(|name| name.as_str().unwrap().to_owned()).collect();
            Reply::Json(200, shown(ingress))
        })
    }

    fn left(stored: &Stored) -> Vec<(String, u64, Vec<String>)> {
        stored.lock().unwrap().clone()
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_operators_own_finalizer_is_removed() {
        const OTHER: &str = "ingress.operator.openyurt.io";
        let stored = stored(&[("a", &[FINALIZER]), ("b", &[OTHER, FINALIZER, "x.y/z"]), ("c", &[OTHER]), ("d", &[])]);
        let removal = remove_in(client_of(&stored, |_| {})).await.unwrap();
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let expected =
            [("a", 2, names(&[])), ("b", 2, names(&[OTHER, "x.y/z"])), ("c", 1, names(&[OTHER])), ("d", 1, names(&[]))];
        assert_eq!(left(&stored), expected.map(|(name, version, names)| (name.to_owned(), version, names)));
        let text = removal.to_string();
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "yurtingress/a: finalizer removed",
                "yurtingress/b: finalizer removed, others stay: ingress.operator.openyurt.io, x.y/z",
                "2 of 4 YurtIngresses had the finalizer weir.openyurt.io/ingress-controllers",
            ]
        );
        let again = remove_in(client_of(&stored, |_| unreachable!("nothing is patched"))).await.unwrap();
        assert!(again.to_string().starts_with("0 of 4 "), "{again}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_finalizer_that_another_adds_this_moment_stays() {
        let stored = stored(&[("a", &[FINALIZER])]);
        let adds = |ingress: &mut (String, u64, Vec<String>)| {
            if ingress.1 == 1 {
                ingress.1 = 2;
                ingress.2.push("x.y/z".to_owned());
            }
        };
        let removal = remove_in(client_of(&stored, adds)).await.unwrap();
        assert!(removal.to_string().contains("yurtingress/a: finalizer removed, others stay: x.y/z"), "{removal}");
        assert_eq!(left(&stored), [("a".to_owned(), 3, vec!["x.y/z".to_owned()])]);
    }

    /// Its Deployment is gone, its pod not yet.
    #[tokio::test(start_paused = true)]
    async fn an_operator_that_still_runs_is_an_error() {
        let running = fake_server::client(|(method, ..)| {
            let ingress = shown(&("a".to_owned(), 1, vec![FINALIZER.to_owned()]));
            if method == Method::PATCH {
                return Reply::Json(200, ingress);
            }
            let kind = "PartialObjectMetadataList";
            Reply::Json(200, json!({"apiVersion": "meta.k8s.io/v1", "kind": kind, "metadata": {}, "items": [ingress]}))
        });
        let error = remove_in(running).await.unwrap_err().to_string();
        assert!(error.ends_with("run the command again: a: an operator that still runs has put it back"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_that_still_runs_is_an_error_after_the_last_round_too() {
        let patches = Arc::new(Mutex::new(0));
        let running = fake_server::client(move |(method, ..)| {
            let ingress = shown(&("a".to_owned(), 1, vec![FINALIZER.to_owned()]));
            if method == Method::PATCH {
                let mut patches = patches.lock().unwrap();
                *patches += 1;
                let is_last = *patches == ROUNDS;
                return if is_last { Reply::Json(200, ingress) } else { failure(409, "the object has been modified") };
            }
            let kind = "PartialObjectMetadataList";
            Reply::Json(200, json!({"apiVersion": "meta.k8s.io/v1", "kind": kind, "metadata": {}, "items": [ingress]}))
        });
        let error = remove_in(running).await.unwrap_err().to_string();
        assert!(error.ends_with("a: an operator that still runs has put it back"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_could_not_be_removed_is_an_error_with_its_reason() {
        // Somebody writes it before each patch.
        let stored = stored(&[("a", &[FINALIZER])]);
        let error = remove_in(client_of(&stored, |ingress| ingress.1 += 1)).await.unwrap_err();
        assert!(error.to_string().ends_with("run the command again: a: the object has been modified"), "{error}");
        assert_eq!(left(&stored)[0].1, 6, "it gives up");

        let forbidden = fake_server::client(|_| failure(403, "yurtingresses is forbidden"));
        let error = remove_in(forbidden).await.unwrap_err().to_string();
        let expected = "cannot list YurtIngresses: it takes the verbs list and patch of yurtingresses.apps.openyurt.io: \
                        yurtingresses is forbidden";
        assert_eq!(error, expected);
        // The caller names the server.
        let refused = remove_in(fake_server::client(|_| Reply::Refused)).await.unwrap_err();
        assert!(matches!(refused, RemovalError::NoAnswer(_)), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_ends_the_command() {
        let error = remove_in(fake_server::client(|_| Reply::Silence)).await.unwrap_err();
        assert!(matches!(&error, RemovalError::NoAnswer(reason) if reason == "no response within 30 s"), "{error}");
    }

    /// Its definition was deleted, and with it all YurtIngresses.
    #[tokio::test]
    async fn a_cluster_without_the_definition_has_nothing_to_do() {
        let removal = remove_in(fake_server::client(|_| failure(404, "not found"))).await.unwrap();
        assert!(removal.to_string().starts_with("0 of 0 "), "{removal}");
    }
}
