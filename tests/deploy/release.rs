//! deploy/helm as a release: the names, labels, accounts and namespaces of its objects, what `helm test` asks, and what runs after
//! an uninstall.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};
use weir_tests::built;
use weir_tests::chart::{Helm, is_hook, object, permissions, text};

/// Values with which all objects of the chart are rendered, in three installations.
const EVERYTHING: &[&[&str]] = &[
    &[
        "operator.enabled=true",
        "admin.address=\"::\"",
        "monitoring.serviceMonitor.enabled=true",
        "monitoring.prometheusRule.enabled=true",
        "monitoring.dashboard.enabled=true",
        "operator.podMonitor.enabled=true",
        "operator.prometheusRule.enabled=true",
        "operator.networkPolicy.enabled=true",
        "operator.podDisruptionBudget.enabled=true",
        "impersonation.users=[\"system:node:edge-a\"]",
        "nodeCondition=\"on\"",
        "registries.hosts=[{\"host\":\"10.0.0.5:5000\",\"plainHTTP\":true}]",
    ],
    &[
        "install=\"static-pod\"",
        "monitoring.podMonitor.enabled=true",
        "admin.address=\"::\"",
        "operator.enabled=true",
        "operator.serviceMonitor.enabled=true",
    ],
    &["install=\"systemd\"", "signaturePolicy.policies=[{\"prefix\":\"file://\",\"allow\":true}]"],
];

