//! deploy/helm: what the chart renders equals the manifests of the kustomization, its permissions are what the modules
//! declare, and it refuses values that contradict each other.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};
use weir::config::CachedResources;
use weir_tests::built;
use weir_tests::chart::combinations::{self, CERTIFICATE, OPERATOR, PEERS, UNQUOTED};
use weir_tests::chart::{Helm, REQUIRED, is_hook, object, permissions, text};

/// A value at `a.b`, and what is refused about it.
const CONTRADICTIONS: &[(&[&str], &str, &str)] = &[
    (&["servers=[]"], "/servers", "install is daemonset"),
    (
        &["install=\"static-pod\"", "image.pullSecrets=[{\"name\":\"a\"}]"],
        "/image/pullSecrets",
        "install is not daemonset",
    ),
    (
        &["install=\"static-pod\"", "servingCertificate.secretName=\"a\""],
        "/servingCertificate/secretName",
        "install is not daemonset",
    ),
    (&["install=\"systemd\"", "nodeSelector.edge=\"yes\""], "/nodeSelector", "install is not daemonset"),
    (&["install=\"systemd\"", "affinity.nodeAffinity={}"], "/affinity", "install is not daemonset"),
    (
        &["install=\"systemd\"", "monitoring.serviceMonitor.enabled=true", "admin.address=\"::\""],
        "/monitoring/serviceMonitor/enabled",
        "install is systemd",
    ),
    (&["monitoring.serviceMonitor.enabled=true"], "/admin/address", "monitoring.serviceMonitor.enabled is true"),
    (&["monitoring.podMonitor.enabled=true"], "/admin/address", "monitoring.podMonitor.enabled is true"),
    (
        &["monitoring.podMonitor.enabled=true", "monitoring.serviceMonitor.enabled=true", "admin.address=\"::\""],
        "/monitoring/podMonitor/enabled",
        "each pod would be read twice",
    ),
    (&["operator.networkPolicy=true"], "/operator/networkPolicy", "want object"),
    (&["podAddress=\"\""], "/clientCA/enabled", "podAddress is empty"),
    (
        &["podAddress=\"\"", "clientCA.enabled=false", "servingCertificate.secretName=\"a\""],
        "/servingCertificate/secretName",
        "podAddress is empty",
    ),
    (
        &["clientCA.enabled=false", "impersonation.users=[\"system:node:a\"]"],
        "/impersonation/users",
        "clientCA.enabled is false",
    ),
    (&["filters=[{\"name\":\"a\",\"module\":\"configmap://a\"}]"], "/filters/0", "'digest'"),
    (&["filters=[{\"name\":\"a\",\"modul\":\"a.wasm\"}]"], "/filters/0", "'modul'"),
    (&["operator.enable=true"], "/operator", "'enable'"),
    (&["operator.podAPIServer=\"169.254.20.10\""], "/operator/podAPIServer", "does not match pattern"),
    (&["image.repository=\"\""], "/image/repository", "registry.example/weir"),
    (
        &["operator.enabled=true", "operator.image.repository=\"\""],
        "/operator/image/repository",
        "operator.enabled is true",
    ),
    (&["admin.address=\"localhost\""], "/admin/address", "does not match pattern"),
    (&["podAddress=\"169.254.20\""], "/podAddress", "does not match pattern"),
    (&["resources.limits.memory=\"many\""], "/resources/limits/memory", "does not match pattern"),
    (&["extraArgs=[\"--a\\n--b\"]"], "/extraArgs/0", "does not match pattern"),
    (
        &["install=\"static-pod\"", "signaturePolicy.configMap=\"a\""],
        "/signaturePolicy/configMap",
        "install is not daemonset",
    ),
    (
        &["signaturePolicy.configMap=\"a\"", "signaturePolicy.policies=[{\"prefix\":\"oci://\",\"allow\":true}]"],
        "/signaturePolicy/policies",
        "signaturePolicy.configMap has the policy",
    ),
    (&["install=\"systemd\"", "nodeCredential=true"], "/nodeCredential", "install is systemd"),
    (&["install=\"systemd\"", PEERS], "/peers/pools", "install is systemd"),
    (&["clientCA.enabled=false", PEERS], "/peers/pools", "clientCA.enabled is false"),
    (&["peers.pools=[{\"a\":\"https://10.0.0.1\"}]"], "/peers/pools/0", "minProperties"),
    (&["install=\"systemd\"", "extraEnv=[{\"name\":\"A\"}]"], "/extraEnv", "install is systemd"),
    (&["install=\"systemd\"", "extraVolumes=[{\"name\":\"a\"}]"], "/extraVolumes", "install is systemd"),
    (
        &["install=\"systemd\"", "extraVolumeMounts=[{\"name\":\"a\",\"mountPath\":\"/a\"}]"],
        "/extraVolumeMounts",
        "install is systemd",
    ),
    (&["filterOverrides.endpoint={}"], "filterOverrides", "there is no filter endpoint, filters has servicetopology, "),
    (&["filterOverrides.endpoints.failurPolicy=\"Fail\""], "/filterOverrides/endpoints", "'failurPolicy'"),
    (&["filterOverrides.endpoints.name=\"other\""], "/filterOverrides/endpoints", "'name'"),
    (&["podLabels={\"app.kubernetes.io/name\":\"a\"}"], "propertyName 'app.kubernetes.io/name'", "'not' failed"),
    (&["signaturePolicy.policies=[{\"prefix\":\"oci://\"}]"], "/signaturePolicy/policies/0", "missing property"),
    (&["filters=[{\"name\":\"a\"},{\"name\":\"a\"}]"], "filters", "there are two filters a"),
    (&["commonLabels={\"helm.sh/chart\":\"a\"}"], "propertyName 'helm.sh/chart'", "'not' failed"),
    (&["nameOverride=\"Edge\""], "/nameOverride", "does not match pattern"),
    (&["nameOverride=\"weir-operator\""], "nameOverride", "the name of the operator's objects"),
    (&["fullnameOverride=\"weir-operator\""], "fullnameOverride", "the name of the operator's objects"),
    (&["serviceAccount.create=false"], "/serviceAccount/name", "serviceAccount.create is false"),
    (&["operator.serviceAccount.create=false"], "/operator/serviceAccount/name", "serviceAccount.create is false"),
    // Null takes a value and its default away.
    (&["serviceAccount={\"create\":false,\"name\":null}"], "/serviceAccount", "missing property 'name'"),
    (
        &["operator.serviceAccount={\"create\":false,\"name\":null}"],
        "/operator/serviceAccount",
        "missing property 'name'",
    ),
    (&["image.repository=null"], "/image", "missing property 'repository'"),
    (
        &["operator={\"enabled\":true,\"image\":{\"repository\":null}}"],
        "/operator/image",
        "missing property 'repository'",
    ),
    (&["servers=null"], "at ''", "missing property 'servers'"),
    (&["podAddress=null"], "/clientCA/enabled", "podAddress is empty"),
    (&["clientCA.enabled=null", PEERS], "/peers/pools", "clientCA.enabled is false"),
    (&["clientCA.enabled=null", "impersonation.users=[\"a\"]"], "/impersonation/users", "clientCA.enabled is false"),
    (&["helmTest.tolerations={}"], "/helmTest/tolerations", "want array"),
    // What the API server, the node or the daemon would refuse later.
    (&["podAddress=\"999.1.1.1\""], "/podAddress", "does not match pattern"),
    (&["podAddress=\"::::\""], "/podAddress", "is not valid ipv6"),
    (&["admin.address=\"10.0.0.256\""], "/admin/address", "does not match pattern"),
    (&["admin.address=\"fd00::1::2\""], "/admin/address", "is not valid ipv6"),
    (&["podInterface=\"a/b\""], "/podInterface", "does not match pattern"),
    (&["podInterface=\"..\""], "/podInterface", "'not' failed"),
    (&["image.repository=\"r/weir:1\""], "/image/repository", "does not match pattern"),
    (&["image.repository=\"r/Weir\""], "/image/repository", "does not match pattern"),
    (&["operator.image.repository=\"weir-operator:1\""], "/operator/image/repository", "does not match pattern"),
    (&["image.tag=\"a b\""], "/image/tag", "does not match pattern"),
    (&["servers=[\"ht tp://x\"]"], "/servers/0", "does not match pattern"),
    (&["servers=[\"https://a/abc\"]"], "/servers/0", "does not match pattern"),
    (&["servers=[\"https://a,\"]"], "/servers/0", "does not match pattern"),
    (&["servers=[\"https://a\",\"https://a\"]"], "/servers", "items at 0 and 1 are equal"),
    (&["peers.pools=[{\"a\":\"https://a b\",\"b\":\"https://b\"}]"], "/peers/pools/0/a", "does not match pattern"),
    (&["commonLabels={\"a b\":\"c\"}"], "propertyName 'a b'", "does not match pattern"),
    (&["commonLabels={\"a\":\"c d\"}"], "/commonLabels/a", "does not match pattern"),
    (&["podLabels={\"a/b/c\":\"d\"}"], "propertyName 'a/b/c'", "does not match pattern"),
    (&["podLabels={\"a\":\"-\"}"], "/podLabels/a", "does not match pattern"),
    (&["operator.podLabels={\"a\":\"c d\"}"], "/operator/podLabels/a", "does not match pattern"),
    (&["podAnnotations={\"a b\":\"c\"}"], "propertyName 'a b'", "does not match pattern"),
    (&["monitoring.podMonitor.labels={\"a\":\"b c\"}"], "/monitoring/podMonitor/labels/a", "does not match pattern"),
    (&["nodeSelector={\"a b\":\"c\"}"], "propertyName 'a b'", "does not match pattern"),
    (&["tolerations=[{\"keys\":\"a\"}]"], "/tolerations/0", "'keys'"),
    (&["operator.tolerations=[{\"effects\":\"NoExecute\"}]"], "/operator/tolerations/0", "'effects'"),
    (&["helmTest.tolerations=[{\"keys\":\"a\"}]"], "/helmTest/tolerations/0", "'keys'"),
    (&["tolerations=[{\"key\":\"a\",\"operator\":\"Exist\"}]"], "/tolerations/0/operator", "'Exists'"),
    (&["affinity.nodeAfinity={}"], "/affinity", "'nodeAfinity'"),
    (&["operator.affinity.podAntiAffinity.required=[]"], "/operator/affinity/podAntiAffinity", "'required'"),
    (
        &["install=\"static-pod\"", "extraVolumes=[{\"name\":\"a\",\"configMap\":{\"name\":\"a\"}}]"],
        "/extraVolumes",
        "install is static-pod",
    ),
    (
        &["install=\"static-pod\"", "extraEnv=[{\"name\":\"A\",\"valueFrom\":{\"secretKeyRef\":{}}}]"],
        "/extraEnv",
        "install is static-pod",
    ),
    (
        &["operator.podMonitor.enabled=true", "operator.serviceMonitor.enabled=true"],
        "/operator/podMonitor/enabled",
        "each pod would be read twice",
    ),
    (&["instal=\"systemd\""], "at ''", "'instal'"),
    (&["install=\"pod\""], "/install", "'static-pod'"),
];

