//! The status page in a real browser.

use serde_json::{Value, json};
use weir_apiserver::End;
use weir_tests::browser::Browser;
use weir_tests::built;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::grant;
use weir_tests::guests::hostile;
use weir_tests::link::Link;
use weir_tests::machine::Machine;
use weir_tests::pki::Authority;
use weir_tests::rights::Rights;

use super::{NO_LOAD_BALANCERS, edge, only, service};

/// A filter whose module fails on each object, with a text of its choice.
const HOSTILE: &str = "<script>alert(1)</script>";
/// The name of an object. The API allows it for resources whose names are path segments.
const OBJECT: &str = "<script>alert(1)";

/// The widths and colours that the page is looked at in.
const SCREENS: [(u32, &str); 5] = [(1280, "light"), (1280, "dark"), (800, "light"), (360, "light"), (360, "dark")];

/// Opens the status page of a daemon, and waits for the first answer.
async fn open(browser: &mut Browser, weir: &Daemon) {
    browser.open(&format!("{}/", weir.admin_url())).await;
    browser.wait("document.getElementById('updated').textContent !== ''").await;
}

/// The words and the flags of the page that two lines share.
const BROKEN_WORDS: &str = r"(() => {
    const broken = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const text = texts.currentNode;
        if (text.parentElement.closest('script, style, noscript')) continue;
        for (const {0: word, index} of text.data.matchAll(/--[a-z-]+|[\p{L}\p{N}]+/gu)) {
            const range = document.createRange();
            range.setStart(text, index);
            range.setEnd(text, index + word.length);
            if (new Set([...range.getClientRects()].map(({top}) => Math.round(top))).size > 1) broken.push(word);
        }
    }
    return broken;
})()";

/// Looks at the page in one of its states: wide and narrow, light and dark. Keeps an image of each, named by its cause.
async fn look(browser: &mut Browser, weir: &Daemon, state: &str, cause: &str) {
    let folder = built::target().join("page");
    std::fs::create_dir_all(&folder).unwrap();
    for (width, colours) in SCREENS {
        browser.display(width, 900, colours).await;
        open(browser, weir).await;
        let shown = browser.value("document.getElementById('state').textContent").await;
        assert_eq!(shown, state, "{}", browser.text().await);
        browser.screenshot(&folder.join(format!("{cause}-{width}-{colours}.png"))).await;
        fits(browser, &format!("{state}, {width}")).await;
    }
}

/// The page is as wide as its screen, and no word of it is on two lines.
async fn fits(browser: &mut Browser, what: &str) {
    let overflow = browser.value("document.documentElement.scrollWidth - window.innerWidth").await;
    assert!(overflow.as_i64().unwrap() <= 0, "{what}: {overflow} pixels too wide");
    assert_eq!(browser.value(BROKEN_WORDS).await, json!([]), "{what}");
}

/// The text of a cell.
fn cell(section: &str, row: &str, label: &str) -> String {
    format!(
        "[...document.querySelectorAll('#{section} tbody tr')].find((row) => row.querySelector('th').innerText.includes('{row}'))\
         .querySelector('[data-label=\"{label}\"]').innerText"
    )
}

/// Waits until lines above the tables have these words, and checks that they are in this order.
async fn shows_in_order(browser: &mut Browser, words: &[&str]) {
    for words in words {
        browser.wait(&format!("document.getElementById('banners').textContent.includes('{words}')")).await;
    }
    let shown = lines(browser).await;
    let places: Vec<_> = words.iter().map(|words| shown.iter().position(|line| line.contains(words))).collect();
    assert!(places.is_sorted() && places[0].is_some(), "{shown:?}");
}

/// What the lines above the tables say, the first one first.
async fn lines(browser: &mut Browser) -> Vec<String> {
    let lines = browser.value("[...document.querySelectorAll('.banner')].map((line) => line.textContent)").await;
    serde_json::from_value(lines).unwrap()
}

