//! Lays the status of pods over EndpointSlices, Endpoints and pods, as JSON.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use weir_kube::PodStatus;

/// What is known of a pod besides the API server's objects.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PodReport {
    /// The node was restarted, and kubelet has not reported the pod since: its address is most likely dead.
    Awaited,
    /// What kubelet has reported last.
    Reported(PodStatus),
}

/// Finds the report of a pod: by its uid, and the node that the endpoint names, if it names one.
pub(super) type FindReport<'a> = &'a dyn Fn(&str, Option<&str>) -> Option<&'a PodReport>;

/// An endpoint of a pod after its report.
struct Endpoint {
    /// The new address; `None` keeps the one that the object has.
    address: Option<IpAddr>,
    ready: bool,
}

impl From<Option<PodStatus>> for PodReport {
    fn from(status: Option<PodStatus>) -> Self {
        status.map_or(Self::Awaited, Self::Reported)
    }
}

impl PodReport {
    /// What kubelet has reported; `None` if it has not.
    pub(super) fn status(&self) -> Option<&PodStatus> {
        match self {
            Self::Awaited => None,
            Self::Reported(status) => Some(status),
        }
    }

    /// The endpoint of the pod in the family of `old`; `None` if it has none.
    fn endpoint(&self, is_v6: bool) -> Option<Endpoint> {
        match self {
            Self::Awaited => Some(Endpoint { address: None, ready: false }),
            Self::Reported(status) if status.is_terminal() => None,
            Self::Reported(status) => {
                status.address(is_v6).map(|address| Endpoint { address: Some(address), ready: status.is_ready() })
            }
        }
    }
}

/// Lays reports over an EndpointSlice. `publish_not_ready`: the Service wants the addresses of pods that are not ready, too.
pub(super) fn edit_slice(slice: &mut Value, find: FindReport<'_>, publish_not_ready: bool) {
    let is_v6 = match slice["addressType"].as_str() {
        Some("IPv4") => false,
        Some("IPv6") => true,
        _ => return,
    };
    let Some(Value::Array(endpoints)) = slice.get_mut("endpoints") else { return };
    endpoints.retain_mut(|endpoint| {
        let Some(report) = report(endpoint, find) else { return true };
        let Some(Endpoint { address, ready }) = report.endpoint(is_v6) else { return false };
        let Some(endpoint) = endpoint.as_object_mut() else { return true };
        if let Some(address) = address {
            endpoint.insert("addresses".to_owned(), json!([address]));
        }
        let conditions = endpoint.entry("conditions").or_insert_with(|| Value::Object(Map::new()));
        let Some(conditions) = conditions.as_object_mut() else { return true };
        let terminating = conditions.get("terminating").and_then(Value::as_bool).unwrap_or_default();
        let shown = matches!(report, PodReport::Reported(_)) && publish_not_ready;
        conditions.insert("ready".to_owned(), (shown || (ready && !terminating)).into());
        conditions.insert("serving".to_owned(), ready.into());
        true
    });
}

/// Lays reports over an Endpoints object.
pub(super) fn edit_endpoints(endpoints: &mut Value, find: FindReport<'_>, publish_not_ready: bool) {
    const READY: &str = "addresses";
    const NOT_READY: &str = "notReadyAddresses";
    let Some(Value::Array(subsets)) = endpoints.get_mut("subsets") else { return };
    for subset in subsets.iter_mut().filter_map(Value::as_object_mut) {
        let (mut ready_now, mut not_ready_now, mut moved) = (Vec::new(), Vec::new(), false);
        for (was_ready, name) in [(true, READY), (false, NOT_READY)] {
            for mut address in take(subset, name) {
                let mut put =
                    |address, ready: bool| if ready { &mut ready_now } else { &mut not_ready_now }.push(address);
                let Some(report) = report(&address, find) else {
                    put(address, was_ready);
                    continue;
                };
                let is_v6 = ip(&address).is_some_and(|ip| ip.contains(':'));
                let Some(Endpoint { address: new, ready }) = report.endpoint(is_v6) else { continue };
                let shown = matches!(report, PodReport::Reported(_)) && publish_not_ready;
                moved |= (ready || shown) != was_ready;
                if let (Some(new), Some(address)) = (new.map(|new| json!(new)), address.as_object_mut()) {
                    moved |= address.insert("ip".to_owned(), new.clone()) != Some(new);
                }
                put(address, ready || shown);
            }
        }
        for (mut list, name) in [(ready_now, READY), (not_ready_now, NOT_READY)] {
            if moved {
                // As the endpoints controller sorts them.
                list.sort_by(|one: &Value, other| ip(one).cmp(&ip(other)));
            }
            if !list.is_empty() {
                subset.insert(name.to_owned(), Value::Array(list));
            }
        }
    }
    subsets.retain(|subset| subset.get(READY).is_some() || subset.get(NOT_READY).is_some());
}

