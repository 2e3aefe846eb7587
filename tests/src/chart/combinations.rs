//! Combinations of the chart's values that a cluster accepts. `tests/deploy` renders them and looks at the result; `tests/real`
//! gives the objects to a real API server.

use serde_json::json;

/// Peers of one pool.
pub const PEERS: &str = "peers.pools=[{\"edge-a\":\"https://10.0.0.1:10268\",\"edge-b\":\"https://10.0.0.2:10268\"}]";

/// Values that YAML reads as something else, if the chart does not quote them.
pub const UNQUOTED: &[&str] = &[
    "admin.address=\"::\"",
    "extraArgs=[\"--a=b: c #d\"]",
    "cache.hostPath=\"/var/lib/#weir\"",
    "resources.limits.memory=536870912",
    "commonLabels.team=\"1\"",
    "podLabels.zone=\"on\"",
    "serviceAccount={\"name\":\"edge\",\"annotations\":{\"a\":\"1\"}}",
    "updateStrategy={\"type\":\"OnDelete\"}",
];

/// Names that are numbers for YAML, if the chart does not quote them.
pub const NUMBERS: &[&str] = &[
    "nameOverride=\"1\"",
    "clientCA={\"configMap\":\"2\",\"key\":\"3\"}",
    "servingCertificate.secretName=\"4\"",
    "signaturePolicy.configMap=\"5\"",
    "registries.pullSecrets=[{\"name\":\"6\"}]",
    "serviceAccount.name=\"7\"",
    "operator.enabled=true",
    "operator.namespace=\"8\"",
    "operator.ingressNamespace=\"9\"",
    "operator.bindRoles=[\"10\"]",
    "operator.priorityClassName=\"11\"",
    "operator.serviceAccount.name=\"12\"",
];

/// Every value of the operator that is not a default.
pub const OPERATOR: &[&str] = &[
    "operator.enabled=true",
    "operator.namespace=\"a\"",
    "operator.ingressNamespace=\"b\"",
    "operator.createNamespace=false",
    "operator.createIngressNamespace=false",
    "operator.poolSource=\"nodelabels\"",
    "operator.poolLabel=\"example.com/pool\"",
    "operator.podAPIServer=\"[fd00::1]:10268\"",
    "operator.evictions=false",
    "operator.templateValues={\"traefik\":{\"image\":\"mirror/traefik:1\"}}",
    "operator.bindRoles=[\"mine\"]",
    "operator.extraArgs=[\"--requests-per-second=5\"]",
    "operator.image.digest=\"sha256:0000000000000000000000000000000000000000000000000000000000000000\"",
];

/// The certificate of a registry in [`trust`].
pub const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";

/// Registries, logins, a signature policy, and an argument that systemd would read as something else.
#[must_use]
pub fn trust() -> Vec<String> {
    let hosts = json!([{"host": "registry.example", "ca": CERTIFICATE}, {"host": "10.0.0.5:5000", "plainHTTP": true}]);
    let policies = json!([{"prefix": "file://", "allow": true}]);
    vec![
        format!("registries.hosts={hosts}"),
        format!("signaturePolicy.policies={policies}"),
        "registries.pullSecrets=[{\"name\":\"one\"},{\"name\":\"two\"}]".to_owned(),
        "extraArgs=[\"--memory=128Mi\", \"--cache-key-file=a b%h$x\"]".to_owned(),
    ]
}

