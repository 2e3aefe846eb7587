//! Where the module of a filter is, as the configuration names it.
//!
//! References are parsed here: `oci-spec` adds `docker.io` and `latest` where a configuration must name both, refuses registries
//! with an IPv6 address, and its errors do not quote the part that is wrong.

use std::fmt;
use std::str::FromStr;

use weir_kube::is_dns_subdomain;

use super::digest::{Digest, DigestError};
use super::name::{FilterName, ModuleFile, NameError};

/// The scheme of modules in registries.
const OCI: &str = "oci://";
/// The scheme of modules in ConfigMaps of their own.
const CONFIG_MAP: &str = "configmap://";
const MAX_REPOSITORY: usize = 255;
const MAX_TAG: usize = 128;

/// Where a module is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ModuleSource {
    /// A key of `binaryData` in the ConfigMap of the configuration, or a file of the modules directory.
    File(ModuleFile),
    /// The only content of another ConfigMap in the same namespace.
    ConfigMap(ObjectName),
    /// An artifact in a registry.
    Oci(PinnedReference),
}

/// The name of a ConfigMap: a DNS subdomain (RFC 1123).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectName(Box<str>);

/// The name of an artifact: `registry.example/filters/services:1.2@sha256:…`, as in the OCI distribution specification. The
/// registry is never left out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OciReference {
    registry: Box<str>,
    repository: Box<str>,
    tag: Option<Box<str>>,
    digest: Option<Digest>,
}

/// The name of one artifact that never changes: the digest is that of its manifest. A tag is for people.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PinnedReference {
    reference: OciReference,
    digest: Digest,
}

