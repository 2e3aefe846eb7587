//! The alerts and the dashboard of the chart: promtool accepts them, and the daemon exports what they name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use weir_tests::built;
use weir_tests::chart::{Helm, object, text, tool};
use weir_tests::daemon::Setup;
use weir_tests::edge::edge;

/// Labels that Prometheus adds.
const OF_PROMETHEUS: &[&str] = &["instance", "job"];

fn rules() -> Vec<Value> {
    let file: Value = serde_saphyr::from_str(&text("helm/weir/files/rules.yaml")).unwrap();
    file["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// The queries of the dashboard by the title of their panel, with the variables replaced.
fn queries() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&text("helm/weir/files/dashboard.json")).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap().replace("$__rate_interval", "5m").replace("$instance", ".*");
            assert!(!query.contains('$'), "an unknown variable: {query}");
            queries.push((panel["title"].as_str().unwrap().to_owned(), query));
        }
    }
    assert!(queries.len() > 20);
    // What is wrong is on it, not only what goes on.
    for metric in ["weir_node_health{", "weir_notices{"] {
        assert!(queries.iter().any(|(_, query)| query.contains(metric)), "no panel has {metric}");
    }
    queries
}

/// An object has all labels of a selector, which selects by some.
fn assert_selects(selector: &Value, object: &Value, why: &str) {
    let selector = selector.as_object().unwrap();
    assert!(!selector.is_empty(), "{why}");
    for (label, value) in selector {
        assert_eq!(&object["metadata"]["labels"][label], value, "{why}");
    }
}

fn promtool(arguments: &[&str], folder: &Path) {
    let Some(promtool) = tool("promtool") else { return };
    let output = Command::new(promtool).args(arguments).current_dir(folder).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "promtool {arguments:?}: {}", String::from_utf8_lossy(&text));
}

/// Rules have no fault, and pass their unit tests.
fn assert_tests_pass(rules: &str, tests: &str) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rules.yaml"), rules).unwrap();
    std::fs::write(folder.path().join("alerts.yaml"), tests).unwrap();
    promtool(&["check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"], folder.path());
    promtool(&["test", "rules", "alerts.yaml"], folder.path());
}

/// With waits that are a minute longer, or shorter, each alert fails its unit tests.
fn assert_waits_are_tested(rules: &str, tests: &str) {
    let Some(promtool) = tool("promtool") else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("alerts.yaml"), tests).unwrap();
    for change in [1, -1] {
        let mut file: Value = serde_saphyr::from_str(rules).unwrap();
        let mut changed = BTreeSet::new();
        for rule in file["groups"][0]["rules"].as_array_mut().unwrap() {
            let wait = rule["for"].as_str().map_or(0, |wait| wait.strip_suffix('m').unwrap().parse().unwrap());
            if wait + change >= 0 {
                rule["for"] = json!(format!("{}m", wait + change));
                changed.insert(rule["alert"].as_str().unwrap().to_owned());
            }
        }
        std::fs::write(folder.path().join("rules.yaml"), file.to_string()).unwrap();
        let test = ["test", "rules", "alerts.yaml"];
        let output = Command::new(&promtool).args(test).current_dir(folder.path()).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let failed = text.lines().filter_map(|line| line.trim().strip_prefix("alertname: ")?.split(',').next());
        assert_eq!(failed.map(str::to_owned).collect::<BTreeSet<_>>(), changed, "by {change} m: {text}");
    }
}

#[test]
fn promtool_accepts_the_alerts_and_their_tests_pass() {
    let (rules, tests) = (text("helm/weir/files/rules.yaml"), include_str!("alerts.yaml"));
    assert_tests_pass(&rules, tests);
    assert_waits_are_tested(&rules, tests);
}