#[test]
fn values_that_contradict_each_other_are_refused_by_name() {
    let Some(helm) = Helm::new() else { return };
    for (values, place, reason) in CONTRADICTIONS {
        let error = helm.manifest(values).expect_err("it is refused");
        assert!(error.contains(place) && error.contains(reason), "{values:?}: {error}");
    }
    let elsewhere = ["template", "weir", helm.chart().to_str().unwrap(), "--namespace", "edge"];
    let error = helm.run(&[&elsewhere[..], &REQUIRED].concat()).stderr;
    assert!(String::from_utf8_lossy(&error).contains("clientCA.configMap"), "the CA is in another namespace");
}

/// What looks like one of those. `tests/real` gives the objects to an API server.
#[test]
fn values_that_the_cluster_takes_are_not_refused() {
    let Some(helm) = Helm::new() else { return };
    for values in &combinations::accepted() {
        let values: Vec<_> = values.iter().map(String::as_str).collect();
        assert!(!helm.objects(&values).is_empty(), "{values:?}");
    }
}

#[test]
fn a_misspelt_filter_to_disable_is_refused_by_name() {
    let Some(helm) = Helm::new() else { return };
    let render = |set: &str| {
        let chart = helm.chart().to_str().unwrap();
        let set = ["template", "weir", chart, "--namespace", "kube-system", "--set-json", set];
        helm.run(&[&set[..], &REQUIRED].concat())
    };
    let refused = render("disabledFilters=[\"servicetoplogy\"]");
    let error = String::from_utf8(refused.stderr).unwrap();
    let expected = "disabledFilters: there is no filter servicetoplogy, filters has servicetopology, ";
    assert!(!refused.status.success() && error.contains(expected), "{error}");
    // The bundled ones that are disabled by default may lack in a list of one's own.
    let own = render("filters=[{\"name\": \"mine\", \"module\": \"endpoints.wasm\"}]");
    let objects = String::from_utf8(own.stdout).unwrap();
    assert!(own.status.success() && !objects.contains("filter_masterservice"), "{objects}");
}

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
fn a_cluster_without_admission_policies_is_refused_the_operator() {
    let Some(helm) = Helm::new() else { return };
    let render = |kubernetes: &str, set: &str| {
        let chart = helm.chart().to_str().unwrap();
        let version = ["--kube-version", kubernetes, "--set-json", set];
        helm.run(&[&["template", "weir", chart, "--namespace", "kube-system"][..], &REQUIRED, &version].concat())
    };
    let refused = render("1.29.9", "operator.enabled=true");
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && error.contains("operator.enabled needs Kubernetes 1.30"), "{error}");
    assert!(render("1.30.0", "operator.enabled=true").status.success());
    assert!(render("1.29.9", "operator.enabled=false").status.success(), "Weir alone needs no policy");
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

