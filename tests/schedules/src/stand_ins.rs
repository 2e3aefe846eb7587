//! What the tested files use and what has no part in their locks, as small as they need it.

use std::fmt;
use std::sync::Arc;

/// `weir_kube::GroupResource`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GroupResource(pub(crate) &'static str);

/// `weir_runtime::FilterSet`.
pub(crate) struct FilterSet;

/// `weir_store::StoreReader`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum StoreReader {
    Daemon,
    Private(Arc<str>),
}

impl StoreReader {
    pub(crate) fn is_private(&self) -> bool {
        matches!(self, Self::Private(_))
    }
}

/// `weir_store::cache::Collection`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Collection {
    pub(crate) path: String,
    pub(crate) field_selector: String,
    pub(crate) label_selector: String,
    pub(crate) parameters: String,
    pub(crate) version: String,
}

impl Collection {
    pub(crate) fn is_whole(&self) -> bool {
        self.field_selector.is_empty()
    }
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

pub(crate) mod cache {
    pub(crate) use super::Collection;
}

/// `weir_store::ReflectorError`.
pub(crate) enum ReflectorError {
    NoRoom {},
}

type MayGrow = Box<dyn Fn(u64) -> bool + Send + Sync>;

/// `weir_store::StoreHandle`: a store whose list is on its way.
#[derive(Default)]
pub(crate) struct StoreHandle {
    room: Room,
}

#[derive(Default)]
pub(crate) struct Room(std::sync::Mutex<Option<MayGrow>>);

#[derive(Default)]
pub(crate) struct StoreStatus {
    pub(crate) bytes: usize,
    pub(crate) objects: usize,
    pub(crate) arriving: usize,
    pub(crate) synced: bool,
}

impl StoreHandle {
    pub(crate) fn status(&self) -> StoreStatus {
        StoreStatus::default()
    }

    pub(crate) fn room(&self) -> &Room {
        &self.room
    }
}

impl Room {
    pub(crate) fn limit(&self, may_grow: impl Fn(u64) -> bool + Send + Sync + 'static) {
        *self.0.lock().unwrap() = Some(Box::new(may_grow));
    }

    /// Asks as a list does, in which nothing else asks at the same time.
    pub(crate) fn allows(&self, bytes: u64) -> bool {
        let may_grow = self.0.lock().unwrap().take();
        may_grow.is_none_or(|may_grow| may_grow(bytes))
    }
}

/// `crate::state` of weir-view: an empty view.
pub(crate) mod state {
    use std::cell::RefCell;

    use tokio_util::sync::CancellationToken;

    use super::{ReflectorError, StoreHandle};

    #[derive(Default)]
    pub(crate) struct View {
        pub(crate) store: StoreHandle,
        closed: CancellationToken,
    }

    pub(crate) struct ReflectorState {
        pub(crate) error: Option<ReflectorError>,
    }

    pub(crate) struct ViewSnapshot {
        pub(crate) objects: Objects,
    }

    pub(crate) struct Objects;

    impl Objects {
        pub(crate) fn size(&self) -> usize {
            0
        }
    }

    impl View {
        pub(crate) fn reflector_state(&self) -> RefCell<ReflectorState> {
            RefCell::new(ReflectorState { error: None })
        }

        pub(crate) fn snapshot(&self) -> ViewSnapshot {
            ViewSnapshot { objects: Objects }
        }

        pub(crate) fn selector_bytes(&self) -> usize {
            0
        }

        pub(crate) fn open_watches(&self) -> usize {
            0
        }

        pub(crate) fn admits_all(&self) -> bool {
            true
        }

        pub(crate) fn component_names(&self) -> Vec<String> {
            Vec::new()
        }

        pub(crate) fn closed(&self) -> &CancellationToken {
            &self.closed
        }
    }
}

/// `weir_upstream::clock`.
pub(crate) mod clock {
    pub(crate) fn now() -> std::time::SystemTime {
        std::time::SystemTime::now()
    }
}

/// `crate::error` of weir-access.
pub(crate) mod error {
    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    pub(crate) enum AccessError {
        Review(String),
        #[error("no API server")]
        Upstream,
    }
}

/// `crate::outage` of weir-access: all holds until it expires.
pub(crate) mod outage {
    use std::time::{Duration, SystemTime};

    #[derive(Debug)]
    pub(crate) struct Outage;

    impl Outage {
        pub(crate) fn grace(&self) -> Duration {
            Duration::from_secs(3600)
        }

        pub(crate) fn holds(&self, expires: SystemTime) -> bool {
            expires > SystemTime::now()
        }
    }
}

/// `weir_store::disk`: what is written is there at once, and what is read takes a while.
pub(crate) mod disk {
    use std::collections::HashMap;
    use std::time::SystemTime;

    use crate::sync::Mutex;

    #[derive(Debug, Clone)]
    pub(crate) struct CachedValue {
        pub(crate) bytes: Vec<u8>,
        pub(crate) expires: SystemTime,
    }

    #[derive(Debug, Default)]
    pub(crate) struct DiskCache(Mutex<HashMap<String, CachedValue>>);

    impl DiskCache {
        pub(crate) fn put_later(&self, name: &str, value: CachedValue, _confidential: bool) -> bool {
            self.0.lock().unwrap().insert(name.to_owned(), value);
            false
        }

        pub(crate) async fn relieve(&self) {}

        pub(crate) fn remove_later(&self, name: &str) -> bool {
            self.0.lock().unwrap().remove(name);
            false
        }

        pub(crate) async fn get_even_expired(&self, name: &str) -> Option<CachedValue> {
            let found = self.0.lock().unwrap().get(name).cloned();
            shuttle::future::yield_now().await;
            found
        }
    }
}
