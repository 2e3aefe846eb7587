//! The keys of a filter in `filters.yaml`. The parser accepts these keys only; the table in `deploy/filters.md` is generated
//! from them.

use weir_spec::{FailurePolicy, MemoryLimit, Mode, TimeLimit, Writes, default_grants};

/// A key of the configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConfigKey {
    /// As written in YAML.
    pub(crate) name: &'static str,
    /// The value of a missing key, as Markdown; empty if there is none.
    #[cfg_attr(not(test), allow(dead_code, reason = "only the generated documentation uses it"))]
    pub(crate) default: fn() -> String,
    /// The meaning, as Markdown.
    #[cfg_attr(not(test), allow(dead_code, reason = "only the generated documentation uses it"))]
    pub(crate) description: &'static str,
}

/// The keys of a filter.
pub(crate) const FILTER_KEYS: &[ConfigKey] = &[
    ConfigKey {
        name: "name",
        default: String::new,
        description: "Required. Unique name of the filter, in logs, metrics and error messages",
    },
    ConfigKey {
        name: "module",
        default: || "`<name>.wasm`".to_owned(),
        description: "Where the module is: `NAME.wasm` in `binaryData` of the ConfigMap or else in `--modules-dir`; \
                      `configmap://NAME` in another ConfigMap of the same namespace; \
                      `oci://REGISTRY/NAME@sha256:…` in a registry, by the digest of its manifest",
    },
    ConfigKey {
        name: "digest",
        default: String::new,
        description: "Digest that the module must have: `sha256:<64 hexadecimal digits>`. Required for `configmap://NAME`",
    },
    ConfigKey {
        name: "signature",
        default: String::new,
        description: "Signature of a module that is not in a registry, if `--signature-policy` wants one: what \
                      `cosign sign-blob` prints, or its bundle",
    },
    ConfigKey {
        name: "match",
        default: || "the module's own rules".to_owned(),
        description: "Requests to filter: a list of `component/resource[.group][#verb;verb]`. The component is the first word \
                      of the User-Agent; `*` matches any. A resource without a group is a built-in one. Get, list and watch \
                      are filtered alike: a rule for one of them covers all three",
    },
    ConfigKey {
        name: "settings",
        default: || "`{}`".to_owned(),
        description: "Settings of the filter, passed to the module as JSON",
    },
    ConfigKey {
        name: "mode",
        default: || code(Mode::default().as_str()),
        description: "`enforce`, or `observe`: the filter runs on the same objects and changes nothing. What it would do is \
                      counted in `weir_filter_observed_objects_total`, and logged",
    },
    ConfigKey {
        name: "nodes",
        default: || "all nodes".to_owned(),
        description: "Nodes on which the filter is active, see the keys of `nodes`",
    },
    ConfigKey {
        name: "rollback",
        default: || "never".to_owned(),
        description: "When a new filter is taken back, see the keys of `rollback`",
    },
    ConfigKey {
        name: "failurePolicy",
        default: || code(FailurePolicy::default().as_str()),
        description: "Action if the filter fails on an object: `Fail` (the request fails, or the last good outcome stands \
                      in), `Ignore` (the object passes unfiltered) or `Hide` (the object is left out). It holds until the \
                      object is filtered again: in a watch cache after a second, then after twice as long each time, up to \
                      30 s (a minute and a half where the filter fails on it again and again)",
    },
    ConfigKey {
        name: "allowHide",
        default: || code("false"),
        description: "Whether `failurePolicy: Hide` may take pods and Nodes from kubelet, which stops pods that it no longer \
                      sees. Without it, such a filter is refused: one whose rules match reads of pods or nodes by `kubelet` or \
                      by `*`",
    },
    ConfigKey {
        name: "writes",
        default: || code(if Writes::default() == Writes::Refuse { "refuse" } else { "pass" }),
        description: "Action on a PUT, JSON Patch or merge patch of an object that the filter edits or hides for the writer: \
                      `refuse` (403) or `pass`",
    },
    ConfigKey {
        name: "grants",
        default: || default_grants().iter().map(|grant| code(&grant.to_string())).collect::<Vec<_>>().join(", "),
        description: "Resources that the filter may look up. `secrets` is never allowed",
    },
    ConfigKey { name: "limits", default: String::new, description: "Limits of the filter, see the keys of `limits`" },
    ConfigKey {
        name: "edits",
        default: String::new,
        description: "Protected fields of Pods that the filter may edit: paths such as `spec.volumes`",
    },
];

/// The keys of `nodes`.
pub(crate) const NODE_KEYS: &[ConfigKey] = &[
    ConfigKey {
        name: "labelSelector",
        default: String::new,
        description: "Selector of the node's labels, as for `kubectl get -l`",
    },
    ConfigKey {
        name: "pools",
        default: String::new,
        description: "Names of node pools (the label `apps.openyurt.io/nodepool`). With `labelSelector`, both must hold",
    },
];

/// The keys of `rollback`.
pub(crate) const ROLLBACK_KEYS: &[ConfigKey] = &[
    ConfigKey {
        name: "failed",
        default: String::new,
        description: "Share of objects, such as `5%`. If the filter fails on more of them, the filter set before it is active \
                      again, and the configuration is refused until it changes",
    },
    ConfigKey {
        name: "hidden",
        default: String::new,
        description: "Share of objects that the filter may hide beyond the share that the filter of this name hid before it",
    },
    ConfigKey {
        name: "within",
        default: || "`5m`".to_owned(),
        description: "How long the bounds hold after the filter became active: up to `24h`",
    },
];

/// The keys of `limits`.
pub(crate) const LIMIT_KEYS: &[ConfigKey] = &[
    ConfigKey {
        name: "memory",
        default: || code(&MemoryLimit::default().to_string()),
        description: "Memory of one instance of the module: `1Mi` to `512Mi`",
    },
    ConfigKey {
        name: "time",
        default: || code(&TimeLimit::default().to_string()),
        description: "Time for one object: `1ms` to `10s`",
    },
];

/// The keys whose values are mappings, with the keys in them.
#[cfg(test)]
pub(crate) const NESTED_KEYS: &[(&str, &[ConfigKey])] =
    &[("nodes", NODE_KEYS), ("rollback", ROLLBACK_KEYS), ("limits", LIMIT_KEYS)];

fn code(text: &str) -> String {
    format!("`{text}`")
}