/// Lays the report over a pod.
pub(super) fn edit_pod(pod: &mut Value, report: &PodReport) {
    let (PodReport::Reported(reported), Some(pod)) = (report, pod.as_object_mut()) else { return };
    let status = pod.entry("status").or_insert_with(|| Value::Object(Map::new()));
    let Some(status) = status.as_object_mut() else { return };
    match reported.addresses.first() {
        Some(primary) => {
            let all: Vec<_> = reported.addresses.iter().map(|address| json!({ "ip": address })).collect();
            status.insert("podIP".to_owned(), json!(primary));
            status.insert("podIPs".to_owned(), Value::Array(all));
        }
        None => {
            status.remove("podIP");
            status.remove("podIPs");
        }
    }
    if !reported.phase.is_empty() {
        status.insert("phase".to_owned(), reported.phase.clone().into());
    }
    let old = take(status, "conditions");
    let new = |kind: &str| reported.conditions.iter().find(|condition| condition.type_ == kind);
    let mut conditions: Vec<_> = old
        .into_iter()
        .map(|old| match old.get("type").and_then(Value::as_str).and_then(new) {
            Some(new) => json!(new),
            None => old,
        })
        .collect();
    for condition in &reported.conditions {
        if !conditions.iter().any(|other| other["type"] == *condition.type_) {
            conditions.push(json!(condition));
        }
    }
    status.insert("conditions".to_owned(), Value::Array(conditions));
}

/// The report of the pod that an endpoint refers to.
fn report<'a>(endpoint: &Value, find: FindReport<'a>) -> Option<&'a PodReport> {
    let target = &endpoint["targetRef"];
    if target["kind"] != "Pod" {
        return None;
    }
    find(target["uid"].as_str()?, endpoint["nodeName"].as_str())
}

fn ip(address: &Value) -> Option<&str> {
    address.get("ip").and_then(Value::as_str)
}

