//! A client's open watches: what arrives is printed with its time.

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use weir_tests::client::{Client, Events, PATIENCE};

/// The events that may wait until the demo expects them.
const QUEUE: usize = 1024;

/// Watches until it is dropped or ended.
pub(crate) struct Watcher {
    events: mpsc::Receiver<String>,
    /// What has arrived and was not expected yet.
    arrived: Vec<String>,
    tasks: JoinSet<()>,
}

impl Watcher {
    /// Opens watches of these paths, each from the present state on.
    pub(crate) async fn begin(client: &Client, paths: &[&str]) -> Self {
        let (sender, events) = mpsc::channel(QUEUE);
        let mut tasks = JoinSet::new();
        for path in paths {
            let watch = client.watch(&format!("{path}?watch=true&resourceVersion=0")).await;
            tasks.spawn(print(watch, sender.clone()));
        }
        Self { events, arrived: Vec::new(), tasks }
    }

    /// Waits for an event that begins with this. Those of different watches arrive in any order.
    pub(crate) async fn expect(&mut self, event_type: &str, object: &str) {
        let wanted = format!("{event_type} {object}");
        let found = async {
            loop {
                if let Some(place) = self.arrived.iter().position(|event| event.starts_with(&wanted)) {
                    return drop(self.arrived.remove(place));
                }
                self.arrived.push(self.events.recv().await.expect("the watches stay open"));
            }
        };
        assert!(tokio::time::timeout(PATIENCE, found).await.is_ok(), "{wanted} does not arrive");
    }

    /// Forgets what has arrived and was not expected.
    pub(crate) fn forget(&mut self) {
        self.arrived.clear();
    }

    /// Closes the watches.
    pub(crate) fn end(&mut self) {
        self.tasks.abort_all();
    }
}

async fn print(mut watch: Events, events: mpsc::Sender<String>) {
    while let Ok(Some(event)) = watch.try_next().await {
        let (event_type, object) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
        let text = match object["kind"].as_str() {
            Some("Service") => format!("service {}", service(object)),
            Some("EndpointSlice") => format!("endpointslice {}: {}", name(object), endpoints(object).join(", ")),
            _ => continue,
        };
        if event_type != "BOOKMARK" {
            println!("     {}  {event_type:<8} {text}", time());
            let _ = events.send(format!("{event_type} {text}")).await;
        }
    }
}

/// The time of day, in UTC.
#[expect(clippy::disallowed_methods, reason = "for the reader of the demo, by the clock of this machine")]
fn time() -> String {
    jiff::Timestamp::now().strftime("%H:%M:%S%.3f").to_string()
}

/// The name, the type and the node port of a Service.
pub(crate) fn service(service: &Value) -> String {
    let port = &service["spec"]["ports"][0]["nodePort"];
    let port = if port.is_null() { String::new() } else { format!(", node port {port}") };
    format!("{}: {}{port}", name(service), service["spec"]["type"].as_str().unwrap_or_default())
}

/// The endpoints of a slice.
pub(crate) fn endpoints(slice: &Value) -> Vec<String> {
    let text = |endpoint: &Value| {
        let (address, node) = (endpoint["addresses"][0].as_str(), endpoint["nodeName"].as_str());
        format!("{} on {}", address.unwrap_or_default(), node.unwrap_or_default())
    };
    slice["endpoints"].as_array().into_iter().flatten().map(text).collect()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