/// Why a text names no module.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModuleSourceError {
    /// Not a file name.
    #[error(transparent)]
    File(#[from] NameError),
    /// Not the name of a ConfigMap.
    #[error("{0:?} is not the name of a ConfigMap: 1 to 253 lower-case letters, digits, inner dashes and dots")]
    ConfigMap(String),
    /// Another scheme.
    #[error("{0:?} names no module: write NAME.wasm, configmap://NAME or oci://REGISTRY/NAME@sha256:…")]
    Scheme(String),
    /// Not an artifact.
    #[error(transparent)]
    Oci(#[from] OciReferenceError),
}

/// Why a text names no artifact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OciReferenceError {
    /// There is no registry.
    #[error("{0:?} names no registry: write REGISTRY/NAME, as in docker.io/acme/services")]
    Registry(String),
    /// The repository is malformed.
    #[error("{0:?} is not a repository: lower-case letters and digits, with single `.`, `_`, `-` and `/` inside")]
    Repository(String),
    /// The tag is malformed.
    #[error("{0:?} is not a tag: 1 to 128 letters, digits, `_`, `.` and `-`")]
    Tag(String),
    /// The digest is malformed.
    #[error(transparent)]
    Digest(#[from] DigestError),
    /// A digest is needed.
    #[error("{0} has no digest: nodes run what has a digest only, write {0}@sha256:…")]
    Unpinned(String),
}

impl ModuleSource {
    /// Returns the default file of a filter.
    #[must_use]
    pub fn of_filter(name: &FilterName) -> Self {
        Self::File(ModuleFile::of_filter(name))
    }

    /// Returns the file name, if it is one.
    #[must_use]
    pub fn file(&self) -> Option<&str> {
        match self {
            Self::File(file) => Some(file.as_str()),
            Self::ConfigMap(_) | Self::Oci(_) => None,
        }
    }
}

impl OciReference {
    /// Returns host and port of the registry.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Returns the name in the registry.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Returns the tag.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Returns the digest.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Returns the name of one artifact in the same repository.
    #[must_use]
    pub fn pinned(&self, digest: Digest) -> PinnedReference {
        PinnedReference { reference: Self { digest: Some(digest), ..self.clone() }, digest }
    }
}

impl PinnedReference {
    /// Returns the name.
    #[must_use]
    pub fn reference(&self) -> &OciReference {
        &self.reference
    }

    /// Returns the digest of the manifest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

impl FromStr for ModuleSource {
    type Err = ModuleSourceError;

    fn from_str(text: &str) -> Result<Self, ModuleSourceError> {
        if text.starts_with(OCI) {
            return Ok(Self::Oci(text.parse()?));
        }
        if let Some(name) = text.strip_prefix(CONFIG_MAP) {
            return is_dns_subdomain(name)
                .then(|| Self::ConfigMap(ObjectName(name.into())))
                .ok_or_else(|| ModuleSourceError::ConfigMap(shown(name)));
        }
        if text.contains("://") {
            return Err(ModuleSourceError::Scheme(shown(text)));
        }
        Ok(Self::File(text.parse()?))
    }
}

impl FromStr for PinnedReference {
    type Err = OciReferenceError;

    fn from_str(text: &str) -> Result<Self, OciReferenceError> {
        let reference: OciReference = text.parse()?;
        let digest = reference.digest.ok_or_else(|| OciReferenceError::Unpinned(reference.to_string()))?;
        Ok(Self { reference, digest })
    }
}

impl FromStr for OciReference {
    type Err = OciReferenceError;

    /// The scheme may be left out, as other tools do.
    fn from_str(text: &str) -> Result<Self, OciReferenceError> {
        let name = text.strip_prefix(OCI).unwrap_or(text);
        let (name, digest) = match name.split_once('@') {
            Some((name, digest)) => (name, Some(digest.parse()?)),
            None => (name, None),
        };
        let unnamed = || OciReferenceError::Registry(shown(text));
        let (registry, rest) = name.split_once('/').ok_or_else(unnamed)?;
        if !is_registry(registry) {
            return Err(unnamed());
        }
        let (repository, tag) = match rest.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (rest, None),
        };
        if repository.len() > MAX_REPOSITORY || !repository.split('/').all(is_path_component) {
            return Err(OciReferenceError::Repository(shown(repository)));
        }
        if let Some(tag) = tag.filter(|tag| !is_tag(tag)) {
            return Err(OciReferenceError::Tag(shown(tag)));
        }
        Ok(Self { registry: registry.into(), repository: repository.into(), tag: tag.map(Into::into), digest })
    }
}

/// Host names without a dot and a port are names in a default registry, for other tools.
fn is_registry(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_address = address.is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok());
    let is_name = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    let is_complete = is_address || host == "localhost" || host.contains('.') || port.is_some();
    (is_address || is_name) && is_complete && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`
fn is_path_component(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let separators = text.split(|c: char| c.is_ascii() && is_inner(c as u8)).filter(|part| !part.is_empty());
    let ends = |byte: Option<&u8>| byte.is_some_and(|byte| is_inner(*byte));
    ends(text.as_bytes().first())
        && ends(text.as_bytes().last())
        && separators.into_iter().all(|part| matches!(part, "." | "_" | "__") || part.bytes().all(|byte| byte == b'-'))
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=MAX_TAG).contains(&text.len())
        && text.bytes().all(|byte| is_word(byte) || b".-".contains(&byte))
        && text.bytes().next().is_some_and(is_word)
}

/// What a message shows of a text that may be long.
fn shown(text: &str) -> String {
    text.chars().take(300).collect()
}

impl fmt::Display for ModuleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.fmt(f),
            Self::ConfigMap(name) => write!(f, "{CONFIG_MAP}{name}"),
            Self::Oci(reference) => reference.fmt(f),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for OciReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{OCI}{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for PinnedReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reference.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_files_config_maps_or_pinned_artifacts() {
        let digest = Digest::of(b"");
        for text in [
            "a.wasm".to_owned(),
            "configmap://services-1.2".to_owned(),
            format!("oci://registry.example/filters/services:1.2@{digest}"),
            format!("oci://localhost:5000/a__b/c-d@{digest}"),
            format!("oci://[::1]:5000/a@{digest}"),
        ] {
            assert_eq!(text.parse::<ModuleSource>().unwrap().to_string(), text);
        }
        for (text, part) in [
            ("../a.wasm", "not a module file name"),
            ("https://example/a.wasm", "names no module"),
            ("configmap://", "not the name of a ConfigMap"),
            ("configmap://A", "not the name of a ConfigMap"),
            ("configmap://kube-system/a", "not the name of a ConfigMap"),
            ("oci://registry.example/a", "has no digest"),
            ("oci://registry.example/a:1@sha256:12", "64 hexadecimal digits"),
        ] {
            let error = text.parse::<ModuleSource>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn references_follow_the_distribution_specification() {
        let reference: OciReference = "registry.example:5000/a.b/c:v1".parse().unwrap();
        assert_eq!(
            (reference.registry(), reference.repository(), reference.tag(), reference.digest()),
            ("registry.example:5000", "a.b/c", Some("v1"), None)
        );
        for (text, part) in [
            ("services", "names no registry"),
            ("acme/services", "names no registry"),
            ("user@registry.example/a", "not a digest"),
            ("registry.example:/a", "names no registry"),
            ("registry.example/A", "not a repository"),
            ("registry.example/", "not a repository"),
            ("registry.example/a//b", "not a repository"),
            ("registry.example/../b", "not a repository"),
            ("registry.example/a..b", "not a repository"),
            ("registry.example/a:", "not a tag"),
            ("registry.example/a:-b", "not a tag"),
            ("registry.example/a:b/c", "not a tag"),
        ] {
            let error = text.parse::<OciReference>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let long = format!("registry.example/{}", "a".repeat(256));
        assert!(long.parse::<OciReference>().is_err());
    }
}
