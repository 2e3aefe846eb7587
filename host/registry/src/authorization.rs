//! Answers the challenge of a request: what a registry says in `WWW-Authenticate` beside a 401 (RFC 7235). `Basic` is answered
//! with user name and password; `Bearer` with a token of the token service that the challenge names
//! (<https://distribution.github.io/distribution/spec/auth/token/>), or with a registrytoken as it is.
//!
//! What a credential is sent to: the registry that it is for, and the token service that this registry names, by HTTPS unless
//! the registry has `plainHTTP`. Redirects of a token service are not followed.

use http::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use http_auth::ChallengeParser;
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;

use crate::credentials::{Login, Part};
use crate::error::{Problem, body_of, chain, problem_of};

/// The largest answer of a token service in bytes.
const MAX_TOKEN: usize = 1 << 20;

/// One way to log in that a registry offers.
#[derive(Debug, PartialEq, Eq)]
enum Challenge {
    Basic,
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
    /// One that Weir does not know.
    Other(String),
}

/// What is sent with requests after a challenge.
#[derive(Debug, Clone)]
pub(crate) struct Authorization {
    pub(crate) value: HeaderValue,
    /// The part of the credential that it comes from. `None`: a token for anybody.
    pub(crate) part: Option<Part>,
}

/// Answers the challenges of one registry.
pub(crate) struct Authenticator {
    /// Follows no redirects.
    pub(crate) client: Client,
    pub(crate) login: Login,
    /// Whether the registry is reached without TLS, so that its token service may be, too.
    pub(crate) plain_http: bool,
    /// The repository.
    pub(crate) repository: String,
    /// What is done there: `pull`, or `pull,push`.
    pub(crate) actions: &'static str,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

/// Reads all lines of `WWW-Authenticate`, each of which may have several challenges.
fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    let mut challenges = Vec::new();
    for line in headers.get_all(WWW_AUTHENTICATE) {
        // The parser knows ASCII only. A realm for people may have more.
        let line: String =
            line.as_bytes().iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' }).collect();
        for challenge in ChallengeParser::new(&line).map_while(Result::ok) {
            let parameter = |name: &str| {
                let found = challenge.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.to_unescaped()).filter(|value| !value.is_empty())
            };
            challenges.push(match (challenge.scheme.to_ascii_lowercase().as_str(), parameter("realm")) {
                ("basic", _) => Challenge::Basic,
                ("bearer", Some(realm)) => {
                    Challenge::Bearer { realm, service: parameter("service"), scope: parameter("scope") }
                }
                _ => Challenge::Other(challenge.scheme.to_owned()),
            });
        }
    }
    challenges
}

impl Authenticator {
    /// Answers the first challenge that the credential can answer.
    ///
    /// # Errors
    /// There is none, or the token service gives no token.
    pub(crate) async fn answer(&self, headers: &HeaderMap) -> Result<Authorization, Problem> {
        let challenges = challenges(headers);
        for challenge in &challenges {
            match (challenge, &self.login.basic) {
                (Challenge::Basic, Some(basic)) => {
                    use base64::Engine as _;
                    let text = format!("{}:{}", basic.user, basic.password);
                    let text = base64::engine::general_purpose::STANDARD.encode(text);
                    return authorization("Basic", &text, Some(Part::Basic));
                }
                (Challenge::Bearer { realm, service, scope }, _) => {
                    return match &self.login.registry_token {
                        Some(token) => authorization("Bearer", token, Some(Part::RegistryToken)),
                        None => self.token(realm, service.as_deref(), scope.as_deref()).await,
                    };
                }
                _ => {}
            }
        }
        Err(self.unanswered(&challenges))
    }

