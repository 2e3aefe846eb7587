//! `--registry-auth`: user names and passwords of registries, in the format of docker's `config.json` and of Kubernetes' pull
//! secrets.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::{Deserialize, Serialize};
use weir_runtime::OciReference;

/// How docker spells its default registry.
const DOCKER: &str = "index.docker.io";

/// The credentials of registries.
#[derive(Debug, Clone, Default)]
pub struct Credentials(BTreeMap<String, Login>);

/// A user name and a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    /// The user name.
    pub user: String,
    /// The password.
    pub password: String,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    auths: BTreeMap<String, Auth>,
}

#[derive(Deserialize)]
struct Auth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

impl Credentials {
    /// Parses the file.
    ///
    /// # Errors
    /// It is not JSON, or an entry is malformed. Messages do not contain what is secret.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = serde_json::from_str(text)
            .map_err(|error| format!("not a docker config: line {}: {:?} error", error.line(), error.classify()))?;
        let mut logins = BTreeMap::new();
        for (place, auth) in file.auths {
            let login = match auth {
                Auth { username: Some(user), password: Some(password), .. } => Login { user, password },
                Auth { auth: Some(auth), .. } => decoded(&auth)
                    .ok_or_else(|| format!("auths[{place:?}].auth is not the base64 of `user:password`"))?,
                // What `docker logout` and credential helpers leave.
                Auth { .. } => continue,
            };
            logins.insert(normalized(&place), login);
        }
        Ok(Self(logins))
    }

    /// Returns the credential of a repository: that of the longest place that contains it, as kubelet chooses.
    #[must_use]
    pub fn login(&self, host: &str, repository: &str) -> Option<&Login> {
        let host = if host == "docker.io" { DOCKER } else { host };
        let name = format!("{host}/{repository}");
        let contains = |place: &str| name.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'));
        self.0.iter().filter(|(place, _)| contains(place)).max_by_key(|(place, _)| place.len()).map(|(_, login)| login)
    }

    /// Returns the credential of an artifact.
    #[must_use]
    pub fn of(&self, reference: &OciReference) -> Option<&Login> {
        self.login(reference.registry(), reference.repository())
    }
}

/// `https://host/v1/` is the same place as `host`.
fn normalized(place: &str) -> String {
    let place = place.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
    let place = place.trim_end_matches("/v1").trim_end_matches("/v2");
    match place {
        "docker.io" => DOCKER.to_owned(),
        place => place.to_owned(),
    }
}

fn decoded(auth: &str) -> Option<Login> {
    let bytes = STANDARD.decode(auth.trim()).or_else(|_| STANDARD_NO_PAD.decode(auth.trim())).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(Login { user: user.to_owned(), password: password.trim_end_matches('\0').to_owned() })
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(user: &str) -> Login {
        Login { user: user.to_owned(), password: format!("secret-{user}") }
    }

    #[test]
    fn the_longest_place_wins_and_docker_has_aliases() {
        let auth = |user: &str| STANDARD.encode(format!("{user}:secret-{user}"));
        let text = serde_json::json!({"auths": {
            "registry.example": {"auth": auth("all")},
            "registry.example/team": {"username": "team", "password": "secret-team"},
            "https://index.docker.io/v1/": {"auth": auth("docker")},
            "helped.example": {},
        }, "credsStore": "desktop"});
        let credentials = Credentials::parse(&text.to_string()).unwrap();
        for (host, repository, user) in [
            ("registry.example", "a", Some("all")),
            ("registry.example", "team/a", Some("team")),
            ("registry.example", "teams/a", Some("all")),
            ("docker.io", "acme/a", Some("docker")),
            ("registry.example:5000", "a", None),
            ("helped.example", "a", None),
        ] {
            assert_eq!(credentials.login(host, repository), user.map(login).as_ref(), "{host}/{repository}");
        }
        assert_eq!(format!("{:?}", login("a")), "Login { user: \"a\", .. }");
    }

    #[test]
    fn messages_keep_secrets() {
        for text in [r#"{"auths": {"a.example": {"auth": "c2VjcmV0"}}}"#, r#"{"auths": "secret"}"#, "secret"] {
            let error = Credentials::parse(text).unwrap_err();
            assert!(!error.contains("secret") && !error.contains("c2Vj"), "{error}");
        }
    }
}