#[tokio::test]
async fn the_page_shows_the_daemon_and_a_reload_without_being_loaded_again() {
    let Some(mut browser) = Browser::start().await else { return };
    let server = edge().await;
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    weir.client("kube-proxy").names("/api/v1/services").await;
    let mut events = weir.client("coredns").watch("/api/v1/services?watch=1&resourceVersion=0").await;
    events.next().await;
    open(&mut browser, &weir).await;
    let state = browser.value("document.getElementById('state').textContent").await;
    assert_eq!(state, "ready", "{}", browser.text().await);
    let text = browser.text().await;
    for shown in ["on edge-a", "discardcloudservice", "kube-proxy", "coredns", "applied", "services", "daemon", "up"] {
        assert!(text.contains(shown), "{shown} in {text}");
    }
    let hidden = browser.value(&cell("filters", "discardcloudservice", "Hidden")).await;
    assert_ne!(hidden, "0", "a LoadBalancer is hidden");
    assert_eq!(browser.value(&cell("clients", "coredns", "Open watches")).await, "1");
    assert_eq!(browser.value(&cell("servers", "127.0.0.1", "State")).await, "up");

    browser.value("window.sameDocument = true").await;
    let from = weir.log_length();
    weir.put_filters("filters: [{name: a, module: none.wasm}]");
    weir.logged_after(from, "configuration refused").await;
    browser.wait("document.getElementById('reloads').innerText.includes('none.wasm')").await;
    assert_eq!(browser.value("document.getElementById('state').textContent").await, "degraded");
    let banner = browser.value("document.getElementById('banners').innerText").await;
    assert!(banner.as_str().unwrap().contains("the last good filter set stays in force"), "{banner}");
    assert_eq!(browser.value("window.sameDocument").await, true, "the page was not loaded again");
    look(&mut browser, &weir, "degraded", "refused-reload").await;
    browser.value("window.sameDocument = true").await;
    let from = weir.log_length();
    weir.put_filters(&format!("{}\n    failurePolicy: Ignore\n", NO_LOAD_BALANCERS.trim_end()));
    weir.logged_after(from, "filter set activated").await;
    browser.wait("document.getElementById('reloads').innerText.includes('discardcloudservice changed: failurePolicy Ignore')").await;
    let from = weir.log_length();
    weir.put_filters("filters: []");
    weir.logged_after(from, "filter set activated").await;
    browser.wait("document.getElementById('filters').innerText.includes('No filter is configured')").await;
    assert!(browser.text().await.contains("discardcloudservice removed"));

    weir.kill().await;
    browser.wait("document.getElementById('state').textContent === 'unreachable'").await;
    assert_eq!(browser.value("window.sameDocument").await, true, "the page was not loaded again");
    // Its own requests fail when the daemon is gone: nothing else may be logged.
    let others: Vec<_> = browser.complaints().iter().filter(|log| log["entry"]["source"] != "network").collect();
    assert!(others.is_empty(), "{others:?}");
}

