//! Clients that record what they are sent: each lists and watches, or begins with the state, is cut off, and continues from
//! its last event or bookmark.

use serde_json::{Value, json};
use tokio::sync::watch;
use weir_tests::client::{Client, Events};
use weir_tests::protobuf::{self, Frames, PROTOBUF};
use weir_tests::watch_history::{Event, Session, Step, Viewer, version};

use super::{Random, SERVICES};

const JSON: &str = "application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// How far the writer may be ahead before a slow client takes its next event.
const SLOW: u64 = 400;

/// How far the writer is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    /// The version of the last write.
    pub(super) written: u64,
    /// Whether it was the last one.
    pub(super) ended: bool,
}

/// How a client begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begin {
    List,
    WatchList,
}

/// How a client reads its watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// Each watch is cut off after some events.
    Cut,
    /// Each watch ends after its timeout, with a BOOKMARK before.
    Timeout,
    /// Events are read late.
    Slow,
}

/// A client.
pub(super) struct Recorder {
    component: &'static str,
    path: &'static str,
    selector: &'static str,
    selects: fn(&Value) -> bool,
    accept: &'static str,
    begin: Begin,
    habit: Habit,
}

/// What a client counted.
#[derive(Debug, Default)]
pub(super) struct Counts {
    lists: u64,
    watches: u64,
    events: u64,
    bookmarks: u64,
    expired: u64,
    broken: u64,
}

/// All clients.
pub(super) fn all() -> Vec<Recorder> {
    use {Begin::List, Begin::WatchList, Habit::Cut, Habit::Slow, Habit::Timeout};
    let everything = |_: &Value| true;
    let apps = "/api/v1/namespaces/apps/services";
    let of = |component, path, selector, selects, accept, (begin, habit)| Recorder {
        component,
        path,
        selector,
        selects,
        accept,
        begin,
        habit,
    };
    vec![
        of("kube-proxy", SERVICES, "", everything, JSON, (List, Cut)),
        of("kube-proxy", SERVICES, "", everything, PROTOBUF, (WatchList, Cut)),
        of("kube-proxy", SERVICES, "labelSelector=tier%3Da", |o| label(o, "tier") == "a", JSON, (List, Cut)),
        of("kube-proxy", SERVICES, "labelSelector=tier!%3Da", |o| label(o, "tier") != "a", METADATA, (WatchList, Cut)),
        of(
            "kube-proxy",
            SERVICES,
            "labelSelector=tier+in+(a,b)",
            |o| "ab".contains(label(o, "tier")) && has_tier(o),
            PROTOBUF,
            (List, Timeout),
        ),
        of("kube-proxy", apps, "", |o| o["metadata"]["namespace"] == "apps", JSON, (WatchList, Timeout)),
        of("kube-proxy", SERVICES, "", everything, PROTOBUF, (List, Slow)),
        of("tool", SERVICES, "", everything, JSON, (List, Cut)),
        of("tool", SERVICES, "labelSelector=!tier", |o| !has_tier(o), PROTOBUF, (WatchList, Cut)),
        of("tool", SERVICES, "labelSelector=tier%3Db,zone%3Dwest", |o| label(o, "tier") == "b", METADATA, (List, Cut)),
        of(
            "tool",
            SERVICES,
            "fieldSelector=metadata.name%3Dobject-3",
            |o| o["metadata"]["name"] == "object-3",
            JSON,
            (List, Timeout),
        ),
        of(
            "tool",
            apps,
            "labelSelector=zone%3Deast",
            |o| label(o, "zone") == "east" && o["metadata"]["namespace"] == "apps",
            PROTOBUF,
            (List, Cut),
        ),
        of("tool", SERVICES, "", everything, JSON, (WatchList, Slow)),
        of("tool", SERVICES, "", everything, PROTOBUF, (WatchList, Timeout)),
    ]
}

fn label<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"]["labels"][name].as_str().unwrap_or_default()
}

fn has_tier(object: &Value) -> bool {
    !label(object, "tier").is_empty()
}

/// What all encodings have of an object.
fn metadata(object: &Value) -> Value {
    let mut metadata = object["metadata"].clone();
    metadata.as_object_mut().unwrap().remove("creationTimestamp");
    metadata
}

/// What JSON and protobuf have of an object.
fn whole(object: &Value) -> Value {
    json!({"metadata": metadata(object), "type": object["spec"]["type"]})
}

/// An open watch.
enum Stream {
    Json(Events),
    Protobuf(Frames),
}

impl Stream {
    async fn next(&mut self) -> Result<Option<Value>, String> {
        match self {
            Self::Json(events) => events.try_next().await,
            Self::Protobuf(frames) => frames.try_next().await,
        }
    }
}

