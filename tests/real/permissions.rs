//! Random users with random permissions send random reads, each to the API server itself and through Weir: the answers are the
//! same, regardless of the view that serves them. Without an API server, Weir answers with the same objects, or not at all.
//!
//! `WEIR_READS` is the number of reads of each user, `WEIR_SEED` repeats a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use weir_tests::built;
use weir_tests::client::{Answer, Client, PATIENCE, whole};
use weir_tests::daemon::Setup;
use weir_tests::plane::Plane;

use super::random::{self, Random};

/// The users, each with the permissions of its own service account.
const USERS: usize = 8;
/// The reads of each user in `make test`.
const SHORT: usize = 120;
/// The reads at a time.
const PARALLEL: usize = 16;

/// Resources with their API paths, and whether they are in a namespace. Weir does not cache the last one.
const RESOURCES: [(&str, &str, &str, bool); 10] = [
    ("", "/api/v1", "services", true),
    ("", "/api/v1", "configmaps", true),
    ("", "/api/v1", "pods", true),
    ("", "/api/v1", "namespaces", false),
    ("", "/api/v1", "nodes", false),
    ("discovery.k8s.io", "/apis/discovery.k8s.io/v1", "endpointslices", true),
    ("networking.k8s.io", "/apis/networking.k8s.io/v1", "ingresses", true),
    ("node.k8s.io", "/apis/node.k8s.io/v1", "runtimeclasses", false),
    ("apps.openyurt.io", "/apis/apps.openyurt.io/v1beta2", "nodepools", false),
    ("", "/api/v1", "limitranges", true),
];
const NAMESPACES: [&str; 2] = ["pa", "pb"];

/// An answer as far as it is compared: the status, and the objects by namespace and name.
type Shown = (u16, BTreeSet<String>);

/// Two objects of each resource, in two namespaces.
fn objects() -> String {
    let mut text = String::new();
    for name in ["one", "two"] {
        for namespace in NAMESPACES {
            let meta = format!("{{name: {name}, namespace: {namespace}, labels: {{app: {name}}}}}");
            let _ = write!(
                text,
                "
---
{{apiVersion: v1, kind: Service, metadata: {meta}, spec: {{ports: [{{port: 80}}]}}}}
---
{{apiVersion: v1, kind: ConfigMap, metadata: {meta}}}
---
{{apiVersion: v1, kind: Pod, metadata: {meta}, spec: {{nodeName: edge-a, automountServiceAccountToken: false, containers: [{{name: a, image: a}}]}}}}
---
{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {meta}, addressType: IPv4, endpoints: []}}
---
{{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {meta}, spec: {{defaultBackend: {{service: {{name: one, port: {{number: 80}}}}}}}}}}
---
{{apiVersion: v1, kind: LimitRange, metadata: {meta}, spec: {{limits: []}}}}"
            );
        }
        let meta = format!("{{name: {name}, labels: {{app: {name}}}}}");
        let _ = write!(
            text,
            "
---
{{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {meta}, handler: a}}
---
{{apiVersion: apps.openyurt.io/v1beta2, kind: NodePool, metadata: {meta}, spec: {{type: Edge}}}}
---
{{apiVersion: v1, kind: Namespace, metadata: {meta}}}"
        );
    }
    text
}

