//! deploy/: the manifests are applied to the API server unchanged, and the daemon runs with exactly their
//! configuration and permissions.

use serde_json::{Value, json};
use weir_apiserver::{ApiServer, Enforce};
use weir_tests::built;
use weir_tests::client::Client;
use weir_tests::daemon::Setup;

use super::edge;

const FILES: &[&str] = &["rbac.yaml", "node.yaml", "filters.yaml", "daemonset.yaml"];

fn text(name: &str) -> String {
    std::fs::read_to_string(built::workspace().join("deploy").join(name)).unwrap()
}

/// Applies the manifests over HTTP, as `kubectl apply -k deploy` does.
async fn deployed() -> ApiServer {
    let server = edge().await;
    let client = Client::new(server.url(), "kubectl").with("content-type", "application/json");
    for file in FILES {
        let objects = weir_store::read_objects(&text(file)).unwrap();
        assert!(!objects.is_empty(), "{file}");
        for object in objects {
            let version = object["apiVersion"].as_str().unwrap();
            let root = if version.contains('/') { "/apis" } else { "/api" };
            let plural = weir_kube::GroupResource::of_kind(version, object["kind"].as_str().unwrap()).resource;
            let scope =
                object["metadata"]["namespace"].as_str().map_or_else(String::new, |name| format!("/namespaces/{name}"));
            let path = format!("{root}/{version}{scope}/{plural}");
            let created = client.send(http::Method::POST, &path, object.to_string()).await;
            assert_eq!(created.status(), 201, "{file}: {path}");
        }
    }
    server
}

