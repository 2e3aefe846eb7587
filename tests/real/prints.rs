//! The output of kubectl: through Weir it is the same, except for hidden objects.

use super::kubectl::{Kubectl, Way};

const OBJECTS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: web}}
data: {key: value, text: \"two\\nlines\"}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {password: secret}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, labels: {app: web}}
spec:
  nodeName: edge-a
  containers: [{name: main, image: 'registry.test/web:1'}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: 'registry.test/web:1'}]}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.1.7], nodeName: edge-a, conditions: {ready: true}}]
";

/// Hides LoadBalancer Services from every client, including kubectl.
const NO_LOAD_BALANCERS: &str = "
filters:
  - {name: discardcloudservice, module: discardcloudservice.wasm, match: ['*/services']}
";

#[tokio::test]
async fn every_output_of_unfiltered_objects_is_the_same_bytes() {
    let namespace = "prints";
    // The filter in force matches services: they are unchanged, not unmatched.
    let Some(kubectl) = Kubectl::start("admin", namespace, NO_LOAD_BALANCERS).await else { return };
    kubectl.create(namespace, OBJECTS).await;
    let ways = [Way::Through, Way::Token];
    let kinds = "configmaps,secrets,pods,deployments,services,endpointslices";
    let base = ["get", kinds, "--namespace", namespace];
    for form in [
        &[][..],
        &["--output=wide"],
        &["--output=json"],
        &["--output=yaml"],
        &["--output=yaml", "--show-managed-fields"],
        &["--output=name"],
        &["--output=jsonpath={.items[*].metadata.name}"],
        &["--output=jsonpath-as-json={.items[*].metadata}"],
        &["--output=go-template={{range .items}}{{.metadata.name}} {{end}}"],
        &["--output=custom-columns=NAME:.metadata.name,UID:.metadata.uid"],
        &["--show-labels"],
        &["--show-kind"],
        &["--no-headers"],
        &["--chunk-size=1"],
        &["--sort-by=.metadata.name"],
        &["--selector=app=web"],
        &["--field-selector=metadata.name=web"],
        &["--label-columns=app"],
        &["--server-print=false"],
    ] {
        kubectl.same_by(&ways, &[&base[..], form].concat()).await;
    }
    for command in [
        // No ConfigMap: kubectl describes its keys in a random order.
        &["describe", "service,pod", "--namespace", namespace][..],
        &["get", "service", "web", "--namespace", namespace, "--output=yaml"],
        &["get", "service", "web", "settings", "--namespace", namespace],
        &["get", "service", "nothing", "--namespace", namespace],
        &["get", "nonsense"],
        &["get", "node", "edge-a", "--output=wide"],
        &["get", "customresourcedefinitions"],
        &["get", "nodepools"],
        &["get", "namespace", namespace, "--output=json"],
        &["get", "all", "--namespace", namespace],
        &["api-resources", "--sort-by=name"],
        &["api-versions"],
        &["explain", "service.spec.ports", "--recursive"],
        &["explain", "nodepool.status"],
        &["version", "--output=json"],
        &["rollout", "history", "deployment/web", "--namespace", namespace],
    ] {
        kubectl.same_by(&ways, command).await;
    }
    // The user of a token has another uid than the user of a certificate.
    kubectl.same(&["auth", "whoami", "--output=yaml"]).await;
    for path in [
        "/api",
        "/apis",
        "/api/v1",
        "/openapi/v2",
        "/openapi/v3",
        "/version",
        "/readyz",
        "/api/v1/namespaces/prints/configmaps",
        "/api/v1/namespaces/prints/services",
        "/api/v1/namespaces/prints/services?limit=1",
        "/api/v1/namespaces/prints/services/web",
        "/api/v1/namespaces/prints/pods/web-0/status",
        "/apis/discovery.k8s.io/v1/namespaces/prints/endpointslices",
        "/apis/apps.openyurt.io/v1beta1/nodepools",
        "/api/v1/namespaces/prints/services/none",
        // Errors of the server for a resource that filters match: the server's own text.
        "/api/v1/namespaces/prints/services?resourceVersion=x",
        "/api/v1/namespaces/prints/services?continue=x",
        "/api/v1/namespaces/prints/services?labelSelector=(",
        "/api/v1/namespaces/prints/services?fieldSelector=spec.ports=1",
        "/api/v1/namespaces/prints/services?resourceVersionMatch=Exact",
        "/api/v1/namespaces/prints/services/web/none",
    ] {
        kubectl.same_by(&ways, &["get", "--raw", path]).await;
    }
}

