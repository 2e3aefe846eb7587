//! What the operator's token cannot do, even in the hands of another user: `deploy/operator/policy.yaml` and `rbac-ingress-nginx.yaml`.

use http::Method;
use serde_json::{Value, json};
use weir_tests::client::{Client, whole};

use super::cluster::{BINDINGS, Cluster, until};

const CLASSES: &str = "/apis/networking.k8s.io/v1/ingressclasses";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A client with the operator's token.
struct Thief(Client);

impl Thief {
    async fn of(cluster: &Cluster) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = cluster.kubeconfig(folder.path(), "weir-operator", "weir-operator").await;
        let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig).unwrap()).unwrap();
        let token = config["users"][0]["user"]["token"].as_str().unwrap();
        let ca = std::fs::read_to_string(cluster.plane.ca()).unwrap();
        let client = Client::trusting(&cluster.server, "weir-operator", Some(&ca), None);
        Self(client.with("authorization", &format!("Bearer {token}")))
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: &Value) -> (u16, String) {
        let client = self.0.clone().with("content-type", kind);
        let answer = whole(client.send(method, path, body.to_string()).await).await.unwrap();
        (answer.status.as_u16(), answer.text())
    }

    /// Creates, without a trace.
    async fn creates(&self, path: &str, body: &Value) -> (u16, String) {
        self.send(Method::POST, &format!("{path}?dryRun=All"), "application/json", body).await
    }
}

fn binding(role: &str, subject: &Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "stolen"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}, "subjects": [subject]})
}

fn account(namespace: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": "weir-operator", "namespace": namespace})
}

#[tokio::test]
async fn the_operators_token_gives_roles_to_ingress_controllers_only_and_changes_nothing_of_others() {
    let Some(cluster) = Cluster::start().await else { return };
    let thief = Thief::of(&cluster).await;
    let own = binding("weir-ingress-traefik", &account("weir-operator"));
    // The API server needs a moment to know a policy.
    let denied = until("the policy acts", async || {
        let (status, text) = thief.creates(BINDINGS, &own).await;
        (status == 403).then_some(text)
    });
    assert!(denied.await.contains("weir-operator-bindings"), "the policy, not RBAC");
    let group = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"});
    for subject in [group, account("default")] {
        let (status, text) = thief.creates(BINDINGS, &binding("weir-ingress-traefik", &subject)).await;
        assert!(status == 403 && text.contains("weir-operator-bindings"), "{subject}: {text}");
    }
    let (status, text) = thief.creates(BINDINGS, &binding("weir-ingress-traefik", &account("ingress-nginx"))).await;
    assert_eq!(status, 201, "{text}");
    let (status, text) = thief.creates(BINDINGS, &binding("cluster-admin", &account("ingress-nginx"))).await;
    assert!(status == 403 && !text.contains("weir-operator-bindings"), "RBAC: {text}");
    let class = json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "theirs"},
        "spec": {"controller": "example.com/a"}});
    cluster.create(CLASSES, class).await;
    // The query does not count where there is a body.
    let dry = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]});
    for path in [format!("{BINDINGS}/cluster-admin"), format!("{CLASSES}/theirs")] {
        let denied = until("the policy acts", async || {
            let (status, text) = thief.send(Method::DELETE, &path, "application/json", &dry).await;
            (status == 403).then_some(text)
        });
        assert!(denied.await.contains("weir-operator-objects"), "{path}");
    }
    let webhook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "stolen"}, "webhooks": []});
    let apply = |name: &str| format!("{WEBHOOKS}/{name}?fieldManager=thief&dryRun=All");
    let (status, text) = thief.send(Method::PATCH, &apply("stolen"), "application/apply-patch+yaml", &webhook).await;
    assert_eq!(status, 403, "{text}");
    // The operator's own way to create the one that it may have.
    let named = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "ingress-nginx-admission"}, "webhooks": []});
    let (status, text) =
        thief.send(Method::PATCH, &apply("ingress-nginx-admission"), "application/apply-patch+yaml", &named).await;
    assert_eq!(status, 201, "{text}");
}

#[tokio::test]
async fn the_operators_token_changes_tolerations_of_pods_and_no_images_or_labels() {
    let Some(cluster) = Cluster::start().await else { return };
    let thief = Thief::of(&cluster).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"app": "a"}},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "a", "image": "a:1"}]}});
    until("the ServiceAccount is there", async || {
        let (status, _) = cluster.request(Method::POST, PODS, "json", &pod).await;
        (status == 201).then_some(())
    })
    .await;
    let patch = async |patch: Value| {
        thief
            .send(Method::PATCH, &format!("{PODS}/a?dryRun=All"), "application/strategic-merge-patch+json", &patch)
            .await
    };
    for change in [
        json!({"spec": {"containers": [{"name": "a", "image": "stolen:1"}]}}),
        json!({"metadata": {"labels": {"app": "stolen"}}}),
    ] {
        let denied = until("the policy acts", async || {
            let (status, text) = patch(change.clone()).await;
            (status == 403).then_some(text)
        });
        assert!(denied.await.contains("weir-operator-evictions"), "{change}");
    }
    let tolerations = json!({"spec": {"tolerations": [
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}]}});
    let (status, text) = patch(tolerations).await;
    assert_eq!(status, 200, "{text}");
}
