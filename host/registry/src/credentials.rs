//! `--registry-auth`: credentials of registries, in the formats of docker's `config.json` and of Kubernetes' pull secrets
//! (`.dockerconfigjson`, and the older `.dockercfg`). Which entry is for a repository is decided as kubelet decides it.
//!
//! Nothing of the file is passed over in silence: [`Login::unused`] names what a repository's credential leaves out.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use weir_spec::OciReference;

/// How docker spells its default registry.
pub(crate) const DOCKER: &str = "index.docker.io";

/// The credentials of registries.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// In the order of the file.
    entries: Vec<Entry>,
    /// The program that has the credentials of all other registries.
    credentials_store: Option<String>,
    /// The programs that have the credentials of one registry.
    credential_helpers: BTreeMap<String, String>,
}

/// A credential, and the repositories that it is for.
#[derive(Debug, Clone)]
struct Entry {
    /// Host and port. A `*` stands for any part of one label.
    host: String,
    /// The beginning of the repository, or nothing.
    path: String,
    login: Login,
}

/// The credential of a repository, or none: [`Login::is_empty`].
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    /// The key of the entry in the file.
    pub(crate) entry: String,
    pub(crate) basic: Option<Basic>,
    /// Is exchanged for a token at the token service of the registry.
    pub(crate) identity_token: Option<String>,
    /// Is sent to the registry as it is.
    pub(crate) registry_token: Option<String>,
    /// An entry of the file that might be for this repository, and is not used.
    ignored: Vec<String>,
}

/// A user name and a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Basic {
    pub(crate) user: String,
    pub(crate) password: String,
}

/// The part of a credential that answered a challenge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// User name and password.
    Basic,
    IdentityToken,
    RegistryToken,
}

#[derive(Deserialize)]
struct Auth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
    /// Docker wrote it, and nobody reads it.
    #[serde(rename = "email")]
    _email: Option<IgnoredAny>,
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

impl Credentials {
    /// Parses the file.
    ///
    /// # Errors
    /// It is not JSON, or an entry is malformed. Messages do not contain what is secret.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut file: Map<String, Value> = serde_json::from_str(text)
            .map_err(|error| format!("not a docker config: line {}: {:?} error", error.line(), error.classify()))?;
        if file.contains_key("kind") && file.contains_key("data") {
            return Err(
                "it is the manifest of a Secret: give the file in it, .dockerconfigjson or .dockercfg".to_owned()
            );
        }
        let entries = match file.remove("auths") {
            Some(Value::Object(entries)) => entries,
            Some(Value::Null) => Map::new(),
            Some(_) => return Err("auths is not an object: it has a key for each registry".to_owned()),
            // The older format has the entries only. The keys of the newer one are no hosts.
            None => file.iter().filter(|(key, _)| key.contains(['.', ':', '/'])).map(cloned).collect(),
        };
        let text_of = |value: Option<Value>| value.and_then(|value| value.as_str().map(str::to_owned));
        let credential_helpers = file.remove("credHelpers");
        Ok(Self {
            entries: entries.into_iter().map(|(key, value)| Entry::new(&key, value)).collect::<Result<_, _>>()?,
            credentials_store: text_of(file.remove("credsStore")).filter(|name| !name.is_empty()),
            credential_helpers: credential_helpers.and_then(|map| serde_json::from_value(map).ok()).unwrap_or_default(),
        })
    }

    /// Adds those of another file. Of entries that are alike the first counts.
    pub fn add(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.credentials_store = self.credentials_store.take().or(other.credentials_store);
        for (host, helper) in other.credential_helpers {
            self.credential_helpers.entry(host).or_insert(helper);
        }
    }

    /// Returns the credential of a repository: of the entries that match, that without a wildcard, then that with the longest
    /// path. Kubelet tries them all in this order. The others are named in what is not used.
    #[must_use]
    pub fn login(&self, host: &str, repository: &str) -> Login {
        let host = if host == "docker.io" { DOCKER } else { host };
        let mut found: Vec<_> = self.entries.iter().filter(|entry| entry.is_for(host, repository)).collect();
        found.sort_by_key(|entry| Reverse(entry.rank(repository)));
        let (usable, empty): (Vec<_>, Vec<_>) = found.into_iter().partition(|entry| !entry.login.is_empty());
        let mut login = usable.first().map(|entry| entry.login.clone()).unwrap_or_default();
        let others = usable.iter().skip(1).map(|entry| format!("{:?}, which is for it too", entry.login.entry));
        // What `docker logout` and credential helpers leave.
        let empty = empty.iter().map(|entry| format!("{:?}, which has no credential", entry.login.entry));
        login.ignored.extend(others.chain(empty));
        let helper = self.credential_helpers.get(host).or(self.credentials_store.as_ref());
        if let Some(helper) = helper.filter(|_| login.is_empty()) {
            login.ignored.push(format!("the credential helper {helper:?}: Weir runs none"));
        }
        login
    }

    /// Returns the credential of an artifact.
    #[must_use]
    pub fn of(&self, reference: &OciReference) -> Login {
        self.login(reference.registry(), reference.repository())
    }
}

