//! kubectl while the API server is gone: each user gets what it may read online, by each way of a credential, and no more.

use std::collections::BTreeSet;

use weir_tests::built;
use weir_tests::client::PATIENCE;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::plane::{Plane, skipped};

use super::kubectl::{Kubectl, Way};

/// What is cached by default, without Secrets, which are kept for kubelet alone.
const KINDS: &str = "services,endpoints,namespaces,nodes,pods,configmaps,endpointslices,servicecidrs,ingresses,\
                     ingressclasses,csidrivers,runtimeclasses,nodepools,nodebuckets";

const OBJECTS: &str = "
apiVersion: v1
kind: Service
metadata: {name: one, labels: {app: shop}}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: one}
subsets: [{addresses: [{ip: 10.1.2.3}], ports: [{port: 80}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: one}
spec: {nodeName: edge-a, containers: [{name: main, image: 'registry.test/web:1'}], automountServiceAccountToken: false}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: one, labels: {app: shop}}
data: {a: b}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: two}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: one}
addressType: IPv4
endpoints: [{addresses: [10.1.2.3]}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: one}
spec: {defaultBackend: {service: {name: one, port: {number: 80}}}}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: one}
spec: {controller: example.com/one}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: one.example.com}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: one}
handler: one
---
apiVersion: apps.openyurt.io/v1beta1
kind: NodePool
metadata: {name: one}
spec: {type: Edge}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reads-configmaps}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reads-configmaps}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reads-configmaps}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: nobody}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: administrator}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: administrator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: administrator, namespace: offline}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: impersonates-all}
rules:
  - {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}
  - {apiGroups: [''], resources: [users, groups], verbs: [impersonate]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: impersonates-all}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: impersonates-all}
subjects: [{kind: ServiceAccount, name: weir, namespace: kube-system}]
";

/// The objects by name.
const NAMES: [&str; 9] = [
    "service/one",
    "endpoints/one",
    "pod/one",
    "configmap/one",
    "endpointslice/one",
    "ingress/one",
    "ingressclass/one",
    "nodepool/one",
    "node/edge-a",
];

/// The commands of an administrator; the name of one form with its arguments.
fn commands() -> Vec<Vec<String>> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut commands = vec![
        words(&format!("get {KINDS} -A --output=name")),
        words(&format!("get {KINDS} -A --output=yaml")),
        words(&format!("get {KINDS} --namespace offline --output=name")),
        words("get configmaps,services --namespace offline --selector app=shop --output=yaml"),
        words("get configmaps --namespace offline --field-selector metadata.name=two --output=yaml"),
    ];
    for name in NAMES {
        commands.push(words(&format!("get {name} --namespace offline --output=yaml")));
    }
    commands
}

struct Site {
    plane: &'static Plane,
    cache: tempfile::TempDir,
}

impl Site {
    async fn daemon(&self) -> Daemon {
        let setup = Setup::kubeconfig(&self.plane.kubeconfig("weir-cut"))
            .flag("--node-kubeconfig", &self.plane.kubeconfig("node-cut").display().to_string())
            .flag("--modules-dir", &built::modules().display().to_string())
            .on_disk(self.cache.path())
            .switch("--verbose")
            .filters("filters: []");
        self.plane.secured(setup).start_ready().await
    }

    async fn link(&self, state: &str) {
        let client = weir_tests::client::Client::new(self.plane.control(), "test");
        assert_eq!(client.send(http::Method::POST, &format!("/{state}"), "").await.status(), 200);
    }
}

/// How often the daemon has asked in the background what a user may read.
fn learnt(weir: &Daemon) -> usize {
    weir.log_text().matches("asked what else the user may read").count()
}

/// Reads everything once, through Weir, and waits until it is kept. Returns what was printed.
async fn reads(kubectl: &Kubectl, way: Way, arguments: &[&str], kinds: usize) {
    let before = learnt(&kubectl.weir);
    kubectl.run(way, arguments, "").await;
    let kept = async {
        while learnt(&kubectl.weir) < before + kinds {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, kept).await.is_ok(), "{way:?}: {}", kubectl.weir.log_text());
}

