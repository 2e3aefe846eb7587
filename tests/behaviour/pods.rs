//! Access by pods: the certificate that the daemon requests from the cluster, and the address that it maintains for
//! pods.

use std::path::Path;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};
use weir_apiserver::ApiServer;
use weir_tests::client::{Client, PATIENCE, whole};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::network::{expect_own_network, in_own_network};
use weir_tests::pki::{Authority, certificate_user, kubeconfig};
use weir_tests::plane::Plane;
use weir_tests::rights::TOKEN;

use super::edge;

const REQUEST: (&str, &str) = ("certificates.k8s.io/v1", "CertificateSigningRequest");
const EXPIRY: &str = "weir_serving_certificate_expiration_timestamp_seconds";
const DAY: Duration = Duration::from_secs(86_400);

/// The approver and signer of certificate requests.
struct Hand<'a> {
    server: &'a ApiServer,
    ca: Authority,
}

impl Hand<'_> {
    fn requests(&self) -> Vec<Value> {
        self.server.store().list(REQUEST.0, REQUEST.1)
    }

    /// Waits for a request without a decision.
    async fn next(&self) -> Value {
        let mut count = self.server.request_count();
        let found = async {
            loop {
                if let Some(request) = self.requests().into_iter().find(|request| request["status"].is_null()) {
                    return request;
                }
                count.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, found).await.expect("a request in time")
    }

    fn decide(&self, request: &Value, status: &Value) {
        let name = request["metadata"]["name"].as_str().unwrap();
        let decided =
            self.server.store().edit(REQUEST.0, REQUEST.1, "", name, |request| request["status"] = status.clone());
        assert!(decided.is_some());
    }

    /// Approves and signs the next request.
    async fn sign(&self, life: Duration) -> Value {
        let request = self.next().await;
        let sent = &request["spec"];
        assert_eq!(sent["signerName"], "kubernetes.io/kubelet-serving");
        assert_eq!(sent["usages"], json!(["digital signature", "server auth"]));
        let pem = String::from_utf8(STANDARD.decode(sent["request"].as_str().unwrap()).unwrap()).unwrap();
        let certificate = self.ca.certify(&pem, life).unwrap();
        let approved = json!({"type": "Approved", "status": "True", "reason": "Test", "message": ""});
        self.decide(&request, &json!({"conditions": [approved], "certificate": STANDARD.encode(certificate)}));
        request
    }

    fn client(&self, url: &str, name: &str) -> Client {
        Client::naming(url, "pod", self.ca.pem(), name)
    }
}

fn setup(server: &ApiServer, cache: &Path) -> Setup {
    Setup::new(server.url()).filters("filters: []").requesting(cache)
}

async fn days_left(weir: &Daemon) -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    (weir.metric(EXPIRY).await - now) / DAY.as_secs_f64()
}

#[tokio::test]
async fn the_certificate_is_requested_from_the_cluster_and_survives_a_restart() {
    let server = edge().await;
    let hand = Hand { server: &server, ca: Authority::new("cluster") };
    let cache = tempfile::tempdir().unwrap();
    // It is ready without the certificate, which only pods need.
    let weir = setup(&server, cache.path()).start_ready().await;
    let url = weir.secure_url().await;
    hand.next().await;
    let early = hand.client(&url, "kubernetes").try_get("/version").await.unwrap_err();
    assert!(early.contains("AccessDenied"), "{early}");
    assert_eq!(weir.metric(EXPIRY).await, 0.0);
    let request = hand.sign(30 * DAY).await;
    assert!(request["metadata"]["name"].as_str().unwrap().starts_with("weir-edge-a-"), "{request}");
    let made = server.requests().into_iter().find(|request| request.method == "POST").unwrap();
    assert_eq!(made.header("authorization"), format!("Bearer {TOKEN}"));
    weir.logged("installed issued certificate on the HTTPS port").await;
    for name in [
        "169.254.20.10",
        "10.96.0.1",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ] {
        assert_eq!(hand.client(&url, name).get("/version").await.status, 200, "{name}");
    }
    let stranger = hand.client(&url, "kubernetes.example.com").try_get("/version").await.unwrap_err();
    assert!(stranger.contains("NotValidForName"), "{stranger}");
    assert!((29.9..30.1).contains(&days_left(&weir).await));
    assert_eq!(weir.stop().await, Some(0));

    let weir = setup(&server, cache.path()).start_ready().await;
    weir.logged("installed stored certificate on the HTTPS port").await;
    let url = weir.secure_url().await;
    assert_eq!(hand.client(&url, "kubernetes").get("/version").await.status, 200);
    assert!((29.9..30.1).contains(&days_left(&weir).await));
    assert_eq!(weir.stop().await, Some(0));
    assert_eq!(hand.requests().len(), 1, "no second request");

    // Another pod address needs another certificate.
    let weir = setup(&server, cache.path()).flag("--pod-address", "169.254.20.11").start_ready().await;
    hand.sign(30 * DAY).await;
    weir.logged("installed issued certificate on the HTTPS port").await;
    let url = weir.secure_url().await;
    assert_eq!(hand.client(&url, "169.254.20.11").get("/version").await.status, 200);
}

