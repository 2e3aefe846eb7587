use std::collections::BTreeSet;

use super::*;

fn surroundings() -> Surroundings {
    Surroundings {
        namespace: "ingress-nginx".to_owned(),
        pool_label: "apps.openyurt.io/nodepool".to_owned(),
        api_server: None,
        overrides: BTreeMap::new(),
    }
}

fn values(pool: &str) -> PoolValues<'_> {
    PoolValues { pool, replicas: 2, http: Some(30080), https: None }
}

fn objects(template: &Template, pool: &str, surroundings: &Surroundings) -> BTreeMap<&'static str, Value> {
    let rendered = template.pool_objects(&values(pool), surroundings).unwrap();
    rendered.into_iter().map(|object| (object.kind.kind, object.object)).collect()
}

#[test]
fn built_in_templates_make_objects_of_their_pool() {
    for name in BUILT_IN {
        let template = built_in(name).unwrap().unwrap();
        let all = objects(&template, "hangzhou", &surroundings());
        let deployment = &all["Deployment"];
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(deployment["spec"]["replicas"], 2, "{name}: a number");
        assert_eq!(pod["nodeSelector"]["apps.openyurt.io/nodepool"], "hangzhou");
        assert!(
            pod["tolerations"]
                .as_array()
                .unwrap()
                .iter()
                .all(|toleration| toleration.get("tolerationSeconds").is_none())
        );
        assert_eq!(pod["topologySpreadConstraints"][0]["topologyKey"], "kubernetes.io/hostname");
        assert_eq!(all["IngressClass"]["metadata"]["name"], "hangzhou");
        assert_eq!(all["Service"]["spec"]["type"], "NodePort");
        assert_eq!(all["Service"]["spec"]["ports"][0]["nodePort"], 30080);
        assert_eq!(all["Service"]["spec"]["ports"][1].get("nodePort"), None, "{name}: assigned by the cluster");
        for kind in ["ServiceAccount", "ConfigMap", "ClusterRoleBinding"] {
            assert!(all.contains_key(kind), "{name}: {kind}");
        }
        assert!(!serde_json::to_string(&all).unwrap().contains("${"), "{name}");
    }
}

#[test]
fn objects_of_two_pools_have_nothing_in_common() {
    for name in BUILT_IN {
        let template = built_in(name).unwrap().unwrap();
        let names = |pool: &str| -> BTreeSet<(&str, String)> {
            let rendered = template.pool_objects(&values(pool), &surroundings()).unwrap();
            rendered.into_iter().map(|object| (object.kind.kind, object.name)).collect()
        };
        // Long names, and names that differ in what is replaced, are kept apart, too.
        let long = "a-pool-with-a-name-that-is-nearly-as-long-as-it-may-be-in-a-lab".to_owned();
        let pools = ["a", "b", "zone.1", "zone-1", &long, &long[..62]];
        for (at, one) in pools.iter().enumerate() {
            for other in &pools[at + 1..] {
                assert!(names(one).is_disjoint(&names(other)), "{name}: {one}, {other}");
            }
            for (kind, object) in names(one) {
                assert!(object.len() <= 63 && (kind != "Service" || !object.contains('.')), "{name}: {kind} {object}");
            }
        }
    }
}