/// Where pods may run: affinities and a toleration, of Weir and of the operator.
fn placement() -> Vec<String> {
    let affinity = json!({
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{
            "matchExpressions": [{"key": "example.com/a", "operator": "In", "values": ["b"]}],
            "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["c"]}],
        }]}},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": {
            "labelSelector": {"matchLabels": {"a": "b"}},
            "topologyKey": "kubernetes.io/hostname",
        }}]},
    });
    let toleration =
        json!({"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 60});
    vec![
        "nodeSelector={\"node-role.kubernetes.io/edge\":\"\"}".to_owned(),
        format!("affinity={affinity}"),
        format!("tolerations=[{toleration}]"),
        "operator.enabled=true".to_owned(),
        format!("operator.affinity={affinity}"),
        format!("operator.tolerations=[{toleration}]"),
    ]
}

/// All of them: `name=value` in JSON, as [`super::Helm::manifest`] takes them.
#[must_use]
pub fn accepted() -> Vec<Vec<String>> {
    let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
    let mut all: Vec<_> = FIXED.iter().map(|values| owned(values)).collect();
    all.extend([owned(UNQUOTED), owned(NUMBERS), owned(OPERATOR), placement()]);
    all.push([trust(), owned(&[PEERS, "filterOverrides.endpoints.failurePolicy=\"Fail\""])].concat());
    for install in ["static-pod", "systemd"] {
        all.push([trust(), vec![format!("install=\"{install}\"")]].concat());
    }
    all
}

const FIXED: &[&[&str]] = &[
    &[],
    &["install=\"static-pod\""],
    &["install=\"systemd\""],
    &["install=\"systemd\"", "nodeCondition=\"on\"", "systemd.nodeName=\"%H.example\""],
    &["install=\"daemonset\"", "impersonation.users=[\"system:node:edge-a\"]"],
    &[
        "monitoring.serviceMonitor.enabled=true",
        "monitoring.prometheusRule.enabled=true",
        "monitoring.dashboard.enabled=true",
        "admin.address=\"0.0.0.0\"",
    ],
    &["monitoring.podMonitor.enabled=true", "admin.address=\"::\""],
    &[
        "servingCertificate.secretName=\"weir-tls\"",
        "nodeSelector.edge=\"yes\"",
        "image.pullSecrets=[{\"name\":\"a\"}]",
    ],
    &["podAddress=\"\"", "clientCA.enabled=false"],
    &["podInterface=\"\"", "portOffset=100"],
    &["podAddress=\"fd00::1\"", "admin.address=\"::ffff:10.0.0.1\"", "podInterface=\"eth0.100\""],
    &["image.repository=\"host:5000/team/weir\"", "image.tag=\"v1.2_3\""],
    &["image.repository=\"[fd00::1]:5000/weir\""],
    &["servers=[\"https://10.0.0.1:6443\",\"https://[fd00::1]:6443\",\"https://a.example/\"]"],
    &["commonLabels={\"example.com/a_B.c\":\"\"}", "podAnnotations={\"example.com/a\":\"b c\"}"],
    &["nameOverride=\"second\"", "nodeSelector.edge=\"yes\"", "monitoring.dashboard.enabled=true"],
    &["serviceAccount={\"create\":false,\"name\":\"mine\"}", "nodeCredential=true", "nodeCondition=\"on\""],
    &["cache.resources=[\"pods\",\"services\"]", "lookups=[\"secrets.example.com\"]"],
    &["filters=[]"],
    &["filterOverrides.servicetopology.settings.poolSource=\"nodelabels\"", "disabledFilters=[]"],
    &["filterOverrides.servicetopology.settings.poolSource=\"nodebuckets\""],
    &["install=\"static-pod\"", "extraVolumes=[{\"name\":\"a\",\"hostPath\":{\"path\":\"/a\"}}]"],
    &[
        "install=\"static-pod\"",
        "extraEnv=[{\"name\":\"A\",\"valueFrom\":{\"fieldRef\":{\"fieldPath\":\"metadata.name\"}}}]",
    ],
    &[
        "extraVolumes=[{\"name\":\"a\",\"configMap\":{\"name\":\"a\"}}]",
        "extraVolumeMounts=[{\"name\":\"a\",\"mountPath\":\"/a\"}]",
        "extraEnv=[{\"name\":\"A\",\"value\":\"1\"},{\"name\":\"KUBECONFIG\",\"value\":\"/a/kubeconfig\"}]",
    ],
    &[
        "extraVolumes=[{\"name\":\"a\"},{\"name\":\"b\",\"emptyDir\":{\"medium\":\"Memory\",\"sizeLimit\":\"1Mi\"}}]",
        "extraVolumeMounts=[{\"name\":\"a\",\"mountPath\":\"/a\",\"subPath\":\"b/c\",\"readOnly\":true},{\"name\":\"b\",\"mountPath\":\"/b\"}]",
        "extraEnv=[{\"name\":\"a.B-c\",\"valueFrom\":{\"secretKeyRef\":{\"name\":\"a\",\"key\":\".b\",\"optional\":true}}}]",
        "resources={\"requests\":{\"cpu\":0.5,\"memory\":\"0.5Gi\",\"ephemeral-storage\":1024},\"limits\":{\"memory\":\"512Mi\",\"ephemeral-storage\":\"1G\"}}",
        "updateStrategy.rollingUpdate={\"maxUnavailable\":\"10%\",\"maxSurge\":0}",
    ],
    &["resources={\"requests\":null,\"limits\":{\"memory\":null,\"cpu\":\"1500m\"}}"],
    &[
        "filters=[{\"name\":\"a\",\"module\":\"configmap://a.b\",\"digest\":\"sha256:0000000000000000000000000000000000000000000000000000000000000000\",\"match\":[\"*/pods#list;watch\"]}]",
    ],
    &[
        "operator.enabled=true",
        "operator.updateStrategy.type=\"Recreate\"",
        "operator.podDisruptionBudget={\"enabled\":true,\"maxUnavailable\":\"50%\"}",
        "operator.podAPIServer=\"weir.example:10268\"",
    ],
    &[
        "operator.enabled=true",
        "operator.serviceMonitor.enabled=true",
        "operator.prometheusRule.enabled=true",
        "operator.networkPolicy.enabled=true",
        "operator.image.pullSecrets=[{\"name\":\"a\"}]",
    ],
    &["operator.enabled=true", "operator.podMonitor.enabled=true", "operator.templates=[\"traefik\"]"],
    &["operator.enabled=true", "operator.templates=[]", "operator.serviceAccount={\"create\":false,\"name\":\"mine\"}"],
];
