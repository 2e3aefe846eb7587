//! The rules of the configuration, each with the error message of its violation.

use weir_document::Path;
use weir_kube::{GroupResource, VerbClass};
use weir_spec::{FailurePolicy, Limits};

use super::*;
use crate::config::keys::{FILTER_KEYS, NESTED_KEYS};
use weir_spec::Digest;

/// A manifest around `filters.yaml`.
fn listed(filters: &str) -> Result<Configuration, ConfigurationError> {
    manifest(&format!("data:\n  filters.yaml: |\n{}", indent(filters, 4)))
}

fn manifest(rest: &str) -> Result<Configuration, ConfigurationError> {
    Configuration::from_manifest("weir.yaml", &format!("apiVersion: v1\nkind: ConfigMap\n{rest}"))
}

fn indent(text: &str, by: usize) -> String {
    text.lines().map(|line| format!("{}{line}\n", " ".repeat(by))).collect()
}

/// The errors as `key: reason`.
fn errors(result: Result<Configuration, ConfigurationError>) -> Vec<String> {
    let error = result.expect_err("must be refused");
    assert_eq!(error.source_name(), "weir.yaml");
    error.errors().iter().map(ToString::to_string).collect()
}

fn only_error(result: Result<Configuration, ConfigurationError>) -> String {
    let mut found = errors(result);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn names(configuration: &Configuration) -> Vec<&str> {
    configuration.filters.iter().map(|filter| filter.name.as_str()).collect()
}

const FULL: &str = r#"
filters:
  - name: servicetopology
    module: topology.wasm
    digest: sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
    match: ["kube-proxy/endpointslices#get;list;watch", "coredns/endpointslices"]
    settings: {poolSource: nodepools, nested: {n: 1, list: [true, null]}}
    failurePolicy: Ignore
    grants: [services, nodepools.apps.openyurt.io]
    limits: {memory: 32Mi, time: 5ms}
    edits: [spec.volumes]
  - name: masterservice
"#;

#[test]
fn a_full_entry_is_read_key_by_key() {
    let configuration = listed(FULL).unwrap();
    assert_eq!(names(&configuration), ["servicetopology", "masterservice"]);
    let filter = &configuration.filters[0];
    assert_eq!(filter.module.to_string(), "topology.wasm");
    assert_eq!(filter.digest, Some(Digest::of(b"")));
    assert_eq!(filter.matches.as_ref().unwrap().len(), 2);
    assert_eq!(filter.settings_json(), r#"{"poolSource":"nodepools","nested":{"n":1,"list":[true,null]}}"#);
    assert_eq!(filter.failure_policy, FailurePolicy::Ignore);
    assert_eq!(
        filter.granted(),
        [GroupResource::new("services", ""), GroupResource::new("nodepools", "apps.openyurt.io")]
    );
    assert_eq!(filter.limits.memory.bytes(), 32 << 20);
    assert_eq!(filter.limits.time.duration(), std::time::Duration::from_millis(5));
    assert_eq!(filter.edits, [Path::parse("spec.volumes").unwrap()]);
    assert_eq!(configuration.warnings, Vec::<String>::new());
}

#[test]
fn an_entry_with_only_a_name_has_the_defaults() {
    let configuration = listed(FULL).unwrap();
    let filter = &configuration.filters[1];
    assert_eq!(filter.module.to_string(), "masterservice.wasm");
    assert_eq!((filter.digest, &filter.matches, &filter.grants), (None, &None, &None));
    assert_eq!(filter.settings_json(), "{}");
    assert_eq!(filter.failure_policy, FailurePolicy::Fail);
    assert_eq!(filter.limits, Limits::default());
    assert!(!filter.granted().iter().any(|grant| grant.resource == "secrets"));
}

#[test]
fn the_flat_form_alone_gives_filters_with_defaults() {
    let configuration =
        manifest("data:\n  filter_endpoints: nginx-ingress-controller/endpoints#list;watch, test/endpoints#list;watch,\n  filter_masterservice: \"\"\n")
            .unwrap();
    assert_eq!(names(&configuration), ["endpoints"], "an empty value is off");
    let filter = &configuration.filters[0];
    assert_eq!(filter.module.to_string(), "endpoints.wasm");
    let rules = filter.matches.as_ref().unwrap();
    assert_eq!(rules.len(), 2);
    assert!(rules[1].matches("test", &GroupResource::new("endpoints", ""), VerbClass::Read));
}

#[test]
fn a_flat_key_replaces_a_listed_filters_rules_and_keeps_the_rest() {
    let text = format!(
        "data:\n  filters.yaml: |\n{}\n  filter_servicetopology: coredns/endpointslices\n  filter_masterservice: ' '\n  filter_a: '*/services'\n",
        indent(FULL, 4)
    );
    let configuration = manifest(&text).unwrap();
    assert_eq!(names(&configuration), ["servicetopology", "a"], "order of the list, flat ones after; empty is off");
    let filter = &configuration.filters[0];
    assert_eq!(filter.module.to_string(), "topology.wasm");
    assert_eq!(filter.matches.as_ref().unwrap()[0].to_string(), "coredns/endpointslices");
    assert_eq!(filter.failure_policy, FailurePolicy::Ignore);
}

#[test]
fn json_manifests_and_api_objects_give_the_same_configuration() {
    let json = "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"ConfigMap\",\n\t\"metadata\": {\"name\": \"weir-filters\"},\n\t\"data\": {\"filters.yaml\": \"filters: [{name: a, match: ['*/services']}]\"},\n\t\"binaryData\": {\"a.wasm\": \"AGFzbQ==\"}\n}";
    let from_text = Configuration::from_manifest("weir.yaml", json).unwrap();
    let object: ConfigMap = serde_json::from_str(json).unwrap();
    assert_eq!(Configuration::from_config_map("ConfigMap kube-system/weir-filters", &object).unwrap(), from_text);
    assert_eq!(from_text.binary_data["a.wasm"], &b"\0asm"[..]);
}

#[test]
fn an_empty_list_is_a_set_of_filters_and_no_list_is_none() {
    for rest in
        ["data: {filters.yaml: 'filters: []'}", "data: {filter_a: ''}", "data: {filter_a: '', filters.yaml: ''}"]
    {
        assert_eq!(manifest(rest).unwrap(), Configuration::default(), "{rest}");
    }
    let absent = [
        "",
        "data: null",
        "data: {}",
        "data: {filters.yaml: ''}",
        "data: {filters.yaml: '# none'}",
        "data: {filters.yaml: '{}'}",
        "data: {filters.yaml: 'filters:'}",
    ];
    for rest in absent {
        let found = manifest(rest).unwrap();
        assert!(found.filters.is_empty() && found.absent.is_some(), "{rest}");
        assert!(found.warnings[0].ends_with("`filters: []` turns filters off"), "{rest}: {:?}", found.warnings);
    }
}

#[test]
fn all_errors_are_reported_at_once_with_key_and_reason() {
    let found = errors(listed(
        r#"
filters:
  - name: a
    module: ../a.wasm
    digest: sha512:00
    match: [kube-proxy/services#lst, kube-proxy/foos, 7]
    settings: [1]
    failurePolicy: fail
    writes: "no"
    grants: [secrets, Bad, services]
    limits: {memory: lots, time: 1h, cpu: 1}
    edits: ["spec..volumes"]
    matches: []
  - name: a
  - {name: a}
  - name: B
  - module: c.wasm
  - just text
  - name: 7
"#,
    ));
    let wanted = [
        r#"filters.yaml: filters[0].module: "../a.wasm" is not a module file name"#,
        r#"filters.yaml: filters[0].digest: "sha512:00" is not a digest"#,
        r#"filters.yaml: filters[0].match[0]: rule "kube-proxy/services#lst": unknown verb "lst""#,
        r#"filters.yaml: filters[0].match[1]: rule "kube-proxy/foos": "foos" is not a built-in resource"#,
        "filters.yaml: filters[0].match[2]: must be a string, is a number",
        "filters.yaml: filters[0].settings: must be a mapping, is a list",
        r#"filters.yaml: filters[0].failurePolicy: "fail" is not a failure policy: Fail, Ignore or Hide"#,
        r#"filters.yaml: filters[0].writes: "no" is not a policy for writes: refuse or pass"#,
        r#"filters.yaml: filters[0].grants[1]: "Bad" is not a resource name"#,
        "filters.yaml: filters[0].grants[0]: secrets are never granted to a filter",
        r#"filters.yaml: filters[0].limits.memory: "lots" is not an amount of memory"#,
        "filters.yaml: filters[0].limits.time: 1h is outside 1ms to 10s",
        "filters.yaml: filters[0].limits.cpu: unknown key; valid keys are memory, time",
        r#"filters.yaml: filters[0].edits[0]: "spec..volumes" is not a path: "#,
        "filters.yaml: filters[0].matches: unknown key; valid keys are name, module,",
        r#"filters.yaml: filters[1].name: "a" is used twice: names are unique"#,
        r#"filters.yaml: filters[2].name: "a" is used twice: names are unique"#,
        r#"filters.yaml: filters[3].name: "B" is not a filter name"#,
        "filters.yaml: filters[4].name: missing: every filter has a name",
        "filters.yaml: filters[5]: must be a mapping with at least `name`, is a string",
        "filters.yaml: filters[6].name: must be a string, is a number",
    ];
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
    for (found, wanted) in found.iter().zip(wanted) {
        assert!(found.starts_with(wanted), "{found:?} should start with {wanted:?}");
    }
}

#[test]
fn unknown_keys_of_every_level_are_named() {
    assert_eq!(
        only_error(manifest("data: {filterz.yaml: ''}")),
        "filterz.yaml: unknown key; valid keys are filters.yaml and filter_<name>"
    );
    assert!(only_error(manifest("dta: {}")).starts_with("dta: unknown key; a ConfigMap has"));
    assert_eq!(only_error(listed("filter: []")), "filters.yaml: filter: unknown key; the only valid key is `filters`");
}

/// The table lists no key that the parser ignores. The parser accepts no key that the table does not list.
#[test]
fn the_parser_reads_every_key_of_the_table() {
    for key in FILTER_KEYS {
        let error =
            only_error(listed(&format!("filters: [{{name: a, {}: 7}}]", key.name).replace("name: a, name", "name")));
        assert!(error.contains(&format!(".{}: must be", key.name)), "{error}");
    }
    for (outer, key) in NESTED_KEYS.iter().flat_map(|(outer, keys)| keys.iter().map(move |key| (outer, key))) {
        let text = format!("filters: [{{name: a, {outer}: {{{}: true}}}}]", key.name);
        let errors = errors(listed(&text));
        let wanted = format!(".{outer}.{}: must be", key.name);
        assert!(errors.iter().any(|error| error.contains(&wanted)), "{errors:?}");
    }
}

#[test]
fn hide_on_what_kubelet_needs_must_be_allowed_in_both_forms() {
    let filters =
        |rule: &str, more: &str| format!("filters: [{{name: a, match: ['{rule}'], failurePolicy: Hide{more}}}]");
    let refused = only_error(listed(&filters("kubelet/pods", "")));
    assert!(
        refused.starts_with(
            r#"filter a: failurePolicy: `Hide` could take pods from kubelet by the rule "kubelet/pods": "#
        ),
        "{refused}"
    );
    assert!(refused.ends_with("or set `allowHide: true`"), "{refused}");
    only_error(listed(&filters("*/nodes", ", allowHide: false")));
    listed(&filters("*/services", "")).unwrap();
    listed(&filters("*/*", ", allowHide: true")).unwrap();
    let flat = |rule: &str, more: &str| {
        manifest(&format!("data:\n  filters.yaml: |\n    {}\n  filter_a: {rule}\n", filters("*/services", more)))
    };
    assert!(only_error(flat("'*/*'", "")).contains(r#"by the rule "*/*": "#));
    flat("kubelet/services", "").unwrap();
    flat("kubelet/pods", ", allowHide: true").unwrap();
}

#[test]
fn a_roll_out_is_validated_with_all_reasons() {
    let with = |more: &str| errors(listed(&format!("filters: [{{name: a, {more}}}]")));
    for (text, reason) in [
        ("mode: dry-run", r#"filters[0].mode: "dry-run" is not a mode: enforce or observe"#),
        ("nodes: {labelSelector: 'a in ('}", r#"filters[0].nodes.labelSelector: "a in (": label selector, byte"#),
        ("nodes: {pool: [x]}", "filters[0].nodes.pool: unknown key; valid keys are labelSelector, pools"),
        ("rollback: {}", "filters[0].rollback: has neither `failed` nor `hidden`: give a bound"),
        ("rollback: {failed: 5}", "filters[0].rollback.failed: must be a string, is a number"),
        ("rollback: {failed: '101%'}", r#"filters[0].rollback.failed: "101%" is not a percentage"#),
        ("rollback: {hidden: 5%, within: 25h}", r#"filters[0].rollback.within: "25h" is not a duration up to 24h"#),
        ("rollback: {hidden: 5%, within: 0}", "filters[0].rollback.within: must be a string"),
    ] {
        let errors = with(text);
        assert!(errors.iter().any(|error| error.contains(reason)), "{text}: {errors:?}");
    }
    let text = "filters: [{name: a, mode: observe, nodes: {labelSelector: 'a,!b', pools: [x, z]}, rollback: {failed: 0.5%, hidden: 20%, within: 1h30m}}]";
    let configuration = listed(text).unwrap();
    let [filter] = configuration.filters.as_slice() else { panic!("{configuration:?}") };
    assert_eq!(filter.mode.as_str(), "observe");
    assert_eq!(filter.nodes.as_ref().and_then(|nodes| nodes.pools.clone()), Some(vec!["x".to_owned(), "z".to_owned()]));
    assert_eq!(filter.rollback.map(|rollback| rollback.within.as_secs()), Some(5400));
}

#[test]
fn a_manifest_that_is_not_a_config_map_is_refused() {
    let of = |text: &str| errors(Configuration::from_manifest("weir.yaml", text));
    assert!(of("a: [")[0].starts_with("not YAML: "), "{:?}", of("a: ["));
    assert_eq!(of("[]"), ["not a ConfigMap manifest: expected a mapping with apiVersion, kind and data"]);
    assert_eq!(of("a\n")[0], "not a ConfigMap manifest: expected a mapping with apiVersion, kind and data");
    assert_eq!(of("{apiVersion: v1, kind: Secret}"), [r#"kind: must be ConfigMap, is "Secret""#]);
    assert_eq!(of("{}"), ["apiVersion: missing: must be v1", "kind: missing: must be ConfigMap"]);
    assert!(of(&format!("a: {}", "x".repeat(5 << 20)))[0].contains("too many for a ConfigMap"));
    assert!(
        of("apiVersion: v1\nkind: ConfigMap\nkind: ConfigMap\n")[0].contains("\"kind\" is there twice"),
        "a key twice is an error"
    );
}

#[test]
fn mistyped_data_is_refused_by_key() {
    assert_eq!(only_error(manifest("data: []")), "data: must be a mapping of strings, is a list");
    assert_eq!(only_error(manifest("data: {filter_a: 1}")), "data.filter_a: must be a string, is a number");
    assert!(only_error(manifest("binaryData: {a.wasm: '*'}")).starts_with("binaryData.a.wasm: not base64: "));
    assert!(
        only_error(manifest("binaryData: {readme: 'AA=='}"))
            .starts_with(r#"binaryData.readme: "readme" is not a module"#)
    );
    assert!(only_error(listed("filters: {a: 1}")).starts_with("filters.yaml: filters: must be a list, is a mapping"));
    assert!(only_error(listed("- name: a")).starts_with("filters.yaml: must be a mapping with the key `filters`"));
    assert!(only_error(listed("a: [")).starts_with("filters.yaml: not YAML: "));
    assert!(
        only_error(listed("filters: [{name: a, match: x}]")).ends_with("match: must be a list of strings, is a string")
    );
    assert!(only_error(listed("filters: [{name: a, limits: x}]")).ends_with("limits: must be a mapping, is a string"));
}

#[test]
fn bad_flat_keys_are_refused_by_key() {
    assert!(only_error(manifest("data: {filter_A: 'a/pods'}")).starts_with(r#"filter_A: "A" is not a filter name"#));
    assert!(only_error(manifest("data: {filter_a: 'pods'}")).starts_with(r#"filter_a: rule "pods": write it as"#));
}

#[test]
fn a_rule_without_a_read_verb_is_a_warning_with_the_filter_and_the_rule() {
    let configuration = manifest(
        "data:\n  filters.yaml: 'filters: [{name: a, match: [kubelet/pods#update]}]'\n  filter_b: 'kubelet/nodes#patch;delete'",
    )
    .unwrap();
    assert_eq!(configuration.warnings.len(), 2, "{:?}", configuration.warnings);
    for (warning, named) in configuration
        .warnings
        .iter()
        .zip(["filter a: rule \"kubelet/pods#update\"", "filter b: rule \"kubelet/nodes#patch;delete\""])
    {
        assert!(warning.starts_with(named) && warning.ends_with("the rule matches nothing"), "{warning}");
    }
}

#[test]
fn the_number_of_filters_keys_and_items_is_bounded() {
    let flat: String = (0..40_000).map(|i| format!("  filter_f{i}: a/pods\n")).collect();
    let manifest = format!("apiVersion: v1\nkind: ConfigMap\ndata:\n{flat}");
    let refused = errors(Configuration::from_manifest("weir.yaml", &manifest));
    assert_eq!(refused, ["data: 40000 keys are too many: at most 201"]);
    let many: String = (0..101).map(|i| format!("{{name: f{i}}},")).collect();
    assert!(only_error(listed(&format!("filters: [{many}]"))).contains("101 filters are too many: at most 100"));
    let rules: String = (0..201).map(|_| "a/pods,").collect();
    assert!(
        only_error(listed(&format!("filters: [{{name: a, match: [{rules}]}}]"))).contains("201 items are too many")
    );
    let broken: String = (0..99).map(|i| format!("{{name: F{i}}},")).collect();
    let found = errors(listed(&format!("filters: [{broken}]")));
    assert_eq!(found.last().unwrap(), "…: and 49 more errors");
}

#[test]
fn a_misspelt_filter_to_turn_off_is_a_warning_with_the_names_of_the_list() {
    let with =
        |list: &str, key: &str| manifest(&format!("data:\n  filters.yaml: '{list}'\n  {key}: ''")).unwrap().warnings;
    let list = "filters: [{name: servicetopology}, {name: b}]";
    let expected = "filter_servicetoplogy turns off no filter: the list has servicetopology, b";
    assert_eq!(with(list, "filter_servicetoplogy"), [expected]);
    assert!(with("filters: []", "filter_a").is_empty(), "there is none to turn off");
    assert!(with(list, "filter_servicetopology").is_empty());
}

#[test]
fn valid_but_surprising_values_are_warnings() {
    let configuration = manifest(
        "data:\n  filters.yaml: 'filters: [{name: a, match: []}, {name: b, match: [x/pods#list]}]'\nbinaryData: {c.wasm: 'AA=='}",
    )
    .unwrap();
    assert_eq!(configuration.warnings.len(), 3, "{:?}", configuration.warnings);
    assert_eq!(configuration.warnings[0], "filter a: `match` is an empty list, so the filter matches no request");
    assert!(configuration.warnings[1].starts_with("filter b: rule \"x/pods#list\" names only some"));
    assert_eq!(configuration.warnings[2], "binaryData.c.wasm: no filter uses this module");
}

#[test]
fn a_message_names_the_source_and_all_errors_in_one_line() {
    let error = manifest("data: {x: '', y: ''}").unwrap_err().to_string();
    assert!(error.starts_with("weir.yaml: x: unknown key"), "{error}");
    assert!(error.contains("; y: unknown key"), "{error}");
    assert_eq!(error.lines().count(), 1);
}
