//! Reload: a change takes effect soon and atomically, and no request fails.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use http::Method;
use serde_json::{Value, json};
use weir_apiserver::ApiServer;
use weir_tests::built;
use weir_tests::client::{Client, Events, names};
use weir_tests::daemon::{Setup, manifest, replace};
use weir_tests::guests::hostile;
use weir_tests::machine::Machine;

use super::{NO_LOAD_BALANCERS, edge, only, service};

const SERVICES: &str = "/api/v1/services";

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(built::module(name)).unwrap()
}

/// One file, `services.wasm`, changes its content. With `discardcloudservice` LoadBalancers are hidden; with
/// `nodeportisolation` they are visible without node ports.
const SWAPPED: &str = "filters:\n  - {name: services, module: services.wasm, match: ['*/services']}\n";

#[tokio::test]
async fn a_thousand_requests_in_flight_while_modules_are_swapped_a_hundred_times() {
    let server = edge().await;
    server.store().edit("v1", "Service", "default", "shop", |shop| {
        shop["metadata"]["annotations"] = json!({"nodeport.openyurt.io/listen": "beijing"});
    });
    for n in 0..60 {
        let mut more = service(&format!("lb-{n:02}"), "LoadBalancer");
        more["metadata"]["annotations"] = json!({"nodeport.openyurt.io/listen": "", "filler": "x".repeat(1000)});
        more["spec"]["ports"][0]["nodePort"] = json!(31000 + n);
        server.store().put(more).unwrap();
    }
    let modules = [bytes("discardcloudservice"), bytes("nodeportisolation")];
    let weir = Setup::new(server.url()).filters(SWAPPED).module("services", &modules[0]).start_ready().await;
    let done = Arc::new(AtomicBool::new(false));
    let counts: Arc<[AtomicUsize; 2]> = Arc::default();
    let mut clients = Vec::new();
    for _ in 0..1000 {
        let (client, done, counts) = (weir.client("kube-proxy"), done.clone(), counts.clone());
        clients.push(tokio::spawn(async move {
            loop {
                let answer = client.try_get(SERVICES).await.expect("no request may fail");
                assert_eq!(answer.status, 200, "{}", answer.text());
                let list = answer.json();
                let balancers: Vec<_> = list["items"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|item| item["spec"]["type"] == "LoadBalancer")
                    .collect();
                // Each response is of one set: no LoadBalancer, or all of them without node ports.
                if balancers.is_empty() {
                    counts[0].fetch_add(1, Ordering::Relaxed);
                } else {
                    assert_eq!(balancers.len(), 61);
                    let open = balancers.iter().filter(|item| item["spec"]["ports"][0].get("nodePort").is_some());
                    assert_eq!(open.count(), 0, "a mixture of two sets");
                    counts[1].fetch_add(1, Ordering::Relaxed);
                }
                if done.load(Ordering::Relaxed) {
                    return;
                }
            }
        }));
    }
    for swap in 1..=100 {
        let from = weir.log_length();
        weir.put_module("services", &modules[swap % 2]);
        weir.logged_after(from, "filter set activated").await;
    }
    done.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) > 0), "both sets were seen: {counts:?}");
}

#[tokio::test]
async fn a_replaced_module_takes_effect_and_is_logged() {
    let server = edge().await;
    let weir =
        Setup::new(server.url()).filters(SWAPPED).module("services", &bytes("nodeportisolation")).start_ready().await;
    let client = weir.client("kube-proxy");
    assert!(client.names(SERVICES).await.contains(&"shop".to_owned()));
    let before = weir.filter("services").await;
    let from = weir.log_length();
    weir.put_module("services", &bytes("discardcloudservice"));
    weir.logged_after(from, "filter set activated").await;
    assert!(!client.names(SERVICES).await.contains(&"shop".to_owned()));
    let after = weir.filter("services").await;
    assert_ne!(before["digest"], after["digest"]);
    assert_eq!(after["description"]["name"], "discardcloudservice");
    assert!(weir.metric("weir_reloads_total{result=\"applied\"}").await >= 2.0);
}