#[tokio::test]
async fn an_outage_is_one_line_and_no_row_is_red() {
    let Some(mut browser) = Browser::start().await else { return };
    let server = edge().await;
    let mut link = Link::to(&server).await;
    let weir = Setup::new(&link.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    weir.client("kube-proxy").names("/api/v1/services?resourceVersion=0").await;
    open(&mut browser, &weir).await;
    browser.wait("document.getElementById('caches').innerText.includes('synced')").await;
    link.down().await;
    browser.wait("document.getElementById('state').textContent === 'offline'").await;
    for component in ["one", "two", "three"] {
        assert_eq!(weir.client(component).get("/api/v1/namespaces").await.status, 503);
    }
    browser.wait("document.getElementById('failures').innerText.includes('one, two, three')").await;
    let lines = browser
        .value("[...document.querySelectorAll('.banner:not(.note)')].map((line) => [line.className, line.innerText])");
    let lines = lines.await;
    assert_eq!(lines.as_array().unwrap().len(), 1, "{lines}");
    assert_eq!(lines[0][0], "banner warn");
    assert!(lines[0][1].as_str().unwrap().contains("no API server has answered since"), "{lines}");
    let red =
        browser.value("[...document.querySelectorAll('.bad, .bad-text')].map((element) => element.outerHTML)").await;
    assert_eq!(red, json!([]));
    for table in ["caches", "servers"] {
        let text = browser.value(&format!("document.getElementById('{table}').innerText")).await;
        assert!(text.as_str().unwrap().contains("offline"), "{text}");
    }
    look(&mut browser, &weir, "offline", "offline").await;
    link.up().await;
    browser.wait("document.getElementById('state').textContent === 'ready'").await;
}

#[tokio::test]
async fn a_filter_that_fails_and_filters_that_are_off_are_said_above_all_else() {
    let Some(mut browser) = Browser::start().await else { return };
    let server = edge().await;
    let weir = Setup::new(server.url())
        .uncached()
        .flag("--node-name", "edge-a")
        .filters(
            "filters:\n  - {name: bad, module: bad-handle.wasm, match: ['victim/services'], failurePolicy: Hide}\n",
        )
        .module("bad-handle", &hostile("bad-handle"))
        .start_ready()
        .await;
    for _ in 0..3 {
        weir.client("victim").get("/api/v1/namespaces/default/services/web").await;
    }
    open(&mut browser, &weir).await;
    browser.wait("document.getElementById('state').textContent === 'degraded'").await;
    let first = "document.querySelector('.banner').innerText";
    browser.wait(&format!("{first}.includes('bad')")).await;
    assert_eq!(browser.value("document.querySelector('#filters .pill.bad')?.textContent").await, "failing");
    look(&mut browser, &weir, "degraded", "failing").await;
    let from = weir.log_length();
    let switch = |node: &mut Value| node["metadata"]["annotations"] = json!({"weir.dev/filters": "off"});
    server.store().edit("v1", "Node", "", "edge-a", switch);
    weir.logged_after(from, "filter set activated").await;
    browser.wait(&format!("{first}.includes('all filters are off')")).await;
    look(&mut browser, &weir, "degraded", "off").await;
}

/// Waits until the first line above all says this.
async fn first_line(browser: &mut Browser, words: &str) {
    browser.wait(&format!("document.querySelector('.banner')?.innerText.includes('{words}')")).await;
}

#[tokio::test]
async fn a_refused_configuration_an_open_breaker_and_a_lookup_that_fails_are_readable_on_all_screens() {
    let Some(mut browser) = Browser::start().await else { return };
    let server = edge().await;
    for namespace in ["team-a", "team-b"] {
        let mut service = service("web", "ClusterIP");
        service["metadata"]["namespace"] = json!(namespace);
        server.store().put(service).unwrap();
    }
    let filters =
        "filters:\n  - {name: bad, module: bad-handle.wasm, match: ['victim/services'], failurePolicy: Hide}\n";
    let weir = Setup::new(server.url())
        .filters(filters)
        .bundled("servicetopology")
        .module("bad-handle", &hostile("bad-handle"))
        .start_ready()
        .await;
    open(&mut browser, &weir).await;
    weir.put_filters("filters: [");
    first_line(&mut browser, "the newest configuration is refused").await;
    look(&mut browser, &weir, "degraded", "refused").await;
    weir.put_filters(filters);
    browser.wait("document.getElementById('state').textContent === 'ready'").await;
    for _ in 0..3 {
        weir.client("victim").get("/api/v1/services").await;
    }
    first_line(&mut browser, "the circuit breaker of the filter bad is open").await;
    look(&mut browser, &weir, "degraded", "suspended").await;
    weir.put_filters(&only("servicetopology", ""));
    browser.wait("document.getElementById('state').textContent === 'ready'").await;
    // The lookup's watch ends, and another one is refused.
    grant(&server, Rights::default());
    server.close_watches(End::Clean);
    first_line(&mut browser, "lookups of filters").await;
    look(&mut browser, &weir, "degraded", "lookups").await;
}

#[tokio::test]
async fn a_share_of_failures_a_missing_node_and_an_expired_certificate_have_a_line_each() {
    let Some(mut browser) = Browser::start().await else { return };
    let server = edge().await;
    let expired = Authority::new("another").expired_server();
    let weir = Setup::new(server.url())
        .uncached()
        .flag("--node-name", "edge-z")
        .filters("filters:\n  - {name: bad, module: fails-once.wasm, match: ['*/services'], failurePolicy: Ignore}\n")
        .module("fails-once", &hostile("fails-once"))
        .file("--tls-cert-file", "tls.crt", &expired.certificate)
        .file("--tls-private-key-file", "tls.key", &expired.key)
        .start_ready()
        .await;
    // More than three objects, each of which fails once.
    weir.client("test").names("/api/v1/namespaces/default/services").await;
    open(&mut browser, &weir).await;
    let remedies = ["weir explain -v shows what it read", "check --node-name", "replace its files"];
    shows_in_order(&mut browser, &remedies).await;
    let state = cell("filters", "bad", "State");
    assert!(browser.value(&state).await.as_str().unwrap().starts_with("failing"), "a filter that fails is not green");
    look(&mut browser, &weir, "degraded", "share-node-certificate").await;
}

#[tokio::test]
async fn objects_without_a_verdict_and_a_full_disk_have_a_line_each() {
    let Some(mut browser) = Browser::start().await else { return };
    let Some(machine) = Machine::new() else { return };
    let (server, disk) = (edge().await, tempfile::tempdir().unwrap());
    machine.put_disk_full(true);
    let setup = Setup::new(server.url())
        .filters("filters:\n  - {name: bad, module: fails-once.wasm, match: ['*/services'], failurePolicy: Ignore}\n")
        .module("fails-once", &hostile("fails-once"))
        .on_disk(disk.path());
    let weir = machine.run(setup, disk.path()).start_ready().await;
    // The view stays open.
    let mut events = weir.client("kube-proxy").watch("/api/v1/services?watch=1&resourceVersion=0").await;
    events.next().await;
    open(&mut browser, &weir).await;
    let faults = ["the filter bad", "no verdict of their filters (services)", "changes are in memory only; make room"];
    shows_in_order(&mut browser, &faults).await;
    assert_ne!(browser.value(&cell("caches", "services", "Degraded")).await, "0");
    look(&mut browser, &weir, "degraded", "verdicts-disk").await;
}

/// A notice as `/status` has it, for each text in the table of deploy/troubleshooting.md. A test of the daemon finds each text of its
/// notices there. What differs from node to node is a long name.
fn documented_notices() -> Vec<Value> {
    const NAME: &str = "kube-system/an-object-of-a-rather-long-name.of-a-group.example.com";
    let page = include_str!("../../deploy/troubleshooting.md");
    let (before, table) = page.split_once("\n| name | text | what to do |\n|---|---|---|\n").unwrap();
    let remarks = before.lines().find_map(|line| line.split_once("; ")?.1.split_once(" are remarks")).unwrap().0;
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let notices = rows.flat_map(|row| {
        let (name, text) = row.trim_start_matches("| ").split_once(" | ").unwrap();
        let texts = text.rsplit_once(" | ").unwrap().0.split("`; `").map(|text| text.trim_matches('`'));
        // The anchor of the row follows.
        let name = name.split('`').nth(1).unwrap();
        let is_remark = remarks.contains(&format!("`{name}`"));
        texts.map(move |text| json!({"name": name, "text": text.replace('…', NAME), "isRemark": is_remark}))
    });
    let mut notices: Vec<_> = notices.collect();
    // The order of the daemon.
    notices.sort_by_key(|notice| notice["isRemark"] == true);
    notices
}

/// Those that a test can bring about are looked at in the tests above. Here are all of them.
#[tokio::test]
async fn every_notice_is_readable_on_all_screens() {
    let Some(mut browser) = Browser::start().await else { return };
    let server = edge().await;
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    weir.client("kube-proxy").names("/api/v1/services?resourceVersion=0").await;
    let notices = documented_notices();
    let outage = |notice: &&Value| ["offline", "grace"].contains(&notice["name"].as_str().unwrap());
    let text = |notice: &Value| notice["text"].as_str().unwrap().to_owned();
    let folder = built::target().join("page");
    std::fs::create_dir_all(&folder).unwrap();
    for (width, colours) in SCREENS {
        browser.display(width, 900, colours).await;
        open(&mut browser, &weir).await;
        // From now on the page shows what the test gives it.
        browser
            .value("update().then(() => { clearTimeout(timer); return fetch('status'); }).then((answer) => answer.json()).then((status) => { window.status_ = status; })")
            .await;
        let show = async |browser: &mut Browser, health: &str, reason: Value, shown: &[Value], image: &str| {
            let members = json!({"health": health, "ready": reason.is_null(), "notReady": reason, "notices": shown});
            browser.value(&format!("show({{...window.status_, ...{members}}})")).await;
            browser.screenshot(&folder.join(format!("{image}-{width}-{colours}.png"))).await;
            fits(browser, &format!("{image}, {width}")).await;
        };
        for (number, notice) in notices.iter().enumerate() {
            let name = notice["name"].as_str().unwrap();
            let image = format!("notice-{number:02}-{name}");
            show(&mut browser, "degraded", Value::Null, std::slice::from_ref(notice), &image).await;
            assert_eq!(lines(&mut browser).await, [text(notice)], "{width}");
            let kind = if notice["isRemark"] == true { "note" } else { "warn" };
            let class = browser.value("document.querySelector('.banner').className").await;
            assert_eq!(class, format!("banner {kind}"), "{name}");
        }
        // All at once: first why it is not ready, then the outage in one line, then the other faults, then remarks.
        show(&mut browser, "not-ready", "filters are loading: a".into(), &notices, "notice-all").await;
        let of_outage: Vec<_> = notices.iter().filter(outage).map(text).collect();
        let others = notices.iter().filter(|notice| !outage(notice)).map(text);
        let first = ["Not ready: filters are loading: a".to_owned(), of_outage.join("; ")];
        assert_eq!(lines(&mut browser).await, first.into_iter().chain(others).collect::<Vec<_>>(), "{width}");
    }
}

#[tokio::test]
async fn a_node_without_a_filter_set_says_why_on_all_screens() {
    let Some(mut browser) = Browser::start().await else { return };
    let server = edge().await;
    let weir = Setup::new(server.url()).filters(&only("absent", "")).start().await;
    open(&mut browser, &weir).await;
    browser.wait("document.body.innerText.includes('absent.wasm')").await;
    look(&mut browser, &weir, "not ready", "no-set").await;
}

#[tokio::test]
async fn the_page_draws_what_the_last_hour_was_like() {
    let Some(mut browser) = Browser::start().await else { return };
    let server = edge().await;
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    open(&mut browser, &weir).await;
    // The daemon has no whole minute yet.
    let label = "document.querySelector('#activity svg').getAttribute('aria-label')";
    assert_eq!(browser.value(label).await, "Requests by minute, at most 0");
    let drawn = browser
        .value(&format!(
            "showActivity({{requests: [0, 5, 10], events: Array(60).fill(1), hidden: []}}),             [document.querySelector('#activity').innerText, {label},
              ...[...document.querySelectorAll('#activity path')].map((path) => path.getAttribute('d'))]"
        ))
        .await;
    let text = drawn[0].as_str().unwrap();
    assert!(text.contains("Requests, last 3 min") && text.contains("Events, last hour"), "{text}");
    assert_eq!(drawn[1], "Requests by minute, at most 10");
    assert_eq!((&drawn[2], &drawn[4]), (&json!("M58.5 20V10.5M59.5 20V1.0"), &json!("")));
    assert_eq!(drawn[3].as_str().unwrap().matches('M').count(), 60);
}