/// `kind namespace/name`.
fn identity(object: &Value) -> String {
    let metadata = &object["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}/{}", text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
}

fn identities(objects: &[Value]) -> BTreeSet<String> {
    objects.iter().map(identity).collect()
}

/// The labels of an object's pods.
fn pod_labels(object: &Value) -> Option<&Value> {
    Some(&object["spec"]["template"]["metadata"]["labels"]).filter(|labels| labels.is_object())
}

#[test]
fn every_object_has_the_recommended_labels_and_the_common_ones() {
    let Some(helm) = Helm::new() else { return };
    let chart: Value = serde_saphyr::from_str(&text("helm/weir/Chart.yaml")).unwrap();
    let chart = format!("weir-{}", chart["version"].as_str().unwrap());
    for values in EVERYTHING {
        let common = "commonLabels={\"team\":\"edge\",\"app.kubernetes.io/part-of\":\"shop\"}";
        let objects = helm.objects(&[*values, &[common]].concat());
        assert!(objects.len() > 15 || values.len() < 4, "{values:?}");
        for object in &objects {
            let (labels, name) = (&object["metadata"]["labels"], identity(object));
            let of = |label: &str| labels[format!("app.kubernetes.io/{label}")].as_str().unwrap_or_default().to_owned();
            assert!(of("name").starts_with("weir"), "{name}: {labels}");
            assert!(["daemon", "operator", "test"].contains(&of("component").as_str()), "{name}: {labels}");
            assert_eq!((of("instance").as_str(), of("managed-by").as_str()), ("weir", "Helm"), "{name}");
            assert_eq!(of("version"), env!("CARGO_PKG_VERSION"), "{name}");
            assert_eq!((of("part-of").as_str(), &labels["team"]), ("shop", &json!("edge")), "{name}");
            assert_eq!(labels["helm.sh/chart"], chart, "{name}");
            if let Some(labels) = pod_labels(object) {
                assert_eq!(labels["app.kubernetes.io/instance"], "weir", "{name}");
                assert_eq!(labels["team"], "edge", "{name}");
                assert!(labels["helm.sh/chart"].is_null(), "a chart that changes nothing else replaces no pod: {name}");
            }
        }
    }
}

/// All selectors, with the labels of the pods that they have to select.
#[test]
fn selectors_have_the_name_alone_and_select_the_pods() {
    let Some(helm) = Helm::new() else { return };
    let mut seen = BTreeSet::new();
    for name in ["weir", "edge"] {
        let named = format!("nameOverride=\"{name}\"");
        let objects = helm.objects(&[EVERYTHING[0], &[named.as_str()]].concat());
        for found in &objects {
            let selectors = ["selector", "podSelector"].map(|key| &found["spec"][key]);
            let Some(selector) = selectors.into_iter().find(|selector| selector.is_object()) else { continue };
            let selector = if selector["matchLabels"].is_object() { &selector["matchLabels"] } else { selector };
            let is_operators = found["metadata"]["name"] == "weir-operator";
            let expected = if is_operators { "weir-operator" } else { name };
            assert_eq!(*selector, json!({"app.kubernetes.io/name": expected}), "{}", identity(found));
            if let Some(labels) = pod_labels(found) {
                assert_eq!(labels["app.kubernetes.io/name"], expected);
            }
            seen.insert(found["kind"].as_str().unwrap().to_owned());
        }
        // Neither pods of the hooks nor of the test are those of a workload.
        for hook in objects.iter().filter(|object| is_hook(object)) {
            let labels = pod_labels(hook).unwrap_or(&hook["metadata"]["labels"]);
            let of = labels["app.kubernetes.io/name"].as_str().unwrap();
            assert!(of != name && of != "weir-operator", "{}", identity(hook));
        }
    }
    let kinds =
        ["DaemonSet", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "PodMonitor", "Service", "ServiceMonitor"];
    assert_eq!(seen, kinds.map(str::to_owned).into());
}

/// Whether what the objects name is there: accounts, roles and ConfigMaps.
fn assert_references(objects: &[Value]) {
    let all = identities(objects);
    let is_there = |identity: &str| assert!(all.contains(identity), "{identity} is not in {all:#?}");
    for found in objects {
        let namespace = found["metadata"]["namespace"].as_str().unwrap_or_default();
        if let Some(role) = found["roleRef"]["name"].as_str() {
            let kind = found["roleRef"]["kind"].as_str().unwrap();
            is_there(&format!("{kind} {}/{role}", if kind == "Role" { namespace } else { "" }));
            let subject = &found["subjects"][0];
            is_there(&format!(
                "ServiceAccount {}/{}",
                subject["namespace"].as_str().unwrap(),
                subject["name"].as_str().unwrap()
            ));
        }
        let pod = &found["spec"]["template"]["spec"];
        if let Some(account) = pod["serviceAccountName"].as_str() {
            is_there(&format!("ServiceAccount {namespace}/{account}"));
        }
        let volumes = pod["volumes"].as_array().into_iter().flatten().map(|volume| &volume["configMap"]["name"]);
        let variables = pod["containers"][0]["env"].as_array().into_iter().flatten();
        let variables = variables.map(|variable| &variable["valueFrom"]["configMapKeyRef"]["name"]);
        for name in volumes.chain(variables).filter_map(Value::as_str) {
            if name != "extension-apiserver-authentication" {
                is_there(&format!("ConfigMap {namespace}/{name}"));
            }
        }
        for argument in pod["containers"][0]["args"].as_array().into_iter().flatten() {
            if let Some(map) = argument.as_str().unwrap().strip_prefix("--config-map=") {
                is_there(&format!("ConfigMap {map}"));
            }
        }
    }
}

#[test]
fn a_second_release_shares_no_object_with_the_first() {
    let Some(helm) = Helm::new() else { return };
    for values in EVERYTHING {
        let values: Vec<_> = values.iter().copied().filter(|value| !value.starts_with("operator.")).collect();
        let first = helm.objects(&values);
        assert_references(&first);
        let second = helm.objects(&[&values[..], &["nameOverride=\"edge\""]].concat());
        assert_references(&second);
        let (first, named) = (identities(&first), identities(&second));
        assert_eq!(first.len(), named.len());
        assert!(first.is_disjoint(&named), "{values:?}: {:?}", first.intersection(&named));
        let names = second.iter().map(|object| object["metadata"]["name"].as_str().unwrap());
        assert!(
            names.clone().all(|name| name == "edge" || name.starts_with("edge-")),
            "{:?}",
            names.collect::<Vec<_>>()
        );
        // The names alone.
        let full = helm.objects(&[&values[..], &["nameOverride=\"a\"", "fullnameOverride=\"edge\""]].concat());
        assert_eq!(identities(&full), named);
        let labels = full.iter().map(|object| object["metadata"]["labels"]["app.kubernetes.io/name"].as_str().unwrap());
        assert!(labels.clone().all(|name| name == "a" || name == "a-test"), "{:?}", labels.collect::<Vec<_>>());
    }
    // Prometheus has the name as the job.
    let objects = helm.objects(&[EVERYTHING[0], &["nameOverride=\"edge\""]].concat());
    let rules = object(&objects, "PrometheusRule", "edge").unwrap().to_string();
    let data = &object(&objects, "ConfigMap", "edge-dashboard").unwrap()["data"];
    let keys: Vec<_> = data.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["edge.json"], "Grafana's sidecar writes one file for each key, whatever the ConfigMap");
    let dashboard = data["edge.json"].as_str().unwrap();
    assert!(rules.contains("up{job=\\\"edge\\\"}") && !rules.contains("job=\\\"weir\\\""), "{rules}");
    assert!(dashboard.contains("job=\\\"edge\\\"") && !dashboard.contains("job=\\\"weir\\\""));
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    assert_eq!(dashboard["uid"], "edge", "Grafana keeps one dashboard for each");
    assert_eq!(dashboard["title"], "Weir (edge)", "and one of a title in a folder");
    // The operator is one in the cluster.
    assert!(object(&objects, "Deployment", "weir-operator").is_some());
}

