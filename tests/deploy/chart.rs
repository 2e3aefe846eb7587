//! deploy/helm: what the chart renders equals the manifests of the kustomization, and its permissions are what the modules declare.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use weir::config::CachedResources;
use weir_tests::built;
use weir_tests::chart::{Helm, REQUIRED, is_hook, object, permissions, text};

/// A list of values replaces the chart's: a command that turns a filter off has to name those that are off by default, too.
#[test]
fn commands_of_the_pages_leave_off_what_is_off_by_default() {
    let values: Value = serde_saphyr::from_str(&text("helm/weir/values.yaml")).unwrap();
    let by_default = values["disabledFilters"].as_array().unwrap();
    let mut found = 0;
    for page in ["README.md", "filters.md", "first-day.md", "from-yurthub.md", "troubleshooting.md", "upgrade.md"] {
        let page_text = text(page);
        for rest in page_text.split("disabledFilters=").skip(1) {
            let list: Value = serde_json::from_str(rest.split('\'').next().unwrap()).unwrap();
            for name in by_default {
                assert!(list.as_array().unwrap().contains(name), "{page}: {list} turns {name} on");
            }
            found += 1;
        }
    }
    assert!(found > 0, "the first day turns a filter off");
}

/// The newest row of the table is of all checks.
#[test]
fn the_table_of_kubernetes_versions_counts_the_checks_of_a_node() {
    let checks = std::fs::read_to_string(built::workspace().join("tests/node/checks.rs")).unwrap();
    let count = checks.matches("runner.check(").count();
    let expected = format!("| {count} of {count} |");
    assert!(text("README.md").contains(&expected), "deploy/README.md has no row with {expected}");
}

#[test]
fn lint_finds_nothing() {
    let Some(helm) = Helm::new() else { return };
    for install in ["daemonset", "static-pod", "systemd"] {
        let install = format!("install={install}");
        let lint = ["lint", "--strict", "--namespace", "kube-system", "--set", &install];
        let found = helm.prints(&[&lint[..], &REQUIRED, &[helm.chart().to_str().unwrap()]].concat());
        assert!(!found.contains("[INFO]"), "also nothing that is only recommended: {found}");
    }
}

/// The YAML files of a folder and of those in it.
fn yaml_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            yaml_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
}

/// Who approves an installation reads that page. Templates are read as text, so that none is left out whose values no test sets.
#[test]
fn every_role_that_is_shipped_is_named_before_the_signature() {
    let mut files = Vec::new();
    yaml_files(&built::workspace().join("deploy"), &mut files);
    let mut names = BTreeSet::new();
    for file in files {
        let file = std::fs::read_to_string(file).unwrap();
        for kind in ["\nkind: Role\n", "\nkind: ClusterRole\n"] {
            let names_of_kind = file.split(kind).skip(1).map(|rest| {
                let line = rest.lines().find_map(|line| line.strip_prefix("  name: ")).unwrap();
                line.replace("{{ $name }}", "weir")
            });
            names.extend(names_of_kind);
        }
    }
    assert!(names.len() >= 18 && names.contains("weir-cluster-identity"), "{names:?}");
    let page = text("before-you-sign.md");
    // Such as `weir-ingress-…`.
    let families: Vec<_> = page.split('`').skip(1).step_by(2).filter_map(|code| code.strip_suffix("-…")).collect();
    let is_named = |name: &String| {
        page.contains(&format!("`{name}`")) || families.iter().any(|family| name.starts_with(&format!("{family}-")))
    };
    let unnamed: Vec<_> = names.iter().filter(|name| !is_named(name)).collect();
    assert!(unnamed.is_empty(), "before-you-sign.md does not name {unnamed:?}");
}

/// An object without what only one of the two ways to install has: labels of Helm, the checksum that restarts pods, and the
/// way in which rules and the filters are written.
fn normalized(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
        labels.retain(|label, _| label == "app.kubernetes.io/name" || label.starts_with("pod-security."));
    }
    if object["kind"] == "CustomResourceDefinition" {
        // `weir-operator crd` prints it without labels.
        object["metadata"].as_object_mut().unwrap().remove("labels");
    }
    if object["rules"].is_array() {
        object["rules"] = json!(permissions(&object));
    }
    if let Some(filters) = object["data"]["filters.yaml"].as_str() {
        object["data"]["filters.yaml"] = serde_saphyr::from_str(filters).unwrap();
    }
    if let Some(template) = object["spec"]["template"]["metadata"].as_object_mut() {
        template.remove("annotations");
        template["labels"].as_object_mut().unwrap().retain(|label, _| label == "app.kubernetes.io/name");
    }
    if object["metadata"]["annotations"] == json!({"helm.sh/resource-policy": "keep"}) {
        object["metadata"].as_object_mut().unwrap().remove("annotations");
    }
    object
}

