//! A control plane with the manifests of `deploy/operator`, and what tests do to it.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use weir_tests::built;
use weir_tests::client::{Client, PATIENCE, whole};
use weir_tests::plane::Plane;

/// The acting YurtIngress is one in the cluster, so that each test has a cluster of its own. Three at a time: a control plane takes
/// half a gigabyte.
static CLUSTERS: Semaphore = Semaphore::const_new(3);

pub(super) const INGRESSES: &str = "/apis/apps.openyurt.io/v1alpha1/yurtingresses";
pub(super) const POOLS: &str = "/apis/apps.openyurt.io/v1beta2/nodepools";
pub(super) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/ingress-nginx/deployments";
pub(super) const SERVICES: &str = "/api/v1/namespaces/ingress-nginx/services";
pub(super) const MAPS: &str = "/api/v1/namespaces/ingress-nginx/configmaps";
pub(super) const CLASSES: &str = "/apis/networking.k8s.io/v1/ingressclasses";
pub(super) const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
pub(super) const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
/// All collections in which the operator applies objects.
pub(super) const APPLIED: [&str; 9] = [
    DEPLOYMENTS,
    SERVICES,
    MAPS,
    CLASSES,
    BINDINGS,
    "/api/v1/namespaces/ingress-nginx/serviceaccounts",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/ingress-nginx/rolebindings",
    "/apis/batch/v1/namespaces/ingress-nginx/jobs",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
];

pub(super) struct Cluster {
    pub(super) plane: Plane,
    pub(super) server: String,
    pub(super) admin: Client,
    _permit: SemaphorePermit<'static>,
}

impl Cluster {
    /// A cluster with everything of `deploy/operator` but the operator; `None` if the control plane is not built.
    pub(super) async fn start() -> Option<Self> {
        let cluster = Self::empty().await?;
        cluster.manifest("namespaces.yaml").await;
        cluster.manifest("crd.yaml").await;
        cluster.manifest("rbac.yaml").await;
        cluster.manifest("rbac-ingress-nginx.yaml").await;
        cluster.manifest("policy.yaml").await;
        cluster.manifest("roles.yaml").await;
        let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        cluster.wait(crd, "yurtingresses.apps.openyurt.io", |crd| is_true(crd?, "Established").then_some(())).await;
        Some(cluster)
    }

    pub(super) async fn empty() -> Option<Self> {
        let permit = CLUSTERS.acquire().await.unwrap();
        let plane = Plane::own()?;
        Some(Self { server: plane.server("admin"), admin: plane.admin(), plane, _permit: permit })
    }

    /// Creates the objects of a file of `deploy/operator`.
    pub(super) async fn manifest(&self, file: &str) {
        let text = std::fs::read_to_string(built::workspace().join("deploy/operator").join(file)).unwrap();
        for object in weir_store::read_objects(&text).unwrap() {
            let version = object["apiVersion"].as_str().unwrap();
            let root = if version.contains('/') { "/apis" } else { "/api" };
            let namespace = object["metadata"]["namespace"].as_str();
            let scope = namespace.map(|name| format!("/namespaces/{name}")).unwrap_or_default();
            let kind = object["kind"].as_str().unwrap().to_lowercase();
            let plural = kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
            self.create(&format!("{root}/{version}{scope}/{plural}"), object).await;
        }
    }

    /// The response of a request: status and body.
    pub(super) async fn request(&self, method: Method, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let client = self.admin.clone().with("content-type", kind_of(kind));
        let answer = whole(client.send(method, path, body.to_string()).await).await.unwrap();
        // A resource that is not served has a response in plain text.
        (answer.status.as_u16(), serde_json::from_slice(&answer.body).unwrap_or_default())
    }

    pub(super) async fn create(&self, path: &str, object: Value) -> Value {
        let (status, body) = self.request(Method::POST, path, "json", &object).await;
        assert_eq!(status, 201, "{path}: {body}");
        body
    }