/// Every value of the operator arrives, as a flag that it knows or as a permission.
#[test]
fn values_of_the_operator_are_flags_and_permissions() {
    let Some(helm) = Helm::new() else { return };
    let objects = helm.objects(OPERATOR);
    let deployment = object(&objects, "Deployment", "weir-operator").unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    let arguments = pod["containers"][0]["args"].as_array().unwrap().iter();
    let arguments: Vec<_> = arguments.map(|argument| argument.as_str().unwrap()).collect();
    assert_eq!(
        arguments,
        [
            "serve",
            "--log-json",
            "--operator-namespace=a",
            "--namespace=b",
            "--pool-source=nodelabels",
            "--pool-label=example.com/pool",
            "--pod-api-server=[fd00::1]:10268",
            "--no-evictions",
            "--set=traefik.image=mirror/traefik:1",
            "--requests-per-second=5",
        ]
    );
    // A usage error would be 64: it is the cluster that is missing.
    let operator = built::operator();
    let output = Command::new(operator).args(&arguments).args(["--kubeconfig", "/nonexistent"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && error.contains("/nonexistent"), "{error}");
    assert!(pod["containers"][0]["image"].as_str().unwrap().contains("@sha256:0"));
    let affinity = pod["affinity"].to_string();
    assert!(affinity.contains("example.com/pool") && !affinity.contains("openyurt"), "{affinity}");
    let role = permissions(object(&objects, "ClusterRole", "weir-operator").unwrap());
    assert!(role.contains(&"bind clusterroles.rbac.authorization.k8s.io/mine".to_owned()), "{role:?}");
    assert!(!role.iter().any(|permission| permission.contains("nodepools")), "{role:?}");
    assert!(object(&objects, "ClusterRole", "weir-operator-evictions").is_none());
    assert!(object(&objects, "Namespace", "a").is_none());
    let own = objects.iter().filter(|object| object["metadata"]["name"] == "weir-operator");
    let places: BTreeSet<_> = own.filter_map(|object| object["metadata"]["namespace"].as_str()).collect();
    assert_eq!(places, ["a", "b", "default"].into());
    for binding in objects.iter().filter(|object| object["roleRef"]["name"] == "weir-operator") {
        assert_eq!(binding["subjects"][0]["namespace"], "a");
    }
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

#[test]
fn namespaces_that_the_operator_must_not_share_are_refused() {
    let Some(helm) = Helm::new() else { return };
    for (values, reason) in [
        ("operator.ingressNamespace=\"weir-operator\"", "it is operator.namespace"),
        ("operator.namespace=\"default\"", "neither can be default"),
    ] {
        let error = helm.manifest(&["operator.enabled=true", values]).expect_err("it is refused");
        assert!(error.contains("operator.ingressNamespace: ") && error.contains(reason), "{error}");
        let _ = helm.manifest(&[values]).expect("without the operator it does not matter");
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

/// Each value with its default, as the comments of values.yaml say it: a comment belongs to the keys below it.
fn table_of_values() -> String {
    let mut table = String::from("| value | default | |\n|---|---|---|\n");
    let (mut path, mut comment) = (Vec::<(usize, String)>::new(), String::new());
    for line in text("helm/weir/values.yaml").lines() {
        let (indent, line) = (line.len() - line.trim_start().len(), line.trim());
        if let Some(more) = line.strip_prefix('#') {
            comment = format!("{comment} {}", more.trim());
            continue;
        }
        let Some((key, default)) = line.split_once(':').filter(|_| !line.starts_with('-')) else {
            comment.clear();
            continue;
        };
        path.retain(|(outer, _)| *outer < indent);
        let is_of_a_list = path.iter().any(|(_, key)| key == "filters");
        path.push((indent, key.to_owned()));
        let said = std::mem::take(&mut comment);
        if is_of_a_list {
            continue;
        }
        let name = path.iter().map(|(_, key)| key.as_str()).collect::<Vec<_>>().join(".");
        let default = match default.trim() {
            "" if key == "filters" => "the bundled ones".to_owned(),
            "" => String::new(),
            default => format!("`{default}`"),
        };
        table += &format!("| `{name}` | {default} |{} |\n", said.replace('|', "\\|"));
    }
    table
}

/// `WEIR_UPDATE_DOCS=1` writes it.
#[test]
fn the_readme_of_the_chart_lists_every_value() {
    let path = built::workspace().join("deploy/helm/weir/README.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let (before, _) = document.split_once("| value | default |").unwrap();
    let current = format!("{before}{}", table_of_values());
    if std::env::var_os("WEIR_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    assert!(document == current, "{} is not current: `make docs-tables` writes it", path.display());
}

/// Registries, logins, signatures and peers arrive in all ways to install, as flags that the daemon knows.
#[test]
fn registries_signatures_and_peers_are_values_of_each_way_to_install() {
    let Some(helm) = Helm::new() else { return };
    let values = combinations::trust();
    let values: Vec<_> = values.iter().map(String::as_str).collect();
    let objects = helm.objects(&[&values[..], &[PEERS, "filterOverrides.endpoints.failurePolicy=\"Fail\""]].concat());
    let pod = &object(&objects, "DaemonSet", "weir").unwrap()["spec"]["template"]["spec"];
    let words = |container: &Value| -> Vec<String> {
        container["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let arguments = words(&pod["containers"][0]);
    for expected in [
        "--registries=/trust/registries.yaml",
        "--registry-auth=/registry-auth/one.json,/registry-auth/two.json",
        "--signature-policy=/trust/signature-policy.yaml",
        "--node-kubeconfig=/etc/kubernetes/kubelet.conf",
        "--peer=edge-a=https://10.0.0.1:10268,edge-b=https://10.0.0.2:10268",
        "--node-name=a b%h$x",
    ] {
        assert!(arguments.iter().any(|argument| argument == expected), "{expected}: {arguments:?}");
    }
    let trust = &object(&objects, "ConfigMap", "weir-trust").unwrap()["data"];
    assert_eq!(trust["registry-0.crt"], CERTIFICATE);
    let registries: Value = serde_saphyr::from_str(trust["registries.yaml"].as_str().unwrap()).unwrap();
    let expected = json!({"registries": [
        {"host": "registry.example", "caFile": "/trust/registry-0.crt"},
        {"host": "10.0.0.5:5000", "plainHTTP": true},
    ]});
    assert_eq!(registries, expected);
    let filters = &object(&objects, "ConfigMap", "weir-filters").unwrap()["data"]["filters.yaml"];
    let filters: Value = serde_saphyr::from_str(filters.as_str().unwrap()).unwrap();
    let policies: Vec<_> =
        filters["filters"].as_array().unwrap().iter().map(|filter| &filter["failurePolicy"]).collect();
    assert_eq!(policies[..4], ["Ignore", "Fail", "Ignore", "Fail"], "one is overridden");

    for (install, file) in [("static-pod", "weir.yaml"), ("systemd", "weir.service")] {
        let install = format!("install=\"{install}\"");
        let objects = helm.objects(&[&values[..], &[&install]].concat());
        let files = &object(&objects, "ConfigMap", "weir-node-files").unwrap()["data"];
        assert_eq!(files["registry-0.crt"], CERTIFICATE);
        assert!(files["registries.yaml"].as_str().unwrap().contains("/etc/weir/registry-0.crt"), "{files}");
        let shown = files[file].as_str().unwrap();
        if file == "weir.yaml" {
            let pod: Value = serde_saphyr::from_str(shown).unwrap();
            let arguments = words(&pod["spec"]["containers"][0]);
            assert!(arguments.contains(&"--registry-auth=/etc/weir/one.json,/etc/weir/two.json".to_owned()));
        } else {
            assert!(shown.contains("\n    --registry-auth=%d/one.json,%d/two.json \\\n"), "{shown}");
            assert!(shown.contains("\nLoadCredential=two.json:/etc/weir/two.json\n"), "{shown}");
            assert!(shown.contains("\n    \"--node-name=a b%%h$$x\"\n"), "{shown}");
        }
    }
}

#[test]
fn values_that_yaml_reads_otherwise_arrive_as_they_are() {
    let Some(helm) = Helm::new() else { return };
    let objects = helm.objects(UNQUOTED);
    let set = &object(&objects, "DaemonSet", "weir").unwrap()["spec"];
    let (pod, labels) = (&set["template"]["spec"], &set["template"]["metadata"]["labels"]);
    let container = &pod["containers"][0];
    let arguments = container["args"].as_array().unwrap();
    assert!(
        arguments.contains(&json!("--admin-address=::")) && arguments.contains(&json!("--a=b: c #d")),
        "{arguments:?}"
    );
    assert_eq!(container["livenessProbe"]["httpGet"]["host"], "127.0.0.1");
    assert_eq!(pod["volumes"][0]["hostPath"]["path"], "/var/lib/#weir");
    assert_eq!((&labels["team"], &labels["zone"]), (&json!("1"), &json!("on")));
    assert_eq!(set["updateStrategy"], json!({"type": "OnDelete"}));
    assert_eq!(pod["serviceAccountName"], "edge");
    let account = object(&objects, "ServiceAccount", "edge").unwrap();
    assert_eq!(account["metadata"]["annotations"], json!({"a": "1"}));
    for binding in objects.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Binding")) {
        assert_eq!(binding["subjects"][0]["name"], "edge", "{binding}");
    }
    // In a file of values `on` is a boolean.
    for (value, role) in [("\"on\"", true), ("true", true), ("false", false), ("\"auto\"", false)] {
        let objects = helm.objects(&["install=\"systemd\"", &format!("nodeCondition={value}")]);
        assert_eq!(object(&objects, "ClusterRole", "weir-node-condition").is_some(), role, "{value}");
    }
    let unit = helm.objects(&["install=\"systemd\"", "resources.limits.memory=536870912"]);
    let unit = object(&unit, "ConfigMap", "weir-node-files").unwrap()["data"]["weir.service"].as_str().unwrap();
    assert!(unit.contains("\nMemoryMax=536870912\n"), "{unit}");
}
