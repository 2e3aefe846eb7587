//! Pod Security Standards at a real API server: Weir needs `privileged`; the operator, its Job, and the ingress controllers of the
//! built-in templates pass `restricted`.
//!
//! An API server only warns of a Deployment that violates the level of its namespace, and refuses the pods. The tests therefore
//! create pods from the templates, by dry run.

use std::process::{Command, Output};

use serde_json::{Value, json};
use weir_tests::built;
use weir_tests::chart::{Helm, text};
use weir_tests::plane::Plane;

use super::chart::{has_kubectl, kubectl, prints};

const LEVELS: [&str; 3] = ["privileged", "baseline", "restricted"];

/// Creates a namespace for each level.
fn create_namespaces(plane: &Plane) {
    for level in LEVELS {
        let labels = json!({"pod-security.kubernetes.io/enforce": level});
        let metadata = json!({"name": format!("pods-{level}"), "labels": labels});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        let _ = prints(plane, &["apply", "--server-side", "--filename", "-"], &namespace.to_string());
    }
}

/// Creates a pod of a template in the namespace of a level, by dry run.
fn create(plane: &Plane, level: &str, template: &Value) -> Output {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "pod", "namespace": format!("pods-{level}"), "annotations": template["metadata"]["annotations"]},
        "spec": template["spec"],
    });
    kubectl(plane, &["create", "--dry-run=server", "--filename", "-"], &pod.to_string())
}

fn assert_passes(plane: &Plane, level: &str, name: &str, template: &Value) {
    let output = create(plane, level, template);
    assert!(output.status.success(), "{name} is {level}: {}", String::from_utf8_lossy(&output.stderr));
}

fn assert_refused(plane: &Plane, level: &str, name: &str, template: &Value) {
    let error = String::from_utf8(create(plane, level, template).stderr).unwrap();
    assert!(error.contains(&format!("violates PodSecurity \"{level}:latest\"")), "{name} is not {level}: {error}");
}

/// The name and the pod template of each object that creates pods.
fn templates(objects: &[Value]) -> Vec<(String, Value)> {
    let owners = objects.iter().filter(|object| object["spec"]["template"].is_object());
    owners
        .map(|owner| (format!("{} {}", owner["kind"], owner["metadata"]["name"]), owner["spec"]["template"].clone()))
        .collect()
}

/// The objects of a pool with this controller, as the operator creates them.
fn rendered(controller: &str) -> Vec<Value> {
    let render = ["render", "--pool=hangzhou", "--controller", controller];
    let output = Command::new(built::operator()).args(render).output().unwrap();
    assert!(output.status.success(), "{controller}: {}", String::from_utf8_lossy(&output.stderr));
    weir_store::read_objects(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

#[test]
fn the_operator_and_its_ingress_controllers_pass_restricted() {
    let Some(helm) = Helm::new().filter(|_| has_kubectl()) else { return };
    let Some(plane) = Plane::shared() else { return };
    create_namespaces(plane);
    let mut all = templates(&weir_store::read_objects(&text("operator/deployment.yaml")).unwrap());
    let of_chart = templates(&helm.objects(&["operator.enabled=true"]));
    all.extend(of_chart.into_iter().filter(|(name, _)| !name.contains("DaemonSet")));
    all.extend(["traefik", "ingress-nginx"].iter().flat_map(|controller| templates(&rendered(controller))));
    // The Deployment of the manifests, that of the chart with its Job, Traefik, and ingress-nginx with its webhook and two Jobs.
    assert_eq!(all.len(), 8, "{:?}", all.iter().map(|(name, _)| name).collect::<Vec<_>>());
    for (name, template) in &all {
        assert_passes(plane, "restricted", name, template);
    }
}

#[test]
fn weir_needs_privileged() {
    if !has_kubectl() {
        return;
    }
    let Some(plane) = Plane::shared() else { return };
    create_namespaces(plane);
    let daemon_set: Value = serde_saphyr::from_str(&text("daemonset.yaml")).unwrap();
    let static_pod: Value = serde_saphyr::from_str(&text("static-pod.yaml")).unwrap();
    for (name, template) in [("the DaemonSet", &daemon_set["spec"]["template"]), ("the static pod", &static_pod)] {
        assert_refused(plane, "restricted", name, template);
        assert_refused(plane, "baseline", name, template);
        assert_passes(plane, "privileged", name, template);
    }
}
