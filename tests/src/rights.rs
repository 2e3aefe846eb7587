//! What the daemon's account may do where Weir is installed: the roles in the manifests of `deploy/` that are bound to it.

use serde_json::Value;
use weir_apiserver::Attributes;

use crate::built;

/// The user name of the daemon's account.
pub const ACCOUNT: &str = "system:serviceaccount:kube-system:weir";

/// The groups of the daemon's account.
pub const GROUPS: [&str; 2] = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];

/// The bearer token of the daemon's account, as the API servers of the tests know it.
pub const TOKEN: &str = "token-of-the-account-weir";

/// Rules of roles, evaluated as RBAC does.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    /// None: in all namespaces, and for resources without one.
    namespace: Option<String>,
    rule: Value,
}

impl Rights {
    /// The rights that each installation has: those of `deploy/rbac.yaml`.
    #[must_use]
    pub fn shipped() -> Self {
        Self::default().with("rbac.yaml")
    }

    /// These rights and those of another manifest in `deploy/`.
    ///
    /// # Panics
    /// The manifest binds no role to the daemon's account.
    #[must_use]
    pub fn with(self, manifest: &str) -> Self {
        let path = built::workspace().join("deploy").join(manifest);
        let objects = weir_store::read_objects(&std::fs::read_to_string(path).unwrap()).unwrap();
        let bound: Vec<_> = objects.iter().filter(|object| binds_the_account(object)).collect();
        assert!(!bound.is_empty(), "{manifest} binds no role to {ACCOUNT}");
        bound.into_iter().fold(self, |rights, binding| {
            let role = |object: &&Value| {
                object["kind"] == binding["roleRef"]["kind"]
                    && object["metadata"]["name"] == binding["roleRef"]["name"]
                    && object["metadata"]["namespace"] == binding["metadata"]["namespace"]
            };
            let role = objects.iter().find(role).unwrap_or_else(|| panic!("{manifest}: no role of {binding}"));
            rights.and(binding["metadata"]["namespace"].as_str(), role["rules"].as_array().unwrap())
        })
    }

    /// These rights and those of `deploy/impersonation.yaml`, for these users and groups in place of those in it: an operator
    /// fills them in. Users of client certificates need it.
    #[must_use]
    pub fn impersonating(self, users: &[&str], groups: &[&str]) -> Self {
        let mut rights = Self::default().with("impersonation.yaml");
        for Rule { rule, .. } in &mut rights.rules {
            for (resource, names) in [("users", users), ("groups", groups)] {
                if rule["resources"][0] == resource {
                    rule["resourceNames"] = names.into();
                }
            }
        }
        Self { rules: self.rules.into_iter().chain(rights.rules).collect() }
    }

    /// These rights and verbs for one more resource of a group, in all namespaces: for filters that read what no filter of
    /// `deploy/` does.
    #[must_use]
    pub fn reading(self, group: &str, resource: &str) -> Self {
        let rule =
            serde_json::json!({"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]});
        self.and(None, &[rule])
    }

    fn and(mut self, namespace: Option<&str>, rules: &[Value]) -> Self {
        let of = |rule: &Value| Rule { namespace: namespace.map(str::to_owned), rule: rule.clone() };
        self.rules.extend(rules.iter().map(of));
        self
    }

    /// Whether a rule allows the request.
    #[must_use]
    pub fn allow(&self, asked: &Attributes) -> bool {
        self.rules.iter().any(|rule| rule.allows(asked))
    }
}

impl Rule {
    fn allows(&self, asked: &Attributes) -> bool {
        let has = |key: &str, wanted: &str| {
            self.rule[key].as_array().is_some_and(|values| values.iter().any(|value| value == wanted || value == "*"))
        };
        let resource = match asked.subresource.as_str() {
            "" => asked.resource.clone(),
            sub => format!("{}/{sub}", asked.resource),
        };
        self.namespace.as_ref().is_none_or(|namespace| *namespace == asked.namespace)
            && has("apiGroups", &asked.group)
            && has("resources", &resource)
            && has("verbs", &asked.verb)
            && (self.rule["resourceNames"].is_null() || has("resourceNames", &asked.name))
    }
}

fn binds_the_account(object: &Value) -> bool {
    text(&object["kind"]).ends_with("RoleBinding")
        && object["subjects"].as_array().is_some_and(|subjects| {
            let is_it = |subject: &Value| {
                format!("system:serviceaccount:{}:{}", text(&subject["namespace"]), text(&subject["name"])) == ACCOUNT
            };
            subjects.iter().any(is_it)
        })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
