//! Authentication and authorization: a policy function that tests set. It answers access reviews, and is enforced if a
//! test says so.
//!
//! Memory: the policy and the known tokens.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use http::{HeaderMap, header};
use serde_json::{Value, json};

use crate::request::Place;
use crate::status::Status;

/// The user of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its groups.
    pub groups: Vec<String>,
}

/// The attributes of an authorization decision: of a request, or of an access review.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// The user, after impersonation.
    pub user: User,
    /// The bearer token of the request, if any.
    pub token: Option<String>,
    /// The complete User-Agent; empty in reviews about other users.
    pub user_agent: String,
    /// get, list, watch, create, update, patch, delete or deletecollection.
    pub verb: String,
    /// API group, empty for core.
    pub group: String,
    /// API version; empty if a review does not name one.
    pub version: String,
    /// Plural of the resource; empty for a non-resource path.
    pub resource: String,
    /// Sub-resource, or empty.
    pub subresource: String,
    /// Namespace; empty for all namespaces and for cluster-scoped resources.
    pub namespace: String,
    /// Name; empty for collections.
    pub name: String,
    /// The path of a non-resource request; otherwise empty.
    pub path: String,
}

/// The requests on which the policy is enforced. The policy answers all reviews; reviews are never refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Enforce {
    /// No request is refused.
    #[default]
    Nobody,
    /// Every request for resources.
    Everybody,
    /// Requests with this bearer token.
    Token(String),
    /// Requests whose User-Agent begins with this text.
    UserAgent(String),
}

/// The group of everybody who is authenticated.
const AUTHENTICATED: &str = "system:authenticated";

/// A policy. It returns true to allow.
pub(crate) type Policy = Arc<dyn Fn(&Attributes) -> bool + Send + Sync>;

/// The rules in force.
pub(crate) struct Access {
    rules: RwLock<Rules>,
}

struct Rules {
    policy: Policy,
    enforce: Enforce,
    tokens: BTreeMap<String, User>,
    /// What these users may do at most, whatever is enforced.
    rights: BTreeMap<String, Policy>,
    /// Whether an unknown token gets 401. Otherwise the token is taken as the name of a user.
    known_only: bool,
}

// === impl User ===

impl User {
    pub(crate) fn new(name: &str, groups: &[&str]) -> Self {
        Self { name: name.to_owned(), groups: groups.iter().map(ToString::to_string).collect() }
    }

    /// A user that the API server has authenticated.
    pub(crate) fn authenticated(name: &str, groups: &[&str]) -> Self {
        let mut user = Self::new(name, groups);
        if !groups.contains(&AUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        user
    }
}

// === impl Access ===

impl Access {
    pub(crate) fn new(tokens: BTreeMap<String, User>, known_only: bool, rights: BTreeMap<String, Policy>) -> Self {
        let policy: Policy = Arc::new(|_| true);
        Self { rules: RwLock::new(Rules { policy, enforce: Enforce::Nobody, tokens, rights, known_only }) }
    }

    pub(crate) fn set(&self, policy: Policy) {
        self.write(|rules| rules.policy = policy);
    }

    pub(crate) fn enforce(&self, enforce: Enforce) {
        self.write(|rules| rules.enforce = enforce);
    }

    pub(crate) fn set_rights(&self, user: String, allowed: Policy) {
        self.write(|rules| {
            rules.rights.insert(user, allowed);
        });
    }

    pub(crate) fn add_token(&self, token: String, user: User) {
        self.write(|rules| {
            rules.tokens.insert(token, user);
        });
    }

    fn write(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.rules.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// The policy, and what this user may do at most, if that is limited.
    fn policies(&self, user: &User) -> (Policy, Option<Policy>) {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        (Arc::clone(&rules.policy), rules.rights.get(&user.name).cloned())
    }

    /// Refuses what is beyond the rights of a user whose rights are limited.
    fn within_rights(&self, attributes: &Attributes) -> Result<(), Status> {
        match self.policies(&attributes.user).1 {
            Some(allowed) if !allowed(attributes) => Err(Status::forbidden(refusal(attributes))),
            _ => Ok(()),
        }
    }

    /// The user of a request, after impersonation. An unknown token gets 401 if only known ones are accepted; without a token
    /// the request is anonymous then. Otherwise it is the one of a user without a name of its own, so that tests that are about
    /// something else need no credential.
    pub(crate) fn user(&self, headers: &HeaderMap) -> Result<User, Status> {
        let own = self.authenticate(headers)?;
        let Some(name) = text(headers, "impersonate-user") else { return Ok(own) };
        let groups = headers.get_all("impersonate-group").iter();
        let groups: Vec<_> = groups.filter_map(|group| group.to_str().ok()).collect();
        let caller = Attributes { verb: "impersonate".into(), ..Attributes::of(own, headers, "") };
        let asked = |resource: &str, name: &str| Attributes {
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..caller.clone()
        };
        self.within_rights(&asked("users", &name))?;
        groups.iter().try_for_each(|group| self.within_rights(&asked("groups", group)))?;
        Ok(User::authenticated(&name, &groups))
    }

    fn authenticate(&self, headers: &HeaderMap) -> Result<User, Status> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        match bearer(headers) {
            None if !rules.known_only => Ok(User { name: "nameless".into(), groups: vec![AUTHENTICATED.into()] }),
            None => Ok(User { name: "system:anonymous".into(), groups: vec!["system:unauthenticated".into()] }),
            Some(token) => match rules.tokens.get(&token) {
                Some(user) => Ok(user.clone()),
                None if rules.known_only => Err(Status::unauthorized()),
                None => Ok(User { name: token, groups: vec![AUTHENTICATED.into()] }),
            },
        }
    }

