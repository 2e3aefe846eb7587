//! Client certificates at the HTTPS port with real RBAC. The user is reviewed, then impersonated or refused.

use std::process::Output;
use std::time::Instant;

use weir_tests::built;
use weir_tests::client::PATIENCE;

use super::kubectl::{Kubectl, Way};

/// Hides LoadBalancers from every client.
const NO_LOAD_BALANCERS: &str = "
filters:
  - {name: discardcloudservice, module: discardcloudservice.wasm, match: ['*/services']}
";

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
---
apiVersion: v1
kind: Pod
metadata: {name: web-0}
spec: {nodeName: edge-a, containers: [{name: main, image: 'registry.test/web:1'}]}
status: {phase: Running}
";

/// Lets the node's user run commands in the namespace's pods, which nodes may not by default.
const MAY_EXEC: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: exec}
rules: [{apiGroups: [''], resources: [pods/exec], verbs: [get, create]}, {apiGroups: [''], resources: [pods], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: exec}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: exec}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: 'system:node:edge-a'}]
";

fn refused(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn the_user_of_a_certificate_has_its_rbac_permissions_and_sees_filtered_objects() {
    let namespace = "certificates";
    let Some(kubectl) = Kubectl::start("node", namespace, NO_LOAD_BALANCERS).await else { return };
    kubectl.create(namespace, SERVICES).await;
    let in_namespace = ["--namespace", namespace];
    let names = [&["get", "services", "--output=name"][..], &in_namespace].concat();

    // The daemon may not create reviews yet, so it refuses the request.
    let services = format!("/api/v1/namespaces/{namespace}/services");
    let unknown = refused(&kubectl.run(Way::Certificate, &["get", "--raw", &services], "").await);
    assert!(unknown.contains("subjectaccessreviews"), "{unknown}");

    let rules = built::workspace().join("deploy").join("impersonation.yaml").display().to_string();
    kubectl.admin(&["create", "--filename", &rules]).await;
    assert_eq!(kubectl.prints(Way::Direct, &names).await, "service/cloud\nservice/own\n");
    assert_eq!(kubectl.prints(Way::Certificate, &names).await, "service/own\n");
    for command in [
        &["get", "node", "edge-a", "--output=yaml"][..],
        &["get", "node", "edge-a", "--output=wide"],
        &["get", "service", "own", "--namespace", namespace, "--output=json"],
        &["get", "--raw", "/version"],
        &["auth", "can-i", "--list", "--no-headers"],
        &["auth", "can-i", "list", "services"],
        &["auth", "can-i", "list", "secrets"],
        &["label", "node", "edge-a", "certificate=shown", "--overwrite"],
    ] {
        kubectl.same_by(&[Way::Certificate], command).await;
    }
    let whoami = kubectl.prints(Way::Certificate, &["auth", "whoami"]).await;
    assert!(whoami.contains("system:node:edge-a") && whoami.contains("system:nodes"), "{whoami}");

    // RBAC and the node authorizer refuse the request, and the client gets the server's text.
    for command in [
        &["get", "secrets", "--namespace", namespace][..],
        &["delete", "service", "own", "--namespace", namespace],
        &["create", "namespace", "mine"],
        &["delete", "namespace", namespace],
    ] {
        let (direct, through) =
            (kubectl.run(Way::Direct, command, "").await, kubectl.run(Way::Certificate, command, "").await);
        for output in [refused(&direct), refused(&through)] {
            assert!(output.contains("system:node:edge-a") && output.to_lowercase().contains("forbidden"), "{output}");
        }
    }
    let other = kubectl.run(Way::Certificate, &["label", "node", "other", "a=b"], "").await;
    assert!(!other.status.success(), "{other:?}");

    // A stream, as the user of the certificate.
    let exec = [&["exec", "web-0"][..], &in_namespace, &["--", "echo", "hello"]].concat();
    let output = refused(&kubectl.run(Way::Certificate, &exec, "").await);
    assert!(output.to_lowercase().contains("forbidden"), "{output}");
    kubectl.create(namespace, MAY_EXEC).await;
    let status = r#"--patch={"status":{"phase":"Running"}}"#;
    let running = [&["patch", "pod", "web-0", "--subresource=status", status][..], &in_namespace].concat();
    kubectl.admin(&running).await;
    // The daemon caches a refusal for some seconds.
    let began = Instant::now();
    while !kubectl.run(Way::Certificate, &exec, "").await.status.success() {
        assert!(began.elapsed() < PATIENCE);
    }
    for websockets in ["true", "false"] {
        let mut command = kubectl.goes(Way::Certificate, &exec);
        let output = command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets).output().await.unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"hello\n"[..]), "{output:?}");
    }

    // If the daemon may not impersonate a user, the server refuses, regardless of that user's permissions.
    let Some(kubectl) = Kubectl::start("admin", "strangers", NO_LOAD_BALANCERS).await else { return };
    let output = refused(&kubectl.run(Way::Certificate, &["get", "--raw", &services], "").await);
    assert!(output.contains("impersonate") && output.contains("forbidden"), "{output}");
    assert_eq!(kubectl.prints(Way::Token, &names).await, "service/own\n", "its token says enough");
}
