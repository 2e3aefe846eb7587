//! deploy/helm: values arrive in what the chart renders, as they are, and its README lists all of them.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};
use weir_tests::built;
use weir_tests::chart::combinations::{self, CERTIFICATE, NUMBERS, OPERATOR, PEERS, UNQUOTED};
use weir_tests::chart::{Helm, REQUIRED, object, permissions, text};

/// Every value of the operator arrives, as a flag that it knows or as a permission.
#[test]
fn values_of_the_operator_are_flags_and_permissions() {
    let Some(helm) = Helm::new() else { return };
    let objects = helm.objects(OPERATOR);
    let deployment = object(&objects, "Deployment", "weir-operator").unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    let arguments = pod["containers"][0]["args"].as_array().unwrap().iter();
    let arguments: Vec<_> = arguments.map(|argument| argument.as_str().unwrap()).collect();
    assert_eq!(
        arguments,
        [
            "serve",
            "--log-json",
            "--operator-namespace=a",
            "--namespace=b",
            "--pool-source=nodelabels",
            "--pool-label=example.com/pool",
            "--pod-api-server=[fd00::1]:10268",
            "--no-evictions",
            "--set=traefik.image=mirror/traefik:1",
            "--requests-per-second=5",
        ]
    );
    // A usage error would be 64: it is the cluster that is missing.
    let operator = built::operator();
    let output = Command::new(operator).args(&arguments).args(["--kubeconfig", "/nonexistent"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && error.contains("/nonexistent"), "{error}");
    assert!(pod["containers"][0]["image"].as_str().unwrap().contains("@sha256:0"));
    let affinity = pod["affinity"].to_string();
    assert!(affinity.contains("example.com/pool") && !affinity.contains("openyurt"), "{affinity}");
    let role = permissions(object(&objects, "ClusterRole", "weir-operator").unwrap());
    assert!(role.contains(&"bind clusterroles.rbac.authorization.k8s.io/mine".to_owned()), "{role:?}");
    assert!(!role.iter().any(|permission| permission.contains("nodepools")), "{role:?}");
    assert!(object(&objects, "ClusterRole", "weir-operator-evictions").is_none());
    assert!(object(&objects, "Namespace", "a").is_none());
    let own = objects.iter().filter(|object| object["metadata"]["name"] == "weir-operator");
    let places: BTreeSet<_> = own.filter_map(|object| object["metadata"]["namespace"].as_str()).collect();
    assert_eq!(places, ["a", "b", "default"].into());
    for binding in objects.iter().filter(|object| object["roleRef"]["name"] == "weir-operator") {
        assert_eq!(binding["subjects"][0]["namespace"], "a");
    }
}

/// Registries, logins, signatures and peers arrive in all ways to install, as flags that the daemon knows.
#[test]
fn registries_signatures_and_peers_are_values_of_each_way_to_install() {
    let Some(helm) = Helm::new() else { return };
    let values = combinations::trust();
    let values: Vec<_> = values.iter().map(String::as_str).collect();
    let objects = helm.objects(&[&values[..], &[PEERS, "filterOverrides.endpoints.failurePolicy=\"Fail\""]].concat());
    let pod = &object(&objects, "DaemonSet", "weir").unwrap()["spec"]["template"]["spec"];
    let words = |container: &Value| -> Vec<String> {
        container["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let arguments = words(&pod["containers"][0]);
    for expected in [
        "--registries=/trust/registries.yaml",
        "--registry-auth=/registry-auth/one.json,/registry-auth/two.json",
        "--signature-policy=/trust/signature-policy.yaml",
        "--node-kubeconfig=/etc/kubernetes/kubelet.conf",
        "--peer=edge-a=https://10.0.0.1:10268,edge-b=https://10.0.0.2:10268",
        "--cache-key-file=a b%h$x",
    ] {
        assert!(arguments.iter().any(|argument| argument == expected), "{expected}: {arguments:?}");
    }
    let trust = &object(&objects, "ConfigMap", "weir-trust").unwrap()["data"];
    assert_eq!(trust["registry-0.crt"], CERTIFICATE);
    let registries: Value = serde_saphyr::from_str(trust["registries.yaml"].as_str().unwrap()).unwrap();
    let expected = json!({"registries": [
        {"host": "registry.example", "caFile": "/trust/registry-0.crt"},
        {"host": "10.0.0.5:5000", "plainHTTP": true},
    ]});
    assert_eq!(registries, expected);
    let filters = &object(&objects, "ConfigMap", "weir-filters").unwrap()["data"]["filters.yaml"];
    let filters: Value = serde_saphyr::from_str(filters.as_str().unwrap()).unwrap();
    let policies: Vec<_> =
        filters["filters"].as_array().unwrap().iter().map(|filter| &filter["failurePolicy"]).collect();
    assert_eq!(policies[..4], ["Ignore", "Fail", "Ignore", "Fail"], "one is overridden");

    for (install, file) in [("static-pod", "weir.yaml"), ("systemd", "weir.service")] {
        let install = format!("install=\"{install}\"");
        let objects = helm.objects(&[&values[..], &[&install]].concat());
        let files = &object(&objects, "ConfigMap", "weir-node-files").unwrap()["data"];
        assert_eq!(files["registry-0.crt"], CERTIFICATE);
        assert!(files["registries.yaml"].as_str().unwrap().contains("/etc/weir/registry-0.crt"), "{files}");
        let shown = files[file].as_str().unwrap();
        if file == "weir.yaml" {
            let pod: Value = serde_saphyr::from_str(shown).unwrap();
            let arguments = words(&pod["spec"]["containers"][0]);
            assert!(arguments.contains(&"--registry-auth=/etc/weir/one.json,/etc/weir/two.json".to_owned()));
        } else {
            assert!(shown.contains("\n    --registry-auth=%d/one.json,%d/two.json \\\n"), "{shown}");
            assert!(shown.contains("\nLoadCredential=two.json:/etc/weir/two.json\n"), "{shown}");
            assert!(shown.contains("\n    \"--cache-key-file=a b%%h$$x\"\n"), "{shown}");
        }
    }
}

#[test]
fn values_that_yaml_reads_otherwise_arrive_as_they_are() {
    let Some(helm) = Helm::new() else { return };
    let objects = helm.objects(UNQUOTED);
    let set = &object(&objects, "DaemonSet", "weir").unwrap()["spec"];
    let (pod, labels) = (&set["template"]["spec"], &set["template"]["metadata"]["labels"]);
    let container = &pod["containers"][0];
    let arguments = container["args"].as_array().unwrap();
    assert!(
        arguments.contains(&json!("--admin-address=::")) && arguments.contains(&json!("--a=b: c #d")),
        "{arguments:?}"
    );
    assert_eq!(container["livenessProbe"]["httpGet"]["host"], "127.0.0.1");
    assert_eq!(pod["volumes"][0]["hostPath"]["path"], "/var/lib/#weir");
    assert_eq!((&labels["team"], &labels["zone"]), (&json!("1"), &json!("on")));
    assert_eq!(set["updateStrategy"], json!({"type": "OnDelete"}));
    assert_eq!(pod["serviceAccountName"], "edge");
    let account = object(&objects, "ServiceAccount", "edge").unwrap();
    assert_eq!(account["metadata"]["annotations"], json!({"a": "1"}));
    for binding in objects.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Binding")) {
        assert_eq!(binding["subjects"][0]["name"], "edge", "{binding}");
    }
    // In a file of values `on` is a boolean.
    for (value, role) in [("\"on\"", true), ("true", true), ("false", false), ("\"auto\"", false)] {
        let objects = helm.objects(&["install=\"systemd\"", &format!("nodeCondition={value}")]);
        assert_eq!(object(&objects, "ClusterRole", "weir-node-condition").is_some(), role, "{value}");
    }
    let unit = helm.objects(&["install=\"systemd\"", "resources.limits.memory=536870912"]);
    let unit = object(&unit, "ConfigMap", "weir-node-files").unwrap()["data"]["weir.service"].as_str().unwrap();
    assert!(unit.contains("\nMemoryMax=536870912\n"), "{unit}");
}

/// The paths of names in an object that are no strings.
fn unquoted(path: &str, value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) => {
            let within = |(key, value): (&String, &Value)| {
                let path = format!("{path}.{key}");
                let is_name = matches!(key.as_str(), "name" | "namespace" | "secretName" | "key");
                if is_name && value.is_number() { vec![path] } else { unquoted(&path, value) }
            };
            fields.iter().flat_map(within).collect()
        }
        Value::Array(items) => items.iter().flat_map(|item| unquoted(path, item)).collect(),
        Value::Number(_) if path.ends_with("Names") => vec![path.to_owned()],
        _ => Vec::new(),
    }
}

