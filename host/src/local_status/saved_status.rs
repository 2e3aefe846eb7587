//! What of the local status outlives the process: on disk, beside the stores.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};
use weir_process::files::read_now;
use weir_store::disk::{CachedValue, DiskCache};
use weir_store::{ImpersonatedUser, StoreReader};

use weir_kube::PodStatus;

/// The name of the value on disk.
const NAME: &str = "local-status";
/// The longest identity of a boot in bytes.
const MAX_BOOT_ID: usize = 4096;

/// The local status on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SavedStatus {
    /// The boot of the node in which it was reported; `None` if it is not known.
    pub(super) boot_id: Option<String>,
    /// The reader of the pods of the node.
    pub(super) kubelet: SavedReader,
    /// The pods by uid.
    pub(super) pods: BTreeMap<String, SavedPod>,
}

/// The identity of the node's kubelet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum SavedReader {
    Node,
    User { user: String, groups: Vec<String> },
}

/// A pod on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SavedPod {
    pub(super) namespace: String,
    pub(super) name: String,
    /// `None`: kubelet has not reported it since the node was restarted.
    pub(super) status: Option<PodStatus>,
    /// What the API server had of the pod at that time.
    #[serde(default)]
    pub(super) stored: StoredPod,
}

/// The pod as the API server had it. A later one shows that a report has reached the API server, and that a kill or a full
/// disk has lost that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredPod {
    /// The resourceVersion; `None` if it is not known.
    pub(super) version: Option<String>,
    pub(super) addresses: Vec<IpAddr>,
}

impl StoredPod {
    pub(super) fn of(pod: &Pod, status: &PodStatus) -> Self {
        Self { version: pod.metadata.resource_version.clone(), addresses: status.addresses.clone() }
    }
}

/// Identifies the boot of the node; `None` if the file is not readable.
pub(crate) fn read_boot_id(file: &Path) -> Option<String> {
    let text = read_now(file, MAX_BOOT_ID).inspect_err(|error| {
        let file = file.display();
        tracing::warn!(%file, %error, "the boot ID of the node is not readable: Weir does not notice that the node was restarted");
    });
    text.ok().map(|text| String::from_utf8_lossy(&text).trim().to_owned())
}

impl SavedReader {
    /// `None` for an identity that no kubelet has.
    pub(super) fn of(reader: &StoreReader) -> Option<Self> {
        match reader {
            StoreReader::Node => Some(Self::Node),
            StoreReader::User(user) => Some(Self::User { user: user.user.clone(), groups: user.groups.clone() }),
            StoreReader::Daemon | StoreReader::Client(_) | StoreReader::Private(_) => None,
        }
    }

    pub(super) fn reader(self) -> StoreReader {
        match self {
            Self::Node => StoreReader::Node,
            Self::User { user, groups } => StoreReader::User(Arc::new(ImpersonatedUser { user, groups })),
        }
    }
}

impl SavedStatus {
    /// Reads it. Unreadable content counts as none.
    pub(super) async fn read(disk: &Arc<DiskCache>) -> Option<Self> {
        let value = disk.get(NAME).await?;
        let read = serde_json::from_slice(&value.bytes);
        read.inspect_err(|error| tracing::warn!(%error, "the local status on disk is not readable, it is dropped")).ok()
    }

    pub(super) async fn write(&self, disk: &Arc<DiskCache>) {
        match serde_json::to_vec(self) {
            Ok(bytes) => disk.put(NAME, CachedValue::lasting(bytes), false).await,
            Err(error) => tracing::error!(%error, "the local status cannot be kept on disk"),
        }
    }

    pub(super) async fn remove(disk: &Arc<DiskCache>) {
        disk.remove(NAME).await;
    }
}
