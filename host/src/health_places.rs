//! Every place shows the same health of the node: `weir status` and its exit code, `/readyz?verbose`, the condition of the Node
//! and the metrics.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::admin::{AdminMetrics, HealthReport, Notices};
use crate::cli::first_line;
use crate::node_report::FilterCondition;

/// What the places show of one fault: the health, the notice, and the reason and the message of the condition.
struct Shown {
    fault: &'static str,
    health: &'static str,
    notice: Option<&'static str>,
    condition: Option<(&'static str, &'static str)>,
}

const fn shown(
    fault: &'static str,
    health: &'static str,
    notice: Option<&'static str>,
    condition: Option<(&'static str, &'static str)>,
) -> Shown {
    Shown { fault, health, notice, condition }
}

const PLACES: [Shown; 17] = [
    shown(
        "nothing",
        "ready",
        None,
        Some(("FiltersActive", "the newest configuration is active, and nothing is wrong")),
    ),
    shown("off", "degraded", Some("filters-off"), Some(("FiltersOff", "filters-off; see weir status on the node"))),
    shown(
        "failing",
        "degraded",
        Some("filter-failing"),
        Some(("FilterFailing", "filter-failing (pools); see weir status on the node")),
    ),
    shown(
        "failing above a share",
        "degraded",
        Some("filter-failing"),
        Some(("FilterFailing", "filter-failing (pools); see weir status on the node")),
    ),
    shown(
        "degraded objects",
        "degraded",
        Some("degraded"),
        Some(("Degraded", "degraded (endpoints, services); see weir status on the node")),
    ),
    shown(
        "failing lookup",
        "degraded",
        Some("failing-lookups"),
        Some(("FailingLookups", "failing-lookups (nodepools); see weir status on the node")),
    ),
    shown(
        "failing cache",
        "degraded",
        Some("failing-cache"),
        Some(("FailingCache", "failing-cache (services); see weir status on the node")),
    ),
    shown(
        "no certificate",
        "degraded",
        Some("no-certificate"),
        Some(("NoCertificate", "no-certificate; see weir status on the node")),
    ),
    shown(
        "pod address",
        "degraded",
        Some("pod-address"),
        Some(("PodAddress", "pod-address; see weir status on the node")),
    ),
    // Another program provides it: a remark.
    shown(
        "another's pod address",
        "ready",
        Some("no-pod-interface"),
        Some(("FiltersActive", "the newest configuration is active, and nothing is wrong")),
    ),
    shown(
        "cache directory",
        "degraded",
        Some("cache-directory"),
        Some(("CacheDirectory", "cache-directory; see weir status on the node")),
    ),
    // It cannot be written.
    shown("offline", "offline", Some("offline"), None),
    shown("disk", "degraded", Some("disk"), Some(("Disk", "disk; see weir status on the node"))),
    shown(
        "refused",
        "degraded",
        Some("refused"),
        Some(("Refused", "refused (ConfigMap a/b, filter pools); see weir status on the node")),
    ),
    shown(
        "suspended",
        "degraded",
        Some("filter-suspended"),
        Some(("FilterSuspended", "filter-suspended (pools); see weir status on the node")),
    ),
    shown(
        "loading",
        "not-ready",
        None,
        Some((
            "NotReady",
            "requests that a filter may match get 503: filters are loading (a); see weir status on the node",
        )),
    ),
    shown(
        "none valid",
        "not-ready",
        None,
        Some((
            "NotReady",
            "requests that a filter may match get 503: the configuration is refused (ConfigMap a/b, filter pools); see weir status on the node",
        )),
    ),
];

#[tokio::test]
async fn every_place_shows_the_same_health() {
    let samples = HealthReport::samples().await;
    assert_eq!(samples.len(), PLACES.len());
    for ((name, health), Shown { fault, health: word, notice, condition }) in samples.into_iter().zip(PLACES) {
        assert_eq!(name, fault);
        let is_well = word == "ready";
        assert_eq!(first_line(&health.to_json()), (format!("Health:   {word}"), is_well), "{fault}: weir status");

        let lines = health.to_lines();
        assert!(lines.starts_with(&format!("health: {word}\n")), "{fault}: {lines}");
        let named: Vec<_> = lines.lines().filter_map(|line| line.strip_prefix("[!] ")?.split(':').next()).collect();
        assert_eq!(named.first().copied(), notice, "{fault}: {lines}");

        let text = metrics(&health);
        for state in ["ready", "degraded", "offline", "not-ready"] {
            let line = format!("weir_node_health{{state=\"{state}\"}} {}\n", u8::from(state == word));
            assert!(text.contains(&line), "{fault}: {line} in {text}");
        }
        for notice in named {
            assert!(text.contains(&format!("weir_notices{{notice=\"{notice}\"}} 1\n")), "{fault}: {text}");
            let of_filter = format!("weir_filter_notices{{filter=\"pools\",notice=\"{notice}\"}} 1\n");
            assert_eq!(text.contains(&of_filter), notice.starts_with("filter-"), "{fault}: {text}");
        }

        let status = if is_well { "True" } else { "False" };
        let found = FilterCondition::of(&health);
        let found = found.as_ref().map(|found| (found.status.as_str(), found.reason.as_str(), found.message.as_str()));
        assert_eq!(found, condition.map(|(reason, message)| (status, reason, message)), "{fault}: the condition");
    }
}

/// Its message does not change with each filter that fails, too, and has no number that changes.
#[test]
fn the_message_of_the_condition_is_sorted_and_bounded() {
    fn message(filters: usize, name: &str) -> String {
        FilterCondition::of(&HealthReport::sample_of_failing(filters, name)).unwrap().message
    }
    assert_eq!(message(2, "f"), "filter-failing (f00, f01), disk; see weir status on the node");
    let bounded = "filter-failing (f00, f01, f02, f03, f04, f05, f06, f07, …), disk; see weir status on the node";
    assert_eq!((message(9, "f").as_str(), message(90, "f").as_str()), (bounded, bounded));
    // Long names leave room for the other faults and the hint.
    for length in [50, 150, 300] {
        let message = message(90, &"f".repeat(length));
        assert!(message.ends_with("…), disk; see weir status on the node") && message.len() <= 1024, "{message}");
    }
}

fn metrics(health: &HealthReport) -> String {
    let (mut registry, metrics, mut text) = (Registry::default(), AdminMetrics::default(), String::new());
    metrics.register(&mut registry);
    metrics.sample_health(&Notices::default(), health);
    encode(&mut text, &registry).unwrap();
    text
}