#[test]
fn null_is_the_absence_of_a_value() {
    let Some(helm) = Helm::new() else { return };
    let operator = "operator.enabled=true";
    let expected = helm.objects(&[operator]);
    let nulls = [
        operator,
        "podLabels=null",
        "commonLabels=null",
        "podAnnotations=null",
        "serviceAccount.annotations=null",
        "updateStrategy=null",
        "operator.podLabels=null",
        "operator.podAnnotations=null",
        "operator.serviceAccount.annotations=null",
        "operator.affinity=null",
        "nameOverride=null",
        "fullnameOverride=null",
    ];
    assert_eq!(helm.objects(&nulls), expected);
    let single = [
        operator,
        "podLabels={\"a\":null}",
        "commonLabels={\"a\":null}",
        "podAnnotations={\"a\":null}",
        "serviceAccount.annotations={\"a\":null}",
        "operator.podLabels={\"a\":null}",
        "operator.podAnnotations={\"a\":null}",
        "operator.serviceAccount.annotations={\"a\":null}",
    ];
    assert_eq!(helm.objects(&single), expected);
    assert_ne!(helm.objects(&[operator, "podLabels={\"a\":\"b\"}"]), expected);
    let labelled = ["monitoring.dashboard={\"enabled\":true,\"labels\":{\"grafana_dashboard\":null,\"mine\":\"1\"}}"];
    let labelled = helm.objects(&labelled);
    let labels = &object(&labelled, "ConfigMap", "weir-dashboard").unwrap()["metadata"]["labels"];
    assert!(labels["grafana_dashboard"].is_null() && labels["mine"] == "1", "{labels}");
}

#[test]
fn accounts_are_named_annotated_or_those_of_somebody_else() {
    let Some(helm) = Helm::new() else { return };
    let named = helm.objects(&[
        "operator.enabled=true",
        "serviceAccount={\"name\":\"a\",\"annotations\":{\"x\":\"1\"}}",
        "operator.serviceAccount={\"name\":\"b\",\"annotations\":{\"y\":\"2\"}}",
    ]);
    assert_references(&named);
    for (namespace, name, annotations) in
        [("kube-system", "a", json!({"x": "1"})), ("weir-operator", "b", json!({"y": "2"}))]
    {
        let account = object(&named, "ServiceAccount", name).unwrap();
        assert_eq!(
            (&account["metadata"]["namespace"], &account["metadata"]["annotations"]),
            (&json!(namespace), &annotations)
        );
    }
    let policy = object(&named, "ValidatingAdmissionPolicy", "weir-operator-objects").unwrap().to_string();
    assert!(policy.contains("'system:serviceaccount:weir-operator:b'"), "it is for this account: {policy}");

    let others = helm.objects(&[
        "operator.enabled=true",
        "serviceAccount={\"create\":false,\"name\":\"a\"}",
        "operator.serviceAccount={\"create\":false,\"name\":\"b\"}",
    ]);
    let created: Vec<_> =
        others.iter().filter(|object| object["kind"] == "ServiceAccount" && !is_hook(object)).collect();
    assert!(created.is_empty(), "{created:?}");
    let account = |kind: &str, name: &str| {
        object(&others, kind, name).unwrap()["spec"]["template"]["spec"]["serviceAccountName"].clone()
    };
    assert_eq!((account("DaemonSet", "weir"), account("Deployment", "weir-operator")), (json!("a"), json!("b")));
}