#[tokio::test]
async fn a_module_that_does_not_load_leaves_the_last_valid_set_in_force() {
    let server = edge().await;
    let weir =
        Setup::new(server.url()).filters(SWAPPED).module("services", &bytes("discardcloudservice")).start_ready().await;
    let client = weir.client("kube-proxy");
    for (what, module, reason) in [
        ("garbage", b"this is no WebAssembly".to_vec(), "not a valid WebAssembly component"),
        ("empty", Vec::new(), "not a valid WebAssembly component"),
        ("truncated", bytes("discardcloudservice")[..5000].to_vec(), "not a valid WebAssembly component"),
        (
            "import",
            hostile("forbidden-import"),
            "wasi:http/outgoing-handler@0.2.6, which a filter may not have. Filters send no",
        ),
        ("world", hostile("other-world"), "example:other/runner@1.0.0"),
        ("trap", hostile("trap-in-configure"), "trap"),
        ("endless", hostile("endless-configure"), "used up its time"),
        ("lookup", hostile("lookup-in-configure"), "during configure"),
    ] {
        let from = weir.log_length();
        weir.put_module("services", &module);
        let (_, line) = weir.logged_after(from, "configuration refused").await;
        assert!(line.to_string().contains(reason), "{what}: {line}");
        assert!(line.to_string().contains("last valid filter set"), "{what}: {line}");
        assert!(!client.names(SERVICES).await.contains(&"shop".to_owned()), "{what}");
        let shown = weir.admin().json("/filters").await;
        assert_eq!(shown["lastReload"]["result"], "refused", "{what}");
        assert!(shown.to_string().contains(reason), "{what}: {shown}");
        assert_eq!(weir.admin().get("/readyz").await.status, 200, "{what}");
    }
    let from = weir.log_length();
    weir.put_module("services", &bytes("nodeportisolation"));
    weir.logged_after(from, "filter set activated").await;
    assert!(client.names(SERVICES).await.contains(&"shop".to_owned()));
    assert!(weir.metric("weir_reloads_total{result=\"refused\"}").await >= 8.0);
}

#[tokio::test]
async fn a_daemon_that_starts_with_an_invalid_configuration_uses_the_last_good_one() {
    let server = edge().await;
    let cache = tempfile::tempdir().unwrap();
    let mut setup = Setup::new(server.url())
        .filters(SWAPPED)
        .module("services", &bytes("discardcloudservice"))
        .flag("--cache-dir", &cache.path().display().to_string())
        .without("--cache-size");
    let mut weir = setup.start_ready().await;
    for (invalid, reason) in [("filters: [\n", "not YAML"), ("filters: [{name: a, module: none.wasm}]", "none.wasm")] {
        weir.put_filters(invalid);
        weir.logged("configuration refused").await;
        setup = weir.stopped().await;
        weir = setup.start_ready().await;
        assert!(!weir.client("kube-proxy").names(SERVICES).await.contains(&"shop".to_owned()), "it is hidden");
        let line = weir.logged("configuration refused").await;
        assert!(line.to_string().contains(reason) && line.to_string().contains("last valid filter set"), "{line}");
        let warning = weir.logged("this is the last good configuration").await;
        assert!(warning.to_string().contains("the configuration is refused: "), "{warning}");
        let shown = weir.admin().json("/filters").await;
        assert_eq!(shown["lastReload"]["result"], "refused", "{shown}");
        let warning = shown["lastReload"]["warnings"][0].as_str().unwrap().to_owned();
        assert!(warning.contains("this is the last good configuration, activated "), "{shown}");
    }
    let from = weir.log_length();
    weir.put_filters("filters: []\n");
    weir.logged_after(from, "filter set activated").await;
    assert!(weir.client("kube-proxy").names(SERVICES).await.contains(&"shop".to_owned()));
}

/// A filter hides Services, and what it matched is kept on disk. Without views, whose watches get what is shown now.
fn hiding(server: &ApiServer, cache: &Path) -> Setup {
    let setup = Setup::new(server.url()).filters(SWAPPED).module("services", &bytes("discardcloudservice"));
    setup.uncached().on_disk(cache)
}

