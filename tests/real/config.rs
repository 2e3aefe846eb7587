//! The ConfigMap of the filters in a real cluster, read with exactly the permissions of `deploy/rbac.yaml`.

use weir_tests::built;
use weir_tests::daemon::Setup;

use super::kubectl::{Kubectl, Way};

const SERVICES: &str = "
apiVersion: v1
kind: Service
metadata: {name: cloud}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: own}
spec: {ports: [{port: 80}]}
";

const NO_LOAD_BALANCERS: &str = "{name: discardcloudservice, module: discardcloudservice.wasm, match: ['*/services']}";

#[tokio::test]
async fn the_config_map_takes_effect_from_its_creation_to_its_deletion() {
    let namespace = "config";
    let Some(kubectl) = Kubectl::start("admin", namespace, "filters: []\n").await else { return };
    kubectl.create(namespace, SERVICES).await;
    let credential = kubectl.plane.kubeconfig("admin").display().to_string();
    let weir = Setup::kubeconfig(&kubectl.plane.kubeconfig("weir"))
        .flag("--node-kubeconfig", &credential)
        .flag("--modules-dir", &built::modules().display().to_string())
        .start_ready()
        .await;
    let kubectl = kubectl.behind(weir);
    let names = ["get", "services", "--namespace", namespace, "--output=name"];
    let all = "service/cloud\nservice/own\n";
    assert_eq!(kubectl.prints(Way::Through, &names).await, all, "there is no ConfigMap: no filters");

    let config = |filters: &str| {
        serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "weir-filters", "namespace": "kube-system"},
            "data": {"filters.yaml": format!("filters: [{filters}]")},
        })
    };
    let system = ["--namespace", "kube-system"];
    let (activated, refused) = ("filter set activated", "configuration refused, keeping the last valid filter set");
    for (change, filters, line, shown) in [
        ("apply", NO_LOAD_BALANCERS, activated, "service/own\n"),
        ("apply", "", activated, all),
        ("apply", NO_LOAD_BALANCERS, activated, "service/own\n"),
        // Absence turns no filter off.
        ("delete", "", refused, "service/own\n"),
        ("apply", "", activated, all),
    ] {
        let from = kubectl.weir.log_length();
        let arguments = [&[change][..], &system, &["--filename", "-"]].concat();
        let done = kubectl.run(Way::Direct, &arguments, &config(filters).to_string()).await;
        assert!(done.status.success(), "{done:?}");
        kubectl.weir.logged_after(from, line).await;
        assert_eq!(kubectl.prints(Way::Through, &names).await, shown, "{change} {filters}");
    }
}

#[tokio::test]
async fn the_bundled_configuration_goes_live_with_the_bundled_permissions() {
    let Some(kubectl) = Kubectl::start("admin", "bundled", "filters: []\n").await else { return };
    let file = built::workspace().join("deploy").join("filters.yaml").display().to_string();
    let weir = Setup::kubeconfig(&kubectl.plane.kubeconfig("weir"))
        .flag("--modules-dir", &built::modules().display().to_string())
        .flag("--config-file", &file)
        .start_ready()
        .await;
    let all = weir.admin().json("/filters").await;
    let states: Vec<_> = all["filters"].as_array().unwrap().iter().map(|filter| filter["name"].clone()).collect();
    assert_eq!(
        states,
        ["servicetopology", "endpoints", "discardcloudservice", "nodeportisolation", "nodeportaddresses"]
    );
}