/// The objects of a folder's kustomization.
fn committed(folder: &str) -> Vec<Value> {
    let kustomization: Value = serde_saphyr::from_str(&text(&format!("{folder}kustomization.yaml"))).unwrap();
    let files = kustomization["resources"].as_array().unwrap().iter();
    let objects =
        files.flat_map(|file| weir_store::read_objects(&text(&format!("{folder}{}", file.as_str().unwrap()))).unwrap());
    objects.collect()
}

fn assert_equal(rendered: &[Value], committed: &[Value]) {
    let (rendered, committed) = (by_name(rendered), by_name(committed));
    assert_eq!(
        rendered.iter().map(|object| &object.0).collect::<Vec<_>>(),
        committed.iter().map(|object| &object.0).collect::<Vec<_>>()
    );
    for (rendered, committed) in rendered.iter().zip(&committed) {
        assert_eq!(rendered, committed);
    }
}

fn by_name(objects: &[Value]) -> Vec<(String, Value)> {
    let name = |object: &Value| {
        let metadata = &object["metadata"];
        format!("{} {}/{}", object["kind"], metadata["namespace"], metadata["name"])
    };
    let mut named: Vec<_> = objects.iter().map(|object| (name(object), normalized(object))).collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    named
}

#[test]
fn the_chart_renders_what_the_kustomization_has() {
    let Some(helm) = Helm::new() else { return };
    let installed: Vec<_> = helm.objects(&[]).into_iter().filter(|object| !is_hook(object)).collect();
    assert_equal(&installed, &committed(""));
    let users = helm.objects(&["impersonation.users=[\"system:node:edge-a\"]"]);
    let committed = weir_store::read_objects(&text("impersonation.yaml")).unwrap();
    let role = object(&users, "ClusterRole", "weir-impersonation").unwrap();
    assert_eq!(normalized(role), normalized(&committed[0]));
}

