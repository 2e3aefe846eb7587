//! `--signature-policy`: which modules need a signature, by where they come from.
//!
//! ```yaml
//! policies:
//! - prefix: oci://registry.example/filters
//!   require:
//!   - |
//!     -----BEGIN PUBLIC KEY-----
//!     …
//!     -----END PUBLIC KEY-----
//! - prefix: file://
//!   allow: true
//! ```
//!
//! The longest prefix decides. What none of them names is refused.

use weir_spec::{Digest, PinnedReference};

use super::cosign::{SignatureError, verify_artifact, verify_bytes};
use super::key::{KeyError, PublicKey};
use crate::layout::Layout;
use crate::mapping::{self, Mapping};

/// Which modules need a signature.
#[derive(Debug, Clone)]
pub struct SignaturePolicy(Vec<Rule>);

#[derive(Debug, Clone)]
struct Rule {
    prefix: String,
    /// Any of these. `None`: no signature is needed.
    keys: Option<Vec<PublicKey>>,
}

struct Entry {
    prefix: String,
    require: Option<Vec<String>>,
    allow: Option<bool>,
}

/// Why a policy is not usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// It is not what the documentation says.
    #[error("{0}")]
    Invalid(String),
    /// A key is not usable.
    #[error("policy of {prefix}: require[{index}]: {source}")]
    Key {
        /// Which policy.
        prefix: String,
        /// Which key.
        index: usize,
        /// Why.
        #[source]
        source: KeyError,
    },
}

/// The prefixes of places.
const SCHEMES: [&str; 3] = ["oci://", "configmap://", "file://"];

impl SignaturePolicy {
    /// Parses the file.
    ///
    /// # Errors
    /// It has unknown keys, says something twice or contradicts itself, or a key is not usable.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let entry = |entry: &Mapping<'_>| {
            Ok(Entry {
                prefix: entry.required_text("prefix")?,
                require: entry.texts("require")?,
                allow: entry.flag("allow")?,
            })
        };
        let keys = ["prefix", "require", "allow"];
        let policies = mapping::list(text, "policies", &keys, entry).map_err(PolicyError::Invalid)?;
        let mut rules: Vec<Rule> = Vec::new();
        for Entry { prefix, require, allow } in policies {
            let invalid = |reason: &str| Err(PolicyError::Invalid(format!("policy of {prefix:?}: {reason}")));
            if !SCHEMES.iter().any(|scheme| prefix.starts_with(scheme)) {
                return invalid("a prefix begins with oci://, configmap:// or file://");
            }
            let keys = match (require, allow) {
                (Some(pems), None) if !pems.is_empty() => Some(pems),
                (None, Some(true)) => None,
                (Some(_), None) => return invalid("`require` names no key"),
                _ => return invalid("give either `require` with keys or `allow: true`"),
            };
            let keys = keys.map(|pems| {
                let key = |(index, pem): (usize, &String)| {
                    PublicKey::from_pem(pem).map_err(|source| PolicyError::Key {
                        prefix: prefix.clone(),
                        index,
                        source,
                    })
                };
                pems.iter().enumerate().map(key).collect::<Result<Vec<_>, _>>()
            });
            let keys = keys.transpose()?;
            let prefix = prefix.trim_end_matches('/').to_owned();
            if rules.iter().any(|rule| rule.prefix == prefix) {
                return Err(PolicyError::Invalid(format!("policy of {prefix:?}: given twice")));
            }
            rules.push(Rule { prefix, keys });
        }
        Ok(Self(rules))
    }

    /// Whether artifacts of this name need a signature.
    #[must_use]
    pub fn needs_signature(&self, reference: &PinnedReference) -> bool {
        self.rule(&place_of(reference)).is_some_and(|rule| rule.keys.is_some())
    }

    /// Checks an artifact, whose layout has its signatures.
    ///
    /// # Errors
    /// It needs a signature that it does not have, or no rule names it.
    pub fn check_artifact(&self, reference: &PinnedReference, layout: &Layout) -> Result<(), SignatureError> {
        let place = place_of(reference);
        let artifact: Digest = reference.digest();
        self.check(&place, |keys| match verify_artifact(layout, artifact, keys) {
            (_, true) => Ok(()),
            (0, _) => Err(SignatureError::Unsigned(place.clone())),
            (count, _) => Err(SignatureError::Invalid(place.clone(), count)),
        })
    }

    /// Checks a module from a ConfigMap or a file. `place` is its URL, as `configmap://NAME` or `file://NAME`.
    ///
    /// # Errors
    /// It needs a signature that it does not have, or no rule names it.
    pub fn check_bytes(&self, place: &str, bytes: &[u8], signature: Option<&str>) -> Result<(), SignatureError> {
        self.check(place, |keys| {
            let signature = signature.ok_or_else(|| SignatureError::Unsigned(place.to_owned()))?;
            match verify_bytes(bytes, signature, keys)? {
                true => Ok(()),
                false => Err(SignatureError::Invalid(place.to_owned(), 1)),
            }
        })
    }

    fn check(
        &self,
        place: &str,
        verify: impl FnOnce(&[PublicKey]) -> Result<(), SignatureError>,
    ) -> Result<(), SignatureError> {
        let rule = self.rule(place).ok_or_else(|| SignatureError::NoRule(place.to_owned()))?;
        match &rule.keys {
            Some(keys) => verify(keys),
            None => Ok(()),
        }
    }

    /// The rule with the longest prefix. `oci://a.example/b` is no prefix of `oci://a.example/bc`.
    fn rule(&self, place: &str) -> Option<&Rule> {
        let covers = |rule: &&Rule| match place.strip_prefix(&rule.prefix) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        self.0.iter().filter(covers).max_by_key(|rule| rule.prefix.len())
    }
}

/// The place of an artifact, without tag and digest.
fn place_of(reference: &PinnedReference) -> String {
    format!("oci://{}/{}", reference.reference().registry(), reference.reference().repository())
}