fn cloned((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

impl Entry {
    fn new(key: &str, value: Value) -> Result<Self, String> {
        // A message of the parser may have what is secret.
        let auth: Auth = serde_json::from_value(value)
            .map_err(|_| format!("auths[{key:?}] is not an object whose values are texts"))?;
        let place = key.trim_start_matches("https://").trim_start_matches("http://");
        let (host, path) = place.split_once('/').unwrap_or((place, ""));
        // `host/v1/` is the same place as `host`.
        let path = match path.split_once('/').unwrap_or((path, "")) {
            ("v1" | "v2", path) => path,
            _ => path,
        };
        let host = if host == "docker.io" { DOCKER } else { host };
        Ok(Self { host: host.to_owned(), path: path.trim_end_matches('/').to_owned(), login: Login::new(key, auth)? })
    }

    /// Whether it is for a repository, by the rules of kubelet (`URLsMatch` in k8s.io/kubernetes/pkg/credentialprovider): the
    /// host has as many labels, each of which matches, the port is the same, and the path is a prefix.
    fn is_for(&self, host: &str, repository: &str) -> bool {
        let (name, port) = self.host.split_once(':').unwrap_or((&self.host, ""));
        let (wanted, wanted_port) = host.split_once(':').unwrap_or((host, ""));
        port == wanted_port
            && name.split('.').count() == wanted.split('.').count()
            && name.split('.').zip(wanted.split('.')).all(|(pattern, label)| is_match(pattern, label))
            && repository.starts_with(&self.path)
    }

    /// Orders entries that are for a repository. One whose path ends within a name is the last choice: kubelet, which tries all,
    /// takes `team` for a prefix of `teams/a`.
    fn rank(&self, repository: &str) -> (Reverse<usize>, bool, usize) {
        let rest = repository.strip_prefix(&*self.path).unwrap_or_default();
        let is_whole = self.path.is_empty() || rest.is_empty() || rest.starts_with('/');
        (Reverse(self.host.matches('*').count()), is_whole, self.path.len())
    }
}

/// Whether a label matches a pattern, in which `*` stands for any text.
fn is_match(pattern: &str, label: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == label,
        Some((start, rest)) => label.strip_prefix(start).is_some_and(|label| {
            label
                .char_indices()
                .map(|(at, _)| at)
                .chain([label.len()])
                .any(|at| label.get(at..).is_some_and(|label| is_match(rest, label)))
        }),
    }
}

impl Login {
    fn new(entry: &str, auth: Auth) -> Result<Self, String> {
        let text = |text: Option<String>| text.filter(|text| !text.is_empty());
        let (identity_token, registry_token) = (text(auth.identitytoken), text(auth.registrytoken));
        let mut ignored: Vec<_> = auth.others.keys().map(|key| format!("{key:?} of {entry:?}")).collect();
        let named = auth.username.zip(auth.password).map(|(user, password)| Basic { user, password });
        // As docker and kubelet: `auth` counts.
        let basic = match text(auth.auth) {
            Some(auth) => {
                let basic = decoded(&auth)
                    .ok_or_else(|| format!("auths[{entry:?}].auth is not the base64 of `user:password`"))?;
                if named.is_some_and(|named| named != basic) {
                    ignored.push(format!("username and password of {entry:?}, as its auth is another"));
                }
                Some(basic)
            }
            None => named,
        };
        // `az acr login` writes a user without a password beside its token.
        let has_token = identity_token.is_some() || registry_token.is_some();
        let basic = basic.filter(|basic| !(basic.password.is_empty() && (has_token || basic.user.is_empty())));
        Ok(Self { entry: entry.to_owned(), basic, identity_token, registry_token, ignored })
    }

    /// Whether there is no credential.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.parts().next().is_none()
    }

    /// What the credential consists of.
    fn parts(&self) -> impl Iterator<Item = (Part, &'static str)> {
        let basic = self.basic.is_some().then_some((Part::Basic, "user name and password"));
        let identity_token = self.identity_token.is_some().then_some((Part::IdentityToken, "identitytoken"));
        let registry_token = self.registry_token.is_some().then_some((Part::RegistryToken, "registrytoken"));
        [registry_token, identity_token, basic].into_iter().flatten()
    }

    /// The names of its parts.
    pub(crate) fn names(&self) -> String {
        self.parts().map(|(_, name)| name).collect::<Vec<_>>().join(" and ")
    }

    /// Says what of the file might be for the repository, and is not used: other parts than `used`, other entries, helpers.
    pub(crate) fn unused(&self, used: Option<Part>) -> Option<String> {
        let others = self.parts().filter(|(part, _)| Some(*part) != used);
        let others = others.map(|(_, name)| format!("{name} of {:?}", self.entry));
        let all: Vec<_> = others.chain(self.ignored.iter().cloned()).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

fn decoded(auth: &str) -> Option<Basic> {
    let bytes = STANDARD.decode(auth.trim()).or_else(|_| STANDARD_NO_PAD.decode(auth.trim())).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(Basic { user: user.to_owned(), password: password.trim_end_matches('\0').to_owned() })
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("entry", &self.entry).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