/// The notices of which `weir status` and the page show one while an alert fires.
const NOTICES_OF: &[(&str, &[&str])] = &[
    ("WeirReloadRefused", &["refused"]),
    ("WeirFilterBreakerOpen", &["filter-suspended"]),
    ("WeirFilterFailing", &["filter-failing"]),
    ("WeirObjectsDegraded", &["degraded"]),
    ("WeirOffline", &["offline"]),
    ("WeirOfflineGraceEnds", &["grace"]),
    ("WeirFiltersOff", &["filters-off"]),
    ("WeirNoNode", &["no-node"]),
    ("WeirServerMoved", &["server-address"]),
    ("WeirDiskSlow", &["slow-disk"]),
    ("WeirCacheIncomplete", &["nothing-kept", "cache-directory", "disk", "cache-key"]),
    ("WeirCacheSetAside", &["set-aside"]),
    ("WeirHistoryChanged", &["history"]),
    ("WeirClientCertificateExpires", &["client-certificate"]),
    ("WeirCacheFailing", &["failing-cache", "offline"]),
    ("WeirLookupsDegraded", &["failing-lookups", "no-node", "offline"]),
    ("WeirServingCertificateExpires", &["certificate"]),
    ("WeirPodAddressDown", &["pod-address", "no-pod-interface"]),
];

/// The alerts without a notice, and why.
const WITHOUT_NOTICE: &[(&str, &str)] = &[
    ("WeirDown", "no daemon answers, which weir status and the page say"),
    ("WeirAbsent", "no daemon that Prometheus knows"),
    ("WeirNotReady", "it is the health itself, not-ready, with its reason"),
    ("WeirDegraded", "it is the health itself, and each of its faults is a notice"),
    (
        "WeirCacheDiskErrors",
        "it is about the last quarter of an hour, and the disk may work again: what is wrong now is a notice",
    ),
    ("WeirFilterImpure", "Weir has mended it by the time that it fires: it calls the filter for each object"),
    (
        "WeirRequestErrors",
        "what clients ask for may fail on a node that is well: the page and weir status list it by reason",
    ),
    ("WeirOperatorHasNoLeader", "the operator is no node: its /readyz and its own page have it"),
    ("WeirOperatorPoolNotReady", "the operator is no node: its /readyz and its own page have it"),
    ("WeirOperatorReconcileErrors", "the operator is no node: its /readyz and its own page have it"),
];

/// The names of all notices, from the sources that make them.
fn notices() -> BTreeSet<String> {
    let source = |file: &str| std::fs::read_to_string(built::workspace().join("host").join(file)).unwrap();
    let made = [
        ("src/admin/health.rs", "Notice::new("),
        ("src/admin/health.rs", "failed("),
        ("src/admin/notices.rs", "add("),
        ("store/src/disk/conditions.rs", "=> ("),
        ("store/src/disk/conditions.rs", "DiskCondition { name: "),
    ];
    let mut notices = BTreeSet::new();
    for (file, before) in made {
        let source = source(file);
        let names =
            source.split(before).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
        notices.extend(names.map(str::to_owned));
    }
    assert!(["refused", "offline", "disk", "slow-disk"].iter().all(|name| notices.contains(*name)), "{notices:?}");
    notices
}

/// Who is woken finds each alert, and each notice of `weir status`, in a table that says what to do.
#[test]
fn each_alert_and_each_notice_is_in_the_documents() {
    let alerts = |rules: &str| -> Vec<String> {
        let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
        names.map(str::to_owned).collect()
    };
    for (rules, page) in
        [("helm/weir/files/rules.yaml", "monitoring.md"), ("helm/weir/files/operator/rules.yaml", "operator/README.md")]
    {
        let (alerts, page_text) = (alerts(&text(rules)), text(page));
        assert!(alerts.len() > 2);
        for alert in alerts {
            let has_row = page_text.lines().any(|line| line.starts_with("| `") && line.contains(&format!("`{alert}`")));
            assert!(has_row, "{page} has no row of {alert}");
        }
    }
    let page = text("troubleshooting.md");
    let (_, table) = page.split_once("\n| name | text | what to do |\n|---|---|---|\n").unwrap();
    let mut documented = BTreeSet::new();
    for row in table.lines().take_while(|line| line.starts_with("| ")) {
        let name = row.split('`').nth(1).unwrap();
        let cells: Vec<_> = row.trim_end_matches(" |").split(" | ").collect();
        assert_eq!(cells[0], format!("| `{name}`<a id=\"{name}\"></a>"), "an anchor of its name");
        assert!(cells.len() == 3 && cells[2].split(' ').count() > 2, "{name}: nothing says what to do");
        documented.insert(name.to_owned());
    }
    assert_eq!(documented, notices());
    assert!(documented.len() > 20, "{documented:?}");
}