fn take(object: &mut Map<String, Value>, name: &str) -> Vec<Value> {
    match object.remove(name) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(addresses: &[&str], ready: bool, phase: &str) -> PodReport {
        let status = if ready { "True" } else { "False" };
        PodReport::Reported(
            serde_json::from_value(json!({
                "addresses": addresses, "phase": phase, "conditions": [{"type": "Ready", "status": status}],
            }))
            .unwrap(),
        )
    }

    fn endpoint(ip: &str, uid: &str, ready: bool) -> Value {
        json!({
            "addresses": [ip], "nodeName": "edge-a", "targetRef": {"kind": "Pod", "uid": uid},
            "conditions": {"ready": ready, "serving": ready, "terminating": false},
        })
    }

    fn slice(report: &PodReport, publish_not_ready: bool) -> Vec<(String, bool, bool)> {
        let mut slice = json!({
            "addressType": "IPv4",
            "endpoints": [endpoint("10.0.0.1", "a", true), endpoint("10.0.0.2", "b", true)],
        });
        edit_slice(
            &mut slice,
            &|uid, node| (uid == "b" && node == Some("edge-a")).then_some(report),
            publish_not_ready,
        );
        let endpoints = slice["endpoints"].as_array().unwrap();
        let flag = |endpoint: &Value, name: &str| endpoint["conditions"][name].as_bool().unwrap();
        let one = |endpoint: &Value| {
            (endpoint["addresses"][0].as_str().unwrap().to_owned(), flag(endpoint, "ready"), flag(endpoint, "serving"))
        };
        endpoints.iter().map(one).collect()
    }

    #[test]
    fn a_slice_has_the_reported_address_of_its_family_and_its_readiness() {
        let other = ("10.0.0.1".to_owned(), true, true);
        let of = |report: &PodReport, publish| slice(report, publish).into_iter().filter(|one| *one != other).collect();
        let both = ["fd00::9", "10.0.0.9"];
        let found: Vec<Vec<_>> = vec![
            of(&reported(&both, true, "Running"), false),
            of(&reported(&both, false, "Running"), false),
            of(&reported(&both, false, "Running"), true),
            of(&reported(&["fd00::9"], true, "Running"), false),
            of(&reported(&both, true, "Failed"), false),
            of(&PodReport::Awaited, true),
        ];
        let new = |ready, serving| vec![("10.0.0.9".to_owned(), ready, serving)];
        let old = vec![("10.0.0.2".to_owned(), false, false)];
        assert_eq!(found, [new(true, true), new(false, false), new(true, false), vec![], vec![], old]);
    }

    #[test]
    fn a_terminating_endpoint_is_not_ready_again() {
        let report = reported(&["10.0.0.9"], true, "Running");
        let mut terminating = endpoint("10.0.0.2", "b", false);
        terminating["conditions"]["terminating"] = true.into();
        let mut slice = json!({"addressType": "IPv4", "endpoints": [terminating]});
        edit_slice(&mut slice, &|_, _| Some(&report), false);
        assert_eq!(slice["endpoints"][0]["conditions"], json!({"ready": false, "serving": true, "terminating": true}));
    }

    #[test]
    fn endpoints_move_between_ready_and_not_ready_and_an_empty_subset_goes() {
        let address = |ip: &str, uid: &str| json!({"ip": ip, "targetRef": {"kind": "Pod", "uid": uid}});
        let edited = |report: &PodReport| {
            let mut endpoints = json!({"subsets": [
                {"addresses": [address("10.0.0.1", "a"), address("10.0.0.2", "b")], "ports": [{"port": 80}]},
                {"notReadyAddresses": [address("10.0.0.2", "b")], "ports": [{"port": 81}]},
            ]});
            edit_endpoints(&mut endpoints, &|uid, _| (uid == "b").then_some(report), false);
            endpoints["subsets"].clone()
        };
        let ready = edited(&reported(&["10.0.0.0"], true, "Running"));
        assert_eq!(ready[0]["addresses"], json!([address("10.0.0.0", "b"), address("10.0.0.1", "a")]));
        assert_eq!(ready[1], json!({"addresses": [address("10.0.0.0", "b")], "ports": [{"port": 81}]}));
        let unready = edited(&reported(&["10.0.0.9"], false, "Running"));
        assert_eq!(unready[0]["addresses"], json!([address("10.0.0.1", "a")]));
        assert_eq!(unready[0]["notReadyAddresses"], json!([address("10.0.0.9", "b")]));
        let awaited = edited(&PodReport::Awaited);
        assert_eq!(awaited[0]["notReadyAddresses"], json!([address("10.0.0.2", "b")]));
        let gone = edited(&reported(&[], true, "Running"));
        assert_eq!(gone.as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_pod_has_the_reported_addresses_phase_and_conditions() {
        let mut pod = json!({"metadata": {"name": "a"}, "status": {
            "phase": "Pending", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "qosClass": "BestEffort",
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}],
        }});
        edit_pod(&mut pod, &reported(&["10.0.0.9", "fd00::9"], true, "Running"));
        assert_eq!(
            pod["status"],
            json!({
                "phase": "Running", "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}, {"ip": "fd00::9"}],
                "qosClass": "BestEffort",
                "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
            })
        );
        let before = pod.clone();
        edit_pod(&mut pod, &PodReport::Awaited);
        assert_eq!(pod, before);
        edit_pod(&mut pod, &reported(&[], false, "Running"));
        assert!(pod["status"]["podIP"].is_null() && pod["status"]["podIPs"].is_null());
    }
}
