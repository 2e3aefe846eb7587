//! `kubectl apply -k deploy/operator`, the example, and a YurtIngress as kubectl prints it.

use std::process::{Command, Output};

use serde_json::Value;
use weir_tests::built;
use weir_tests::plane::skipped;

use super::cluster::{Cluster, DEPLOYMENTS};
use super::process::Operator;

/// Runs kubectl as the administrator; `None` if there is none.
fn kubectl(cluster: &Cluster, arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new("kubectl");
    let output = command.arg("--kubeconfig").arg(cluster.plane.kubeconfig("admin")).args(arguments).output();
    if output.is_err() {
        skipped("there is no kubectl on PATH");
    }
    output.ok()
}

/// Such a command must succeed.
fn prints(cluster: &Cluster, arguments: &[&str]) -> Option<String> {
    let output = kubectl(cluster, arguments)?;
    assert!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[tokio::test]
async fn the_kustomization_and_the_example_make_two_ingress_controllers() {
    let Some(cluster) = Cluster::empty().await else { return };
    let folder = built::workspace().join("deploy/operator");
    let path = folder.display().to_string();
    let Some(created) = prints(&cluster, &["apply", "-k", &path]) else { return };
    assert!(created.lines().all(|line| line.ends_with(" created")), "{created}");
    let again = prints(&cluster, &["apply", "-k", &path]).unwrap();
    assert!(again.lines().all(|line| line.ends_with(" unchanged")), "{again}");
    let strict = prints(&cluster, &["apply", "-k", &path, "--dry-run=server", "--validate=strict"]).unwrap();
    assert_eq!(strict.lines().count(), created.lines().count());
    let definition = "crd/yurtingresses.apps.openyurt.io";
    let _ = prints(&cluster, &["wait", "--for=condition=Established", definition]);

    // The process has the arguments of its Deployment, and the permissions of its ServiceAccount.
    let deployment = prints(&cluster, &["-n", "weir-operator", "get", "deployment", "weir-operator", "-o", "json"]);
    let deployment: Value = serde_json::from_str(&deployment.unwrap()).unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["args"][0], "serve");
    let arguments: Vec<_> = pod["containers"][0]["args"].as_array().unwrap().iter().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(|argument| argument.as_str().unwrap()).collect();
    assert_eq!(arguments, ["--log-json"]);
    assert_eq!(pod["serviceAccountName"], "weir-operator");
    for pool in ["hangzhou", "shanghai"] {
        cluster.add_pool(pool).await;
    }
    let operator = Operator::start(&cluster, &[]).await;
    let _ = prints(&cluster, &["apply", "-f", &folder.join("example.yaml").display().to_string()]);
    for pool in ["hangzhou", "shanghai"] {
        cluster.pool_is("edge", pool, "Deploying").await;
        cluster.deployed(&format!("traefik-{pool}")).await;
        cluster.pool_is("edge", pool, "Ready").await;
    }
    let shanghai = cluster.get(&format!("{DEPLOYMENTS}/traefik-shanghai")).await.unwrap();
    assert_eq!(shanghai["spec"]["replicas"], 2);
    // As the documentation shows it.
    let shown = prints(&cluster, &["get", "yurtingress", "edge"]).unwrap();
    let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let (_, table) = readme.split_once("\nNAME   READY").unwrap();
    let (header, rest) = table.split_once('\n').unwrap();
    let mut lines = shown.lines().map(words);
    assert_eq!(lines.next().unwrap()[2..], words(header));
    let (line, documented) = (lines.next().unwrap(), words(rest.lines().next().unwrap()));
    assert_eq!(line[..8], documented[..8], "all but the age");
    let (_, wait) = readme.split_once("\nkubectl wait ").unwrap();
    let wait: Vec<_> = wait.lines().next().unwrap().split(' ').map(|word| word.replace('\'', "")).collect();
    let wait: Vec<_> = std::iter::once("wait").chain(wait.iter().map(String::as_str)).collect();
    assert!(prints(&cluster, &wait).unwrap().contains("condition met"), "{wait:?}");
    operator.stop().await;
}

/// The condition of the admission webhook names all pools of a YurtIngress, of which there are at most a thousand.
#[tokio::test]
async fn the_api_server_accepts_the_webhook_of_a_thousand_pools() {
    let Some(cluster) = Cluster::empty().await else { return };
    let operator = built::operator();
    let output = Command::new(operator).args(["render", "--controller=ingress-nginx", "--pool=a"]).output().unwrap();
    let objects = weir_store::read_objects(&String::from_utf8(output.stdout).unwrap()).unwrap();
    let mut webhook = objects.into_iter().find(|object| object["kind"] == "ValidatingWebhookConfiguration").unwrap();
    let names: Vec<_> = (0..1000).map(|at| format!("'{at:04}-{}'", "x".repeat(58))).collect();
    let expression = webhook["webhooks"][0]["matchConditions"][0]["expression"].as_str().unwrap();
    let expression = expression.replace("'a'", &names.join(", "));
    assert!(expression.len() > 60_000);
    webhook["webhooks"][0]["matchConditions"][0]["expression"] = expression.into();
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let _ = cluster.create(path, webhook).await;
}