/// While an alert fires, the page shows a notice, which the row of the alert leads to.
#[test]
fn each_alert_is_of_a_notice_that_the_page_shows() {
    let (page, notices) = (text("monitoring.md"), notices());
    for rule in rules() {
        let alert = rule["alert"].as_str().unwrap();
        let Some((_, shown)) = NOTICES_OF.iter().find(|(name, _)| *name == alert) else { continue };
        let row = page.lines().find(|line| line.starts_with("| `") && line.contains(&format!("`{alert}`"))).unwrap();
        for notice in *shown {
            assert!(notices.contains(*notice), "{alert}: there is no notice {notice}");
            assert!(
                row.contains(&format!("(troubleshooting.md#{notice})")),
                "{alert}: {row} does not lead to {notice}"
            );
        }
        // A query for notices is for these.
        let query = rule["expr"].as_str().unwrap();
        if let Some((_, names)) = query.split_once("notices{notice=") {
            let names = names.trim_start_matches('~').split('"').nth(1).unwrap();
            assert_eq!(names.split('|').collect::<Vec<_>>(), *shown, "{alert}");
        }
    }
    let of_operator: Value = serde_saphyr::from_str(&text("helm/weir/files/operator/rules.yaml")).unwrap();
    let of_operator = of_operator["groups"][0]["rules"].as_array().unwrap().clone();
    let listed = NOTICES_OF.iter().map(|(name, _)| name).chain(WITHOUT_NOTICE.iter().map(|(name, _)| name));
    let mut listed: Vec<_> = listed.map(|name| (*name).to_owned()).collect();
    listed.sort();
    let all: Vec<_> = names(&[rules(), of_operator].concat()).into_iter().collect();
    assert_eq!(listed, all, "each alert once");
}

/// The annotation `runbook` of an alert leads to its row.
#[test]
fn the_runbook_of_each_alert_is_an_anchor_in_its_row() {
    for rules in ["helm/weir/files/rules.yaml", "helm/weir/files/operator/rules.yaml"] {
        let file: Value = serde_saphyr::from_str(&text(rules)).unwrap();
        for rule in file["groups"][0]["rules"].as_array().unwrap() {
            let alert = rule["alert"].as_str().unwrap();
            let runbook = rule["annotations"]["runbook"].as_str().unwrap_or_else(|| panic!("{alert} has no runbook"));
            let (page, anchor) = runbook.strip_prefix("deploy/").unwrap().split_once('#').unwrap();
            assert_eq!(anchor, alert.to_lowercase());
            let cell = format!("`{alert}`<a id=\"{anchor}\"></a>");
            let rows = text(page).lines().filter(|line| line.starts_with("| `") && line.contains(&cell)).count();
            assert_eq!(rows, 1, "{page} has no row with {cell}");
        }
    }
}

/// The alerts of the operator: promtool accepts them, each fires in a test, and its README has their metrics.
#[test]
fn the_operators_alerts_fire_and_name_its_metrics() {
    let rules = text("helm/weir/files/operator/rules.yaml");
    assert_tests_pass(&rules, include_str!("operator-alerts.yaml"));
    assert_waits_are_tested(&rules, include_str!("operator-alerts.yaml"));
    let rules: Value = serde_saphyr::from_str(&rules).unwrap();
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    assert_eq!(fires(include_str!("operator-alerts.yaml")), names(rules));
    let document = text("operator/README.md");
    for (metric, _) in rules.iter().flat_map(|rule| named(rule["expr"].as_str().unwrap())) {
        assert!(document.contains(&format!("`{metric}`")), "{metric} is not in the table");
    }
}