/// The present state of the four Services.
async fn shown(events: &mut Events) -> Vec<String> {
    let mut shown = Vec::new();
    for _ in 0..4 {
        shown.push(events.next_named().await);
    }
    shown
}

#[tokio::test]
async fn clients_of_a_killed_daemon_get_what_was_hidden_although_no_filter_matches_any_more() {
    let server = edge().await;
    let cache = tempfile::tempdir().unwrap();
    let weir = hiding(&server, cache.path()).start_ready().await;
    let list = weir.client("kube-proxy").json(SERVICES).await;
    assert!(!names(&list).contains(&"shop".to_owned()), "it is hidden");
    let path = weir.path("filters-config.yaml");
    let setup = weir.killed().await;
    std::fs::write(path, manifest("filters: []\n")).unwrap();
    let weir = setup.start_ready().await;
    let watch = |list: &Value| {
        format!("{SERVICES}?watch=1&resourceVersion={}", list["metadata"]["resourceVersion"].as_str().unwrap())
    };
    let client = weir.client("kube-proxy");
    assert!(shown(&mut client.watch(&watch(&list)).await).await.contains(&"MODIFIED shop".to_owned()));
    server.store().advance();
    let list = client.json(SERVICES).await;
    assert!(names(&list).contains(&"shop".to_owned()));
    let mut events = client.watch(&watch(&list)).await;
    server.store().put(service("next", "ClusterIP")).unwrap();
    assert_eq!(events.next_named().await, "ADDED next");
    // No filter has ever matched what this client reads.
    let nodes = client.json("/api/v1/nodes").await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let weir = weir.killed().await.start_ready().await;
    let mut events = weir.client("kube-proxy").watch(&format!("/api/v1/nodes?watch=1&resourceVersion={nodes}")).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "next"}});
    server.store().put(node).unwrap();
    assert_eq!(events.next_named().await, "ADDED next");
}

/// Nothing is known then of what earlier filters matched.
#[tokio::test]
async fn clients_of_a_killed_daemon_get_what_was_hidden_if_the_disk_is_full() {
    let Some(machine) = Machine::new() else { return };
    let server = edge().await;
    let cache = tempfile::tempdir().unwrap();
    let weir = machine.run(hiding(&server, cache.path()), cache.path()).start_ready().await;
    let list = weir.client("kube-proxy").json(SERVICES).await;
    let path = weir.path("filters-config.yaml");
    let setup = weir.killed().await;
    std::fs::write(path, manifest("filters: []\n")).unwrap();
    machine.put_disk_full(true);
    let weir = setup.start_ready().await;
    weir.logged("the disk is full").await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = weir.client("kube-proxy").watch(&format!("{SERVICES}?watch=1&resourceVersion={version}")).await;
    assert!(shown(&mut events).await.contains(&"MODIFIED shop".to_owned()), "it may lack it");
}

#[tokio::test]
async fn a_pinned_digest_is_enforced() {
    let server = edge().await;
    let weir =
        Setup::new(server.url()).filters(SWAPPED).module("services", &bytes("discardcloudservice")).start_ready().await;
    let digest = weir.filter("services").await["digest"].as_str().unwrap().to_owned();
    let pinned = |digest: &str| {
        format!("filters:\n  - {{name: services, module: services.wasm, digest: '{digest}', match: ['*/services']}}\n")
    };
    let from = weir.log_length();
    weir.put_filters(&pinned(&digest));
    weir.logged_after(from, "filter set activated").await;
    let from = weir.log_length();
    weir.put_module("services", &bytes("nodeportisolation"));
    let (_, line) = weir.logged_after(from, "configuration refused").await;
    assert!(line.to_string().contains(&digest), "{line}");
    assert!(!weir.client("kube-proxy").names(SERVICES).await.contains(&"shop".to_owned()));
}

