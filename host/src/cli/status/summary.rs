//! `/status` as text: a heading, the last reload, and a table for each list.

use serde_json::Value;
use weir_process::one_line;

use crate::cli::table::Column::{Always, Wide};
use crate::cli::table::{MAX_LINE, age, bytes, per, table};

/// Returns the summary of an answer of `/status`.
pub(super) fn summary(status: &Value, is_wide: bool) -> String {
    let mut text = heading(status);
    let tables = [
        ("filters", filters as fn(&Value, &[Value], bool) -> String),
        ("lookups", lookups),
        ("caches", caches),
        ("servers", servers),
        ("clients", clients),
        ("failures", failures),
    ];
    for (name, table) in tables {
        let items = status[name].as_array().map(Vec::as_slice).unwrap_or_default();
        if !items.is_empty() {
            text += "\n";
            text += &table(status, items, is_wide);
        }
        if let Some(more) = status["omitted"].get(name).and_then(Value::as_u64) {
            text += &format!("… and {more} more {name}\n");
        }
    }
    text
}

fn heading(status: &Value) -> String {
    let running = age(number(&status["uptimeSeconds"]));
    let mut lines = vec![
        ("Health:", string(&status["health"])),
        ("Node:", string(&status["node"])),
        ("Version:", format!("{}, running for {running}", string(&status["version"]))),
        ("Ready:", status["notReady"].as_str().map_or("yes".to_owned(), |reason| format!("no, {reason}"))),
        (
            "Offline:",
            match status["offlineSince"].as_str() {
                Some(since) => format!("since {since}, {}", ago(status, &status["offlineSince"])),
                None => "no".to_owned(),
            },
        ),
    ];
    let notices = status["notices"].as_array().into_iter().flatten();
    lines
        .extend(notices.map(|notice| ("Notice:", format!("{}: {}", string(&notice["name"]), string(&notice["text"])))));
    if let Some(last) = status["reloads"].as_array().and_then(|reloads| reloads.first()) {
        let (result, source) = (string(&last["result"]), string(&last["source"]));
        lines.push(("Reload:", format!("{result} {}, {source}", ago(status, &last["at"]))));
        let texts = |name: &str| last[name].as_array().into_iter().flatten().map(string).collect::<Vec<_>>();
        lines.extend(texts("errors").into_iter().map(|error| ("", format!("error: {error}"))));
        lines.extend(texts("warnings").into_iter().map(|warning| ("", format!("warning: {warning}"))));
    }
    lines
        .into_iter()
        .map(|(name, value)| format!("{name:<9} {}", one_line(&value, MAX_LINE)).trim_end().to_owned() + "\n")
        .collect()
}

/// Reasons, each a whole line below the table.
fn reasons(lines: impl Iterator<Item = String>) -> String {
    lines.map(|line| one_line(line.trim_end(), MAX_LINE) + "\n").collect()
}

fn filters(status: &Value, items: &[Value], is_wide: bool) -> String {
    let columns = [
        Always("FILTER"),
        Always("STATE"),
        Always("SINCE"),
        Wide("DIGEST"),
        Always("KEPT"),
        Always("EDITED"),
        Always("HIDDEN"),
        Always("FAILED"),
        Wide("PER-OBJECT"),
        Wide("REPLAYED"),
    ];
    let row = |filter: &Value| {
        let objects = ["kept", "edited", "hidden", "failed"]
            .map(|outcome| filter["objects"].get(outcome).and_then(Value::as_u64).unwrap_or_default());
        let [kept, edited, hidden, failed] = objects;
        let (filtered, replayed) = (kept + edited + hidden, count(&filter["replayed"]));
        let replayed = match filtered {
            0 => "-".to_owned(),
            filtered => format!("{}%", replayed * 100 / filtered),
        };
        let digest: String = string(&filter["digest"]).chars().take(19).collect();
        let per_object = per(number(&filter["seconds"]), filtered + failed);
        let [kept, edited, hidden, failed] = objects.map(|count| count.to_string());
        let (name, state, since) = (string(&filter["name"]), string(&filter["state"]), since(status, &filter["since"]));
        [name, state, since, digest, kept, edited, hidden, failed, per_object, replayed]
    };
    let errors = items.iter().filter(|filter| filter["lastError"].is_string());
    let errors =
        errors.map(|filter| format!("{}: last error: {}", string(&filter["name"]), string(&filter["lastError"])));
    table(columns, items.iter().map(row).collect(), is_wide) + &reasons(errors)
}