#[tokio::test]
async fn a_hidden_service_is_missing_from_every_output_and_nothing_else_is() {
    let namespace = "hides";
    let Some(kubectl) = Kubectl::start("admin", namespace, NO_LOAD_BALANCERS).await else { return };
    kubectl.create(namespace, OBJECTS).await;
    let in_namespace = ["--namespace", namespace];
    let get = |form: &[&'static str]| [&["get", "services"][..], &in_namespace, form].concat();
    let seen = kubectl.prints(Way::Direct, &get(&["--output=yaml"])).await;
    let cloud = "
apiVersion: v1
kind: Service
metadata: {name: cloud}
spec: {type: LoadBalancer, ports: [{port: 80}]}";
    kubectl.create(namespace, cloud).await;
    for form in [&["--output=name"][..], &["--output=wide", "--no-headers"], &["--output=json"], &["--chunk-size=1"]] {
        assert!(kubectl.prints(Way::Direct, &get(form)).await.contains("cloud"), "{form:?}");
        assert!(!kubectl.prints(Way::Through, &get(form)).await.contains("cloud"), "{form:?}");
    }
    assert_eq!(kubectl.prints(Way::Through, &get(&["--output=yaml"])).await, seen);
    let hidden = kubectl.run(Way::Through, &[&["get", "service", "cloud"][..], &in_namespace].concat(), "").await;
    assert_eq!(String::from_utf8_lossy(&hidden.stderr), "Error from server (NotFound): services \"cloud\" not found\n");
}

#[tokio::test]
async fn a_watch_prints_the_same_as_a_direct_one() {
    let namespace = "watches";
    let Some(kubectl) = Kubectl::start("admin", namespace, NO_LOAD_BALANCERS).await else { return };
    let output = ["--output=custom-columns=NAME:.metadata.name,VERSION:.metadata.resourceVersion,DATA:.data.key"];
    let arguments = [&["get", "configmaps", "--namespace", namespace, "--watch"][..], &output].concat();
    let mut direct = kubectl.follows(Way::Direct, &arguments);
    let mut through = kubectl.follows(Way::Through, &arguments);
    kubectl
        .create(
            namespace,
            r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"key": "first"}}"#,
        )
        .await;
    assert_eq!(through.line().await, direct.line().await, "the header");
    let mut names = Vec::new();
    for change in ["second", "third", ""] {
        let one = ["--namespace", namespace, "configmap", "one"];
        let (line, words) = (direct.line().await, through.words().await);
        assert_eq!(words, line.split_whitespace().collect::<Vec<_>>());
        names.push(words[2].clone());
        match change {
            "" => kubectl.admin(&[&["delete"][..], &one].concat()).await,
            data => {
                let patch = format!("--patch={{\"data\":{{\"key\":\"{data}\"}}}}");
                kubectl.admin(&[&["patch"][..], &one, &["--type=merge", &patch]].concat()).await
            }
        };
    }
    assert_eq!(through.line().await, direct.line().await, "the deletion");
    assert_eq!(names, ["first", "second", "third"]);
}

#[tokio::test]
async fn a_watch_prints_no_row_of_a_hidden_object() {
    let namespace = "rows";
    let Some(kubectl) = Kubectl::start("admin", namespace, NO_LOAD_BALANCERS).await else { return };
    let service = |name: &str, kind: &str| {
        let manifest = serde_json::json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": kind, "ports": [{"port": 80}]},
        });
        manifest.to_string()
    };
    kubectl.create(namespace, &service("first", "ClusterIP")).await;
    // A Table, as the server prints it.
    let mut through = kubectl.follows(Way::Through, &["get", "services", "--namespace", namespace, "--watch"]);
    assert_eq!(through.words().await[..3], ["NAME", "TYPE", "CLUSTER-IP"]);
    assert_eq!(through.words().await[..2], ["first", "ClusterIP"]);
    kubectl.create(namespace, &service("hidden", "LoadBalancer")).await;
    kubectl.create(namespace, &service("second", "NodePort")).await;
    assert_eq!(through.words().await[..2], ["second", "NodePort"]);
    let shown = ["patch", "service", "hidden", "--namespace", namespace, "--patch", r#"{"spec":{"type":"ClusterIP"}}"#];
    kubectl.admin(&shown).await;
    assert_eq!(through.words().await[..2], ["hidden", "ClusterIP"]);
}

#[tokio::test]
async fn auth_can_i_prints_the_same() {
    for identity in ["node", "nobody", "kube-proxy"] {
        let Some(kubectl) = Kubectl::start(identity, &format!("can-{identity}"), NO_LOAD_BALANCERS).await else {
            return;
        };
        kubectl.same(&["auth", "can-i", "--list", "--no-headers"]).await;
        for question in [
            &["list", "services"][..],
            &["get", "secrets"],
            &["list", "nodes"],
            &["watch", "endpointslices"],
            &["*", "*"],
        ] {
            kubectl.same(&[&["auth", "can-i"][..], question].concat()).await;
        }
        for what in ["services", "secrets", "nodes", "configmaps"] {
            kubectl.same(&["get", what, "--namespace=kube-system", "--output=name"]).await;
        }
        kubectl.same(&["get", "node", "edge-a", "--output=yaml"]).await;
    }
}