    pub(super) async fn merge(&self, path: &str, patch: Value) -> Value {
        let (status, body) = self.request(Method::PATCH, path, "merge", &patch).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub(super) async fn delete(&self, path: &str) {
        let (status, body) = self.request(Method::DELETE, path, "json", &json!({})).await;
        assert!((200..300).contains(&status), "{path}: {body}");
    }

    pub(super) async fn get(&self, path: &str) -> Option<Value> {
        let answer = self.admin.get(path).await;
        (answer.status.as_u16() != 404).then(|| {
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            answer.json()
        })
    }

    /// The names in a collection, as far as the operator has applied them.
    pub(super) async fn applied(&self, collection: &str) -> Vec<String> {
        self.admin.names(&format!("{collection}?labelSelector=app.kubernetes.io/managed-by%3Dweir-operator")).await
    }

    pub(super) async fn list(&self, path: &str) -> Vec<Value> {
        self.admin.json(path).await["items"].as_array().unwrap().clone()
    }

    /// Follows one object until `found` accepts it; `None` is one that does not exist.
    pub(super) async fn wait<T>(&self, collection: &str, name: &str, found: impl Fn(Option<&Value>) -> Option<T>) -> T {
        let path = format!("{collection}?watch=true&fieldSelector=metadata.name%3D{name}");
        let mut last = None;
        let wait = async {
            loop {
                // After a restart the API server answers 429 until its cache of the resource is filled.
                let mut events = until("a watch begins", async || self.admin.try_watch(&path).await.ok()).await;
                last = self.get(&format!("{collection}/{name}")).await;
                loop {
                    if let Some(result) = found(last.as_ref()) {
                        return result;
                    }
                    // The API server ends watches when it likes.
                    let Ok(Some(event)) = events.try_next().await else { break };
                    match event["type"].as_str() {
                        Some("ADDED" | "MODIFIED") => last = Some(event["object"].clone()),
                        Some("DELETED") => last = None,
                        _ => break,
                    }
                }
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(result) => result,
            Err(_) => panic!("{collection}/{name} never is as awaited: {last:#?}"),
        }
    }

    /// Waits until a YurtIngress has a status that `found` accepts.
    pub(super) async fn status<T>(&self, name: &str, found: impl Fn(&Value) -> Option<T>) -> T {
        self.wait(INGRESSES, name, |ingress| found(&ingress?["status"])).await
    }

    /// Waits until a pool has this reason: `Ready`, or the reason in `unreadypools`. Returns the message.
    pub(super) async fn pool_is(&self, ingress: &str, pool: &str, reason: &str) -> String {
        self.status(ingress, |status| {
            let state = state_of(status, pool)?;
            (state.0 == reason).then_some(state.1)
        })
        .await
    }

    pub(super) async fn add_pool(&self, name: &str) {
        self.create(POOLS, json!({"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": {"name": name}, "spec": {}})).await;
    }

    pub(super) async fn add_ingress(&self, name: &str, spec: Value) {
        self.create(INGRESSES, ingress(name, spec)).await;
    }

    /// Writes the status of a Deployment, as its controller does.
    pub(super) async fn deployed(&self, name: &str) {
        let deployment = self.get(&format!("{DEPLOYMENTS}/{name}")).await.unwrap();
        let (replicas, generation) = (&deployment["spec"]["replicas"], &deployment["metadata"]["generation"]);
        let status = json!({"observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": replicas, "availableReplicas": replicas, "conditions": []});
        self.merge(&format!("{DEPLOYMENTS}/{name}/status"), json!({"status": status})).await;
    }

    /// Writes that a Deployment made no progress for too long.
    pub(super) async fn stuck(&self, name: &str) {
        let deployment = self.get(&format!("{DEPLOYMENTS}/{name}")).await.unwrap();
        let condition = json!({"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "no pod came up"});
        let status = json!({"observedGeneration": deployment["metadata"]["generation"], "replicas": 1, "updatedReplicas": 1,
            "availableReplicas": 0, "unavailableReplicas": 1, "conditions": [condition]});
        self.merge(&format!("{DEPLOYMENTS}/{name}/status"), json!({"status": status})).await;
    }

    /// Waits until an Event with this reason is there. Returns its note.
    pub(super) async fn event(&self, reason: &str) -> String {
        let found = async {
            loop {
                let events = self.list(EVENTS).await;
                if let Some(event) = events.iter().find(|event| event["reason"] == reason) {
                    return event["note"].as_str().unwrap().to_owned();
                }
                // A watch from now on, which the next event ends.
                let mut watch = self.admin.watch(&format!("{EVENTS}?watch=true&timeoutSeconds=1")).await;
                let _ = watch.try_next().await;
            }
        };
        tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("there is no Event {reason}"))
    }

    /// Writes a kubeconfig with the token of a ServiceAccount.
    pub(super) async fn kubeconfig(
        &self,
        folder: &std::path::Path,
        namespace: &str,
        account: &str,
    ) -> std::path::PathBuf {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}});
        let token = self.create(&path, request).await["status"]["token"].clone();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.server, "certificate-authority": self.plane.ca()}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        let file = folder.join(format!("{account}.kubeconfig"));
        std::fs::write(&file, config.to_string()).unwrap();
        file
    }

    /// Kills the API server and waits for the new one.
    pub(super) async fn restart(&self) {
        self.proxy("restart").await;
    }

    /// What becomes of the connections through the proxy: `down`, `silent` or `up`.
    pub(super) async fn proxy(&self, state: &str) {
        let control = Client::new(self.plane.control(), "test");
        let answer = control.send(Method::POST, &format!("/{state}"), "").await;
        assert_eq!(answer.status(), 200);
    }

    /// The URL of the API server behind a proxy that tests can cut.
    pub(super) fn proxied_server(&self) -> String {
        self.plane.server("admin-cut")
    }
}

