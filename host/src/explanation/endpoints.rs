//! The endpoints that an edit of an EndpointSlice or of Endpoints leaves out.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The addresses of `before` that `after` lacks, each with the node that it is on.
pub(super) fn left_out(before: &Value, after: &Value) -> Vec<Value> {
    let kept = addresses(after);
    let left_out = addresses(before).into_iter().filter(|(address, _)| !kept.contains_key(address));
    left_out.map(|(address, node)| json!({"address": address, "nodeName": node})).collect()
}

/// All addresses, and the nodes that they are on.
fn addresses(object: &Value) -> BTreeMap<&str, Option<&str>> {
    let mut found = BTreeMap::new();
    for endpoint in items(&object["endpoints"]) {
        for address in items(&endpoint["addresses"]).iter().filter_map(Value::as_str) {
            found.insert(address, endpoint["nodeName"].as_str());
        }
    }
    for subset in items(&object["subsets"]) {
        for address in ["addresses", "notReadyAddresses"].iter().flat_map(|key| items(&subset[*key])) {
            if let Some(ip) = address["ip"].as_str() {
                found.insert(ip, address["nodeName"].as_str());
            }
        }
    }
    found
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_stays_in_another_place_is_not_left_out() {
        let endpoint = |address: &str, node: &str| json!({"addresses": [address], "nodeName": node});
        let before = json!({"endpoints": [endpoint("10.0.0.1", "edge-a"), endpoint("10.0.0.2", "cloud-1")]});
        let after = json!({"endpoints": [endpoint("10.0.0.1", "edge-a")]});
        let cloud = vec![json!({"address": "10.0.0.2", "nodeName": "cloud-1"})];
        assert_eq!(left_out(&before, &after), cloud);
        assert!(left_out(&after, &before).is_empty());
        let address = json!({"ip": "10.0.0.2", "nodeName": "cloud-1"});
        let ready = json!({"subsets": [{"addresses": [address]}]});
        let not_ready = json!({"subsets": [{"notReadyAddresses": [address]}]});
        assert!(left_out(&ready, &not_ready).is_empty());
        assert_eq!(left_out(&ready, &json!({"subsets": []})), cloud);
        assert!(left_out(&json!({"spec": 1}), &json!({})).is_empty());
    }
}
