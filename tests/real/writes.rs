//! Writes by kubectl through Weir reach the API server.

use serde_json::{Value, json};

use super::kubectl::{Kubectl, Way};

const NO_FILTERS: &str = "filters: []\n";

async fn held(kubectl: &Kubectl, namespace: &str, what: &str) -> Value {
    let text = kubectl.admin(&["get", what, "--namespace", namespace, "--output=json"]).await;
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn apply_patch_edit_scale_and_delete_reach_the_server() {
    let namespace = "writes";
    let Some(kubectl) = Kubectl::start("admin", namespace, NO_FILTERS).await else { return };
    let through = async |arguments: &[&str], input: &str| {
        let arguments = [arguments, &["--namespace", namespace]].concat();
        let output = kubectl.run(Way::Through, &arguments, input).await;
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let manifest = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"key": value}})
            .to_string()
    };
    let apply = ["apply", "--filename=-"];
    assert_eq!(through(&apply, &manifest("first")).await, "configmap/one created\n");
    assert_eq!(through(&apply, &manifest("first")).await, "configmap/one unchanged\n");
    assert_eq!(through(&apply, &manifest("second")).await, "configmap/one configured\n");
    let server_side = ["apply", "--server-side", "--force-conflicts", "--filename=-"];
    assert_eq!(through(&server_side, &manifest("third")).await, "configmap/one serverside-applied\n");
    assert_eq!(through(&["diff", "--filename=-"], &manifest("third")).await, "");
    assert_eq!(held(&kubectl, namespace, "configmap/one").await["data"], json!({"key": "third"}));

    for (kind, patch) in [
        ("merge", r#"{"data":{"merge":"1"}}"#),
        ("strategic", r#"{"data":{"strategic":"1"}}"#),
        ("json", r#"[{"op":"add","path":"/data/json","value":"1"}]"#),
    ] {
        let done = through(&["patch", "configmap", "one", "--type", kind, "--patch", patch], "").await;
        assert_eq!(done, "configmap/one patched\n", "{kind}");
        assert_eq!(held(&kubectl, namespace, "configmap/one").await["data"][kind], "1");
    }

    // The editor is a program: kubectl reads, passes the file, and sends the edited one.
    let mut edit = kubectl.goes(Way::Through, &["edit", "configmap", "one", "--namespace", namespace]);
    let edited = edit.env("KUBE_EDITOR", "sed -i s/third/fourth/").output().await.unwrap();
    assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));
    assert_eq!(held(&kubectl, namespace, "configmap/one").await["data"]["key"], "fourth");

    assert_eq!(through(&["label", "configmap", "one", "stage=test"], "").await, "configmap/one labeled\n");
    assert_eq!(through(&["annotate", "configmap", "one", "note=test"], "").await, "configmap/one annotated\n");
    assert_eq!(through(&["replace", "--filename=-"], &manifest("fifth")).await, "configmap/one replaced\n");
    let one = held(&kubectl, namespace, "configmap/one").await;
    assert_eq!((&one["data"], &one["metadata"]["labels"]), (&json!({"key": "fifth"}), &Value::Null));

    let image = "--image=registry.test/web:1";
    assert_eq!(through(&["create", "deployment", "web", image], "").await, "deployment.apps/web created\n");
    assert_eq!(through(&["scale", "deployment/web", "--replicas=3"], "").await, "deployment.apps/web scaled\n");
    assert_eq!(held(&kubectl, namespace, "deployment/web").await["spec"]["replicas"], 3);
    // Requests that POST another kind: a token, for example.
    assert_eq!(through(&["create", "serviceaccount", "app"], "").await, "serviceaccount/app created\n");
    assert_eq!(through(&["create", "token", "app"], "").await.trim().split('.').count(), 3, "a JSON web token");

    let stale = r#"{"metadata":{"resourceVersion":"1"},"data":{"key":"late"}}"#;
    let refused = ["patch", "configmap", "one", "--type=merge", "--patch", stale, "--namespace", namespace];
    let refused = kubectl.run(Way::Through, &refused, "").await;
    assert!(String::from_utf8_lossy(&refused.stderr).starts_with("Error from server (Conflict)"), "{refused:?}");

    assert_eq!(through(&["delete", "configmap", "one"], "").await, "configmap \"one\" deleted\n");
    assert_eq!(through(&["delete", "configmaps,deployments", "--all"], "").await, "deployment.apps \"web\" deleted\n");
    assert_eq!(kubectl.admin(&["get", "configmap,deployment", "--namespace", namespace]).await, "");
}