/// What `lookup` finds in a cluster is tested against a real one, in tests/real.
#[test]
fn each_namespace_has_a_switch() {
    let Some(helm) = Helm::new() else { return };
    let created = |namespace: &str, values: &[&str]| {
        let manifest =
            helm.manifest_of(helm.chart(), namespace, &[&["operator.enabled=true"][..], values].concat()).unwrap();
        let objects = weir_store::read_objects(&manifest).unwrap();
        let namespaces = objects.iter().filter(|object| object["kind"] == "Namespace");
        namespaces.map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(created("kube-system", &[]), ["weir-operator", "ingress-nginx"]);
    assert_eq!(created("kube-system", &["operator.createNamespace=false"]), ["ingress-nginx"]);
    assert_eq!(created("kube-system", &["operator.createIngressNamespace=false"]), ["weir-operator"]);
    assert!(created("kube-system", &["operator.createNamespaces=false"]).is_empty(), "the switch of 0.1.0");
    let elsewhere = "clientCA.enabled=false";
    assert_eq!(created("weir-operator", &[elsewhere]), ["ingress-nginx"], "the release's own exists");
    assert_eq!(
        created("edge", &[elsewhere, "operator.namespace=\"a\"", "operator.ingressNamespace=\"b\""]),
        ["a", "b"]
    );
}

#[test]
fn update_strategies_are_taken_whole() {
    let Some(helm) = Helm::new() else { return };
    let strategy = |objects: &[Value], kind: &str, name: &str, key: &str| {
        object(objects, kind, name).unwrap()["spec"][key].clone()
    };
    let default = helm.objects(&["operator.enabled=true"]);
    assert_eq!(
        strategy(&default, "DaemonSet", "weir", "updateStrategy"),
        json!({"rollingUpdate": {"maxUnavailable": 1}})
    );
    assert!(strategy(&default, "Deployment", "weir-operator", "strategy").is_null());
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 0}});
    for (of_daemon_set, of_deployment) in
        [(rolling.clone(), rolling), (json!({"type": "OnDelete"}), json!({"type": "Recreate"}))]
    {
        let daemon = format!("updateStrategy={of_daemon_set}");
        let operator = format!("operator.updateStrategy={of_deployment}");
        let objects = helm.objects(&["operator.enabled=true", &daemon, &operator]);
        assert_eq!(strategy(&objects, "DaemonSet", "weir", "updateStrategy"), of_daemon_set);
        assert_eq!(strategy(&objects, "Deployment", "weir-operator", "strategy"), of_deployment);
    }
}

/// The arguments of an object's container.
fn arguments(pod: &Value) -> Vec<&str> {
    pod["containers"][0]["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap()).collect()
}

#[test]
fn helm_test_asks_a_daemon_with_its_own_image() {
    let Some(helm) = Helm::new() else { return };
    let values = [
        "nodeSelector={\"edge\":\"yes\"}",
        "portOffset=100",
        "admin.address=\"10.0.0.1\"",
        "image.digest=\"sha256:0000000000000000000000000000000000000000000000000000000000000000\"",
        "image.pullSecrets=[{\"name\":\"a\"}]",
    ];
    let objects = helm.objects(&values);
    let test = object(&objects, "Pod", "weir-test-status").unwrap();
    let daemon = &object(&objects, "DaemonSet", "weir").unwrap()["spec"]["template"]["spec"];
    assert_eq!(test["metadata"]["annotations"]["helm.sh/hook"], "test");
    for same in ["nodeSelector", "imagePullSecrets", "hostNetwork"] {
        assert!(!daemon[same].is_null() && test["spec"][same] == daemon[same], "{same}: {test}");
    }
    assert_eq!(test["spec"]["containers"][0]["image"], daemon["containers"][0]["image"]);
    let asked = arguments(&test["spec"]);
    assert_eq!(asked, ["status", "--admin-address=10.0.0.1", "--admin-port=10367"]);
    // A usage error would be 64: it is the daemon that is missing.
    let objects = helm.objects(&["portOffset=55267"]);
    let default = object(&objects, "Pod", "weir-test-status").unwrap();
    let output = Command::new(built::weir()).args(arguments(&default["spec"])).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && error.contains("127.0.0.1:65534"), "{error}");
    for install in ["install=\"static-pod\"", "install=\"systemd\""] {
        assert!(object(&helm.objects(&[install]), "Pod", "weir-test-status").is_none(), "there is no pod to ask");
    }
}

/// A pod that tolerates every taint may be scheduled to a node that no kubelet serves, and `helm test` waits for it in vain.
#[test]
fn the_pod_of_helm_test_tolerates_no_node_that_is_down() {
    let Some(helm) = Helm::new() else { return };
    let tolerations = |values: &[&str]| {
        let objects = helm.objects(values);
        object(&objects, "Pod", "weir-test-status").unwrap()["spec"]["tolerations"].clone()
    };
    let of = |key: &str| json!({"key": key, "operator": "Exists"});
    let edge = json!([of("node-role.kubernetes.io/edge")]);
    let all = json!([
        of("node.kubernetes.io/not-ready"),
        of("node.kubernetes.io/unreachable"),
        of("node-role.kubernetes.io/edge"),
        {"operator": "Exists", "effect": "NoExecute"},
    ]);
    let daemons = format!("tolerations={all}");
    assert_eq!(tolerations(&[]), Value::Null, "the DaemonSet tolerates every taint");
    assert_eq!(tolerations(&[&daemons]), edge, "single taints are those of its nodes");
    assert_eq!(tolerations(&[&format!("helmTest.tolerations={edge}")]), edge);
    assert_eq!(tolerations(&[&daemons, "helmTest.tolerations=[]"]), Value::Null);
}

