//! The cache on disk: what was committed is read again, and nothing else is.

mod aside;
mod commits;
mod compaction;
mod crash;
mod damage;
mod forms;
mod moved;
mod overlay;
mod predecessors;
mod reading;
mod size;
mod storage;
mod values;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use weir_document::TypeMeta;
use weir_kube::{Encoding, GroupResource};

use super::commit::PersistRequest;
use super::config::{Confidentiality, DiskConfig, StoreName};
use super::metrics::DiskMetrics;
use super::state::DiskState;
use crate::StoreKey;
use crate::cache::{Collection, Delta, Object, ObjectContent, ObjectFormat, ResourceStore, Snapshot};

/// The objects of a store: versions and bytes by key.
type Model = BTreeMap<StoreKey, (u64, Bytes)>;

fn name(resource: &str) -> StoreName {
    StoreName::new(
        "daemon",
        &Collection {
            resource: GroupResource::new(resource, ""),
            version: "v1".into(),
            path: format!("/api/v1/{resource}"),
            field_selector: String::new(),
            label_selector: String::new(),
            parameters: String::new(),
            content: ObjectContent::Complete,
        },
    )
}

fn format() -> ObjectFormat {
    let type_meta = TypeMeta { api_version: "v1".into(), kind: "Service".into() };
    ObjectFormat { encoding: Encoding::Json, type_meta: Arc::new(type_meta) }
}

fn object(name: &str, version: u64, bytes: &[u8]) -> Object {
    Object { key: StoreKey::new("default", name), version, bytes: Bytes::copy_from_slice(bytes) }
}

fn put(store: &ResourceStore, name: &str, version: u64) {
    store.apply(vec![Delta::Put(object(name, version, format!("{name} at {version}").as_bytes()))]);
}

/// A synced store with these objects.
fn store(names: &[&str]) -> Arc<ResourceStore> {
    let store = Arc::new(ResourceStore::new(format()));
    let objects = names.iter().zip(1..).map(|(name, version)| object(name, version, name.as_bytes())).collect();
    store.replace(format(), objects, names.len() as u64);
    store
}

fn request(resource: &str, store: &Arc<ResourceStore>, confidentiality: Confidentiality) -> PersistRequest {
    PersistRequest { name: name(resource), store: store.clone(), confidentiality }
}

fn plain(resource: &str, store: &Arc<ResourceStore>) -> PersistRequest {
    request(resource, store, Confidentiality::Plain)
}

fn model(snapshot: &Snapshot) -> Model {
    snapshot.objects.iter().map(|(key, object)| (key.clone(), (object.version, object.bytes.clone()))).collect()
}

fn open(directory: &Path) -> DiskState {
    open_with(DiskConfig::new(&directory.join("cache"), "node"))
}

fn open_with(config: DiskConfig) -> DiskState {
    DiskState::new(config, Arc::default())
}

/// What a new process reads of a plain store.
fn reread(directory: &Path, resource: &str) -> Option<Snapshot> {
    open(directory).load(&name(resource), Confidentiality::Plain)
}

fn errors(state: &DiskState, reason: &'static str) -> u64 {
    DiskMetrics::errors(&state.metrics, reason)
}

fn random(seed: u64) -> u64 {
    // splitmix64
    let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
    let seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ (seed >> 31)
}

/// Bytes that do not compress.
fn noise(seed: u64, length: u64) -> Vec<u8> {
    (0..length).map(|at| random(seed ^ (at << 32)).to_le_bytes()[0]).collect()
}
