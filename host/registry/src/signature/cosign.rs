//! What cosign writes.
//!
//! A bundle (<https://docs.sigstore.dev/about/bundle/>) of an artifact has a DSSE envelope
//! (<https://github.com/secure-systems-lab/dsse>) with an in-toto statement, whose subject is the artifact. One of a file has the
//! signature of its bytes. The older form is a payload
//! (<https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md>) that names the artifact, with its signature in an
//! annotation.
//!
//! Kept by hand: the crate `sigstore` brings clients of registries and transparency logs, and a second family of cryptography, for
//! what ring verifies with a key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use weir_spec::Digest;

use super::key::PublicKey;
use crate::layout::Layout;
use crate::manifest::Manifest;

/// The beginning of the artifact type of bundles; a version follows.
pub(crate) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";
/// What the payload of a bundle is.
const STATEMENT: &str = "application/vnd.in-toto+json";
/// What a statement says: that the artifact is signed. Others with the same key say other things, such as what is in it.
const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";
/// The annotation with the signature of a payload.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// What such a payload says of itself.
const SIMPLE: &str = "cosign container image signature";

/// Why a module does not count as signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// There is none.
    #[error("unsigned: {0} needs a signature, and there is none")]
    Unsigned(String),
    /// None of them is of a key.
    #[error("none of its {1} signatures is valid: {0} needs one of the keys in the policy")]
    Invalid(String, usize),
    /// The policy does not allow it.
    #[error("the signature policy names no rule for {0}")]
    NoRule(String),
    /// A text is no signature.
    #[error("`signature` is neither what `cosign sign-blob` prints nor its bundle")]
    Malformed,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    dsse_envelope: Option<Envelope>,
    message_signature: Option<MessageSignature>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Deserialize)]
struct EnvelopeSignature {
    sig: String,
}

#[derive(Deserialize)]
struct MessageSignature {
    signature: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    predicate_type: String,
    subject: Vec<Subject>,
}

#[derive(Deserialize)]
struct Subject {
    digest: SubjectDigest,
}

#[derive(Deserialize)]
struct SubjectDigest {
    sha256: Option<String>,
}

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    #[serde(rename = "type")]
    kind: String,
    image: Image,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// The tag under which the older form is.
pub(crate) fn signature_tag(artifact: Digest) -> String {
    format!("sha256-{}.sig", artifact.hex())
}

/// How many signatures of an artifact there are, and whether one of them is of one of the keys.
pub(super) fn verify_artifact(layout: &Layout, artifact: Digest, keys: &[PublicKey]) -> (usize, bool) {
    let (mut count, mut is_valid) = (0, false);
    for (_, manifest, _) in layout.manifests() {
        let Ok(manifest) = serde_json::from_slice::<Manifest>(manifest) else { continue };
        for layer in &manifest.layers {
            let blob = layer.digest.parse().ok().and_then(|digest| layout.blob(&digest));
            let annotation = layer.annotations.as_ref().and_then(|annotations| annotations.get(SIGNATURE));
            is_valid |= match (blob, annotation) {
                (Some(payload), Some(signature)) => {
                    count += 1;
                    is_payload_of(payload, signature, artifact, keys)
                }
                (Some(bundle), None) if layer.media_type.starts_with(BUNDLE) => {
                    count += 1;
                    is_bundle_of(bundle, artifact, keys)
                }
                _ => false,
            };
        }
    }
    (count, is_valid)
}

/// Whether the signature of a file is of one of the keys.
pub(super) fn verify_bytes(bytes: &[u8], signature: &str, keys: &[PublicKey]) -> Result<bool, SignatureError> {
    let signature = signature.trim();
    let signature = match serde_json::from_str::<Bundle>(signature) {
        Ok(bundle) => bundle.message_signature.ok_or(SignatureError::Malformed)?.signature,
        Err(_) => signature.to_owned(),
    };
    let signature = STANDARD.decode(signature).map_err(|_| SignatureError::Malformed)?;
    Ok(keys.iter().any(|key| key.verifies(bytes, &signature)))
}

fn is_payload_of(payload: &[u8], signature: &str, artifact: Digest, keys: &[PublicKey]) -> bool {
    let Ok(signature) = STANDARD.decode(signature) else { return false };
    if !keys.iter().any(|key| key.verifies(payload, &signature)) {
        return false;
    }
    let Ok(Payload { critical }) = serde_json::from_slice(payload) else { return false };
    critical.kind == SIMPLE && critical.image.digest.parse() == Ok(artifact)
}

fn is_bundle_of(bundle: &[u8], artifact: Digest, keys: &[PublicKey]) -> bool {
    let Ok(Bundle { dsse_envelope: Some(envelope), .. }) = serde_json::from_slice(bundle) else { return false };
    let Ok(payload) = STANDARD.decode(&envelope.payload) else { return false };
    // The signature covers the payload and its type (DSSE's pre-authentication encoding).
    let kind = &envelope.payload_type;
    let mut signed = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).into_bytes();
    signed.extend_from_slice(&payload);
    let is_signed = envelope.signatures.iter().any(|signature| {
        STANDARD.decode(&signature.sig).is_ok_and(|signature| keys.iter().any(|key| key.verifies(&signed, &signature)))
    });
    if !is_signed || kind != STATEMENT {
        return false;
    }
    let Ok(statement) = serde_json::from_slice::<Statement>(&payload) else { return false };
    let names = |subject: &Subject| subject.digest.sha256.as_deref() == Some(artifact.hex().as_str());
    statement.predicate_type == SIGNED && statement.subject.iter().any(names)
}