#[test]
fn an_uninstall_ends_with_the_removal_of_finalizers() {
    let Some(helm) = Helm::new() else { return };
    let is_after = |object: &&Value| object["metadata"]["annotations"]["helm.sh/hook"] == "post-delete";
    assert!(!helm.objects(&[]).iter().any(|object| is_after(&object)), "without the operator there is nothing to do");
    let values =
        ["operator.enabled=true", "operator.namespace=\"a\"", "operator.tolerations=[{\"operator\":\"Exists\"}]"];
    let objects = helm.objects(&values);
    let hooks: Vec<_> = objects.iter().filter(is_after).cloned().collect();
    let expected = [
        "ClusterRole /weir-operator-uninstall",
        "ClusterRoleBinding /weir-operator-uninstall",
        "Job a/weir-operator-uninstall",
        "ServiceAccount a/weir-operator-uninstall",
    ];
    assert_eq!(identities(&hooks), expected.map(str::to_owned).into());
    assert_references(&hooks);
    let role = permissions(object(&hooks, "ClusterRole", "weir-operator-uninstall").unwrap());
    assert_eq!(role, ["list yurtingresses.apps.openyurt.io/*", "patch yurtingresses.apps.openyurt.io/*"]);
    let weight = |kind: &str| {
        let annotations = &object(&hooks, kind, "weir-operator-uninstall").unwrap()["metadata"]["annotations"];
        annotations["helm.sh/hook-weight"].as_str().map_or(0, |weight| weight.parse::<i32>().unwrap())
    };
    for first in ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"] {
        assert!(weight(first) < weight("Job"), "{first} is there before the Job");
    }
    let job = &object(&hooks, "Job", "weir-operator-uninstall").unwrap()["spec"]["template"]["spec"];
    let operator = &object(&objects, "Deployment", "weir-operator").unwrap()["spec"]["template"]["spec"];
    for same in ["tolerations", "affinity", "securityContext"] {
        assert!(!job[same].is_null() && job[same] == operator[same], "{same}: {job}");
    }
    for same in ["image", "command", "securityContext"] {
        assert_eq!(job["containers"][0][same], operator["containers"][0][same]);
    }
    // A usage error would be 64: it is the cluster that is missing.
    let mut command = Command::new(built::operator());
    let output = command.args(arguments(job)).env("KUBECONFIG", "/nonexistent").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && error.contains("/nonexistent"), "{error}");
}

/// What Artifact Hub shows is what the files have.
#[test]
fn the_annotations_of_the_chart_are_true() {
    let chart: Value = serde_saphyr::from_str(&text("helm/weir/Chart.yaml")).unwrap();
    let list = |name: &str| -> Vec<Value> {
        let text = chart["annotations"][format!("artifacthub.io/{name}")].as_str().unwrap().to_owned();
        serde_saphyr::from_str::<Value>(&text).unwrap().as_array().unwrap().clone()
    };
    let crd: Value = serde_saphyr::from_str(&text("operator/crd.yaml")).unwrap();
    let shown = list("crds");
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0]["name"], crd["metadata"]["name"]);
    assert_eq!(
        (&shown[0]["kind"], &shown[0]["version"]),
        (&crd["spec"]["names"]["kind"], &crd["spec"]["versions"][0]["name"])
    );
    let example: Value = serde_saphyr::from_str(&text("operator/example.yaml")).unwrap();
    assert_eq!(list("crdsExamples"), [example]);
    let kinds = ["added", "changed", "deprecated", "removed", "fixed", "security"];
    assert!(list("changes").iter().all(|change| kinds.iter().any(|kind| change["kind"] == *kind)));
    let license = std::fs::read_to_string(built::workspace().join("LICENSE")).unwrap();
    assert!(chart["annotations"]["artifacthub.io/license"] == "Apache-2.0" && license.contains("Apache License"));
    assert!(chart["keywords"].as_array().unwrap().len() > 5 && chart["kubeVersion"].is_string());
}
