//! deploy/helm: values that the chart refuses, and says which and why. Nobody should learn that from the API server, from a pod that
//! does not start, or from a log.

use weir_spec::{MemoryLimit, TimeLimit};
use weir_tests::chart::combinations::{self, PEERS};
use weir_tests::chart::{Helm, REQUIRED};

/// Values that contradict each other or are unknown, where the error is, and what it says.
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
    // `weir::config` compares these with what the daemon says.
    (&["extraArgs=[\"--a\",\"--memory-budget=1Gi\"]"], "/extraArgs/1", "--memory is the budget of all parts"),
    (&["extraArgs=[\"--cache-commit-size\",\"1Mi\"]"], "/extraArgs/0", "leave it out"),
    (&["extraEnv=[{\"name\":\"WEIR_MEMORY_BUDGET\"}]"], "/extraEnv/0/name", "--memory is the budget of all parts"),
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
];

/// What the API server, the node or the daemon would refuse later.
const INVALID: &[(&[&str], &str, &str)] = &[
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
    // Names of objects.
    (&["clientCA.configMap=\"A_B\""], "/clientCA/configMap", "does not match pattern"),
    (&["clientCA.key=\"a b\""], "/clientCA/key", "does not match pattern"),
    (&["clientCA.key=\"..a\""], "/clientCA/key", "'not' failed"),
    (&["servingCertificate.secretName=\"A_B\""], "/servingCertificate/secretName", "does not match pattern"),
    (&["signaturePolicy.configMap=\"a/b\""], "/signaturePolicy/configMap", "does not match pattern"),
    (&["image.pullSecrets=[{\"name\":\"A_B\"}]"], "/image/pullSecrets/0/name", "does not match pattern"),
    (
        &["operator.image.pullSecrets=[{\"name\":\"a..b\"}]"],
        "/operator/image/pullSecrets/0/name",
        "does not match pattern",
    ),
    (&["registries.pullSecrets=[{\"name\":\"a.-b\"}]"], "/registries/pullSecrets/0/name", "does not match pattern"),
    (
        &["registries.pullSecrets=[{\"name\":\"a\"},{\"name\":\"a\"}]"],
        "/registries/pullSecrets",
        "items at 0 and 1 are equal",
    ),
    (&["priorityClassName=\"A b\""], "/priorityClassName", "does not match pattern"),
    (&["operator.priorityClassName=\"A b\""], "/operator/priorityClassName", "does not match pattern"),
    (&["serviceAccount.name=\"a..b\""], "/serviceAccount/name", "does not match pattern"),
    (&["operator.serviceAccount.name=\"A\""], "/operator/serviceAccount/name", "does not match pattern"),
    (&["operator.namespace=\"a.b\""], "/operator/namespace", "does not match pattern"),
    (&["operator.ingressNamespace=\"A\""], "/operator/ingressNamespace", "does not match pattern"),
    (&["operator.bindRoles=[\"a/b\"]"], "/operator/bindRoles/0", "does not match pattern"),
    (&["operator.bindRoles=[\"a b\"]"], "/operator/bindRoles/0", "does not match pattern"),
    (&["operator.templateValues={\"A_B\":{\"image\":\"a\"}}"], "propertyName 'A_B'", "does not match pattern"),
    (&["operator.templateValues={\"traefik\":{\"a=b\":\"c\"}}"], "propertyName 'a=b'", "does not match pattern"),
    (&["peers.pools=[{\"a..b\":\"https://a\",\"b\":\"https://b\"}]"], "propertyName 'a..b'", "does not match pattern"),
    (&["nameOverride=\"a234567890123456789012345678901234567890a\""], "/nameOverride", "maxLength"),
    // Labels and where pods run.
    (&["operator.poolLabel=\"a b\""], "/operator/poolLabel", "does not match pattern"),
    (&["operator.poolLabel=\"Example.com/pool\""], "/operator/poolLabel", "does not match pattern"),
    (&["nodeSelector={\"a\":\"b c\"}"], "/nodeSelector/a", "does not match pattern"),
    (
        &["tolerations=[{\"operator\":\"Exists\",\"key\":\"a\",\"value\":\"b\"}]"],
        "/tolerations/0/value",
        "must be one of",
    ),
    (&["tolerations=[{\"value\":\"b\"}]"], "/tolerations/0", "missing property 'operator'"),
    (&["tolerations=[{\"key\":\"\",\"operator\":\"Equal\"}]"], "/tolerations/0/operator", "must be 'Exists'"),
    (
        &["operator.tolerations=[{\"key\":\"a\",\"effect\":\"NoSchedule\",\"tolerationSeconds\":1}]"],
        "/operator/tolerations/0/effect",
        "must be 'NoExecute'",
    ),
    (
        &["affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution=[{\"topologyKey\":\"a b\"}]"],
        "/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/topologyKey",
        "does not match pattern",
    ),
    (
        &["affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution=\
             [{\"topologyKey\":\"a\",\"namespaces\":[\"A\"]}]"],
        "/0/namespaces/0",
        "does not match pattern",
    ),
    (
        &["affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution=\
             [{\"topologyKey\":\"a\",\"labelSelector\":{\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"In\"}]}}]"],
        "/0/labelSelector/matchExpressions/0",
        "missing property 'values'",
    ),
    (
        &["affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms=\
             [{\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Gt\",\"values\":[\"b\"]}]}]"],
        "/0/matchExpressions/0/values/0",
        "does not match pattern",
    ),
    (
        &["affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms=\
             [{\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Exists\",\"values\":[\"b\"]}]}]"],
        "/0/matchExpressions/0/values",
        "maxItems",
    ),
    (
        &["affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms=\
             [{\"matchFields\":[{\"key\":\"a\",\"operator\":\"In\",\"values\":[\"b\"]}]}]"],
        "/0/matchFields/0/key",
        "must be 'metadata.name'",
    ),
    // Ports and hosts.
    (&["operator.podAPIServer=\"x:99999\""], "/operator/podAPIServer", "does not match pattern"),
    (&["operator.podAPIServer=\"a b:1\""], "/operator/podAPIServer", "does not match pattern"),
    (&["servers=[\"https://a:65536\"]"], "/servers/0", "does not match pattern"),
    (&["servers=[\"https://[:1]\"]"], "/servers/0", "does not match pattern"),
    (&["image.repository=\"r:0/weir\""], "/image/repository", "does not match pattern"),
    (&["peers.pools=[{\"a\":\"https://a:0\",\"b\":\"https://b\"}]"], "/peers/pools/0/a", "does not match pattern"),
    (&["registries.hosts=[{\"host\":\"a b\"}]"], "/registries/hosts/0/host", "does not match pattern"),
    (&["registries.hosts=[{\"host\":\"a.example/b\"}]"], "/registries/hosts/0/host", "does not match pattern"),
    (&["registries.hosts=[{\"host\":\"a.example:99999\"}]"], "/registries/hosts/0/host", "does not match pattern"),
    (
        &["registries.hosts=[{\"host\":\"a.example\",\"mirrors\":[\"https://b.example\"]}]"],
        "/registries/hosts/0/mirrors/0",
        "does not match pattern",
    ),
    (
        &["registries.hosts=[{\"host\":\"a.example\",\"caFile\":\"a\"}]"],
        "/registries/hosts/0/caFile",
        "does not match pattern",
    ),
    (
        &["registries.hosts=[{\"host\":\"a.example\",\"plainHTTP\":true,\"caFile\":\"/a\"}]"],
        "/registries/hosts/0",
        "'not' failed",
    ),
    (
        &["registries.hosts=[{\"host\":\"a.example\"},{\"host\":\"a.example\"}]"],
        "registries.hosts",
        "two entries with the host a.example",
    ),
    (
        &["signaturePolicy.policies=[{\"prefix\":\"oci://\",\"allow\":true},{\"prefix\":\"oci://\",\"allow\":true}]"],
        "signaturePolicy.policies",
        "two entries with the prefix oci://",
    ),
    (&["portOffset=55268"], "/portOffset", "maximum"),
    // What a pod has.
    (&["extraEnv=[{\"name\":\"A=B\"}]"], "/extraEnv/0/name", "does not match pattern"),
    (&["extraEnv=[{\"name\":\"A\",\"value\":1}]"], "/extraEnv/0/value", "want string"),
    (&["extraEnv=[{\"name\":\"A\",\"values\":\"1\"}]"], "/extraEnv/0", "'values'"),
    (&["extraEnv=[{\"name\":\"WEIR_KUBECONFIG\",\"value\":\"/a\"}]"], "/extraEnv", "servers has the API servers"),
    (
        &["install=\"static-pod\"", "extraEnv=[{\"name\":\"WEIR_SERVER\",\"value\":\"http://a\"}]"],
        "/extraEnv",
        "the kubeconfig has the API server",
    ),
    (&["extraEnv=[{\"name\":\"A\"},{\"name\":\"A\"}]"], "extraEnv", "two entries with the name A"),
    (
        &["extraEnv=[{\"name\":\"A\",\"valueFrom\":{\"secretKeyRef\":{\"name\":\"a\"}}}]"],
        "/extraEnv/0/valueFrom/secretKeyRef",
        "missing property 'key'",
    ),
    (
        &["extraEnv=[{\"name\":\"A\",\"value\":\"a\",\"valueFrom\":{\"fieldRef\":{\"fieldPath\":\"metadata.name\"}}}]"],
        "/extraEnv/0",
        "'not' failed",
    ),
    (&["extraVolumes=[{\"name\":\"A\"}]"], "/extraVolumes/0/name", "does not match pattern"),
    (&["extraVolumes=[{\"name\":\"cache\"}]"], "/extraVolumes/0/name", "'not' failed"),
    (&["extraVolumes=[{\"name\":\"a\",\"hostPaht\":{}}]"], "propertyName 'hostPaht'", "must be one of"),
    (
        &["extraVolumes=[{\"name\":\"a\",\"hostPath\":{\"path\":\"a\"}}]"],
        "/extraVolumes/0/hostPath/path",
        "does not match pattern",
    ),
    (
        &["extraVolumes=[{\"name\":\"a\",\"configMap\":{\"name\":\"A_B\"}}]"],
        "/extraVolumes/0/configMap/name",
        "does not match pattern",
    ),
    (
        &["extraVolumes=[{\"name\":\"a\",\"secret\":{\"name\":\"a\"}}]"],
        "/extraVolumes/0/secret",
        "missing property 'secretName'",
    ),
    (
        &["extraVolumes=[{\"name\":\"a\",\"emptyDir\":{\"sizeLimit\":\"many\"}}]"],
        "/extraVolumes/0/emptyDir/sizeLimit",
        "does not match pattern",
    ),
    (
        &["extraVolumes=[{\"name\":\"a\",\"emptyDir\":{},\"hostPath\":{\"path\":\"/a\"}}]"],
        "/extraVolumes/0",
        "maxProperties",
    ),
    (&["extraVolumes=[{\"name\":\"a\"},{\"name\":\"a\"}]"], "extraVolumes", "two entries with the name a"),
    (
        &["extraVolumes=[{\"name\":\"a\"}]", "extraVolumeMounts=[{\"name\":\"a\",\"mountPath\":\"relative\"}]"],
        "/extraVolumeMounts/0/mountPath",
        "does not match pattern",
    ),
    (
        &["extraVolumeMounts=[{\"name\":\"a\",\"mountPath\":\"/a\",\"subPath\":\"/b\"}]"],
        "/extraVolumeMounts/0/subPath",
        "does not match pattern",
    ),
    (&["extraVolumeMounts=[{\"name\":\"a\",\"mountpath\":\"/a\"}]"], "/extraVolumeMounts/0", "'mountpath'"),
    (
        &["extraVolumes=[{\"name\":\"a\"}]", "extraVolumeMounts=[{\"name\":\"b\",\"mountPath\":\"/b\"}]"],
        "extraVolumeMounts",
        "there is no volume b, extraVolumes has a",
    ),
    (
        &[
            "extraVolumes=[{\"name\":\"a\"}]",
            "extraVolumeMounts=[{\"name\":\"a\",\"mountPath\":\"/a\"},{\"name\":\"a\",\"mountPath\":\"/a/\"}]",
        ],
        "extraVolumeMounts",
        "the chart or another entry has the mountPath /a",
    ),
    (&["cache.hostPath=\"relative\""], "/cache/hostPath", "does not match pattern"),
    (&["cache.hostPath=\"/var/../lib\""], "/cache/hostPath", "'not' failed"),
    (&["cache.formerHostPath=\"/\""], "/cache/formerHostPath", "does not match pattern"),
    // Quantities, numbers and times.
    (&["resources.limits.cpu=\"1Mi\""], "/resources/limits/cpu", "does not match pattern"),
    (&["resources.requests.memory=\"100m\""], "/resources/requests/memory", "does not match pattern"),
    (&["resources.limits.memry=\"1Gi\""], "/resources/limits", "'memry'"),
    (&["resources.requests.memory=\"1Gi\""], "resources", "the request of memory, 1Gi, is above its limit, 512Mi"),
    (&["resources.limits.cpu=0.01"], "resources", "the request of cpu, 20m, is above its limit, 0.01"),
    (&["resources.limits.memory=1048576"], "resources", "the request of memory, 48Mi, is above its limit"),
    (
        &["operator.resources.limits.memory=\"16M\""],
        "operator.resources",
        "the request of memory, 32Mi, is above its limit, 16M",
    ),
    (&["updateStrategy.type=\"Sometimes\""], "/updateStrategy/type", "'OnDelete'"),
    (&["updateStrategy.rollingUpdat={}"], "/updateStrategy", "'rollingUpdat'"),
    (
        &["updateStrategy.rollingUpdate.maxUnavailable=\"x\""],
        "/updateStrategy/rollingUpdate/maxUnavailable",
        "does not match pattern",
    ),
    (
        &["updateStrategy.rollingUpdate.maxUnavailable=0"],
        "/updateStrategy/rollingUpdate/maxUnavailable",
        "'not' failed",
    ),
    (&["updateStrategy.rollingUpdate.maxSurge=1"], "/updateStrategy/rollingUpdate/maxSurge", "must be one of"),
    (&["operator.updateStrategy.type=\"OnDelete\""], "/operator/updateStrategy/type", "'Recreate'"),
    (
        &["operator.updateStrategy={\"type\":\"Recreate\",\"rollingUpdate\":{\"maxSurge\":1}}"],
        "/operator/updateStrategy/rollingUpdate",
        "want null",
    ),
    (
        &["operator.updateStrategy.rollingUpdate={\"maxSurge\":0,\"maxUnavailable\":\"0%\"}"],
        "/operator/updateStrategy/rollingUpdate",
        "'not' failed",
    ),
    (&["operator.replicas=0"], "/operator/replicas", "minimum"),
    (
        &["operator.podDisruptionBudget.maxUnavailable=\"x\""],
        "/operator/podDisruptionBudget/maxUnavailable",
        "does not match pattern",
    ),
    (&["operator.podDisruptionBudget.maxUnavailable=-1"], "/operator/podDisruptionBudget/maxUnavailable", "minimum"),
    (&["monitoring.podMonitor.interval=\"0s\""], "/monitoring/podMonitor/interval", "does not match pattern"),
    (&["operator.serviceMonitor.interval=\"often\""], "/operator/serviceMonitor/interval", "does not match pattern"),
    // Filters.
    (&["filters=[{\"name\":\"A\"}]"], "/filters/0/name", "does not match pattern"),
    (&["filters=[{\"name\":\"a\",\"module\":\"a\"}]"], "/filters/0/module", "does not match pattern"),
    (&["filters=[{\"name\":\"a\",\"module\":\"oci://a.example/b:1\"}]"], "/filters/0/module", "does not match pattern"),
    (
        &["filterOverrides.endpoints.module=\"../a.wasm\""],
        "/filterOverrides/endpoints/module",
        "does not match pattern",
    ),
    (&["filters=[{\"name\":\"a\",\"match\":[\"endpoints\"]}]"], "/filters/0/match/0", "does not match pattern"),
    (
        &["filters=[{\"name\":\"a\",\"limits\":{\"memory\":\"many\"}}]"],
        "/filters/0/limits/memory",
        "does not match pattern",
    ),
    (&["filters=[{\"name\":\"a\",\"limits\":{\"time\":\"20\"}}]"], "/filters/0/limits/time", "does not match pattern"),
    (
        &["filters=[{\"name\":\"a\",\"rollback\":{\"within\":\"5\"}}]"],
        "/filters/0/rollback/within",
        "does not match pattern",
    ),
    (
        &["filters=[{\"name\":\"a\",\"rollback\":{\"failed\":\"101%\"}}]"],
        "/filters/0/rollback/failed",
        "does not match pattern",
    ),
    (
        &["filters=[{\"name\":\"a\",\"nodes\":{\"pools\":[\"a b\"]}}]"],
        "/filters/0/nodes/pools/0",
        "does not match pattern",
    ),
    (&["serverMode=\"random\""], "/serverMode", "'priority'"),
    (&["nodeCondition=\"never\""], "/nodeCondition", "'auto'"),
    (&["image.pullPolicy=\"Sometimes\""], "/image/pullPolicy", "'IfNotPresent'"),
    (&["image.digest=\"sha256:a\""], "/image/digest", "does not match pattern"),
    (&["systemd.nodeName=\"a b\""], "/systemd/nodeName", "does not match pattern"),
];