#[test]
fn pods_get_the_address_of_weir_from_the_flag_of_the_operator() {
    let template = built_in("ingress-nginx").unwrap().unwrap();
    let env = |surroundings: &Surroundings| {
        let all = objects(&template, "a", surroundings);
        let env = all["Deployment"]["spec"]["template"]["spec"]["containers"][0]["env"].clone();
        let env =
            env.as_array().unwrap().iter().filter(|entry| entry["name"].as_str().unwrap().starts_with("KUBERNETES_"));
        env.map(|entry| entry["value"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(env(&surroundings()), [""; 0]);
    let with_address = Surroundings { api_server: Some(("169.254.20.10".to_owned(), 10268)), ..surroundings() };
    assert_eq!(env(&with_address), ["169.254.20.10", "10268"]);
}

#[test]
fn the_webhook_is_shared_and_on_the_cloud_side() {
    let template = built_in("ingress-nginx").unwrap().unwrap();
    let shared = template.shared_objects(&["a", "b"], &surroundings()).unwrap();
    let find = |kind: &str| shared.iter().find(|object| object.kind.kind == kind).unwrap().object.clone();
    let condition = &find("ValidatingWebhookConfiguration")["webhooks"][0]["matchConditions"][0]["expression"];
    assert!(condition.as_str().unwrap().ends_with("in ['a', 'b']"), "{condition}");
    let affinity = find("Deployment")["spec"]["template"]["spec"]["affinity"].to_string();
    assert!(affinity.contains("DoesNotExist"), "{affinity}");
    let pool = objects(&template, "a", &surroundings());
    assert!(!pool["Deployment"].to_string().contains("validating-webhook"), "pools have none");
}

#[test]
fn a_variable_of_the_operator_changes_the_revision_of_its_template() {
    let template = built_in("traefik").unwrap().unwrap();
    let set = |key: &str| Surroundings {
        overrides: BTreeMap::from([(key.to_owned(), "x/y:1".to_owned())]),
        ..surroundings()
    };
    let image = objects(&template, "a", &set("traefik.image"))["Deployment"]["spec"]["template"]["spec"]["containers"]
        [0]["image"]
        .clone();
    assert_eq!(image, "x/y:1");
    let revision = template.revision(&surroundings());
    assert_ne!(template.revision(&set("traefik.image")), revision);
    assert_eq!(template.revision(&set("other.image")), revision);
    let unknown = template.pool_objects(&values("a"), &set("traefik.imago")).unwrap_err().to_string();
    assert!(unknown.contains("imago") && unknown.contains("image"), "{unknown}");
}

const DEPLOYMENT: &str = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: 'x-${name}'}, \
     spec: {template: {spec: {nodeSelector: {'${poolLabel}': '${pool}'}}}}}";

fn rejected(pool: &str, shared: Option<&str>) -> String {
    let mut data = BTreeMap::from([
        ("template.yaml".to_owned(), "version: '1'\nvariables: {image: i}\n".to_owned()),
        ("pool.yaml".to_owned(), pool.to_owned()),
    ]);
    data.extend(shared.map(|shared| ("shared.yaml".to_owned(), shared.to_owned())));
    let rendered = Template::of_config_map("mine", &data).and_then(|template| {
        template.shared_objects(&["a"], &surroundings())?;
        template.pool_objects(&values("a"), &surroundings())
    });
    rendered.unwrap_err().to_string()
}

#[test]
fn what_the_operator_must_not_apply_is_rejected_by_name() {
    let and = |object: &str| format!("{DEPLOYMENT}\n---\n{object}");
    for (pool, reason) in [
        (
            and("{apiVersion: v1, kind: ConfigMap, metadata: {name: 'x-${name}', namespace: kube-system}}"),
            "in the namespace kube-system",
        ),
        (and("{apiVersion: v1, kind: Secret, metadata: {name: 'x-${name}'}}"), "v1 Secret is not a kind"),
        (and("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}"), "does not have ${name} in its name"),
        // The pool is `a`.
        (and("{apiVersion: v1, kind: ConfigMap, metadata: {name: traefik}}"), "does not have ${name} in its name"),
        (and("{apiVersion: v1, kind: ConfigMap, metadata: {name: '${nome}'}}"), "there is no variable \"nome\""),
        (and("{apiVersion: v1, kind: ConfigMap, metadata: {name: 'x-${name}'}, data: {a: '${'}}"), "without }"),
        (and("{apiVersion: v1, kind: ConfigMap}"), "no metadata"),
        (and("{apiVersion: v1, kind: ConfigMap, metadata: {}}"), "no name"),
        (
            and(
                "{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: '${pool}', namespace: ingress-nginx}}",
            ),
            "has no namespace",
        ),
        (and(DEPLOYMENT), "occurs twice"),
        (DEPLOYMENT.replace("nodeSelector", "nodeSelection"), "does not select the nodes with"),
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: 'x-${name}'}}".to_owned(), "has no Deployment"),
        ("a: [".to_owned(), "not YAML"),
    ] {
        let error = rejected(&pool, None);
        assert!(error.starts_with("template mine: ") && error.contains(reason), "{reason}: {error}");
    }
    let shared = rejected(DEPLOYMENT, Some("{apiVersion: v1, kind: Service, metadata: {name: s, namespace: default}}"));
    assert!(shared.contains("object 1 of shared.yaml") && shared.contains("default"), "{shared}");
    let unknown =
        Template::of_config_map("mine", &BTreeMap::from([("pools.yaml".to_owned(), String::new())])).unwrap_err();
    assert!(unknown.to_string().contains("pools.yaml"));
}

/// The documents of manifests.
fn manifests(files: &[&str]) -> Vec<Value> {
    let read = |file: &&str| std::fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    files.iter().flat_map(|file| yaml::documents(&read(file)).unwrap()).collect()
}

fn texts(rule: &Value, key: &str) -> Vec<String> {
    rule[key].as_array().into_iter().flatten().map(|value| value.as_str().unwrap().to_owned()).collect()
}