#[tokio::test]
async fn hostile_names_and_messages_are_shown_as_text() {
    let Some(mut browser) = Browser::start().await else { return };
    let server = edge().await;
    // The component of a client, the name of a lookup or a module's path: all text from outside.
    let weir = Setup::new(server.url())
        .filters(&format!("filters: [{{name: hostile, module: '{HOSTILE}.wasm'}}]"))
        .start()
        .await;
    weir.logged("configuration refused").await;
    let agent = weir.client("x").with("user-agent", "<script>alert(1)</script>");
    agent.get("/version").await;
    let image = weir.client("x").with("user-agent", "<img%20src=x%20onerror=alert(1)>");
    image.get("/version").await;
    open(&mut browser, &weir).await;
    let text = browser.text().await;
    assert!(text.contains("<script>alert(1)<") && text.contains("<img%20src=x%20onerror=alert(1)>"), "{text}");
    assert!(text.contains("Not ready"), "{text}");
    look(&mut browser, &weir, "not ready", "not-ready").await;
    let elements = browser.value("[document.querySelectorAll('script').length, document.images.length]").await;
    assert_eq!(elements, json!([1, 0]), "the page's own script, and no image");
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
    // What would run if a text became an element is refused, too.
    browser
        .value("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))")
        .await;
    assert_eq!(browser.value("typeof window.ran").await, "undefined");
}