#[test]
fn the_kustomization_names_every_manifest() {
    let kustomization: Value = serde_saphyr::from_str(&text("kustomization.yaml")).unwrap();
    let named: Vec<_> =
        kustomization["resources"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(named, FILES);
}

#[tokio::test]
async fn the_daemon_runs_with_exactly_the_deployed_config_map_and_permissions() {
    let server = deployed().await;
    // The rights of rbac.yaml are enforced on the daemon's account. If one were missing, the daemon would never be ready.
    let used = std::sync::Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let (seen, noted) = (used.clone(), used.clone());
    let mut requests = server.request_count();
    server.set_policy(move |request| {
        noted.lock().unwrap().insert((request.group.clone(), request.resource.clone(), request.verb.clone()));
        true
    });
    server.enforce(Enforce::Everybody);
    let mut setup = Setup::new(server.url());
    for entry in std::fs::read_dir(built::modules()).unwrap() {
        let path = entry.unwrap().path();
        setup = setup.bundled(path.file_stem().unwrap().to_str().unwrap());
    }
    let cache = tempfile::tempdir().unwrap();
    let weir = setup.flag("--config-map", "kube-system/weir-filters").requesting(cache.path()).start_ready().await;
    let shown = weir.admin().json("/filters").await;
    let live: Vec<_> =
        shown["filters"].as_array().unwrap().iter().map(|filter| filter["name"].as_str().unwrap()).collect();
    assert_eq!(live, ["servicetopology", "endpoints", "discardcloudservice", "nodeportisolation", "nodeportaddresses"]);
    let used = used.lock().unwrap().clone();
    for resource in ["configmaps", "services", "nodes", "endpointslices", "nodepools"] {
        for verb in ["list", "watch"] {
            assert!(
                used.iter().any(|(_, r, v)| r == resource && v == verb),
                "{verb} {resource} is granted and not used"
            );
        }
    }
    // The daemon requests the certificate of the HTTPS port with the same permissions.
    weir.logged("requested a certificate for the HTTPS port").await;
    let looked_at = async {
        while !seen
            .lock()
            .unwrap()
            .iter()
            .any(|(_, resource, verb)| resource == "certificatesigningrequests" && verb == "get")
        {
            requests.changed().await.unwrap();
        }
    };
    tokio::time::timeout(weir_tests::client::PATIENCE, looked_at).await.expect("looks whether it was issued");
    assert!(!weir.log_text().contains("forbidden"), "{}", weir.log_text());
    let slices = weir.client("kube-proxy").json("/apis/discovery.k8s.io/v1/endpointslices").await;
    assert_eq!(slices["items"][0]["endpoints"].as_array().unwrap().len(), 2);
    assert_eq!(weir.client("kube-proxy").names("/api/v1/services").await, ["dashboard", "kubernetes", "web"]);
}

#[tokio::test]
async fn all_nine_filters_are_configured_and_load() {
    let map: Value = serde_saphyr::from_str(&text("filters.yaml")).unwrap();
    let filters: Value = serde_saphyr::from_str(map["data"]["filters.yaml"].as_str().unwrap()).unwrap();
    let mut names: Vec<_> =
        filters["filters"].as_array().unwrap().iter().map(|filter| filter["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    let mut modules: Vec<_> = std::fs::read_dir(built::modules())
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    modules.sort();
    assert_eq!(names, modules);
    // The configuration without the lines that disable filters: all filters load.
    let text: String = text("filters.yaml")
        .lines()
        .filter(|line| !line.starts_with("  filter_"))
        .map(|line| format!("{line}\n"))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("filters.yaml");
    std::fs::write(&path, text).unwrap();
    let output = std::process::Command::new(built::weir())
        .args(["check", path.to_str().unwrap(), "--modules-dir", built::modules().to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 9);
}

#[test]
fn the_manifests_use_only_known_flags() {
    for file in ["daemonset.yaml", "static-pod.yaml"] {
        let manifest: Value = serde_saphyr::from_str(&text(file)).unwrap();
        let spec = if file == "daemonset.yaml" { &manifest["spec"]["template"]["spec"] } else { &manifest["spec"] };
        let container = &spec["containers"][0];
        let arguments: Vec<_> =
            container["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap()).collect();
        assert_known(&arguments, file);
        let capabilities = json!({"drop": ["ALL"], "add": ["NET_ADMIN"]});
        assert_eq!(container["securityContext"]["capabilities"], capabilities, "{file}");
        assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false, "{file}");
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{file}");
    }
    // The systemd sockets use the default addresses of the flags.
    let sockets = text("weir.socket");
    for port in ["127.0.0.1:10261", "127.0.0.1:10267", "169.254.20.10:10268"] {
        assert!(sockets.contains(&format!("ListenStream={port}\n")), "{port}");
    }
    let unit = text("weir.service").replace("\\\n", " ");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/weir ")).unwrap();
    assert_known(&start.split_whitespace().collect::<Vec<_>>(), "weir.service");
}

#[test]
fn the_example_clients_use_the_ports_of_the_manifests() {
    for (file, server) in [
        ("kubelet.conf", "https://169.254.20.10:10268"),
        ("kube-proxy.conf", "https://169.254.20.10:10268"),
        ("kubelet-node-credential.conf", "http://127.0.0.1:10261"),
    ] {
        let config: Value = serde_saphyr::from_str(&text(&format!("clients/{file}"))).unwrap();
        assert_eq!(config["clusters"][0]["cluster"]["server"], server, "{file}");
        // client-go sends no credential to an http:// server: one in the file would only look as if it were used.
        assert_eq!(config["users"][0]["user"] == json!({}), server.starts_with("http:"), "{file}");
    }
}

#[test]
fn a_replaced_pod_finds_the_serving_certificate_of_its_predecessor() {
    for file in ["daemonset.yaml", "static-pod.yaml"] {
        let manifest: Value = serde_saphyr::from_str(&text(file)).unwrap();
        let spec = if file == "daemonset.yaml" { &manifest["spec"]["template"]["spec"] } else { &manifest["spec"] };
        let volumes = spec["volumes"].as_array().unwrap();
        let cache = volumes.iter().find(|volume| volume["name"] == "cache").unwrap();
        assert_eq!(cache["hostPath"]["path"], "/var/lib/weir", "{file}");
        // Where earlier versions had it.
        let former = volumes.iter().find(|volume| volume["name"] == "former-cache").unwrap();
        assert_eq!(former["hostPath"]["path"], "/var/cache/weir", "{file}");
        let mounts = spec["containers"][0]["volumeMounts"].as_array().unwrap();
        for (name, path) in [("cache", "/var/lib/weir"), ("former-cache", "/var/cache/weir")] {
            assert!(mounts.iter().any(|mount| mount["name"] == name && mount["mountPath"] == path), "{file}");
        }
        assert!(text(file).contains("--cache-dir=/var/lib/weir/cache\n"), "{file}");
        // A copy of the one without the other is useless.
        assert!(text(file).contains("--cache-key-dir=/var/lib/weir\n"), "{file}");
    }
}

/// The daemon parses all flags at once. With one unknown flag added, the error must name only that one.
fn assert_known(arguments: &[&str], file: &str) {
    let output = std::process::Command::new(built::weir())
        .args(arguments)
        .arg("--unknown-to-weir")
        .env("WEIR_SERVER", "https://127.0.0.1:1")
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{file}: {error}");
    assert!(error.contains("'--unknown-to-weir'"), "{file}: {error}");
}
