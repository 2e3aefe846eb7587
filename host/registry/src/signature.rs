//! Signatures: which modules need one ([`SignaturePolicy`]), and whether one is valid (`PublicKey`). Verification needs no
//! network: keys are in the policy.
//!
//! Read are what cosign makes with a key pair: a Sigstore bundle that refers to the artifact, or a "simple signing" payload
//! under a tag; for files, a signature or a bundle of their bytes.

mod cosign;
mod key;
mod policy;
#[cfg(test)]
mod tests;

pub use self::cosign::SignatureError;
pub use self::key::KeyError;
pub use self::policy::{PolicyError, SignaturePolicy};

pub(crate) use self::cosign::{BUNDLE, signature_tag};