#[tokio::test]
async fn a_restarted_daemon_resumes_its_open_request() {
    let server = edge().await;
    let hand = Hand { server: &server, ca: Authority::new("cluster") };
    let cache = tempfile::tempdir().unwrap();
    let weir = setup(&server, cache.path()).start_ready().await;
    let open = hand.next().await;
    assert_eq!(weir.stop().await, Some(0));
    // Neither a stop nor a kill leaves an abandoned request behind.
    let weir = setup(&server, cache.path()).start_ready().await;
    weir.logged("resumed the open certificate request for the HTTPS port").await;
    drop(weir);
    // It is approved while no daemon runs.
    assert_eq!(hand.sign(30 * DAY).await["metadata"]["name"], open["metadata"]["name"]);
    let weir = setup(&server, cache.path()).start_ready().await;
    weir.logged("installed issued certificate on the HTTPS port").await;
    let url = weir.secure_url().await;
    assert_eq!(hand.client(&url, "kubernetes").get("/version").await.status, 200);
    assert_eq!(hand.requests().len(), 1, "one approval was enough");
}

#[tokio::test]
async fn a_decided_request_is_not_resumed() {
    let server = edge().await;
    let hand = Hand { server: &server, ca: Authority::new("cluster") };
    let cache = tempfile::tempdir().unwrap();
    let weir = setup(&server, cache.path()).start_ready().await;
    let denied = hand.next().await;
    assert_eq!(weir.stop().await, Some(0));
    let condition = json!({"type": "Denied", "status": "True", "reason": "Policy", "message": "not today"});
    hand.decide(&denied, &json!({"conditions": [condition]}));
    let weir = setup(&server, cache.path()).start_ready().await;
    weir.logged("cannot obtain a certificate for the HTTPS port").await;
    assert_ne!(hand.sign(30 * DAY).await["metadata"]["name"], denied["metadata"]["name"]);
    weir.logged("installed issued certificate on the HTTPS port").await;
}

#[tokio::test]
async fn the_certificate_is_renewed_before_it_expires_and_stays_if_renewal_is_denied() {
    let server = edge().await;
    let hand = Hand { server: &server, ca: Authority::new("cluster") };
    let cache = tempfile::tempdir().unwrap();
    let weir = setup(&server, cache.path()).start_ready().await;
    let began = SystemTime::now();
    hand.sign(Duration::from_secs(10)).await;
    let (from, _) = weir.logged_after(0, "installed issued certificate on the HTTPS port").await;
    let denied = hand.next().await;
    let passed = began.elapsed().unwrap();
    assert!((6..10).contains(&passed.as_secs()), "at 70 to 90 % of its life: {passed:?}");
    let condition = json!({"type": "Denied", "status": "True", "reason": "Policy", "message": "not today"});
    hand.decide(&denied, &json!({"conditions": [condition]}));
    let (from, line) = weir.logged_after(from, "cannot obtain a certificate for the HTTPS port").await;
    let name = denied["metadata"]["name"].as_str().unwrap();
    for word in [name, "denied", "Policy", "not today"] {
        assert!(line.to_string().contains(word), "no {word:?} in {line}");
    }
    assert!(days_left(&weir).await < 1.0, "the old one stays");
    // The daemon requests it again.
    hand.sign(30 * DAY).await;
    weir.logged_after(from, "installed issued certificate on the HTTPS port").await;
    assert!((29.9..30.1).contains(&days_left(&weir).await));
    let url = weir.secure_url().await;
    assert_eq!(hand.client(&url, "kubernetes").get("/version").await.status, 200);
}

