//! The fields of a Pod that decide what runs on the node, and with which rights. A filter may only edit them if its
//! configuration names them under `edits:`.

use std::sync::Arc;

use weir_document::Path;

const POD: &[&str] = &[
    "spec.volumes",
    "spec.hostNetwork",
    "spec.hostPID",
    "spec.hostIPC",
    "spec.hostUsers",
    "spec.hostname",
    "spec.hostAliases",
    "spec.securityContext",
    "spec.serviceAccountName",
    "spec.containers[*].image",
    "spec.containers[*].securityContext",
    "spec.containers[*].volumeMounts",
    "spec.containers[*].volumeDevices",
    "spec.containers[*].ports[*].hostPort",
    "spec.containers[*].ports[*].hostIP",
    "spec.initContainers[*].image",
    "spec.initContainers[*].securityContext",
    "spec.initContainers[*].volumeMounts",
    "spec.initContainers[*].volumeDevices",
    "spec.initContainers[*].ports[*].hostPort",
    "spec.initContainers[*].ports[*].hostIP",
    "spec.ephemeralContainers[*].image",
    "spec.ephemeralContainers[*].securityContext",
    "spec.ephemeralContainers[*].volumeMounts",
    "spec.ephemeralContainers[*].volumeDevices",
];

/// Returns the guarded fields of a Pod without those that a filter's configuration names.
pub(super) fn guards(edits: &[Path]) -> Arc<[Path]> {
    let open: Vec<&str> = edits.iter().map(Path::text).collect();
    POD.iter().filter(|guard| !open.contains(guard)).filter_map(|guard| Path::parse(guard).ok()).collect()
}