#[tokio::test]
async fn the_kubelets_symlink_swap_of_the_configuration_is_detected() {
    let server = edge().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for (version, filters) in [("..1", "filters: []"), ("..2", NO_LOAD_BALANCERS)] {
        std::fs::create_dir(path.join(version)).unwrap();
        std::fs::write(path.join(version).join("filters.yaml"), manifest(filters)).unwrap();
    }
    std::os::unix::fs::symlink("..1", path.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/filters.yaml", path.join("filters.yaml")).unwrap();
    let weir = Setup::new(server.url())
        .flag("--config-file", path.join("filters.yaml").to_str().unwrap())
        .bundled("discardcloudservice")
        .start_ready()
        .await;
    let client = weir.client("kube-proxy");
    assert!(client.names(SERVICES).await.contains(&"shop".to_owned()));
    let from = weir.log_length();
    std::os::unix::fs::symlink("..2", path.join("..data_tmp")).unwrap();
    std::fs::rename(path.join("..data_tmp"), path.join("..data")).unwrap();
    weir.logged_after(from, "filter set activated").await;
    assert!(!client.names(SERVICES).await.contains(&"shop".to_owned()));
}

#[tokio::test]
async fn saving_by_an_editor_is_detected() {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters("filters: []").bundled("discardcloudservice").start_ready().await;
    let config = weir.path("filters-config.yaml");
    // vim renames the old file to the backup and writes a new one under the old name.
    let from = weir.log_length();
    std::fs::rename(&config, weir.path("filters-config.yaml~")).unwrap();
    std::fs::write(&config, manifest(NO_LOAD_BALANCERS)).unwrap();
    weir.logged_after(from, "filter set activated").await;
    // In place, as `cat >` does.
    let from = weir.log_length();
    std::fs::write(&config, manifest("filters: []")).unwrap();
    weir.logged_after(from, "filter set activated").await;
    assert!(weir.client("kube-proxy").names(SERVICES).await.contains(&"shop".to_owned()));
}

#[tokio::test]
async fn changes_of_the_config_map_and_its_modules_take_effect() {
    let server = edge().await;
    let weir = Setup::new(server.url()).start_ready().await;
    let client = weir.client("kube-proxy");
    assert!(client.names(SERVICES).await.contains(&"shop".to_owned()), "an absent ConfigMap is no filters, and ready");
    let map = |data: serde_json::Value| {
        let code = base64::engine::general_purpose::STANDARD.encode(bytes("discardcloudservice"));
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "weir-filters", "namespace": "kube-system"},
            "data": data, "binaryData": {"discardcloudservice.wasm": code},
        })
    };
    let from = weir.log_length();
    server.store().put(map(json!({"filters.yaml": NO_LOAD_BALANCERS}))).unwrap();
    let (from, _) = weir.logged_after(from, "filter set activated").await;
    assert!(!client.names(SERVICES).await.contains(&"shop".to_owned()));
    assert_eq!(weir.filter("discardcloudservice").await["source"], "binaryData");
    // An invalid configuration: the last valid set stays in force.
    server.store().put(map(json!({"filters.yaml": "filters: [{"}))).unwrap();
    let (from, line) = weir.logged_after(from, "configuration refused").await;
    assert!(
        line.to_string().contains("kube-system/weir-filters") && line.to_string().contains("filters.yaml"),
        "{line}"
    );
    assert!(!client.names(SERVICES).await.contains(&"shop".to_owned()));
    // The flat form of the seed project, with the same effect.
    server.store().put(map(json!({"filter_discardcloudservice": "kube-proxy/services#list;watch"}))).unwrap();
    let (from, _) = weir.logged_after(from, "filter set activated").await;
    assert!(!client.names(SERVICES).await.contains(&"shop".to_owned()));
    assert!(weir.client("test").names(SERVICES).await.contains(&"shop".to_owned()));
    // An empty value disables a filter.
    server.store().put(map(json!({"filters.yaml": NO_LOAD_BALANCERS, "filter_discardcloudservice": ""}))).unwrap();
    let (from, _) = weir.logged_after(from, "filter set activated").await;
    assert!(client.names(SERVICES).await.contains(&"shop".to_owned()));
    server.store().put(map(json!({"filters.yaml": NO_LOAD_BALANCERS}))).unwrap();
    let (from, _) = weir.logged_after(from, "filter set activated").await;
    // A switch of a filter that does not exist changes nothing, and is said.
    server.store().put(map(json!({"filters.yaml": NO_LOAD_BALANCERS, "filter_discardcloudservices": ""}))).unwrap();
    let (from, line) = weir.logged_after(from, "configuration warning").await;
    let warning = "filter_discardcloudservices turns off no filter: the list has discardcloudservice";
    assert!(line.to_string().contains(warning), "{line}");
    assert_eq!(weir.admin().json("/status").await["reloads"][0]["warnings"], json!([warning]));
    server.store().put(map(json!({"filters.yaml": "filters: []"}))).unwrap();
    let (_, line) = weir.logged_after(from, "filter set activated").await;
    assert_eq!(line["fields"]["removed"], "discardcloudservice", "{line}");
    assert!(client.names(SERVICES).await.contains(&"shop".to_owned()));
}

