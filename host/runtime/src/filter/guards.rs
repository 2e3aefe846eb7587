//! The fields of a Pod that decide what runs on the node, and with which rights. A filter may only edit them if its
//! configuration names them under `edits:`.

use std::sync::Arc;

use weir_document::{Path, path};

static POD: [Path; 25] = [
    path!("spec.volumes"),
    path!("spec.hostNetwork"),
    path!("spec.hostPID"),
    path!("spec.hostIPC"),
    path!("spec.hostUsers"),
    path!("spec.hostname"),
    path!("spec.hostAliases"),
    path!("spec.securityContext"),
    path!("spec.serviceAccountName"),
    path!("spec.containers[*].image"),
    path!("spec.containers[*].securityContext"),
    path!("spec.containers[*].volumeMounts"),
    path!("spec.containers[*].volumeDevices"),
    path!("spec.containers[*].ports[*].hostPort"),
    path!("spec.containers[*].ports[*].hostIP"),
    path!("spec.initContainers[*].image"),
    path!("spec.initContainers[*].securityContext"),
    path!("spec.initContainers[*].volumeMounts"),
    path!("spec.initContainers[*].volumeDevices"),
    path!("spec.initContainers[*].ports[*].hostPort"),
    path!("spec.initContainers[*].ports[*].hostIP"),
    path!("spec.ephemeralContainers[*].image"),
    path!("spec.ephemeralContainers[*].securityContext"),
    path!("spec.ephemeralContainers[*].volumeMounts"),
    path!("spec.ephemeralContainers[*].volumeDevices"),
];

/// Returns the guarded fields of a Pod without those that a filter's configuration names.
pub(super) fn guards(edits: &[Path]) -> Arc<[Path]> {
    POD.iter().filter(|guard| !edits.contains(guard)).cloned().collect()
}