fn lookups(_: &Value, items: &[Value], is_wide: bool) -> String {
    let name = |lookup: &Value| {
        let parts = ["resource", "name", "labelSelector"].map(|part| string(&lookup[part]));
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let row = |lookup: &Value| {
        let state = match (lookup["error"].is_string(), &lookup["synced"], &lookup["stale"]) {
            (true, ..) => "failing",
            (false, Value::Bool(true), Value::Bool(true)) => "stale",
            (false, Value::Bool(true), _) => "synced",
            _ => "syncing",
        };
        [name(lookup), string(&lookup["objects"]), lag(lookup), state.to_owned()]
    };
    let columns = [Always("LOOKUP"), Always("OBJECTS"), Always("LAG"), Always("STATE")];
    let errors = items.iter().filter(|lookup| lookup["error"].is_string());
    let errors = errors.map(|lookup| format!("{}: {}", name(lookup), string(&lookup["error"])));
    table(columns, items.iter().map(row).collect(), is_wide) + &reasons(errors)
}

fn caches(_: &Value, items: &[Value], is_wide: bool) -> String {
    let row = |cache: &Value| {
        let size = bytes(number(&cache["bytes"]));
        let [objects, watches, hidden, degraded] =
            ["objects", "watches", "hidden", "degraded"].map(|name| string(&cache[name]));
        let (resource, identity) = (string(&cache["resource"]), string(&cache["identity"]));
        [resource, identity, objects, size, lag(cache), watches, hidden, degraded, string(&cache["state"])]
    };
    let columns = [
        Always("CACHE"),
        Wide("READ-AS"),
        Always("OBJECTS"),
        Always("SIZE"),
        Always("LAG"),
        Always("WATCHES"),
        Wide("HIDDEN"),
        Wide("DEGRADED"),
        Always("STATE"),
    ];
    let errors = items.iter().filter(|cache| cache["error"].is_string());
    let errors = errors.map(|cache| format!("{}: {}", string(&cache["resource"]), string(&cache["error"])));
    table(columns, items.iter().map(row).collect(), is_wide) + &reasons(errors)
}

fn servers(status: &Value, items: &[Value], is_wide: bool) -> String {
    let row = |server: &Value| [string(&server["name"]), string(&server["state"]), since(status, &server["since"])];
    table([Always("SERVER"), Always("STATE"), Always("SINCE")], items.iter().map(row).collect(), is_wide)
}

fn clients(status: &Value, items: &[Value], is_wide: bool) -> String {
    let row = |client: &Value| {
        let component = match client["component"].as_str() {
            Some("") => "(no User-Agent)",
            Some(component) => component,
            None => "(all others)",
        };
        let [requests, failed, watches] = ["requests", "failed", "watches"].map(|name| string(&client[name]));
        [component.to_owned(), requests, failed, watches, since(status, &client["lastSeen"])]
    };
    let columns = [Always("CLIENT"), Always("REQUESTS"), Always("FAILED"), Always("WATCHES"), Always("LAST-SEEN")];
    table(columns, items.iter().map(row).collect(), is_wide)
}

fn failures(status: &Value, items: &[Value], is_wide: bool) -> String {
    let row = |failure: &Value| {
        let [component, code, count, path] = ["component", "code", "count", "path"].map(|name| string(&failure[name]));
        [component, code, count, since(status, &failure["first"]), path]
    };
    let columns = [Always("FAILED-FOR"), Always("CODE"), Always("REQUESTS"), Always("FIRST"), Always("PATH")];
    let reason = |failure: &Value| {
        let [code, path, what, error] = ["code", "path", "what", "error"].map(|name| string(&failure[name]));
        format!("{code} {path}: {what}: {error}")
    };
    table(columns, items.iter().map(row).collect(), is_wide) + &reasons(items.iter().map(reason))
}

/// A text or a number; empty if it is neither.
fn string(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn lag(item: &Value) -> String {
    item["lagSeconds"].as_f64().map_or("-".to_owned(), age)
}

/// The time that has passed since, by the clock of the daemon.
fn since(status: &Value, time: &Value) -> String {
    let timestamp = |value: &Value| value.as_str()?.parse::<jiff::Timestamp>().ok();
    let passed = timestamp(&status["time"]).zip(timestamp(time)).map(|(now, time)| now.duration_since(time));
    passed.map_or("-".to_owned(), |passed| age(passed.as_secs_f64()))
}

fn ago(status: &Value, time: &Value) -> String {
    format!("{} ago", since(status, time))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_summary_has_a_heading_and_a_table_for_each_list() {
        let status = json!({
            "health": "offline", "node": "edge-a", "version": "0.1.0", "time": "2026-01-01T00:10:00Z", "uptimeSeconds": 600.5,
            "ready": true, "notReady": null, "offlineSince": "2026-01-01T00:09:30Z",
            "reloads": [{
                "result": "refused", "at": "2026-01-01T00:05:00Z", "source": "ConfigMap a/b",
                "errors": ["filter x: \u{1b}[2Jno such module"], "warnings": ["old"],
            }],
            "filters": [{
                "name": "x", "state": "live", "since": "2026-01-01T00:00:00Z", "digest": "sha256:0123456789abcdef0123",
                "objects": {"kept": 3, "edited": 1, "hidden": 0, "failed": 1}, "replayed": 2, "seconds": 0.001, "lastError": "trap\n",
            }],
            "lookups": [
                {"resource": "nodes", "name": "a", "labelSelector": null, "objects": 1, "synced": true, "stale": false, "lagSeconds": 3.5, "error": null},
                {"resource": "pods", "name": null, "labelSelector": null, "objects": 0, "synced": false, "stale": false, "lagSeconds": null, "error": "y".repeat(70)},
            ],
            "caches": [], "servers": [{"name": "h:1", "state": "down", "since": "2026-01-01T00:09:30Z"}],
            "clients": [{"component": null, "requests": 7, "failed": 0, "watches": 2, "lastSeen": "2026-01-01T00:09:59Z"}],
            "failures": [{
                "component": "kubelet", "code": 500, "count": 2, "path": "/api/v1/pods", "what": "watch ended", "error": "e".repeat(70),
                "first": "2026-01-01T00:09:59Z",
            }],
            "omitted": {"clients": 4},
        });
        let expected = "\
Health:   offline
Node:     edge-a
Version:  0.1.0, running for 10m
Ready:    yes
Offline:  since 2026-01-01T00:09:30Z, 30s ago
Reload:   refused 5m ago, ConfigMap a/b
          error: filter x: \\u{1b}[2Jno such module
          warning: old

FILTER   STATE   SINCE   KEPT   EDITED   HIDDEN   FAILED
x        live    10m     3      1        0        1
x: last error: trap

LOOKUP    OBJECTS   LAG   STATE
nodes a   1         3s    synced
pods      0         -     failing
pods: YYYY

SERVER   STATE   SINCE
h:1      down    30s

CLIENT         REQUESTS   FAILED   WATCHES   LAST-SEEN
(all others)   7          0        2         1s
… and 4 more clients

FAILED-FOR   CODE   REQUESTS   FIRST   PATH
kubelet      500    2          1s      /api/v1/pods
500 /api/v1/pods: watch ended: EEEE
";
        let (pods, watch) = ("y".repeat(70), "e".repeat(70));
        assert_eq!(
            summary(&status, false),
            expected.replace("YYYY", &pods).replace("EEEE", &watch),
            "reasons are whole"
        );
        let wide = "\
FILTER   STATE   SINCE   DIGEST                KEPT   EDITED   HIDDEN   FAILED   PER-OBJECT   REPLAYED
x        live    10m     sha256:0123456789ab   3      1        0        1        200µs        50%
";
        assert!(summary(&status, true).contains(wide));
    }

    #[test]
    fn tables_fit_a_terminal_of_80_columns() {
        let filter = json!({
            "name": "forwardkubesvctraffic", "state": "suspended", "since": "2026-01-01T00:00:00Z",
            "objects": {"kept": 123_456, "edited": 12_345, "hidden": 1234, "failed": 123},
        });
        let lookup =
            json!({"resource": "nodepools.apps.openyurt.io", "name": "x".repeat(63), "objects": 1, "synced": true});
        let cache = json!({
            "resource": "endpointslices.discovery.k8s.io", "identity": "x".repeat(60), "objects": 5200, "bytes": 25e6, "watches": 12,
            "hidden": 4000, "degraded": 3, "state": "following", "lagSeconds": 3.0,
        });
        let client =
            json!({"component": "traefik-ingress-controller", "requests": 123_456, "failed": 0, "watches": 12});
        let status = json!({
            "time": "2026-01-01T00:10:00Z", "filters": [filter], "lookups": [lookup], "caches": [cache], "clients": [client],
            "servers": [{"name": "kubernetes.example:6443", "state": "up"}],
        });
        for line in summary(&status, false).lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn an_answer_without_anything_is_no_panic() {
        assert!(summary(&Value::Null, false).starts_with("Health:\nNode:\n"));
    }
}