#[tokio::test]
async fn an_explanation_of_an_object_named_script_is_no_document() {
    let Some(mut browser) = Browser::start().await else { return };
    let server = edge().await;
    server.store().put(service(OBJECT, "ClusterIP")).unwrap();
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    let name = OBJECT.replace('<', "%3C").replace('>', "%3E");
    let path = format!("explain/api/v1/namespaces/default/services/{name}?component=kube-proxy");
    browser.open(&format!("{}/{path}", weir.admin_url())).await;
    assert_eq!(browser.value("document.contentType").await, "application/json");
    let text = browser.text().await;
    assert!(text.contains(OBJECT) && text.contains("discardcloudservice"), "{text}");
    assert_eq!(browser.value("document.querySelectorAll('script').length").await, 0);
}

#[tokio::test]
async fn the_page_stops_while_it_is_hidden_and_is_readable_on_a_phone() {
    let Some(mut browser) = Browser::start().await else { return };
    let server = edge().await;
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    weir.client("kube-proxy").names("/api/v1/services?resourceVersion=0").await;
    look(&mut browser, &weir, "ready", "ready").await;
    // The machine may be busy: the fastest of several loads counts, beside that of a page without content.
    let (mut page, mut nothing) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..20 {
        for (path, fastest) in [("/", &mut page), ("/livez", &mut nothing)] {
            browser.open(&format!("{}{path}", weir.admin_url())).await;
            let timing = browser.value("performance.getEntriesByType('navigation')[0].toJSON()").await;
            assert!(timing["transferSize"].as_u64().unwrap() < 100 << 10, "{timing}");
            *fastest = fastest.min(timing["loadEventEnd"].as_f64().unwrap());
        }
    }
    println!("loaded within {page} ms, and a page without content within {nothing} ms");
    assert!(page < 20.0 * nothing.max(5.0), "{page} ms, {nothing} ms");

    open(&mut browser, &weir).await;
    // `visibilitychange` as the browser fires it when the tab is hidden.
    let hide = |hidden: bool| {
        format!(
            "Object.defineProperty(document, 'hidden', {{value: {hidden}, configurable: true}});\
             document.dispatchEvent(new Event('visibilitychange'))"
        )
    };
    browser.value(&hide(true)).await;
    assert_eq!(browser.value("update().then(() => timer)").await, Value::Null, "no further request is planned");
    browser.value("byId('updated').textContent = ''").await;
    browser.value(&hide(false)).await;
    browser.wait("byId('updated').textContent !== '' && timer !== null").await;
}