    /// Refuses a request beyond its user's rights, and one that the policy denies if the policy is enforced on it.
    pub(crate) fn check(&self, attributes: &Attributes) -> Result<(), Status> {
        self.within_rights(attributes)?;
        let (policy, enforced) = {
            let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
            let enforced = match &rules.enforce {
                Enforce::Nobody => false,
                Enforce::Everybody => true,
                Enforce::Token(token) => attributes.token.as_ref() == Some(token),
                Enforce::UserAgent(start) => attributes.user_agent.starts_with(start.as_str()),
            };
            (Arc::clone(&rules.policy), enforced)
        };
        if !enforced || policy(attributes) {
            return Ok(());
        }
        Err(Status::forbidden(refusal(attributes)))
    }

    /// Answers a review: the posted object with its status. Everybody may ask about themselves.
    pub(crate) fn review(&self, caller: &Attributes, kind: &str, mut posted: Value) -> Result<Value, Status> {
        if !kind.starts_with("Self") {
            self.within_rights(caller)?;
        }
        let status = match kind {
            "SelfSubjectReview" => {
                json!({"userInfo": {"username": caller.user.name, "groups": caller.user.groups}})
            }
            "TokenReview" => self.token_review(&posted),
            _ => {
                let attributes = reviewed(caller, kind, &posted);
                let (policy, rights) = self.policies(&attributes.user);
                if policy(&attributes) && rights.is_none_or(|allowed| allowed(&attributes)) {
                    json!({"allowed": true, "reason": "the test's policy allows it"})
                } else {
                    json!({"allowed": false})
                }
            }
        };
        if let Some(object) = posted.as_object_mut() {
            object.entry("metadata").or_insert_with(|| json!({"creationTimestamp": null}));
            object.insert("status".into(), status);
        }
        Ok(posted)
    }

    fn token_review(&self, posted: &Value) -> Value {
        let token = posted.pointer("/spec/token").and_then(Value::as_str);
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        match token.and_then(|token| rules.tokens.get(token)) {
            Some(user) => {
                json!({"authenticated": true, "user": {"username": user.name, "groups": user.groups}})
            }
            None => json!({"authenticated": false, "error": "unknown token"}),
        }
    }
}

// === impl Attributes ===

impl Attributes {
    pub(crate) fn of(user: User, headers: &HeaderMap, path: &str) -> Self {
        Self {
            user,
            token: bearer(headers),
            user_agent: text(headers, "user-agent").unwrap_or_default(),
            verb: String::new(),
            group: String::new(),
            version: String::new(),
            resource: String::new(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
            path: path.to_owned(),
        }
    }

    /// The same user with the attributes of another resource.
    #[must_use]
    pub(crate) fn at(self, place: &Place, verb: &str, selected: Option<&str>) -> Self {
        Self {
            verb: verb.to_owned(),
            group: place.resource.group.clone(),
            version: place.resource.version.clone(),
            resource: place.resource.plural.clone(),
            subresource: place.subresource.clone().unwrap_or_default(),
            // As kube-apiserver sees it, a Namespace is in itself.
            namespace: match place.resource.plural.as_str() {
                "namespaces" => place.name.clone(),
                _ => place.namespace.clone(),
            },
            name: match selected {
                Some(name) if place.name.is_empty() => name.to_owned(),
                _ => place.name.clone(),
            },
            path: String::new(),
            ..self
        }
    }
}

/// The attributes in a SubjectAccessReview or a similar review.
fn reviewed(caller: &Attributes, kind: &str, posted: &Value) -> Attributes {
    let text = |pointer: &str| {
        let value = posted.pointer(pointer).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let at = |field: &str| text(&format!("/spec/resourceAttributes/{field}"));
    let other = kind != "SelfSubjectAccessReview";
    let groups = posted.pointer("/spec/groups").and_then(Value::as_array);
    let path = text("/spec/nonResourceAttributes/path");
    Attributes {
        user: if other {
            User {
                name: text("/spec/user"),
                groups: groups.into_iter().flatten().filter_map(|group| group.as_str().map(str::to_owned)).collect(),
            }
        } else {
            caller.user.clone()
        },
        token: caller.token.clone().filter(|_| !other),
        user_agent: if other { String::new() } else { caller.user_agent.clone() },
        verb: if path.is_empty() { at("verb") } else { text("/spec/nonResourceAttributes/verb") },
        group: at("group"),
        version: at("version"),
        resource: at("resource"),
        subresource: at("subresource"),
        namespace: at("namespace"),
        name: at("name"),
        path,
    }
}

fn refusal(attributes: &Attributes) -> String {
    let sub = match attributes.subresource.as_str() {
        "" => String::new(),
        sub => format!("/{sub}"),
    };
    let named = match attributes.name.as_str() {
        "" => String::new(),
        name => format!(" \"{name}\""),
    };
    let place = match attributes.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace \"{namespace}\""),
    };
    let qualified = crate::catalog::qualified(&attributes.group, &attributes.resource);
    format!(
        "{qualified}{named} is forbidden: User \"{}\" cannot {} resource \"{}{sub}\" in API group \"{}\" {place}",
        attributes.user.name, attributes.verb, attributes.resource, attributes.group
    )
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// The bearer token as kube-apiserver reads it: the second of the words that single spaces separate.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let mut words = value.trim().splitn(3, ' ');
    let scheme = words.next()?;
    let token = words.next().filter(|token| !token.is_empty() && scheme.eq_ignore_ascii_case("bearer"))?;
    Some(token.to_owned())
}