fn names(rules: &[Value]) -> BTreeSet<String> {
    rules.iter().map(|rule| rule["alert"].as_str().unwrap().to_owned()).collect()
}

/// The alerts that fire in these unit tests of promtool.
fn fires(tests: &str) -> BTreeSet<String> {
    let file: Value = serde_saphyr::from_str(tests).unwrap();
    let mut fires = BTreeSet::new();
    for test in file["tests"].as_array().unwrap() {
        for case in test["alert_rule_test"].as_array().unwrap() {
            if !case["exp_alerts"].as_array().unwrap().is_empty() {
                fires.insert(case["alertname"].as_str().unwrap().to_owned());
            }
        }
    }
    fires
}

#[test]
fn each_alert_has_a_test_in_which_it_fires() {
    let rules = rules();
    assert_eq!(fires(include_str!("alerts.yaml")), names(&rules));
    for rule in &rules {
        assert!(["critical", "warning"].iter().any(|severity| rule["labels"]["severity"] == *severity), "{rule}");
        assert!(rule["annotations"]["summary"].is_string() && rule["annotations"]["description"].is_string(), "{rule}");
    }
}

#[test]
fn promtool_accepts_the_queries_of_the_dashboard() {
    let rule = |(n, (_, query)): (usize, &(String, String))| {
        format!("  - record: weir:panel:{n}\n    expr: {}\n", serde_json::to_string(query).unwrap())
    };
    let rules: String = queries().iter().enumerate().map(rule).collect();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("panels.yaml"), format!("groups:\n- name: panels\n  rules:\n{rules}")).unwrap();
    promtool(&["check", "rules", "panels.yaml"], folder.path());
}

/// The labels of each metric, from the table of deploy/monitoring.md, which is generated from the code.
fn exported() -> BTreeMap<String, BTreeSet<String>> {
    let document = text("monitoring.md");
    let (_, table) = document.split_once("<!-- BEGIN GENERATED: metrics -->").unwrap();
    let (table, _) = table.split_once("<!-- END").unwrap();
    let mut exported = BTreeMap::new();
    for line in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = line.split(" | ").collect();
        let labels = cells[2].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        exported.insert(cells[0].trim_matches(['|', ' ', '`']).to_owned(), labels);
    }
    assert!(exported.len() > 30, "{exported:?}");
    exported
}

/// The metrics of this daemon that a query names, each with the labels that its selector names.
fn named(query: &str) -> Vec<(String, Vec<String>)> {
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let mut named = Vec::new();
    let mut rest = query;
    while let Some(at) = rest.find("weir_").into_iter().chain(rest.find("process_")).min() {
        let starts = !rest[..at].ends_with(is_word);
        let word = &rest[at..];
        let end = word.find(|character| !is_word(character)).unwrap_or(word.len());
        let (name, after) = word.split_at(end);
        let selector = after.strip_prefix('{').and_then(|selector| selector.split('}').next()).unwrap_or_default();
        let labels = selector.split(',').filter_map(|matcher| matcher.split(['=', '!']).next());
        let labels = labels.map(|label| label.trim().to_owned()).filter(|label| !label.is_empty()).collect();
        if starts {
            named.push((name.to_owned(), labels));
        }
        rest = after;
    }
    named
}