#[test]
fn values_that_contradict_each_other_are_refused_by_name() {
    let Some(helm) = Helm::new() else { return };
    for (values, place, reason) in CONTRADICTIONS.iter().chain(INVALID) {
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

/// A configuration that the daemon takes is not refused, and most of what it refuses is.
#[test]
fn the_chart_reads_durations_and_amounts_of_memory_as_the_daemon_does() {
    let Some(helm) = Helm::new() else { return };
    let agree = |limit: &str, text: &str, is_valid: bool| {
        let filter =
            format!("filters=[{{\"name\":\"a\",\"module\":\"a.wasm\",\"limits\":{{\"{limit}\":\"{text}\"}}}}]");
        assert_eq!(helm.manifest(&[&filter]).is_ok(), is_valid, "{limit} {text:?}");
    };
    for text in [
        "20ms",
        "1.5s",
        ".5s",
        "1.s",
        "1s500ms",
        "2000us",
        "2000\u{b5}s",
        "2000\u{3bc}s",
        "1000000ns",
        "0.001h",
        "0.1m",
        "",
        "0",
        "20",
        ".",
        "ms",
        ".s",
        "1.2.3s",
        "20 ms",
        "-20ms",
        "20msec",
        "1d",
    ] {
        agree("time", text, text.parse::<TimeLimit>().is_ok());
    }
    for text in [
        "64Mi", "1.5Mi", ".5Gi", "64.Mi", "2M", "0.1G", "1048576", "1024Ki", "2000k", "", ".", "Mi", "64MiB", "64 Mi",
        "-1Mi", "1..5Mi", "64m", "1Ti",
    ] {
        agree("memory", text, text.parse::<MemoryLimit>().is_ok());
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
