//! The status of a pod, as far as endpoints depend on it: addresses, phase and conditions.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The most addresses of a pod, and the most conditions. A pod has one address of each family, and about five conditions.
const MAX_ADDRESSES: usize = 16;
const MAX_CONDITIONS: usize = 64;

/// What kubelet has reported of a pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    /// The addresses, the primary one first.
    pub addresses: Vec<IpAddr>,
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`; empty if it is not known.
    pub phase: String,
    /// The conditions, each type once.
    pub conditions: Vec<PodCondition>,
}

/// A status or a patch that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidStatus {
    /// It is not JSON of the expected form.
    #[error("it is not valid JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A field has a value that no pod has.
    #[error("{field}: {value:?} is not valid")]
    Field {
        /// The path of the field.
        field: &'static str,
        /// The value, shortened.
        value: String,
    },
    /// The patch does not name the pod's uid.
    #[error("it does not name the pod's uid")]
    NoUid,
    /// There are more values than any pod has.
    #[error("{field}: too many values, the limit is {limit}")]
    TooMany {
        /// The path of the field.
        field: &'static str,
        /// The limit.
        limit: usize,
    },
}

impl PodStatus {
    /// The status of a pod.
    ///
    /// # Errors
    /// [`InvalidStatus`] for an address that is none, or too many values.
    pub fn of(pod: &Pod) -> Result<Self, InvalidStatus> {
        let status = pod.status.clone().unwrap_or_default();
        let mut addresses = Vec::new();
        let all = status.pod_ips.unwrap_or_default().into_iter().map(|address| address.ip);
        for text in status.pod_ip.into_iter().chain(all) {
            push(&mut addresses, address(&text)?);
        }
        let (phase, conditions) = (status.phase.unwrap_or_default(), status.conditions.unwrap_or_default());
        Self { addresses, phase, conditions }.within_limits()
    }

    /// The status after a strategic merge patch of the pod.
    ///
    /// # Errors
    /// [`InvalidStatus`] if the patch is malformed.
    pub fn patched(&self, patch: &StatusPatch) -> Result<Self, InvalidStatus> {
        let mut next = self.clone();
        let Some(status) = &patch.status else { return Ok(next) };
        match status.get("phase") {
            Some(Value::String(phase)) => next.phase.clone_from(phase),
            Some(Value::Null) => next.phase.clear(),
            Some(other) => return Err(invalid("status.phase", other)),
            None => {}
        }
        next.patch_addresses(status)?;
        next.patch_conditions(status)?;
        next.within_limits()
    }

    fn patch_addresses(&mut self, status: &Map<String, Value>) -> Result<(), InvalidStatus> {
        const FIELD: &str = "status.podIPs";
        match items(status, "podIPs", FIELD)? {
            Patched::Absent => {}
            Patched::Removed => self.addresses.clear(),
            Patched::Items(items) => {
                for item in items {
                    let ip = || text(item, "ip").ok_or_else(|| invalid(FIELD, &Value::Object(item.clone())));
                    match directive(item) {
                        Some("replace") => self.addresses.clear(),
                        Some("delete") => {
                            let removed = address(ip()?)?;
                            self.addresses.retain(|address| *address != removed);
                        }
                        Some(_) => return Err(invalid(FIELD, &Value::Object(item.clone()))),
                        None => push(&mut self.addresses, address(ip()?)?),
                    }
                }
            }
        }
        if let Patched::Items(order) = items(status, "$setElementOrder/podIPs", FIELD)? {
            let order: Vec<IpAddr> = order.into_iter().filter_map(|item| text(item, "ip")?.parse().ok()).collect();
            let place = |address: &IpAddr| order.iter().position(|other| other == address).unwrap_or(order.len());
            self.addresses.sort_by_key(place);
        }
        match status.get("podIP") {
            Some(Value::String(primary)) => {
                let primary = address(primary)?;
                self.addresses.retain(|address| *address != primary);
                self.addresses.insert(0, primary);
            }
            Some(Value::Null) if !status.contains_key("podIPs") => self.addresses.clear(),
            Some(Value::Null) | None => {}
            Some(other) => return Err(invalid("status.podIP", other)),
        }
        Ok(())
    }

    fn patch_conditions(&mut self, status: &Map<String, Value>) -> Result<(), InvalidStatus> {
        const FIELD: &str = "status.conditions";
        let patched = match items(status, "conditions", FIELD)? {
            Patched::Absent => return Ok(()),
            Patched::Removed => {
                self.conditions.clear();
                return Ok(());
            }
            Patched::Items(patched) => patched,
        };
        for item in patched {
            let kind = || text(item, "type").ok_or_else(|| invalid(FIELD, &Value::Object(item.clone())));
            match directive(item) {
                Some("replace") => self.conditions.clear(),
                Some("delete") => {
                    let removed = kind()?;
                    self.conditions.retain(|condition| condition.type_ != removed);
                }
                Some(_) => return Err(invalid(FIELD, &Value::Object(item.clone()))),
                None => self.patch_condition(kind()?, item)?,
            }
        }
        Ok(())
    }

    fn patch_condition(&mut self, kind: &str, patch: &Map<String, Value>) -> Result<(), InvalidStatus> {
        let place = self.conditions.iter().position(|condition| condition.type_ == kind);
        let old = place.and_then(|place| self.conditions.get(place));
        let mut merged = match old.map(serde_json::to_value).transpose()? {
            Some(Value::Object(old)) => old,
            _ => Map::new(),
        };
        for (name, value) in patch {
            match value {
                Value::Null => drop(merged.remove(name)),
                value => drop(merged.insert(name.clone(), value.clone())),
            }
        }
        let condition: PodCondition = serde_json::from_value(Value::Object(merged))?;
        if condition.status.is_empty() {
            return Err(invalid("status.conditions", &Value::Object(patch.clone())));
        }
        match place.and_then(|place| self.conditions.get_mut(place)) {
            Some(old) => *old = condition,
            None => self.conditions.push(condition),
        }
        Ok(())
    }

    fn within_limits(self) -> Result<Self, InvalidStatus> {
        if self.addresses.len() > MAX_ADDRESSES {
            return Err(InvalidStatus::TooMany { field: "status.podIPs", limit: MAX_ADDRESSES });
        }
        if self.conditions.len() > MAX_CONDITIONS {
            return Err(InvalidStatus::TooMany { field: "status.conditions", limit: MAX_CONDITIONS });
        }
        Ok(self)
    }

    /// Whether the pod is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }

    /// Whether the pod's containers have ended for good.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// The address of the family of another one: IPv6 or IPv4.
    #[must_use]
    pub fn address(&self, is_v6: bool) -> Option<IpAddr> {
        self.addresses.iter().find(|address| address.is_ipv6() == is_v6).copied()
    }

    /// Whether endpoints of both are the same.
    #[must_use]
    pub fn is_same_for_endpoints(&self, other: &Self) -> bool {
        self.addresses == other.addresses
            && self.is_ready() == other.is_ready()
            && self.is_terminal() == other.is_terminal()
    }
}

/// A strategic merge patch of a pod's status.
#[derive(Debug, Clone, Deserialize)]
pub struct StatusPatch {
    metadata: PatchedMetadata,
    status: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, Deserialize)]
struct PatchedMetadata {
    uid: Option<String>,
}

impl StatusPatch {
    /// Parses a patch.
    ///
    /// # Errors
    /// [`InvalidStatus`] if it is not JSON of this form.
    pub fn parse(body: &[u8]) -> Result<Self, InvalidStatus> {
        Ok(serde_json::from_slice(body)?)
    }

    /// The uid of the pod: kubelet names it, so that the patch does not change another pod of this name.
    ///
    /// # Errors
    /// [`InvalidStatus::NoUid`].
    pub fn uid(&self) -> Result<&str, InvalidStatus> {
        self.metadata.uid.as_deref().filter(|uid| !uid.is_empty()).ok_or(InvalidStatus::NoUid)
    }
}

/// A list in a patch.
enum Patched<'a> {
    Absent,
    Removed,
    Items(Vec<&'a Map<String, Value>>),
}

fn items<'a>(status: &'a Map<String, Value>, name: &str, field: &'static str) -> Result<Patched<'a>, InvalidStatus> {
    match status.get(name) {
        None => Ok(Patched::Absent),
        Some(Value::Null) => Ok(Patched::Removed),
        Some(Value::Array(items)) => {
            let objects = items.iter().map(|item| item.as_object().ok_or_else(|| invalid(field, item)));
            objects.collect::<Result<_, _>>().map(Patched::Items)
        }
        Some(other) => Err(invalid(field, other)),
    }
}

/// What a strategic merge patch does with an item, if it does not merge it.
fn directive(item: &Map<String, Value>) -> Option<&str> {
    text(item, "$patch")
}

fn text<'a>(item: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    item.get(name).and_then(Value::as_str)
}

fn address(text: &str) -> Result<IpAddr, InvalidStatus> {
    text.parse().map_err(|_| invalid("status.podIPs", &Value::from(text)))
}

fn push(addresses: &mut Vec<IpAddr>, address: IpAddr) {
    if !addresses.contains(&address) {
        addresses.push(address);
    }
}

fn invalid(field: &'static str, value: &Value) -> InvalidStatus {
    InvalidStatus::Field { field, value: value.to_string().chars().take(100).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn base() -> PodStatus {
        let pod = json!({"metadata": {"name": "a"}, "status": {
            "phase": "Running", "podIP": "10.244.0.2", "podIPs": [{"ip": "10.244.0.2"}, {"ip": "fd00::2"}],
            "conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True", "reason": "x"}],
        }});
        PodStatus::of(&serde_json::from_value(pod).unwrap()).unwrap()
    }

    fn patched(status: Value) -> Result<PodStatus, InvalidStatus> {
        let patch = json!({"metadata": {"uid": "u"}, "status": status}).to_string();
        base().patched(&StatusPatch::parse(patch.as_bytes()).unwrap())
    }

    fn addresses(status: Value) -> Vec<String> {
        patched(status).unwrap().addresses.iter().map(ToString::to_string).collect()
    }

    /// As kubelet 1.34 sends it after a power cycle (`reference/offline.md`).
    #[test]
    fn a_patch_replaces_the_address_and_orders_the_rest() {
        let status = json!({
            "$setElementOrder/podIPs": [{"ip": "10.244.0.103"}, {"ip": "fd00::2"}],
            "podIP": "10.244.0.103", "podIPs": [{"ip": "10.244.0.103"}, {"$patch": "delete", "ip": "10.244.0.2"}],
        });
        assert_eq!(addresses(status), ["10.244.0.103", "fd00::2"]);
        assert_eq!(addresses(json!({"podIP": null, "podIPs": null})), Vec::<String>::new());
        assert_eq!(addresses(json!({"podIPs": [{"$patch": "replace"}, {"ip": "10.0.0.1"}]})), ["10.0.0.1"]);
        assert_eq!(addresses(json!({"hostIP": "10.0.0.9"})), ["10.244.0.2", "fd00::2"]);
    }

    #[test]
    fn conditions_merge_by_type_and_their_fields_one_by_one() {
        let next = patched(json!({"conditions": [
            {"type": "Ready", "status": "False", "reason": null},
            {"type": "Initialized", "$patch": "delete"},
            {"type": "ContainersReady", "status": "False", "message": "containers with unready status: [web]"},
        ]}));
        let next = next.unwrap();
        let conditions: Vec<_> =
            next.conditions.iter().map(|one| (one.type_.as_str(), one.status.as_str(), one.reason.clone())).collect();
        assert_eq!(conditions, [("Ready", "False", None), ("ContainersReady", "False", None)]);
        assert!(!next.is_ready() && base().is_ready());
        // A status that is as before is left out of the patch.
        assert!(patched(json!({"conditions": [{"type": "Ready", "reason": "y"}]})).unwrap().is_ready());
        assert!(patched(json!({"phase": "Failed"})).unwrap().is_terminal());
    }

    #[test]
    fn what_no_pod_has_is_an_error_that_names_it() {
        for (status, field) in [
            (json!({"podIP": "10.244.0.300"}), "10.244.0.300"),
            (json!({"podIPs": [{"ip": "dead:"}]}), "status.podIPs"),
            (json!({"podIPs": [{}]}), "status.podIPs"),
            (json!({"podIPs": "10.0.0.1"}), "status.podIPs"),
            (json!({"phase": 7}), "status.phase"),
            (json!({"conditions": [{"status": "True"}]}), "status.conditions"),
            (json!({"conditions": [7]}), "status.conditions"),
            (json!({"conditions": [{"type": "Ready", "status": 7}]}), "invalid type"),
            (json!({"conditions": [{"type": "New"}]}), "status"),
            (json!({"conditions": [{"type": "Ready", "$patch": "merge"}]}), "status.conditions"),
        ] {
            let error = patched(status.clone()).expect_err(&status.to_string()).to_string();
            assert!(error.contains(field), "{status}: {error}");
        }
        let many: Vec<_> = (0..20).map(|n| json!({"ip": format!("10.0.0.{n}")})).collect();
        assert!(patched(json!({"podIPs": many})).is_err());
        for patch in ["", "[]", "{}", r#"{"metadata":{"uid":7}}"#, r#"{"metadata":{},"status":[]}"#] {
            assert!(StatusPatch::parse(patch.as_bytes()).is_err(), "{patch}");
        }
        assert!(StatusPatch::parse(br#"{"metadata":{}}"#).unwrap().uid().is_err());
    }
}