#[test]
fn the_daemon_exports_each_metric_and_label_that_they_name() {
    let exported = exported();
    let alerts = rules();
    let alerts = alerts.iter().map(|rule| (rule["alert"].to_string(), rule["expr"].as_str().unwrap().to_owned()));
    let mut found = 0;
    for (place, query) in alerts.chain(queries()) {
        let mut known: BTreeSet<_> = OF_PROMETHEUS.iter().map(|label| (*label).to_owned()).collect();
        for (metric, labels) in named(&query) {
            let own = exported.get(&metric).unwrap_or_else(|| panic!("{place}: there is no metric {metric}"));
            for label in labels {
                let is_known = own.contains(&label) || OF_PROMETHEUS.contains(&label.as_str());
                assert!(is_known, "{place}: {metric} has no label {label}");
            }
            known.extend(own.iter().cloned());
            found += 1;
        }
        for group in query.split("by (").skip(1) {
            for label in group.split(')').next().unwrap().split(',').map(str::trim) {
                assert!(known.contains(label), "{place}: nothing in {query} has a label {label}");
            }
        }
    }
    assert!(found > 40, "{found}");
    assert_eq!(
        named("a_weir_b + weir_c{d=\"1\", e!~\"2\"}"),
        [("weir_c".to_owned(), vec!["d".to_owned(), "e".to_owned()])]
    );
}

/// A counter that appears with its first count has not increased: an alert on its increase would miss that one.
#[tokio::test]
async fn the_counters_whose_increase_an_alert_waits_for_are_there_before_they_count() {
    let server = edge().await;
    let guest = std::fs::read(built::target().join("guest.wasm")).unwrap();
    let filters = "filters: [{name: one, module: guest.wasm, match: ['*/services'], settings: {ops: []}}]";
    let weir = Setup::new(server.url()).module("guest", &guest).filters(filters).start_ready().await;
    let text = weir.admin().get("/metrics").await.text();
    let mut found = 0;
    for rule in rules() {
        for rest in rule["expr"].as_str().unwrap().split("increase(").skip(1) {
            let series = rest.split('[').next().unwrap();
            let (name, selector) = series.split_once('{').unwrap_or((series, ""));
            let (name, selector) = (format!("{name}{{"), selector.trim_end_matches('}'));
            let exists = text.lines().any(|line| line.starts_with(&name) && line.contains(selector));
            assert!(exists, "{}: there is no {series} in {text}", rule["alert"]);
            found += 1;
        }
    }
    assert_eq!(found, 2, "increases");
}

#[tokio::test]
async fn promtool_finds_nothing_wrong_with_the_names_of_the_metrics() {
    let Some(promtool) = tool("promtool") else { return };
    let server = edge().await;
    let weir = Setup::new(server.url()).filters("filters: []").start_ready().await;
    let text = weir.admin().get("/metrics").await.text();
    // promtool reads the older text format, in which the type of a counter has the name of its series.
    let mut older = String::new();
    for line in text.lines() {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        match words.as_slice() {
            ["#", "UNIT", ..] | ["#", "EOF"] => {}
            ["#", kind @ ("HELP" | "TYPE"), name, rest] => {
                let is_counter = text.contains(&format!("# TYPE {name} counter\n"));
                let suffix = if is_counter { "_total" } else { "" };
                older += &format!("# {kind} {name}{suffix} {rest}\n");
            }
            _ => older += &format!("{line}\n"),
        }
    }
    let mut child = tokio::process::Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut input, older.as_bytes()).await.unwrap();
    drop(input);
    let output = child.wait_with_output().await.unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{said}\n{older}");
}