#[tokio::test]
async fn the_node_credential_requests_the_certificate_if_there_is_one() {
    let server = edge().await;
    let hand = Hand { server: &server, ca: Authority::new("cluster") };
    let cache = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(server.url(), "", "token: nodes");
    let weir = setup(&server, cache.path()).file("--node-kubeconfig", "node.yaml", &kubeconfig).start_ready().await;
    hand.sign(DAY).await;
    weir.logged("installed issued certificate on the HTTPS port").await;
    let sent: Vec<_> = server
        .requests()
        .into_iter()
        .filter(|request| request.path.contains("certificatesigningrequests") || request.path.ends_with("/kubernetes"))
        .collect();
    assert!(sent.len() >= 3, "{sent:?}");
    assert!(sent.iter().all(|request| request.header("authorization") == "Bearer nodes"), "{sent:?}");
}

#[tokio::test]
async fn a_mismatched_certificate_is_logged_and_not_served() {
    let server = edge().await;
    let hand = Hand { server: &server, ca: Authority::new("cluster") };
    let cache = tempfile::tempdir().unwrap();
    let weir = setup(&server, cache.path()).start_ready().await;
    let request = hand.next().await;
    let other = hand.ca.server().certificate;
    let approved = json!({"type": "Approved", "status": "True"});
    hand.decide(&request, &json!({"conditions": [approved], "certificate": STANDARD.encode(other)}));
    let line = weir.logged("cannot obtain a certificate for the HTTPS port").await.to_string();
    assert!(line.contains("is not usable: it lacks 10.96.0.1, 169.254.20.10, kubernetes"), "{line}");
    assert_eq!(weir.metric(EXPIRY).await, 0.0);
}

