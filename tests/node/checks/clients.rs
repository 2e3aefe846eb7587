//! kube-proxy, CoreDNS, a pod that uses both, and kubectl's streams through Weir.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use super::{World, items};
use crate::SERVER_NAME;
use crate::cluster::{example, rules};
use crate::kubectl::holds;
use crate::runner::until;

pub(super) fn start(world: &World<'_>) {
    let admin = &world.admin;
    admin.apply(include_str!("../manifests/kube-proxy.yaml"));
    let kubeconfig = std::fs::read_to_string(example("kube-proxy.conf")).unwrap();
    let kubeconfig = kubeconfig.replace(crate::WEIR, &format!("https://{SERVER_NAME}:6443"));
    let patch = serde_json::json!({"data": {"kubeconfig.conf": kubeconfig}}).to_string();
    admin.run(&["-n", "kube-system", "patch", "configmap", "kube-proxy", "--type=merge", "-p", &patch]);
    admin.apply(include_str!("../manifests/coredns.yaml"));
    point_at_weir(world);
    admin.apply(include_str!("../manifests/web.yaml"));
    for (pool, nodes) in [("hangzhou", r#"["edge-a","edge-b"]"#), ("beijing", r#"["edge-c"]"#)] {
        let patch = format!(r#"{{"status":{{"nodes":{nodes}}}}}"#);
        admin.run(&["patch", "nodepool", pool, "--subresource=status", "--type=merge", "-p", &patch]);
    }
    admin.run(&["label", "node", crate::NODE, "apps.openyurt.io/nodepool=hangzhou"]);
    let _: () = admin.wait("all pods are Ready", &["get", "pods", "-A"], |pods| {
        (items(pods).len() >= 5 && items(pods).iter().all(|pod| holds(pod, "Ready"))).then_some(())
    });
    until("kube-proxy has written its rules", || match rules() {
        text if text.contains("default/web/tcp/http__10.244.2.9/8080") => Ok(()),
        text => Err(text),
    });
    let config = mounted_config();
    assert!(config.contains(r#"nodePortAddresses: ["10.250.0.0/24""#), "{config}");
    // CoreDNS resolves the name to a cluster IP, which kube-proxy serves.
    until("the name of a Service is resolved in a pod", || {
        let answer =
            admin.attempt(&["exec", "web", "--", "nslookup", "web.default.svc.cluster.local", "10.96.0.10"])?;
        if answer.contains("10.96.10.10") { Ok(()) } else { Err(answer) }
    });
}

/// Makes kube-proxy and CoreDNS clients of Weir, and waits until both are.
pub(super) fn point_at_weir(world: &World<'_>) {
    let guide = world.readme();
    guide.follow("kube-proxy");
    guide.follow("CoreDNS");
    for name in ["daemonset/kube-proxy", "deployment/coredns"] {
        world.admin.run(&["-n", "kube-system", "rollout", "status", name, "--timeout=80s"]);
    }
}

/// kube-proxy's configuration as kubelet mounted it, after the filter `nodeportaddresses`.
fn mounted_config() -> String {
    let pods = std::fs::read_dir("/var/lib/kubelet/pods").unwrap().flatten();
    let config = pods.map(|pod| pod.path().join("volumes/kubernetes.io~configmap/kube-proxy/config.conf"));
    let found: Vec<_> = config.filter_map(|path| std::fs::read_to_string(path).ok()).collect();
    found.concat()
}

/// Restarts kube-proxy's pod, which resets its back-off.
pub(super) fn restart_kube_proxy(world: &World<'_>) {
    let pods = &["-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-proxy"];
    let old = items(&world.admin.json(pods).unwrap())[0]["metadata"]["uid"].clone();
    world.admin.run(&["-n", "kube-system", "delete", "pod", "-l", "k8s-app=kube-proxy"]);
    let _: () = world.admin.wait("kube-proxy is replaced", pods, |pods| {
        let [pod] = items(pods) else { return None };
        (holds(pod, "Ready") && pod["metadata"]["uid"] != old).then_some(())
    });
}

/// Both use loopback without a credential of their own.
pub(super) fn node_credential(world: &World<'_>) {
    let get = |container: &str| {
        let url = format!("http://127.0.0.1:10261/api/v1/nodes/{}", crate::NODE);
        world.admin.attempt(&["exec", "neighbours", "-c", container, "--", "wget", "-q", "-O", "-", &url])
    };
    let node: serde_json::Value = serde_json::from_str(&get("root").unwrap()).unwrap();
    assert_eq!(node["metadata"]["name"], crate::NODE);
    let refused = get("other").unwrap_err();
    assert!(refused.contains("403 Forbidden"), "{refused}");
}

pub(super) fn streams(world: &World<'_>) {
    let weir = world.weir();
    assert_eq!(weir.run(&["exec", "web", "--", "cat", "/www/index.html"]), "the test server\n");
    let mut forward = weir.command(&["port-forward", "pod/web", "0:8080"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    // It ends if it cannot report a connection, so its output stays open.
    let mut output = BufReader::new(forward.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    // Forwarding from 127.0.0.1:40123 -> 8080
    let port =
        line.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split(' ').next()).unwrap_or_else(|| panic!("{line}"));
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream.write_all(b"GET /index.html HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("the test server\n"), "{answer}");
    forward.kill().unwrap();
    forward.wait().unwrap();
    // The web server's log line of that request.
    until("the log has the request", || match weir.attempt(&["logs", "web"])? {
        text if text.contains("response:200") => Ok(()),
        text => Err(text),
    });
}
