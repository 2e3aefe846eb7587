//! What a child process is asked to pull.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use weir_spec::PinnedReference;

use crate::credentials::Login;
use crate::hosts::Endpoint;

/// An artifact to pull, and from where.
#[derive(Debug, Serialize, Deserialize)]
pub struct PullJob {
    /// The artifact.
    #[serde(with = "as_text")]
    pub reference: PinnedReference,
    /// The addresses of the registry in their order, with the credentials for them.
    pub sources: Vec<(Endpoint, Login)>,
    /// Whether it is of no use without its signatures. They are read anyway: a later policy may need them.
    pub needs_signature: bool,
    /// The file to write. What it has already is not pulled again, and neither is what an interrupted pull has left beside it.
    pub destination: PathBuf,
}

/// References are texts in a job.
mod as_text {
    use serde::{Deserialize, Deserializer, Serializer};
    use weir_spec::PinnedReference;

    pub(super) fn serialize<S: Serializer>(reference: &PinnedReference, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(reference)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PinnedReference, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
