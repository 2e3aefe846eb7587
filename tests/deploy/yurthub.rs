//! `deploy/from-yurthub.md` has a row for each filter and each flag of YurtHub, and names flags of Weir as they are.
//!
//! The lists are those of github.com/openyurtio/openyurt at commit fbefb6baca665cf4431cf37100a9cc0c0528fb4d, of 18 August 2026,
//! after the release 1.7.0.

use weir_tests::chart::text;

/// YurtHub's filters, of `cmd/yurthub/app/options/filters.go`.
const FILTERS: [&str; 7] = [
    "discardcloudservice",
    "forwardkubesvctraffic",
    "inclusterconfig",
    "masterservice",
    "nodeportisolation",
    "serviceenvupdater",
    "servicetopology",
];

/// Its flags, of `cmd/yurthub/app/options/options.go`.
const FLAGS: [&str; 41] = [
    "bind-address",
    "bind-proxy-address",
    "bootstrap-file",
    "bootstrap-mode",
    "disabled-resource-filters",
    "discovery-token-ca-cert-hash",
    "discovery-token-unsafe-skip-ca-verification",
    "disk-cache-path",
    "dummy-if-ip",
    "dummy-if-name",
    "enable-dummy-if",
    "enable-iptables",
    "enable-node-pool",
    "enable-pool-service-topology",
    "enable-resource-filter",
    "gc-frequency",
    "heartbeat-failed-retry",
    "heartbeat-healthy-threshold",
    "heartbeat-interval-seconds",
    "heartbeat-timeout-seconds",
    "host-control-plane-address",
    "hub-cert-organizations",
    "join-token",
    "kubelet-health-grace-period",
    "lb-mode",
    "max-requests-in-flight",
    "min-request-timeout",
    "multiplexer-port",
    "namespace",
    "node-ip",
    "node-name",
    "nodepool-name",
    "pool-scope-resources",
    "profiling",
    "proxy-port",
    "proxy-secure-port",
    "root-dir",
    "serve-port",
    "server-addr",
    "version",
    "working-mode",
];

/// The rows of the table of a section: their cells.
fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, section) = page.split_once(&format!("\n### {heading}\n")).unwrap();
    let section = section.split("\n#").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")).skip(1);
    rows.map(|row| row.split(" | ").map(str::to_owned).collect()).collect()
}

/// The names of flags in a cell.
fn flags(cell: &str) -> Vec<&str> {
    let flags = cell.split("`--").skip(1);
    flags.map(|rest| rest.split(['`', '=', ' ']).next().unwrap()).collect()
}

#[test]
fn each_filter_and_flag_of_yurthub_has_a_row() {
    let page = text("from-yurthub.md");
    let filters = rows(&page, "Filters");
    for filter in FILTERS {
        assert!(filters.iter().any(|row| row[0].contains(&format!("`{filter}`"))), "there is no row of {filter}");
    }
    let rows = rows(&page, "Flags");
    let mut named: Vec<_> = rows.iter().flat_map(|row| flags(&row[0])).collect();
    named.sort_unstable();
    named.dedup();
    assert_eq!(named, FLAGS);
    let known = text("flags.md");
    for flag in rows.iter().flat_map(|row| flags(&row[1])) {
        let is_known = ['`', ' '].iter().any(|end| known.contains(&format!("| `--{flag}{end}")));
        assert!(is_known, "Weir has no flag --{flag}");
    }
}