/// Random rules of one user: each in a role of the cluster or of a namespace, for some verbs and resources, perhaps by name.
fn rules(random: &mut Random, user: &str) -> String {
    let mut text =
        format!("\n---\n{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {user}, namespace: pa}}}}");
    for n in 0..2 + random.below(5) {
        let (group, _, resource, _) = random.pick(&RESOURCES);
        let (other_group, _, other, _) = random.pick(&RESOURCES);
        let verbs: Vec<_> = ["get", "list", "watch"].into_iter().filter(|_| !random.one_in(3)).collect();
        let names = if random.one_in(3) { "resourceNames: [one], " } else { "" };
        let (role, place) = match random.below(3) {
            0 => ("ClusterRole", String::new()),
            namespace => ("Role", format!(", namespace: {}", NAMESPACES[namespace - 1])),
        };
        let verbs = if verbs.is_empty() { "get".to_owned() } else { verbs.join(", ") };
        let _ = write!(
            text,
            "
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {role}
metadata: {{name: {user}-{n}{place}}}
rules: [{{{names}apiGroups: ['{group}', '{other_group}'], resources: [{resource}, {other}], verbs: [{verbs}]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {role}Binding
metadata: {{name: {user}-{n}{place}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {role}, name: {user}-{n}}}
subjects: [{{kind: ServiceAccount, name: {user}, namespace: pa}}]"
        );
    }
    text
}

/// A random read: of old and new paths; named, selected, listed, watched.
fn read(random: &mut Random) -> String {
    let (_, base, resource, is_namespaced) = random.pick(&RESOURCES);
    let (is_old, is_named) = (random.one_in(5), random.one_in(3));
    let is_watch = is_old || random.one_in(4);
    let namespace = match random.below(3) {
        n if n > 0 && is_namespaced => format!("/namespaces/{}", NAMESPACES[n - 1]),
        _ if is_namespaced && is_named => "/namespaces/pa".to_owned(),
        _ => String::new(),
    };
    let old = if is_old { "/watch" } else { "" };
    let mut path = format!("{base}{old}{namespace}/{resource}");
    if is_named {
        let _ = write!(path, "/{}", random.pick(&["one", "one", "two", "absent"]));
    }
    let mut query = Vec::new();
    if is_watch {
        // Shorter than anybody waits, so that it ends by itself.
        query.push("timeoutSeconds=1");
        if !is_old {
            query.push("watch=true");
        }
    }
    if random.one_in(2) {
        query.push("resourceVersion=0");
    }
    if random.one_in(4) {
        query.push(random.pick(&[
            "fieldSelector=metadata.name%3Done",
            "fieldSelector=metadata.name%3D%3Dtwo",
            "fieldSelector=metadata.name!%3Done",
            "fieldSelector=metadata.name%3Done,metadata.name%3Dtwo",
        ]));
    }
    if random.one_in(5) {
        query.push(random.pick(&["labelSelector=app%3Done", "labelSelector=app+in+(one,two)", "labelSelector=!app"]));
    }
    if !is_watch && random.one_in(6) {
        query.push("limit=500");
    }
    if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
}

/// What an answer shows: of a list, a watch, or one object.
fn shown(answer: &Answer) -> Shown {
    let name = |object: &Value| {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", text("namespace"), text("name"))
    };
    if answer.status != 200 {
        return (answer.status.as_u16(), BTreeSet::new());
    }
    let documents = serde_json::Deserializer::from_slice(&answer.body).into_iter::<Value>();
    let mut found = BTreeSet::new();
    for document in documents.map(|document| document.expect("it is JSON")) {
        match (&document["items"], &document["type"], &document["metadata"]) {
            (Value::Array(items), ..) => found.extend(items.iter().map(name)),
            (_, Value::String(kind), _) if kind == "ADDED" => drop(found.insert(name(&document["object"]))),
            (_, Value::String(kind), _) => drop(found.insert(format!("{kind} {}", document["object"]))),
            (_, _, Value::Object(_)) => drop(found.insert(name(&document))),
            _ => {}
        }
    }
    (200, found)
}

/// The API server, an administrator's client of it, and the daemon's way to it.
struct Site {
    plane: Plane,
    admin: Client,
    direct: Client,
}

impl Site {
    fn new(plane: Plane) -> Self {
        let admin = plane.admin().with("content-type", "application/json");
        let ca = std::fs::read_to_string(plane.ca()).unwrap();
        let direct = Client::http1(&plane.server("admin"), "test", &ca);
        Self { plane, admin, direct }
    }

    /// Creates objects, each at its own path.
    async fn create(&self, manifests: &str) {
        for document in manifests.split("\n---\n").filter(|text| !text.trim().is_empty()) {
            let object: Value = serde_saphyr::from_str(document).unwrap();
            let path = collection(&object);
            let answer = whole(self.admin.send(Method::POST, &path, object.to_string()).await).await.unwrap();
            assert_eq!(answer.status, 201, "{path}: {}", answer.text());
        }
    }

    async fn token(&self, user: &str) -> String {
        let path = format!("/api/v1/namespaces/pa/serviceaccounts/{user}/token");
        let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let answer = whole(self.admin.send(Method::POST, &path, asked.to_string()).await).await.unwrap();
        answer.json()["status"]["token"].as_str().unwrap().to_owned()
    }

    async fn link(&self, state: &str) {
        let control = Client::new(self.plane.control(), "test");
        assert_eq!(control.send(Method::POST, &format!("/{state}"), "").await.status(), 200);
    }
}

/// The path at which an object is created.
fn collection(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap();
    let base = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
    let plural = match object["kind"].as_str().unwrap() {
        "Ingress" => "ingresses".to_owned(),
        "RuntimeClass" => "runtimeclasses".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{base}/namespaces/{namespace}/{plural}"),
        None => format!("{base}/{plural}"),
    }
}

/// Waits until the API server applies the rules that were created last, and with them all before.
async fn applied(site: &Site) {
    let rule = "{apiGroups: [''], resources: [services], verbs: [list]}";
    let mut text = "\n---\n{apiVersion: v1, kind: ServiceAccount, metadata: {name: last, namespace: pa}}".to_owned();
    for (role, place) in [("ClusterRole", ""), ("Role", ", namespace: pa")] {
        let _ = write!(
            text,
            "
---
{{apiVersion: rbac.authorization.k8s.io/v1, kind: {role}, metadata: {{name: last{place}}}, rules: [{rule}]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {role}Binding
metadata: {{name: last{place}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {role}, name: last}}
subjects: [{{kind: ServiceAccount, name: last, namespace: pa}}]"
        );
    }
    site.create(&text).await;
    let last = site.direct.clone().with("authorization", &format!("Bearer {}", site.token("last").await));
    let applied = async {
        for path in ["/api/v1/services", "/api/v1/namespaces/pa/services"] {
            while last.get(path).await.status != 200 {}
        }
    };
    tokio::time::timeout(PATIENCE, applied).await.expect("the API server applies the rules");
}

/// Sends all reads of all users through these clients.
async fn answers(clients: &[Client], reads: &[(usize, String)]) -> BTreeMap<(usize, String), Shown> {
    let places = Arc::new(Semaphore::new(PARALLEL));
    let mut tasks = JoinSet::new();
    for (user, path) in reads.iter().cloned() {
        let (client, places) = (clients[user].clone(), places.clone());
        tasks.spawn(async move {
            let _place = places.acquire().await.unwrap();
            let answer = client.get(&path).await;
            ((user, path), shown(&answer))
        });
    }
    tasks.join_all().await.into_iter().collect()
}

#[tokio::test]
async fn random_users_get_through_weir_what_the_api_server_shows_them() {
    let Some(plane) = Plane::own() else { return };
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("WEIR_SEED").unwrap_or_else(random::seed);
    let each = number("WEIR_READS").map_or(SHORT, |each| usize::try_from(each).unwrap());
    println!("SEED={seed} READS={each}");
    let mut random = Random::new(seed);
    let site = Site::new(plane);
    let namespaces =
        NAMESPACES.map(|name| format!("\n---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}"));
    site.create(&namespaces.concat()).await;
    site.create(&objects()).await;
    let users: Vec<_> = (0..USERS).map(|n| format!("user-{n}")).collect();
    for user in &users {
        site.create(&rules(&mut random, user)).await;
    }
    applied(&site).await;

    let cache = tempfile::tempdir().unwrap();
    let weir = Setup::kubeconfig(&site.plane.kubeconfig("weir-cut"))
        .flag("--modules-dir", &built::modules().display().to_string())
        .on_disk(cache.path())
        .filters("filters: []")
        .start_ready()
        .await;
    let (mut direct, mut through) = (Vec::new(), Vec::new());
    for user in &users {
        let bearer = format!("Bearer {}", site.token(user).await);
        direct.push(site.direct.clone().with("authorization", &bearer));
        through.push(weir.client("test").with("authorization", &bearer));
    }
    let reads: Vec<_> = (0..USERS * each).map(|n| (n % USERS, read(&mut random))).collect();
    let expected = answers(&direct, &reads).await;
    let online = answers(&through, &reads).await;
    let mut wrong = Vec::new();
    for (read, expected) in &expected {
        if online[read] != *expected {
            wrong.push(format!("{read:?}: {expected:?} from the API server, {:?} through Weir", online[read]));
        }
    }
    assert!(wrong.is_empty(), "SEED={seed}: {}\n{}\n{}", wrong.len(), wrong.join("\n"), weir.log_text());

    site.link("down").await;
    let offline = answers(&through, &reads).await;
    let (mut served, mut refused) = (0, 0);
    for (read, expected) in &expected {
        match &offline[read] {
            // What a selector or a path is not at all is refused as online.
            (200, _) if offline[read] == *expected => served += 1,
            (200, objects) => wrong.push(format!("{read:?}: {expected:?} online, {objects:?} offline")),
            _ => refused += 1,
        }
    }
    assert!(wrong.is_empty(), "SEED={seed}: {}\n{}", wrong.len(), wrong.join("\n"));
    let allowed = expected.values().filter(|(status, _)| *status == 200).count();
    println!(
        "{} reads: {allowed} allowed by the API server; offline {served} served, {refused} refused",
        expected.len()
    );
    assert!(allowed > expected.len() / 20 && allowed < expected.len() / 2, "{allowed} of {}", expected.len());
    assert!(served > allowed / 3, "{served} of {allowed}");
}