#[test]
fn the_operator_of_the_chart_is_that_of_its_kustomization() {
    for file in ["crd.yaml", "roles.yaml"] {
        let copy = text(&format!("helm/weir/files/operator/{file}"));
        assert!(copy == text(&format!("operator/{file}")), "run `make crd`: the chart has another {file}");
    }
    let Some(helm) = Helm::new() else { return };
    let mut objects = helm.objects(&["operator.enabled=true"]);
    let without = helm.objects(&[]);
    objects.retain(|object| !without.contains(object) && !is_hook(object));
    assert_equal(&objects, &committed("operator/"));
    let kept = objects.iter().filter(|object| object["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep");
    let kept: Vec<_> = kept.map(|object| object["metadata"]["name"].as_str().unwrap()).collect();
    let roles = weir_store::read_objects(&text("operator/roles.yaml")).unwrap();
    let roles: BTreeSet<_> = roles.iter().map(|role| role["metadata"]["name"].as_str().unwrap()).collect();
    let others = ["weir-operator", "ingress-nginx", "yurtingresses.apps.openyurt.io"];
    assert_eq!(kept[..3], others, "YurtIngresses and their objects stay");
    assert_eq!(kept[3..].iter().copied().collect::<BTreeSet<_>>(), roles, "with the rights of what runs");
    assert_eq!(kept.len(), 3 + roles.len(), "an uninstalled release leaves nothing else");
}

/// A template that is not used costs no permission.
#[test]
fn without_ingress_nginx_the_operator_may_write_no_webhook() {
    let Some(helm) = Helm::new() else { return };
    for (templates, bound) in [("[\"traefik\"]", &["weir-ingress-traefik"][..]), ("[]", &[])] {
        let objects = helm.objects(&["operator.enabled=true", &format!("operator.templates={templates}")]);
        let all: Vec<_> = objects.iter().flat_map(permissions).collect();
        let with = |verb: &str| all.iter().filter(|permission| permission.starts_with(verb)).collect::<Vec<_>>();
        assert!(!with("create validatingwebhook").iter().any(|_| true), "{all:?}");
        let expected = bound.iter().map(|role| format!("bind clusterroles.rbac.authorization.k8s.io/{role}"));
        assert_eq!(with("bind "), expected.collect::<Vec<_>>().iter().collect::<Vec<_>>());
    }
}

/// What a module declares to look up with these settings, as `weir inspect` prints it.
fn declared(module: &str, settings: &Value) -> BTreeSet<String> {
    let output = Command::new(built::weir())
        .arg("inspect")
        .arg(built::modules().join(module))
        .args(["--settings", &settings.to_string()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{module}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, rest) = text.split_once("\nlookups ").unwrap();
    let (lookups, _) = rest.split_once("\nimports ").unwrap();
    let resources = lookups.lines().map(|line| line.trim().split(',').next().unwrap().to_owned());
    resources.filter(|resource| resource != "none").collect()
}

/// The resources of the role for lookups.
fn granted(objects: &[Value]) -> BTreeSet<String> {
    let permissions = permissions(object(objects, "ClusterRole", "weir-lookups").unwrap());
    let listed = permissions.iter().filter_map(|permission| permission.strip_prefix("list "));
    listed.map(|resource| resource.trim_end_matches("/*").trim_end_matches('.').to_owned()).collect()
}

#[test]
fn the_service_account_may_read_exactly_what_the_enabled_filters_look_up() {
    let Some(helm) = Helm::new() else { return };
    let values: Value = serde_saphyr::from_str(&text("helm/weir/values.yaml")).unwrap();
    let known: Value = serde_saphyr::from_str(&text("helm/weir/files/lookups.yaml")).unwrap();
    let names = |modules: &mut dyn Iterator<Item = String>| modules.collect::<BTreeSet<_>>();
    let built = std::fs::read_dir(built::modules()).unwrap();
    let mut built = built.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned());
    assert_eq!(names(&mut known.as_object().unwrap().keys().cloned()), names(&mut built));
    for filter in values["filters"].as_array().unwrap() {
        let module = filter["module"].as_str().unwrap();
        let sources = known[module]["settings"]["poolSource"].as_object();
        for source in sources.map_or(vec!["default"], |_| vec!["default", "nodepools", "nodebuckets", "nodelabels"]) {
            let mut settings = filter.get("settings").and_then(Value::as_object).cloned().unwrap_or_default();
            settings.remove("poolSource");
            if source != "default" {
                settings.insert("poolSource".to_owned(), json!(source));
            }
            let settings = Value::Object(settings);
            let mut filter = filter.clone();
            filter["settings"] = settings.clone();
            let objects = helm.objects(&[&format!("filters=[{filter}]"), "disabledFilters=[]"]);
            assert_eq!(granted(&objects), declared(module, &settings), "{module} {settings}");
        }
    }
    let other = json!([{"name": "a", "module": "configmap://mine", "digest": format!("sha256:{:064}", 0),
        "lookups": ["widgets.example.com"]}]);
    let objects = helm.objects(&[&format!("filters={other}"), "lookups=[\"secrets.example.com\"]"]);
    assert_eq!(granted(&objects), ["secrets.example.com".to_owned(), "widgets.example.com".to_owned()].into());
    let role = permissions(object(&objects, "Role", "weir-filters").unwrap());
    assert!(role.contains(&"get configmaps./mine".to_owned()), "{role:?}");
    let map = object(&objects, "ConfigMap", "weir-filters").unwrap()["data"]["filters.yaml"].as_str().unwrap();
    assert!(map.contains("configmap://mine") && !map.contains("widgets"), "lookups are for the chart alone: {map}");
    assert!(granted(&helm.objects(&["filters=[]"])).is_empty());
}

#[test]
fn the_chart_knows_what_is_cached_by_default() {
    let known: Value = serde_saphyr::from_str(&text("helm/weir/files/cached.yaml")).unwrap();
    let known: Vec<_> = known["resources"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let cached: Vec<_> = CachedResources::default().named().iter().map(ToString::to_string).collect();
    assert_eq!(known, cached);
    let Some(helm) = Helm::new() else { return };
    let objects = helm.objects(&["cache.resources=[\"pods\",\"services\"]"]);
    let role = permissions(object(&objects, "ClusterRole", "weir-cache").unwrap());
    assert_eq!(role, ["get apiservices.apiregistration.k8s.io/*", "list services./*", "watch services./*"]);
    let arguments =
        object(&objects, "DaemonSet", "weir").unwrap()["spec"]["template"]["spec"]["containers"][0]["args"].clone();
    assert!(arguments.as_array().unwrap().contains(&json!("--cache-resources=pods,services")), "{arguments}");
}

/// The keys of a filter in the generated table of deploy/filters.md, with `lookups`, which is the chart's own.
#[test]
fn the_schema_knows_the_keys_of_a_filter() {
    let document = text("filters.md");
    let (_, table) = document.split_once("<!-- BEGIN GENERATED: configuration keys -->").unwrap();
    let (table, _) = table.split_once("<!-- END").unwrap();
    let keys = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let mut keys: BTreeSet<_> = keys.filter(|key| !key.contains('.')).collect();
    keys.insert("lookups");
    let schema: Value = serde_json::from_str(&text("helm/weir/values.schema.json")).unwrap();
    let known = schema["properties"]["filters"]["items"]["properties"].as_object().unwrap();
    assert_eq!(known.keys().map(String::as_str).collect::<BTreeSet<_>>(), keys);
}

#[test]
fn chart_and_manifests_name_the_version_of_the_daemon() {
    let version = env!("CARGO_PKG_VERSION");
    let chart: Value = serde_saphyr::from_str(&text("helm/weir/Chart.yaml")).unwrap();
    assert_eq!(chart["appVersion"], version);
    for (file, image) in
        [("daemonset.yaml", "weir"), ("static-pod.yaml", "weir"), ("operator/deployment.yaml", "weir-operator")]
    {
        assert!(text(file).contains(&format!("image: {image}:{version}\n")), "{file}");
    }
}