#[tokio::test]
async fn a_forbidden_write_prints_the_servers_reason() {
    let Some(kubectl) = Kubectl::start("nobody", "refuses", NO_FILTERS).await else { return };
    for command in [
        &["create", "configmap", "one", "--namespace=refuses"][..],
        &["delete", "namespace", "refuses"],
        &["label", "node", "edge-a", "mine=yes"],
        &["patch", "namespace", "refuses", "--patch={}"],
    ] {
        let refused = kubectl.same(command).await;
        assert!(String::from_utf8_lossy(&refused.stderr).to_lowercase().contains("forbidden"), "{refused:?}");
    }
}

/// Closes node ports in the pool `hangzhou`, for every client.
const CLOSED: &str = "
filters:
  - name: nodeportisolation
    module: nodeportisolation.wasm
    match: ['*/services']
    settings: {nodePool: hangzhou}
";

const DASHBOARD: &str = "
apiVersion: v1
kind: Service
metadata: {name: dashboard, annotations: {nodeport.openyurt.io/listen: beijing}}
spec: {type: NodePort, ports: [{name: http, port: 80}]}
";

#[tokio::test]
async fn a_filtered_object_is_not_written_back() {
    let namespace = "cuts";
    let Some(kubectl) = Kubectl::start("admin", namespace, CLOSED).await else { return };
    kubectl.create(namespace, DASHBOARD).await;
    let before = held(&kubectl, namespace, "service/dashboard").await;
    let in_namespace = ["--namespace", namespace];
    let named = [&["service", "dashboard"][..], &in_namespace].concat();
    let read = kubectl.prints(Way::Through, &[&["get"][..], &named, &["--output=json"]].concat()).await;
    assert!(read.contains("\"type\": \"ClusterIP\"") && !read.contains("nodePort\":"), "{read}");
    let merge = r#"--patch={"metadata":{"labels":{"a":"b"}}}"#;
    let json = r#"--patch=[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]"#;
    for (arguments, input) in [
        (&["replace", "--filename=-"][..], read.as_str()),
        (&["patch", "service", "dashboard", "--type=merge", merge], ""),
        (&["patch", "service", "dashboard", "--type=json", json], ""),
        (&["label", "service", "dashboard", "a=b"], ""),
        (&["annotate", "service", "dashboard", "a=b"], ""),
    ] {
        let refused = kubectl.run(Way::Through, &[arguments, &in_namespace].concat(), input).await;
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && error.contains("nodeportisolation"), "{arguments:?}: {error}");
    }
    assert_eq!(held(&kubectl, namespace, "service/dashboard").await, before);
    // A write that names only the fields it changes is harmless.
    let apply = [&["apply", "--server-side", "--filename=-"][..], &in_namespace].concat();
    let label = r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"dashboard","labels":{"server":"side"}}}"#;
    let applied = kubectl.run(Way::Through, &apply, label).await;
    assert!(applied.status.success(), "{applied:?}");
    kubectl.prints(Way::Through, &[&["patch"][..], &named, &[merge]].concat()).await;
    let mut edit = kubectl.goes(Way::Through, &[&["edit"][..], &named].concat());
    let edited = edit.env("KUBE_EDITOR", "sed -i s/beijing/beijing,shanghai/").output().await.unwrap();
    assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));
    let after = held(&kubectl, namespace, "service/dashboard").await;
    assert_eq!(after["metadata"]["annotations"]["nodeport.openyurt.io/listen"], "beijing,shanghai");
    assert_eq!((&after["spec"], &after["metadata"]["labels"]), (&before["spec"], &json!({"server": "side", "a": "b"})));
    kubectl.prints(Way::Through, &[&["delete"][..], &named].concat()).await;
}
