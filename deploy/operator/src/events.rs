//! Events on objects of the cluster. Nothing depends on an Event: an error is logged only.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use crate::health::explain;
use crate::ingress::MANAGER;

/// The longest note that the API server accepts has 1024 bytes.
const MAX_NOTE: usize = 1000;

/// Publishes Events.
pub(crate) struct Notices(Recorder);

/// An Event.
pub(crate) struct Notice {
    pub(crate) type_: EventType,
    /// The reason in one word.
    pub(crate) reason: String,
    /// The reason for people.
    pub(crate) note: String,
    /// The pool that it is about, if it is about one.
    pub(crate) pool: Option<String>,
}

impl Notices {
    /// `identity`: the name of this replica.
    pub(crate) fn new(client: Client, identity: &str) -> Self {
        let reporter = Reporter { controller: MANAGER.to_owned(), instance: Some(identity.to_owned()) };
        Self(Recorder::new(client, reporter))
    }

    /// Publishes an Event on an object.
    pub(crate) async fn publish(&self, object: &ObjectReference, notice: Notice) {
        let Notice { type_, reason, note, pool } = notice;
        // Events with one reason and about the same objects become one, which keeps the note of the first.
        let secondary = pool.map(|name| ObjectReference {
            api_version: Some("apps.openyurt.io/v1beta2".to_owned()),
            kind: Some("NodePool".to_owned()),
            name: Some(name),
            ..ObjectReference::default()
        });
        let (note, action) = (Some(cut(&note).to_owned()), "Reconcile".to_owned());
        let event = Event { type_, reason, note, action, secondary };
        if let Err(error) = self.0.publish(&event, object).await {
            tracing::warn!(reason = explain(&error), "an Event is not published");
        }
    }

    /// Publishes a warning on an object.
    pub(crate) async fn warn(&self, object: &ObjectReference, reason: &str, note: &str) {
        let (reason, note) = (reason.to_owned(), note.to_owned());
        self.publish(object, Notice { type_: EventType::Warning, reason, note, pool: None }).await;
    }
}

fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_NOTE)).unwrap_or(text)
}