/// Asserts that a user gets offline what the API server itself shows it.
async fn same_offline(kubectl: &Kubectl, way: Way) {
    for command in commands() {
        let (direct, offline) = (kubectl.run(Way::Direct, &command, "").await, kubectl.run(way, &command, "").await);
        let texts = [&direct.stdout, &offline.stdout].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let errors = String::from_utf8_lossy(&offline.stderr);
        assert_eq!(texts[0], texts[1], "{command:?} by {way:?}: {errors}");
        assert_eq!(direct.status.code(), offline.status.code(), "{command:?} by {way:?}: {errors}");
    }
}

/// Asserts that an administrator's describe and watches work, too.
async fn describes_and_watches(kubectl: &Kubectl, way: Way) {
    for name in NAMES {
        // Events are not kept on the node. kubectl does without them, but for ConfigMaps, where it gives up.
        let events = format!("--show-events={}", !name.starts_with("configmap"));
        let described = kubectl.run(way, &["describe", "--namespace", "offline", name, &events], "").await;
        assert!(described.status.success(), "{name} by {way:?}: {described:?} {}", kubectl.weir.log_text());
        assert!(String::from_utf8_lossy(&described.stdout).starts_with("Name:"), "{name}: {described:?}");
    }
    for kind in KINDS.split(',').filter(|kind| *kind != "nodebuckets") {
        let mut watch = kubectl.follows(way, &["get", kind, "-A", "--watch", "--output=name"]);
        assert!(!watch.line().await.is_empty());
    }
}

#[tokio::test]
async fn kubectl_shows_offline_what_each_user_may_read_and_nothing_to_others() {
    let version = tokio::process::Command::new("kubectl").args(["version", "--client"]).output().await;
    if !version.is_ok_and(|output| output.status.success()) {
        skipped("there is no kubectl on PATH");
        return;
    }
    let Some(plane) = Plane::own() else { return };
    // It runs as long as this program.
    let site = Site { plane: Box::leak(Box::new(plane)), cache: tempfile::tempdir().unwrap() };
    let admin = Kubectl::on(site.plane, site.daemon().await, "admin").await;
    admin.admin(&["create", "namespace", "offline"]).await;
    admin.create("offline", OBJECTS).await;
    let token = admin.admin(&["create", "token", "administrator", "--namespace", "offline"]).await;
    admin.plugin(&token);

    let all = ["get", KINDS, "-A", "--output=name"];
    let kinds = KINDS.split(',').count();
    for way in [Way::Token, Way::Certificate, Way::Plugin] {
        reads(&admin, way, &all, kinds).await;
    }
    let nobody = Kubectl::on(site.plane, admin.weir, "nobody").await;
    reads(&nobody, Way::Token, &["get", "configmaps", "--namespace", "offline"], 1).await;
    let node = Kubectl::on(site.plane, nobody.weir, "node").await;
    let allowed = node.run(Way::Direct, &all, "").await;
    let allowed = String::from_utf8_lossy(&allowed.stdout);
    let allowed: BTreeSet<_> = allowed.lines().filter_map(|line| line.split('/').next()).collect();
    assert!(allowed.len() >= 3, "{allowed:?}");
    reads(&node, Way::Through, &all, allowed.len()).await;
    for name in NAMES {
        node.run(Way::Through, &["get", name, "--namespace", "offline"], "").await;
    }
    // It may read these two, and list neither.
    for path in ["/api/v1/namespaces/offline/pods/one", "/api/v1/nodes/edge-a"] {
        let kept = format!(r#""object kept for the time without an API server","path":"{path}""#);
        node.weir.logged(&kept).await;
    }

    site.link("down").await;
    let mut weir = node.weir;
    for restarted in [false, true] {
        if restarted {
            assert_eq!(weir.stop().await, Some(0));
            weir = site.daemon().await;
        }
        let admin = Kubectl::on(site.plane, weir, "admin").await;
        admin.plugin(&token);
        for way in [Way::Token, Way::Certificate, Way::Plugin] {
            same_offline(&admin, way).await;
            describes_and_watches(&admin, way).await;
        }
        let node = Kubectl::on(site.plane, admin.weir, "node").await;
        same_offline(&node, Way::Through).await;
        let nobody = Kubectl::on(site.plane, node.weir, "nobody").await;
        same_offline(&nobody, Way::Token).await;
        let stranger = Kubectl::on(site.plane, nobody.weir, "kube-proxy").await;
        let refused = stranger.run(Way::Token, &all, "").await;
        assert_eq!((refused.stdout.len(), refused.status.code()), (0, Some(1)), "it has read nothing online");
        weir = stranger.weir;
    }
}