    /// Asks a token service.
    async fn token(&self, realm: &str, service: Option<&str>, scope: Option<&str>) -> Result<Authorization, Problem> {
        let url = Url::parse(realm).map_err(|error| Problem::Other(format!("its token service {realm:?}: {error}")))?;
        if url.scheme() != "https" && !(self.plain_http && url.scheme() == "http") {
            return Err(Problem::Other(format!(
                "its token service {realm:?} is not reached by HTTPS: nothing is sent to it, unless the registry has plainHTTP"
            )));
        }
        let own = format!("repository:{}:{}", self.repository, self.actions);
        // A registry asks for `pull` when a push looks whether it has a blob. One token does for all of a push.
        let pull = format!("repository:{}:pull", self.repository);
        let scope = scope.filter(|scope| *scope != pull).unwrap_or(&own);
        let service = service.map(|service| ("service", service));
        let (request, part) = match (&self.login.identity_token, &self.login.basic) {
            (Some(token), _) => {
                let grant = [("grant_type", "refresh_token"), ("client_id", "weir"), ("refresh_token", token)];
                let form: Vec<_> = grant.into_iter().chain(service).chain([("scope", scope)]).collect();
                (self.client.post(url).form(&form), Some(Part::IdentityToken))
            }
            (None, basic) => {
                let scopes = scope.split(' ').map(|scope| ("scope", scope));
                let request = self.client.get(url).query(&service.into_iter().chain(scopes).collect::<Vec<_>>());
                match basic {
                    Some(basic) => (request.basic_auth(&basic.user, Some(&basic.password)), Some(Part::Basic)),
                    None => (request, None),
                }
            }
        };
        let service = format!("its token service {realm:?}");
        let response = request.send().await;
        let response = response.map_err(|error| Problem::Unreachable(format!("{service}: {}", chain(&error))))?;
        match response.status() {
            StatusCode::OK => {
                let answer = serde_json::from_slice(&body_of(response, MAX_TOKEN).await).ok();
                let token = answer.and_then(|TokenAnswer { token, access_token }| {
                    [token, access_token].into_iter().flatten().find(|token| !token.is_empty())
                });
                let token = token.ok_or_else(|| {
                    Problem::Other(format!(
                        "{service} answers without a token: neither `token` nor `access_token` has one"
                    ))
                })?;
                authorization("Bearer", &token, part)
            }
            // OAuth says 400 of a token that it does not know.
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(self.refused(part, &service))
            }
            _ => Err(problem_of(response, &service).await.of(&service)),
        }
    }

    /// Says that a credential was not enough for `what`.
    pub(crate) fn refused(&self, part: Option<Part>, what: &str) -> Problem {
        let reason = match (part, self.actions) {
            (None, _) => return self.unauthorized("it wants a credential: name one in --registry-auth", None),
            (Some(_), "pull") => "or this may not read the repository",
            (Some(_), _) => "or this may not write to the repository",
        };
        let entry = &self.login.entry;
        let text = format!("{what} does not accept the credential {entry:?} of --registry-auth, {reason}");
        self.unauthorized(&text, part)
    }

    fn unanswered(&self, challenges: &[Challenge]) -> Problem {
        let names: Vec<_> = challenges
            .iter()
            .map(|challenge| match challenge {
                Challenge::Basic => "Basic",
                Challenge::Bearer { .. } => "Bearer",
                Challenge::Other(scheme) => scheme,
            })
            .collect();
        let entry = &self.login.entry;
        let reason = match names.as_slice() {
            _ if self.login.is_empty() => "it wants a credential: name one in --registry-auth".to_owned(),
            [] => format!("it does not say how to log in (WWW-Authenticate): {entry:?} of --registry-auth is not sent"),
            names if names.contains(&"Basic") => format!(
                "it wants Basic, a user name and a password, and {entry:?} of --registry-auth has {} alone",
                self.login.names()
            ),
            names => format!("it wants {}: Weir knows Basic and Bearer", names.join(" or ")),
        };
        self.unauthorized(&reason, None)
    }

    fn unauthorized(&self, reason: &str, part: Option<Part>) -> Problem {
        let unused = self.login.unused(part).map(|unused| format!(" (not used: {unused})"));
        Problem::Unauthorized(format!("{reason}{}", unused.unwrap_or_default()))
    }
}

fn authorization(scheme: &str, text: &str, part: Option<Part>) -> Result<Authorization, Problem> {
    let value = HeaderValue::try_from(format!("{scheme} {text}"));
    let mut value = value.map_err(|_| Problem::Other("its token has control characters".to_owned()))?;
    value.set_sensitive(true);
    Ok(Authorization { value, part })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_challenges_of_all_lines_are_read() {
        let mut headers = HeaderMap::new();
        for line in [
            "Negotiate",
            "BASIC realm=\"Sonatype Nexus\", Bearer realm=\"https://a.example/token\",service=\"a\"",
            "bearer Realm=\"https://b.example/token\",scope=\"repository:x:pull,push\"",
            "Bearer service=\"none\"",
        ] {
            headers.append(WWW_AUTHENTICATE, line.parse().unwrap());
        }
        headers.append(WWW_AUTHENTICATE, HeaderValue::from_bytes("Basic realm=\"Régistre\"".as_bytes()).unwrap());
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
            scope: scope.map(str::to_owned),
        };
        assert_eq!(
            challenges(&headers),
            [
                Challenge::Other("Negotiate".to_owned()),
                Challenge::Basic,
                bearer("https://a.example/token", Some("a"), None),
                bearer("https://b.example/token", None, Some("repository:x:pull,push")),
                Challenge::Other("Bearer".to_owned()),
                Challenge::Basic,
            ]
        );
    }

    #[tokio::test]
    async fn nothing_is_sent_to_a_token_service_without_tls() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let authenticator = Authenticator {
            client: Client::new(),
            login: Login::default(),
            plain_http: false,
            repository: "a".to_owned(),
            actions: "pull",
        };
        for realm in ["http://127.0.0.1:1/token", "ftp://127.0.0.1/token", "token"] {
            let mut headers = HeaderMap::new();
            headers.insert(WWW_AUTHENTICATE, format!("Bearer realm=\"{realm}\"").parse().unwrap());
            let error = authenticator.answer(&headers).await.unwrap_err().to_string();
            assert!(error.contains("its token service"), "{error}");
            assert!(!error.contains("sending request"), "{error}");
        }
    }
}
