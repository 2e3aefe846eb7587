//! From the released chart to this one: Kubernetes refuses to change some fields, and an object of another name would be deleted and
//! created. `tests/deploy/charts` has each released chart.

use std::collections::BTreeMap;

use serde_json::Value;
use weir_tests::chart::{Helm, text};

/// The newest released chart.
const RELEASED: &str = "0.1.0";

/// Values of both charts, and how many objects the older one renders with them at least.
const INSTALLATIONS: &[(&[&str], usize)] = &[
    (&[], 17),
    (&["operator.enabled=true", "operator.podDisruptionBudget.enabled=true"], 40),
    (&["operator.enabled=true", "operator.createNamespaces=false"], 40),
    (&["install=\"static-pod\""], 15),
    (&["install=\"systemd\""], 15),
    (&["admin.address=\"::\"", "monitoring.serviceMonitor.enabled=true", "monitoring.dashboard.enabled=true"], 20),
    (&["serviceAccount.name=\"mine\"", "podLabels.a=\"b\"", "commonLabels.c=\"d\"", "nodeCondition=\"on\""], 19),
];

/// The objects of a manifest by API group, kind, namespace and name.
fn objects(manifest: &str) -> BTreeMap<String, Value> {
    let key = |object: &Value| {
        let version = object["apiVersion"].as_str().unwrap();
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let metadata = &object["metadata"];
        format!("{group} {} {}/{}", object["kind"], metadata["namespace"], metadata["name"])
    };
    let objects = weir_store::read_objects(manifest).unwrap();
    objects.into_iter().map(|object| (key(&object), object)).collect()
}

/// The fields that Kubernetes refuses to change, and those that another object refers to.
fn fixed(object: &Value) -> Vec<Value> {
    let paths: &[&str] = match object["kind"].as_str().unwrap() {
        "DaemonSet" | "Deployment" => &["/spec/selector", "/spec/template/spec/serviceAccountName"],
        "Service" => &["/spec/clusterIP", "/spec/selector"],
        "PodDisruptionBudget" | "ServiceMonitor" | "PodMonitor" => &["/spec/selector"],
        "NetworkPolicy" => &["/spec/podSelector"],
        "CustomResourceDefinition" => &["/spec/group", "/spec/scope", "/spec/names"],
        "RoleBinding" | "ClusterRoleBinding" => &["/roleRef", "/subjects"],
        "ValidatingAdmissionPolicyBinding" => &["/spec/policyName"],
        _ => &[],
    };
    paths.iter().map(|path| object.pointer(path).unwrap_or_else(|| panic!("{path}: {object}")).clone()).collect()
}

#[test]
fn an_upgrade_of_the_released_chart_changes_no_name_and_nothing_immutable() {
    let Some(helm) = Helm::new() else { return };
    for (values, least) in INSTALLATIONS {
        let before = objects(&helm.manifest_of(&Helm::released(RELEASED), "kube-system", values).unwrap());
        let after = objects(&helm.manifest(values).unwrap());
        assert!(before.len() >= *least, "{values:?}: {}", before.len());
        for (name, object) in &before {
            let now = after.get(name).unwrap_or_else(|| panic!("{values:?}: the upgrade deletes {name}"));
            assert_eq!(fixed(object), fixed(now), "{values:?}: {name}");
            let selector = now["spec"]["selector"]["matchLabels"].as_object();
            let labels = &now["spec"]["template"]["metadata"]["labels"];
            if let Some(selector) = selector.filter(|_| labels.is_object()) {
                assert!(selector.iter().all(|(label, value)| labels[label] == *value), "{name} selects its pods");
            }
            // What was kept at an uninstall still is.
            let kept = &object["metadata"]["annotations"]["helm.sh/resource-policy"];
            assert!(kept.is_null() || now["metadata"]["annotations"]["helm.sh/resource-policy"] == *kept, "{name}");
        }
    }
}

/// `helm upgrade --reuse-values` renders this chart with the values of the release alone: values of the released chart's time, without
/// the ones that are newer.
#[test]
fn an_upgrade_that_reuses_the_values_of_the_released_chart_renders_the_same_objects() {
    let Some(helm) = Helm::new() else { return };
    let chart = helm.copy("9.0.0");
    let render = |values: &[&str]| {
        let manifest = helm.manifest_of(&chart, "kube-system", values);
        objects(&manifest.unwrap_or_else(|error| panic!("{values:?}: {error}")))
    };
    let expected: Vec<_> = INSTALLATIONS.iter().map(|(values, _)| render(values)).collect();
    let released = helm.prints(&["show", "values", Helm::released(RELEASED).to_str().unwrap()]);
    assert!(!released.contains("nameOverride"), "the released chart has fewer values");
    std::fs::write(chart.join("values.yaml"), released).unwrap();
    for ((values, _), expected) in INSTALLATIONS.iter().zip(expected) {
        assert_eq!(render(values), expected, "{values:?}");
    }
}

#[test]
fn the_comparison_finds_what_an_upgrade_could_not_change() {
    let Some(helm) = Helm::new() else { return };
    let manifest = helm.manifest_of(&Helm::released(RELEASED), "kube-system", &["operator.enabled=true"]).unwrap();
    let before = objects(&manifest);
    for (from, to) in [
        ("matchLabels: {app.kubernetes.io/name: weir}", "matchLabels: {app.kubernetes.io/name: weir, a: b}"),
        ("kind: ClusterRole, name: weir-cache", "kind: ClusterRole, name: cache"),
        ("scope: Cluster", "scope: Namespaced"),
    ] {
        let changed = manifest.replace(from, to);
        assert_ne!(manifest, changed, "{from}");
        let after = objects(&changed);
        assert!(before.iter().any(|(name, object)| fixed(object) != fixed(&after[name])), "{from}");
    }
}

#[test]
fn the_chart_is_newer_than_the_released_one() {
    let chart: Value = serde_saphyr::from_str(&text("helm/weir/Chart.yaml")).unwrap();
    let parts = |version: &str| version.split('.').map(|part| part.parse().unwrap()).collect::<Vec<u32>>();
    assert!(parts(chart["version"].as_str().unwrap()) > parts(RELEASED), "a release moves into tests/deploy/charts");
}