#[test]
fn a_name_that_is_a_number_for_yaml_arrives_as_a_name() {
    let Some(helm) = Helm::new() else { return };
    for object in helm.objects(NUMBERS) {
        assert_eq!(unquoted("", &object), [""; 0], "{object}");
    }
    let in_namespace = ["template", "weir", helm.chart().to_str().unwrap(), "--namespace", "13"];
    let without_ca = ["--set-json", "clientCA.enabled=false", "--set-json", "monitoring.podMonitor.enabled=true"];
    let address = ["--set-json", "admin.address=\"::\""];
    let rendered = helm.prints(&[&in_namespace[..], &REQUIRED, &without_ca, &address].concat());
    for object in weir_store::read_objects(&rendered).unwrap() {
        assert_eq!(unquoted("", &object), [""; 0], "{object}");
    }
}

/// Each value with its default, as the comments of values.yaml say it: a comment belongs to the keys below it.
fn table_of_values() -> String {
    let mut table = String::from("| value | default | |\n|---|---|---|\n");
    let (mut path, mut comment) = (Vec::<(usize, String)>::new(), String::new());
    for line in text("helm/weir/values.yaml").lines() {
        let (indent, line) = (line.len() - line.trim_start().len(), line.trim());
        if let Some(more) = line.strip_prefix('#') {
            comment = format!("{comment} {}", more.trim());
            continue;
        }
        let Some((key, default)) = line.split_once(':').filter(|_| !line.starts_with('-')) else {
            comment.clear();
            continue;
        };
        path.retain(|(outer, _)| *outer < indent);
        let is_of_a_list = path.iter().any(|(_, key)| key == "filters");
        path.push((indent, key.to_owned()));
        let said = std::mem::take(&mut comment);
        if is_of_a_list {
            continue;
        }
        let name = path.iter().map(|(_, key)| key.as_str()).collect::<Vec<_>>().join(".");
        let default = match default.trim() {
            "" if key == "filters" => "the bundled ones".to_owned(),
            "" => String::new(),
            default => format!("`{default}`"),
        };
        table += &format!("| `{name}` | {default} |{} |\n", said.replace('|', "\\|"));
    }
    table
}

/// `WEIR_UPDATE_DOCS=1` writes it.
#[test]
fn the_readme_of_the_chart_lists_every_value() {
    let path = built::workspace().join("deploy/helm/weir/README.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let (before, _) = document.split_once("| value | default |").unwrap();
    let current = format!("{before}{}", table_of_values());
    if std::env::var_os("WEIR_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    assert!(document == current, "{} is not current: `make docs-tables` writes it", path.display());
}
