//! From OpenYurt's own operator of YurtIngresses: the commands of `deploy/operator/README.md`, word by word.

use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::{Value, json};
use weir_tests::built;
use weir_tests::chart::text;
use weir_tests::plane::skipped;

use super::cluster::{Cluster, INGRESSES, is_true, until};
use super::process::Operator;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "yurtingresses.apps.openyurt.io";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/kube-system/deployments";

/// The definition of yurt-app-manager 0.6, as far as an object of it needs.
fn definition() -> Value {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let pool = json!({"type": "object", "properties": {"name": {"type": "string"}, "ingress_ips": texts}});
    let spec = json!({"type": "object", "properties": {
        "ingress_controller_replicas_per_pool": {"type": "integer", "format": "int32"},
        "pools": {"type": "array", "items": pool},
    }});
    let version = json!({
        "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": DEFINITION},
        "spec": {
            "group": "apps.openyurt.io", "scope": "Cluster", "versions": [version],
            "names": {"kind": "YurtIngress", "plural": "yurtingresses", "singular": "yurtingress"},
        },
    })
}

/// yurt-app-manager, of which nothing runs, and the webhook by which it validates its YurtIngresses.
async fn install_openyurts_operator(cluster: &Cluster) {
    cluster.create(DEFINITIONS, definition()).await;
    let is_served = |definition: Option<&Value>| is_true(definition?, "Established").then_some(());
    cluster.wait(DEFINITIONS, DEFINITION, is_served).await;
    let labels = json!({"app.kubernetes.io/name": "yurt-app-manager"});
    let pod = json!({"containers": [{"name": "manager", "image": "openyurt/yurt-app-manager:v0.6.0"}]});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "yurt-app-manager"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    });
    cluster.create(DEPLOYMENTS, deployment).await;
    let mut object = super::cluster::ingress(
        "yurtingress-singleton",
        json!({"ingress_controller_replicas_per_pool": 3, "pools": [{"name": "hangzhou", "ingress_ips": ["10.0.0.9"]}]}),
    );
    object["metadata"]["finalizers"] = json!(["ingress.operator.openyurt.io"]);
    cluster.create(INGRESSES, object).await;
    let service = json!({"name": "yurt-app-manager-webhook", "namespace": "kube-system", "path": "/validate"});
    let webhook = json!({
        "name": "vyurtingress.kb.io", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
        "clientConfig": {"service": service},
        "rules": [{"apiGroups": ["apps.openyurt.io"], "apiVersions": ["v1alpha1"], "resources": ["yurtingresses"],
            "operations": ["CREATE", "UPDATE", "DELETE"]}],
    });
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "yurt-app-manager"}, "webhooks": [webhook],
    });
    cluster.create("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", configuration).await;
    until("the webhook is in force", async || {
        let patch = json!({"metadata": {"annotations": {"a": "b"}}});
        let path = format!("{INGRESSES}/yurtingress-singleton");
        let (status, _) = cluster.request(http::Method::PATCH, &path, "merge", &patch).await;
        (status == 500).then_some(())
    })
    .await;
}

/// The first block of commands below a heading of the operator's page.
fn commands(heading: &str) -> String {
    let page = text("operator/README.md");
    let (_, section) = page.split_once(&format!("\n### {heading}\n")).unwrap();
    let (_, block) = section.split_once("```sh\n").unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

#[tokio::test]
async fn the_commands_of_the_page_lead_from_openyurts_operator_to_this_one() {
    let Some(cluster) = Cluster::empty().await else { return };
    if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
        skipped("there is no kubectl on PATH");
        return;
    }
    install_openyurts_operator(&cluster).await;
    for pool in ["hangzhou", "shanghai"] {
        cluster.add_pool(pool).await;
    }
    let folder = tempfile::tempdir().unwrap();
    symlink(built::workspace().join("deploy"), folder.path().join("deploy")).unwrap();
    std::fs::write(folder.path().join("mine.yaml"), text("operator/example.yaml")).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-eu", "-c", &commands("From OpenYurt's YurtIngress")]).current_dir(folder.path());
    let output = shell.env("KUBECONFIG", cluster.plane.kubeconfig("admin")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let copy = std::fs::read_to_string(folder.path().join("yurtingresses.yaml")).unwrap();
    assert!(copy.contains("ingress_ips") && copy.contains("ingress.operator.openyurt.io"), "{copy}");
    let deployment = cluster.get(&format!("{DEPLOYMENTS}/yurt-app-manager")).await.unwrap();
    assert_eq!(deployment["spec"]["replicas"], 0);
    assert_eq!(cluster.admin.names(INGRESSES).await, ["edge"]);
    let operator = Operator::start(&cluster, &[]).await;
    cluster.pool_is("edge", "hangzhou", "Deploying").await;
    operator.stop().await;
}