#[test]
fn the_chart_renders_alerts_dashboard_and_monitor() {
    let Some(helm) = Helm::new() else { return };
    let objects = helm.objects(&[
        "monitoring.serviceMonitor={\"enabled\":true,\"labels\":{\"release\":\"prometheus\"}}",
        "monitoring.prometheusRule.enabled=true",
        "monitoring.dashboard.enabled=true",
        "admin.address=\"0.0.0.0\"",
        "operator.enabled=true",
        "operator.podMonitor.enabled=true",
        "operator.prometheusRule.enabled=true",
        "operator.networkPolicy.enabled=true",
    ]);
    let of_operator = &object(&objects, "Deployment", "weir-operator").unwrap()["spec"]["template"];
    let monitor = &object(&objects, "PodMonitor", "weir-operator").unwrap()["spec"];
    let policy = &object(&objects, "NetworkPolicy", "weir-operator").unwrap()["spec"];
    assert_selects(&monitor["selector"]["matchLabels"], of_operator, "the monitor selects the pods");
    assert_eq!(policy["podSelector"], monitor["selector"]);
    let port = &of_operator["spec"]["containers"][0]["ports"][0]["name"];
    assert_eq!((&monitor["podMetricsEndpoints"][0]["port"], &policy["ingress"][0]["ports"][0]["port"]), (port, port));
    let alerts = &object(&objects, "PrometheusRule", "weir-operator").unwrap()["spec"]["groups"][0]["rules"];
    assert_eq!(alerts.as_array().map(Vec::len), Some(3));
    let by_pod = helm.objects(&["monitoring.podMonitor.enabled=true", "admin.address=\"0.0.0.0\""]);
    let pods = &object(&by_pod, "DaemonSet", "weir").unwrap()["spec"]["template"];
    let by_pod = &object(&by_pod, "PodMonitor", "weir").unwrap()["spec"];
    assert_selects(&by_pod["selector"]["matchLabels"], pods, "the monitor selects the pods");
    assert_eq!(by_pod["podMetricsEndpoints"][0]["port"], "admin");
    let rendered = &object(&objects, "PrometheusRule", "weir").unwrap()["spec"]["groups"][0]["rules"];
    assert_eq!(rendered, &Value::from(rules()));
    let dashboard = object(&objects, "ConfigMap", "weir-dashboard").unwrap();
    assert_eq!(dashboard["metadata"]["labels"]["grafana_dashboard"], "1");
    assert_eq!(
        dashboard["data"]["weir.json"].as_str().unwrap().trim_end(),
        text("helm/weir/files/dashboard.json").trim_end()
    );
    let monitor = object(&objects, "ServiceMonitor", "weir").unwrap();
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    let service = object(&objects, "Service", "weir-metrics").unwrap();
    assert_selects(&monitor["spec"]["selector"]["matchLabels"], service, "the monitor selects the Service");
    let pods = &object(&objects, "DaemonSet", "weir").unwrap()["spec"]["template"];
    assert_selects(&service["spec"]["selector"], pods, "the Service selects the pods");
    let ports = pods["spec"]["containers"][0]["ports"].as_array().unwrap();
    assert!(ports.iter().any(|port| port["name"] == service["spec"]["ports"][0]["targetPort"]));
}

#[test]
fn the_operators_service_monitor_finds_its_pods_by_a_service() {
    let Some(helm) = Helm::new() else { return };
    let monitored =
        "operator.serviceMonitor={\"enabled\":true,\"interval\":\"1m\",\"labels\":{\"release\":\"prometheus\"}}";
    let objects = helm.objects(&["operator.enabled=true", "operator.namespace=\"a\"", monitored]);
    let monitor = object(&objects, "ServiceMonitor", "weir-operator").unwrap();
    let service = object(&objects, "Service", "weir-operator-metrics").unwrap();
    assert_eq!((&monitor["metadata"]["namespace"], &service["metadata"]["namespace"]), (&json!("a"), &json!("a")));
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    assert_selects(&monitor["spec"]["selector"]["matchLabels"], service, "the monitor selects the Service");
    let pods = &object(&objects, "Deployment", "weir-operator").unwrap()["spec"]["template"];
    assert_selects(&service["spec"]["selector"], pods, "the Service selects the pods");
    let (endpoint, port) = (&monitor["spec"]["endpoints"][0], &service["spec"]["ports"][0]);
    assert_eq!((&endpoint["port"], &endpoint["interval"]), (&port["name"], &json!("1m")));
    let of_pod = &pods["spec"]["containers"][0]["ports"][0];
    assert_eq!((&port["targetPort"], &port["port"]), (&of_pod["name"], &of_pod["containerPort"]));
    assert!(object(&helm.objects(&["operator.enabled=true"]), "Service", "weir-operator-metrics").is_none());
}