/// The operator may do with each kind what it does, and with no other kind.
#[test]
fn the_permissions_are_those_of_the_kinds() {
    let mut permitted: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for role in manifests(&["rbac.yaml", "rbac-ingress-nginx.yaml"]) {
        let namespaced = role["kind"] == "Role";
        for rule in role["rules"].as_array().into_iter().flatten() {
            for resource in texts(rule, "resources") {
                let of = (texts(rule, "apiGroups")[0].clone(), resource, namespaced);
                permitted.entry(of).or_default().extend(texts(rule, "verbs"));
            }
        }
    }
    let writes = ["list", "watch", "create", "patch", "delete"].map(str::to_owned).into();
    permitted.retain(|_, verbs| *verbs == writes);
    let needed: BTreeSet<_> =
        KINDS.iter().map(|kind| (kind.group.to_owned(), kind.plural.to_owned(), kind.namespaced)).collect();
    assert_eq!(permitted.into_keys().collect::<BTreeSet<_>>(), needed);
}

/// Without the template that has a webhook, the operator may write none; with it, that one alone.
#[test]
fn only_the_template_with_a_webhook_may_write_it() {
    let webhooks = built_in("ingress-nginx").unwrap().unwrap().shared_objects(&["a"], &surroundings()).unwrap();
    let webhooks = webhooks.iter().filter(|object| object.kind.kind == "ValidatingWebhookConfiguration");
    let names: Vec<_> = webhooks.map(|object| object.name.clone()).collect();
    let written = |file| {
        let rules = manifests(&[file]);
        let rules = rules.iter().flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default());
        let rules =
            rules.filter(|rule| texts(rule, "resources").contains(&"validatingwebhookconfigurations".to_owned()));
        rules.filter(|rule| texts(rule, "verbs").contains(&"create".to_owned())).collect::<Vec<_>>()
    };
    assert!(written("rbac.yaml").is_empty());
    let [rule] = &written("rbac-ingress-nginx.yaml")[..] else { panic!("one rule") };
    assert_eq!(texts(rule, "resourceNames"), names);
}

/// The namespaces admit restricted pods only, and the built-in templates have no others.
#[test]
fn the_namespaces_enforce_restricted_pods() {
    for namespace in manifests(&["namespaces.yaml"]) {
        assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
    }
    let mut pods: Vec<Value> =
        manifests(&["deployment.yaml"]).iter().map(|object| object["spec"]["template"]["spec"].clone()).collect();
    for name in BUILT_IN {
        let template = built_in(name).unwrap().unwrap();
        let mut all = template.pool_objects(&values("a"), &surroundings()).unwrap();
        all.extend(template.shared_objects(&["a"], &surroundings()).unwrap());
        pods.extend(
            all.iter().map(|object| object.object["spec"]["template"]["spec"].clone()).filter(Value::is_object),
        );
    }
    assert!(pods.len() >= 5, "{pods:?}");
    for pod in pods {
        let of_pod = &pod["securityContext"];
        for key in ["hostNetwork", "hostPID", "hostIPC", "hostUsers"] {
            assert_eq!(pod[key], Value::Null, "{pod}");
        }
        for volume in pod["volumes"].as_array().into_iter().flatten() {
            assert!(volume["configMap"].is_object() || volume["secret"].is_object(), "{volume}");
        }
        for container in pod["containers"].as_array().unwrap() {
            let own = &container["securityContext"];
            let either = |key: &str| if own[key].is_null() { &of_pod[key] } else { &own[key] };
            assert_eq!(either("runAsNonRoot"), true, "{container}");
            assert_eq!(either("seccompProfile")["type"], "RuntimeDefault", "{container}");
            assert_eq!(own["allowPrivilegeEscalation"], false, "{container}");
            assert_eq!(texts(&own["capabilities"], "drop"), ["ALL"], "{container}");
            let added = texts(&own["capabilities"], "add");
            assert!(added.iter().all(|capability| capability == "NET_BIND_SERVICE"), "{container}");
        }
    }
}

/// The operator may bind the roles that the built-in templates name, and no others.
#[test]
fn the_roles_that_templates_bind_are_deployed_and_may_be_bound() {
    let mut bound = BTreeSet::new();
    for name in BUILT_IN {
        let template = built_in(name).unwrap().unwrap();
        let mut all = template.pool_objects(&values("a"), &surroundings()).unwrap();
        all.extend(template.shared_objects(&["a"], &surroundings()).unwrap());
        bound.extend(all.iter().filter_map(|object| object.object["roleRef"]["name"].as_str().map(str::to_owned)));
    }
    let deployed: BTreeSet<_> =
        manifests(&["roles.yaml"]).iter().map(|role| role["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    let rules = manifests(&["rbac.yaml", "rbac-ingress-nginx.yaml"]);
    let rules = rules.iter().flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default());
    let bind = rules.filter(|rule| rule["verbs"][0] == "bind");
    let permitted: BTreeSet<_> = bind
        .flat_map(|rule| rule["resourceNames"].as_array().unwrap().clone())
        .map(|name| name.as_str().unwrap().to_owned())
        .collect();
    assert_eq!((&bound, &bound), (&deployed, &permitted));
}