pub(super) fn ingress(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtIngress", "metadata": {"name": name}, "spec": spec})
}

/// A spec with these pools and the template `traefik`.
pub(super) fn spec(pools: &[&str]) -> Value {
    let pools: Vec<_> = pools.iter().map(|name| json!({"name": name})).collect();
    json!({"controller": "traefik", "pools": pools})
}

/// The reason and the message of a pool.
pub(super) fn state_of(status: &Value, pool: &str) -> Option<(String, String)> {
    let conditions = &status["conditions"];
    let text = |pool: &Value, key: &str| pool[key].as_str().unwrap().to_owned();
    let mut upgrading = status["upgradingPools"].as_array().into_iter().flatten();
    if let Some(pool) = upgrading.find(|upgrading| upgrading["name"] == pool) {
        return Some((text(pool, "reason"), text(pool, "message")));
    }
    if conditions["readypools"].as_array().is_some_and(|pools| pools.iter().any(|name| name == pool)) {
        return Some(("Ready".to_owned(), String::new()));
    }
    let unready = conditions["unreadypools"].as_array()?.iter().find(|unready| unready["name"] == pool)?;
    Some((text(unready, "reason"), text(unready, "message")))
}

/// Whether a standard condition is true.
pub(super) fn is_true(object: &Value, kind: &str) -> bool {
    let conditions =
        object["status"]["conditions"].as_array().or_else(|| object["status"]["standardConditions"].as_array());
    conditions.is_some_and(|all| all.iter().any(|condition| condition["type"] == kind && condition["status"] == "True"))
}

/// The reason of a standard condition.
pub(super) fn reason_of(status: &Value, kind: &str) -> Option<String> {
    let condition = status["standardConditions"].as_array()?.iter().find(|condition| condition["type"] == kind)?;
    condition["reason"].as_str().map(str::to_owned)
}

/// The URL in a kubeconfig.
fn kind_of(kind: &str) -> &'static str {
    match kind {
        "merge" => "application/merge-patch+json",
        _ => "application/json",
    }
}

/// Waits until something holds that has no watch. Only a hang reaches the end.
pub(super) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("never: {what}"))
}