impl Recorder {
    fn viewer(&self) -> Viewer {
        let (hides, selects) = (self.component == "kube-proxy", self.selects);
        Viewer {
            name: format!(
                "{} {}?{} {:?} {:?} {}",
                self.component, self.path, self.selector, self.begin, self.habit, self.accept
            ),
            shows: Box::new(move |object| selects(object) && !(hides && object["spec"]["type"] == "LoadBalancer")),
            form: if self.accept == METADATA { metadata } else { whole },
        }
    }

    /// Reads until the writer has ended and a BOOKMARK confirms that all its writes were sent.
    pub(super) async fn run(
        self,
        url: String,
        mut random: Random,
        mut writer: watch::Receiver<Progress>,
    ) -> (Viewer, Session, Counts) {
        let (mut session, mut counts) = (Session::default(), Counts::default());
        let (mut position, mut seen) = (None, 0);
        while !(writer.borrow().ended && seen >= writer.borrow().written) {
            if position.is_none() && self.begin == Begin::List {
                let listed = self.list(&url, seen).await;
                counts.lists += 1;
                position = listed.as_ref().map(|(version, _)| *version);
                session.steps.extend(listed.map(|(version, items)| Step::List { version, items }));
                continue;
            }
            counts.watches += 1;
            let (mut stream, after) = match self.watch(&url, position).await {
                Ok(stream) => (stream, position),
                Err(error) => {
                    let expired = error.ends_with("410 Gone");
                    counts.expired += u64::from(expired);
                    counts.broken += u64::from(!expired);
                    position = position.filter(|_| !expired);
                    // The API server refuses reads while it is cut off: the next write shows that time has passed.
                    let _ = tokio::time::timeout(super::PACE * 8, writer.changed()).await;
                    continue;
                }
            };
            let mut events = Vec::new();
            let mut left = 1 + random.below(40);
            loop {
                let Progress { written, ended } = *writer.borrow();
                if self.habit == Habit::Slow && !ended {
                    let late = |progress: &Progress| progress.ended || progress.written >= written.max(seen + SLOW);
                    if seen > 0 && events.len() % 100 == 99 {
                        let _ = writer.wait_for(late).await;
                    }
                }
                let event = match stream.next().await {
                    Ok(Some(event)) => event,
                    Ok(None) => break,
                    Err(_) => {
                        counts.broken += 1;
                        break;
                    }
                };
                let event_type = event["type"].as_str().unwrap().to_owned();
                if event_type == "ERROR" {
                    assert_eq!(event["object"]["code"], 410, "{event}");
                    counts.expired += 1;
                    position = None;
                    break;
                }
                let object = event["object"].clone();
                // Amid the initial state there is no version to continue from.
                let marks_end = object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true";
                if after.is_some() || position.is_some() || marks_end {
                    position = Some(version(&object));
                    seen = version(&object);
                }
                let is_bookmark = event_type == "BOOKMARK";
                *(if is_bookmark { &mut counts.bookmarks } else { &mut counts.events }) += 1;
                events.push(Event { event_type, object });
                left -= u64::from(left > 0);
                let done = writer.borrow().ended && (is_bookmark && seen >= writer.borrow().written);
                if done || (self.habit == Habit::Cut && left == 0 && !writer.borrow().ended) {
                    break;
                }
            }
            session.steps.push(Step::Watch { after, events });
        }
        (self.viewer(), session, counts)
    }

    /// Lists a state that is not older than what the client has seen. `None`: the API server refuses it.
    async fn list(&self, url: &str, seen: u64) -> Option<(u64, Vec<Value>)> {
        let accept = if self.accept == METADATA { METADATA_LIST } else { self.accept };
        let client = Client::new(url, self.component).with("accept", accept);
        let answer = client.get(&format!("{}?resourceVersion={seen}&{}", self.path, self.selector)).await;
        if answer.status != 200 {
            return None;
        }
        let list = if self.accept == PROTOBUF { protobuf::read(&answer.body) } else { answer.json() };
        Some((version(&list), list["items"].as_array().unwrap().clone()))
    }

    async fn watch(&self, url: &str, position: Option<u64>) -> Result<Stream, String> {
        // Each watch has a connection of its own.
        let client = Client::new(url, self.component).with("accept", self.accept);
        let start = match position {
            Some(version) => format!("resourceVersion={version}"),
            None => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0".to_owned(),
        };
        // Its last BOOKMARK comes two seconds before the end.
        let path =
            format!("{}?watch=true&allowWatchBookmarks=true&timeoutSeconds=3&{start}&{}", self.path, self.selector);
        let events = client.try_watch(&path).await?;
        Ok(match self.accept {
            PROTOBUF => Stream::Protobuf(Frames::of(events)),
            _ => Stream::Json(events),
        })
    }
}