#[tokio::test]
async fn a_real_api_server_accepts_the_requests_of_the_daemon_and_of_the_node() {
    let Some(plane) = Plane::shared() else { return };
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let config: Value = serde_saphyr::from_str(&read(plane.kubeconfig("admin"))).unwrap();
    let cluster = &config["clusters"][0]["cluster"];
    let trusted = read(cluster["certificate-authority"].as_str().unwrap().into());
    let admin = Client::trusting(cluster["server"].as_str().unwrap(), "test", Some(&trusted), None)
        .with("authorization", &format!("Bearer {}", read(plane.token("admin")).trim()))
        .with("content-type", "application/merge-patch+json");
    let ca = Authority::new("signer");
    let all = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let node = plane.kubeconfig("node").display().to_string();
    for (credential, user) in [(None, "system:serviceaccount:kube-system:weir"), (Some(&node), "system:node:edge-a")] {
        let cache = tempfile::tempdir().unwrap();
        let setup = Setup::kubeconfig(&plane.kubeconfig("weir")).filters("filters: []").requesting(cache.path());
        let setup = credential.into_iter().fold(setup, |setup, path| setup.flag("--node-kubeconfig", path));
        let weir = setup.start_ready().await;
        let line = weir.logged("requested a certificate for the HTTPS port").await;
        let path = format!("{all}/{}", line["fields"]["name"].as_str().unwrap());
        let request = admin.json(&path).await;
        assert_eq!(request["spec"]["username"], user);
        let pem = String::from_utf8(STANDARD.decode(request["spec"]["request"].as_str().unwrap()).unwrap()).unwrap();
        let approved = json!({"type": "Approved", "status": "True", "reason": "Test", "message": "approved"});
        for (part, status) in [
            ("approval", json!({"conditions": [approved]})),
            ("status", json!({"certificate": STANDARD.encode(ca.certify(&pem, DAY).unwrap())})),
        ] {
            let patch = json!({"status": status}).to_string();
            let answer = whole(admin.send(Method::PATCH, &format!("{path}/{part}"), patch).await).await.unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        weir.logged("installed issued certificate on the HTTPS port").await;
        let client = Client::naming(&weir.secure_url().await, "pod", ca.pem(), "kubernetes.default.svc");
        assert_eq!(client.get("/version").await.status, 200);
    }
}

#[test]
fn pods_reach_the_address_that_the_daemon_creates() {
    in_own_network("behaviour::pods::reach_the_address_inside");
}

#[tokio::test]
#[ignore = "started by another test, in a network namespace of its own"]
async fn reach_the_address_inside() {
    expect_own_network();
    let server = edge().await;
    let hand = Hand { server: &server, ca: Authority::new("cluster") };
    let cache = tempfile::tempdir().unwrap();
    let setup = || setup(&server, cache.path()).without("--pod-interface").without("--secure-bind-address");
    let weir = setup().start_ready().await;
    weir.logged("pod address is on the daemon's interface").await;
    assert_eq!(weir.metric("weir_pod_address_up").await, 1.0);
    hand.sign(DAY).await;
    weir.logged("installed issued certificate on the HTTPS port").await;
    let url = "https://169.254.20.10:10268";
    assert_eq!(weir.secure_url().await, url);
    let client = || Client::trusting(url, "pod", Some(hand.ca.pem()), None);
    assert_eq!(client().get("/version").await.status, 200);
    let ip = |words: &[&str]| std::process::Command::new("ip").args(words).output().unwrap();
    let (from, link) = (weir.log_length(), String::from_utf8(ip(&["address", "show", "weir0"]).stdout).unwrap());
    assert!(link.contains("inet 169.254.20.10/32"), "{link}");
    assert!(ip(&["link", "del", "weir0"]).status.success());
    // A check that finds nothing wrong logs nothing.
    let mended = async { while client().try_get("/version").await.is_err() {} };
    tokio::time::timeout(PATIENCE, mended).await.unwrap_or_else(|_| panic!("{from}: {}", weir.log_text()));
    assert_eq!(weir.stop().await, Some(0));
    assert!(ip(&["link", "show", "weir0"]).status.success(), "it stays");
    let weir = setup().start_ready().await;
    weir.logged("pod address is on the daemon's interface").await;
    assert_eq!(client().get("/version").await.status, 200);
}

#[test]
fn peers_reach_the_address_of_their_list_by_the_requested_certificate() {
    in_own_network("behaviour::pods::reach_a_peer_inside");
}

#[tokio::test]
#[ignore = "started by another test, in a network namespace of its own"]
async fn reach_a_peer_inside() {
    expect_own_network();
    let server = edge().await;
    let hand = Hand { server: &server, ca: Authority::new("cluster") };
    let (cache, nodes) = (tempfile::tempdir().unwrap(), Authority::new("clients"));
    let node = nodes.client("system:node:edge-a", "system:nodes");
    let credential = certificate_user(&node);
    let weir = setup(&server, cache.path())
        .without("--pod-interface")
        .without("--secure-bind-address")
        .switch("--peer=edge-x=https://127.0.0.7:10268,edge-y=https://127.0.0.8:10268")
        .flag("--peer", "edge-a=https://127.0.0.9:10268,edge-b=https://127.0.0.10:10268")
        .file("--client-ca-file", "clients.crt", nodes.pem())
        .file("--node-kubeconfig", "node.yaml", &kubeconfig(server.url(), hand.ca.pem(), &credential))
        .start_ready()
        .await;
    hand.sign(DAY).await;
    weir.logged("installed issued certificate on the HTTPS port").await;
    let peer = nodes.client("system:node:edge-b", "system:nodes");
    let peer = Client::trusting("https://127.0.0.9:10268", "weir", Some(hand.ca.pem()), Some(&peer));
    assert_eq!(peer.get("/peer/readyz").await.text(), "ok");
    let stranger = nodes.client("system:node:edge-x", "system:nodes");
    let stranger = Client::trusting("https://127.0.0.9:10268", "weir", Some(hand.ca.pem()), Some(&stranger));
    assert_eq!(stranger.get("/peer/readyz").await.status, 403, "it is of another pool");
    let pod = Client::trusting("https://169.254.20.10:10268", "pod", Some(hand.ca.pem()), None);
    assert_eq!(pod.get("/version").await.status, 200, "pods reach it as before");
}
