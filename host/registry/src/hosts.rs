//! `--registries`: how each registry is reached. A registry that the file does not name is reached by HTTPS, with the
//! certificate authorities of the system.
//!
//! ```yaml
//! registries:
//! - host: registry.example
//!   mirrors: ["10.0.0.5:5000", "harbor.example/proxy"]
//!   caFile: /etc/weir/registry-ca.pem
//! - host: 10.0.0.5:5000
//!   plainHTTP: true
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{fmt, io};

use serde::{Deserialize, Serialize};
use weir_process::files;

use crate::mapping::{self, Mapping};

/// The largest file of certificate authorities in bytes.
const MAX_FILE: usize = 4 << 20;

/// How the registries of a daemon are reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registries(BTreeMap<String, Registry>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Registry {
    host: String,
    mirrors: Vec<String>,
    ca_file: Option<PathBuf>,
    plain_http: bool,
}

/// One address at which a registry's artifacts are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Host and port.
    pub host: String,
    /// What stands before the names of repositories there, or nothing: the project of a proxy cache.
    pub(crate) path: String,
    /// Whether it speaks HTTP without TLS.
    pub(crate) plain_http: bool,
    /// The certificate authorities by which it is recognized, as PEM. `None`: those of the system.
    pub(crate) certificate_authority: Option<String>,
}

/// Why `--registries` is not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistriesError {
    /// It is not what the documentation says.
    #[error("{0}")]
    Invalid(String),
    /// A certificate authority cannot be read.
    #[error("caFile of {host}: {}", path.display())]
    CertificateAuthority {
        /// The registry.
        host: String,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl Registries {
    /// Parses the file.
    ///
    /// # Errors
    /// It has unknown keys, or says something twice, or contradicts itself.
    pub fn parse(text: &str) -> Result<Self, RegistriesError> {
        let registry = |entry: &Mapping<'_>| {
            Ok(Registry {
                host: entry.required_text("host")?,
                mirrors: entry.texts("mirrors")?.unwrap_or_default(),
                ca_file: entry.text("caFile")?.map(PathBuf::from),
                plain_http: entry.flag("plainHTTP")?.unwrap_or_default(),
            })
        };
        let keys = ["host", "mirrors", "caFile", "plainHTTP"];
        let registries = mapping::list(text, "registries", &keys, registry).map_err(RegistriesError::Invalid)?;
        let mut hosts = BTreeMap::new();
        for registry in registries {
            let host = registry.host.clone();
            let is_place = |name: &str| format!("{name}/a").parse::<weir_spec::OciReference>().is_ok();
            if !is_place(&host) || host.contains('/') {
                return Err(RegistriesError::Invalid(format!(
                    "{host:?} is not the host of a registry, with an optional port"
                )));
            }
            if let Some(mirror) = registry.mirrors.iter().find(|mirror| !is_place(mirror)) {
                return Err(RegistriesError::Invalid(format!(
                    "mirror {mirror:?} is not the host of a registry, with an optional port and an optional path that stands \
                     before the names of repositories: HOST[:PORT][/PATH]"
                )));
            }
            if registry.plain_http && registry.ca_file.is_some() {
                return Err(RegistriesError::Invalid(format!("{host}: plainHTTP and caFile exclude each other")));
            }
            if hosts.insert(host.clone(), registry).is_some() {
                return Err(RegistriesError::Invalid(format!("{host} is given twice")));
            }
        }
        Ok(Self(hosts))
    }

    /// Returns where to look for an artifact of a registry: its mirrors in their order, then itself.
    ///
    /// # Errors
    /// The file of a certificate authority cannot be read.
    pub fn endpoints(&self, host: &str) -> Result<Vec<Endpoint>, RegistriesError> {
        let mirrors = self.0.get(host).map(|registry| registry.mirrors.as_slice()).unwrap_or_default();
        mirrors.iter().map(String::as_str).chain([host]).map(|host| self.endpoint(host)).collect()
    }

    /// `place` is a host, or a mirror with a path.
    fn endpoint(&self, place: &str) -> Result<Endpoint, RegistriesError> {
        let (host, path) = place.split_once('/').unwrap_or((place, ""));
        let registry = self.0.get(host);
        let file = registry.and_then(|registry| registry.ca_file.as_ref());
        let certificate_authority = file.map(|path| {
            let read = files::read_now(path, MAX_FILE);
            read.and_then(|pem| String::from_utf8(pem).map_err(io::Error::other)).map_err(|source| {
                RegistriesError::CertificateAuthority { host: host.to_owned(), path: path.clone(), source }
            })
        });
        Ok(Endpoint {
            host: host.to_owned(),
            path: path.to_owned(),
            plain_http: registry.is_some_and(|registry| registry.plain_http),
            certificate_authority: certificate_authority.transpose()?,
        })
    }
}

impl Endpoint {
    /// Returns the name by which a repository is here.
    #[must_use]
    pub fn repository(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        if self.path.is_empty() { Ok(()) } else { write!(f, "/{}", self.path) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_come_first_and_have_settings_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, "PEM").unwrap();
        let text = format!(
            "registries:\n- host: registry.example\n  mirrors: ['10.0.0.5:5000']\n  caFile: {}\n- host: 10.0.0.5:5000\n  \
             plainHTTP: true\n",
            ca.display()
        );
        let registries = Registries::parse(&text).unwrap();
        let endpoint = |host: &str, plain_http, certificate: Option<&str>| Endpoint {
            host: host.to_owned(),
            path: String::new(),
            plain_http,
            certificate_authority: certificate.map(str::to_owned),
        };
        assert_eq!(
            registries.endpoints("registry.example").unwrap(),
            [endpoint("10.0.0.5:5000", true, None), endpoint("registry.example", false, Some("PEM"))]
        );
        assert_eq!(registries.endpoints("other.example").unwrap(), [endpoint("other.example", false, None)]);
        // A path is not a part of the host.
        let text = "registries: [{host: a.example, mirrors: ['b.example:5000/proxy/a']}, {host: 'b.example:5000', plainHTTP: true}]";
        let endpoints = Registries::parse(text).unwrap().endpoints("a.example").unwrap();
        let proxy = Endpoint { path: "proxy/a".to_owned(), ..endpoint("b.example:5000", true, None) };
        assert_eq!(endpoints, [proxy.clone(), endpoint("a.example", false, None)]);
        assert_eq!(
            (proxy.repository("team/x").as_str(), proxy.to_string().as_str()),
            ("proxy/a/team/x", "b.example:5000/proxy/a")
        );
        std::fs::remove_file(&ca).unwrap();
        let error = registries.endpoints("registry.example").unwrap_err().to_string();
        assert!(error.starts_with("caFile of registry.example: "), "{error}");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("registries: [{host: a.example}, {host: a.example}]", "a.example is given twice"),
            ("registries: [{host: a.example, plainHttp: true}]", "plainHttp"),
            ("registries: [{host: 'https://a.example'}]", "is not the host of a registry"),
            ("registries: [{host: a.example/b}]", "\"a.example/b\" is not the host"),
            ("registries: [{host: a.example, mirrors: [b/c]}]", "\"b/c\" is not the host"),
            ("registries: [{host: a.example, mirrors: [b.example/C]}]", "HOST[:PORT][/PATH]"),
            ("registries: [{host: a.example, plainHTTP: true, caFile: x}]", "exclude each other"),
            ("hosts: []", "hosts"),
        ] {
            let error = Registries::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