#[tokio::test]
async fn neighbours_of_the_configuration_do_not_interrupt_a_load() {
    let server = edge().await;
    let cache = tempfile::tempdir().unwrap();
    let setup = Setup::new(server.url()).filters(SWAPPED).module("services", &bytes("discardcloudservice"));
    let neighbour = setup.path("weir.log");
    // An empty cache: the module is compiled.
    let weir = setup.flag("--cache-dir", &cache.path().display().to_string()).start().await;
    let ready = weir.ready();
    let noise = async {
        for n in 0.. {
            std::fs::write(&neighbour, n.to_string()).unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = ready => {}
        () = noise => {}
    }
    assert_eq!(weir.log_text().matches("filter set activated").count(), 1);
}

#[tokio::test]
async fn a_list_in_progress_ends_with_the_set_it_began_with() {
    let server = edge().await;
    let (release, held) = tokio::sync::watch::channel(false);
    let filler = "x".repeat(2000);
    let items: Vec<_> = (0..600)
        .map(|n| {
            let mut object = service(&format!("s-{n:03}"), if n % 2 == 0 { "LoadBalancer" } else { "ClusterIP" });
            object["metadata"]["annotations"] = json!({"filler": filler});
            object
        })
        .collect();
    let body = json!({"kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": items})
        .to_string();
    let half = body.len() / 2;
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    server.on_request(move |request| {
        if !request.target().starts_with(SERVICES) {
            return weir_apiserver::Action::Serve;
        }
        let (first, second, held) = (body[..half].to_owned(), body[half..].to_owned(), held.clone());
        let parts = futures_util::stream::unfold((0, first, second, held), |(n, first, second, mut held)| async move {
            match n {
                0 => Some((bytes::Bytes::from(first.clone()), (1, first, second, held))),
                1 => {
                    held.wait_for(|released| *released).await.ok()?;
                    Some((bytes::Bytes::from(second.clone()), (2, first, second, held)))
                }
                _ => None,
            }
        });
        weir_tests::client::streamed(parts)
    });
    let client = weir.client("kube-proxy");
    let answer = client.send(http::Method::GET, SERVICES, "").await;
    assert_eq!(answer.status(), 200, "its first half is on its way");
    let from = weir.log_length();
    weir.put_filters(&NO_LOAD_BALANCERS.replace("match", "settings: {loadBalancers: keep}\n    match"));
    weir.logged_after(from, "filter set activated").await;
    release.send_replace(true);
    let list = weir_tests::client::whole(answer).await.unwrap().json();
    assert_eq!(names(&list).len(), 300, "all of it is filtered by the old set");
}

#[tokio::test]
async fn a_change_of_one_filter_does_not_reload_another() {
    let server = edge().await;
    let two = |settings: &str| {
        format!(
            "{}{}",
            only("servicetopology", ""),
            format_args!("  - {{name: discardcloudservice, module: discardcloudservice.wasm, settings: {settings}}}\n")
        )
    };
    let weir = Setup::new(server.url())
        .filters(&two("{}"))
        .bundled("servicetopology")
        .bundled("discardcloudservice")
        .start_ready()
        .await;
    let before = weir.filter("servicetopology").await["since"].clone();
    let from = weir.log_length();
    weir.put_filters(&two("{loadBalancers: keep}"));
    weir.logged_after(from, "filter set activated").await;
    assert_eq!(weir.filter("servicetopology").await["since"], before);
    replace(&weir.modules().join("unrelated.wasm"), b"not named by any filter");
    assert_eq!(weir.admin().get("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_changed_match_rule_affects_only_the_clients_that_it_matches() {
    let server = edge().await;
    // Without shared views, whose stamps take a second to be known.
    let setup = Setup::new(server.url()).uncached();
    let weir = setup.filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    let client = weir.client("kube-proxy");
    client.json(SERVICES).await;
    server.store().advance();
    let list = client.json(SERVICES).await;
    let from_list =
        format!("{SERVICES}?watch=1&resourceVersion={}", list["metadata"]["resourceVersion"].as_str().unwrap());
    let mut events = client.watch(&from_list).await;
    let from = weir.log_length();
    weir.put_filters(&NO_LOAD_BALANCERS.replace("match: [", "match: ['nobody/configmaps', "));
    weir.logged_after(from, "filter set activated").await;
    server.store().put(service("next", "ClusterIP")).unwrap();
    assert_eq!(events.next_named().await, "ADDED next");
    assert_eq!(client.watch(&from_list).await.next_named().await, "ADDED next", "it has what the filters show");
    let from = weir.log_length();
    weir.put_filters(&NO_LOAD_BALANCERS.replace("*/services", "nobody/configmaps"));
    weir.logged_after(from, "filter set activated").await;
    assert_eq!(events.next_named().await, "ADDED shop");
}

/// What the filter of `e2e.test` does: it reads each object, and keeps it. `OTHERS` may be further rules.
const KEEP: &str = "
filters:
  - name: keep
    module: guest.wasm
    match: ['e2e.test/*' OTHERS]
    settings: {ops: [{read: [0, name]}, {read: [0, json]}]}
";

/// Opens a watch from each version that the first watch gets, and expects the same events in all of them.
async fn concurrent_watches(client: &Client, namespace: &str) {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let from = client.json(&path).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let writer = {
        let (client, path) = (client.clone().with("content-type", "application/json"), path.clone());
        tokio::spawn(async move {
            for n in 0..200 {
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("cm-{n}")}});
                let created = client.send(Method::POST, &path, object.to_string()).await;
                assert_eq!(created.status(), 201);
                tokio::time::sleep(Duration::from_millis(5)).await;
                if n % 3 == 0 {
                    let deleted = client.send(Method::DELETE, &format!("{path}/cm-{n}"), "").await;
                    assert_eq!(deleted.status(), 200);
                }
            }
        })
    };
    let (mut watches, mut version) = (Vec::new(), from);
    for n in 0..60 {
        let watch = format!("{path}?watch=1&allowWatchBookmarks=true&resourceVersion={version}");
        watches.push(client.watch(&watch).await);
        let (mut events, begun) = (Vec::new(), version);
        for watch in &mut watches {
            let event = watch.next_change().await;
            events.push(event["object"]["metadata"]["resourceVersion"].as_str().unwrap().to_owned());
        }
        version = events[0].clone();
        assert!(events.iter().all(|event| *event == version), "watch {n} from {begun} in {namespace}: {events:?}");
    }
    writer.await.unwrap();
}

#[tokio::test]
async fn watches_from_each_version_get_the_same_events_while_the_rules_of_others_change() {
    let guest = std::fs::read(built::target().join("guest.wasm")).unwrap();
    for shared in [false, true] {
        let server = edge().await;
        let setup = Setup::new(server.url()).filters(&KEEP.replace("OTHERS", "")).module("guest", &guest);
        let setup = if shared { setup } else { setup.uncached() };
        let weir = setup.start_ready().await;
        let client = weir.client("e2e.test");
        let namespaces = ["a", "b", "c", "d"];
        for namespace in namespaces {
            server
                .store()
                .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
                .unwrap();
        }
        let done = futures_util::future::join_all(namespaces.map(|namespace| concurrent_watches(&client, namespace)));
        let reloads = async {
            for others in [", 'nobody/configmaps'", ""].iter().cycle() {
                let from = weir.log_length();
                weir.put_filters(&KEEP.replace("OTHERS", others));
                weir.logged_after(from, "filter set activated").await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::select! {
            _ = done => {}
            () = reloads => {}
        }
    }
}
