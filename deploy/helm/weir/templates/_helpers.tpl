{{/* The label app.kubernetes.io/name of the daemon's objects, by which its pods are selected. */}}
{{- define "weir.name" -}}
{{ .Values.nameOverride | default "weir" }}
{{- end }}

{{/* What the names of the daemon's objects begin with. */}}
{{- define "weir.fullname" -}}
{{- $name := .Values.fullnameOverride | default (include "weir.name" .) }}
{{- if has "weir-operator" (list $name (include "weir.name" .)) }}
{{- fail "nameOverride, fullnameOverride: weir-operator is the name of the operator's objects" }}
{{- end }}
{{- $name }}
{{- end }}

{{- define "weir.serviceAccountName" -}}
{{ (.Values.serviceAccount | default dict).name | default (include "weir.fullname" .) }}
{{- end }}

{{- define "weir.operatorServiceAccountName" -}}
{{ (.Values.operator.serviceAccount | default dict).name | default "weir-operator" }}
{{- end }}

{{/* Whether a switch that is on by default is on: true or nothing. `--reuse-values` lacks switches that are newer than the release. */}}
{{- define "weir.isOn" -}}
{{- if ne (toString .) "false" }}true{{ end }}
{{- end }}

{{/* A map without its null values, as JSON. Null is what a file of values has for a key that it unsets. */}}
{{- define "weir.given" -}}
{{- $given := dict }}
{{- range $key, $value := . | default dict }}
{{- if not (kindIs "invalid" $value) }}
{{- $_ := set $given $key $value }}
{{- end }}
{{- end }}
{{- $given | toJson }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.labelsOf" (dict "root" . "name" (include "weir.name" .) "component" "daemon") }}
{{- end }}

{{- define "weir.operatorLabels" -}}
{{ include "weir.labelsOf" (dict "root" . "name" "weir-operator" "component" "operator") }}
{{- end }}

{{/* The labels of an object: those that Kubernetes recommends, and commonLabels. */}}
{{- define "weir.labelsOf" -}}
{{- $own := dict "app.kubernetes.io/name" .name "app.kubernetes.io/instance" .root.Release.Name }}
{{- $_ := set $own "app.kubernetes.io/version" .root.Chart.AppVersion }}
{{- $_ := set $own "app.kubernetes.io/managed-by" .root.Release.Service }}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_") }}
{{- $common := include "weir.given" .root.Values.commonLabels | fromJson }}
{{- merge $own $common (dict "app.kubernetes.io/component" .component "app.kubernetes.io/part-of" "weir") | toYaml }}
{{- end }}

{{/* The labels of a pod. The version of the chart is not one of them: its change alone would replace all pods. */}}
{{- define "weir.podLabelsOf" -}}
{{- $own := dict "app.kubernetes.io/name" .name "app.kubernetes.io/instance" .root.Release.Name }}
{{- $given := include "weir.given" .labels | fromJson }}
{{- $common := include "weir.given" .root.Values.commonLabels | fromJson }}
{{- merge $own $given $common (dict "app.kubernetes.io/component" .component "app.kubernetes.io/part-of" "weir") | toYaml }}
{{- end }}

{{/* The labels of what a controller of monitoring or a sidecar finds by labels of its own. */}}
{{- define "weir.withLabels" -}}
{{- merge (include "weir.given" .labels | fromJson) (.own | fromYaml) | toYaml }}
{{- end }}

{{/* An annotations mapping, or nothing. */}}
{{- define "weir.annotations" -}}
{{- with include "weir.given" . | fromJson -}}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "weir.image" -}}
{{ include "weir.imageOf" (dict "image" .Values.image "version" .Chart.AppVersion) }}
{{- end }}

{{/* The reference of an image, whose default tag is a version. */}}
{{- define "weir.imageOf" -}}
{{- with .image -}}
{{ .repository }}:{{ .tag | default $.version }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* The arguments of the operator's container as YAML: what is not the default. */}}
{{- define "weir.operatorArgs" -}}
- serve
- --log-json
{{- if ne .namespace "weir-operator" }}
- --operator-namespace={{ .namespace }}
{{- end }}
{{- if ne .ingressNamespace "ingress-nginx" }}
- --namespace={{ .ingressNamespace }}
{{- end }}
{{- if ne .poolSource "nodepools" }}
- --pool-source={{ .poolSource }}
{{- end }}
{{- if ne .poolLabel "apps.openyurt.io/nodepool" }}
- --pool-label={{ .poolLabel }}
{{- end }}
{{- with .podAPIServer }}
- {{ printf "--pod-api-server=%s" . | quote }}
{{- end }}
{{- if not .evictions }}
- --no-evictions
{{- end }}
{{- range $template, $variables := .templateValues }}
{{- range $variable, $value := $variables }}
- {{ printf "--set=%s.%s=%v" $template $variable $value | quote }}
{{- end }}
{{- end }}
{{- range .extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* Where the operator's pods run: on Nodes without a pool. */}}
{{- define "weir.operatorAffinity" -}}
{{- $cloud := dict "key" .poolLabel "operator" "DoesNotExist" }}
{{- $affinity := deepCopy (.affinity | default dict) }}
{{- $node := get $affinity "nodeAffinity" | default dict }}
{{- $terms := list }}
{{- range (get $node "requiredDuringSchedulingIgnoredDuringExecution" | default dict).nodeSelectorTerms | default (list dict) }}
{{- $terms = append $terms (merge (dict "matchExpressions" (prepend (.matchExpressions | default list) $cloud)) .) }}
{{- end }}
{{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) }}
{{- $_ := set $affinity "nodeAffinity" $node }}
{{- toYaml $affinity }}
{{- end }}

{{/* Whether the chart creates a namespace of the operator: true or nothing. Where Helm would fail, it says which switch to set.
Without a cluster, as in `helm template`, nothing is looked up. */}}
{{- define "weir.createsNamespace" -}}
{{- $live := lookup "v1" "Namespace" "" .name }}
{{- $hasCluster := lookup "v1" "Namespace" "" "kube-system" }}
{{- $metadata := get ($live | default dict) "metadata" | default dict }}
{{- $labels := get $metadata "labels" | default dict }}
{{- $annotations := get $metadata "annotations" | default dict }}
{{- $owner := printf "%s/%s" (get $annotations "meta.helm.sh/release-namespace") (get $annotations "meta.helm.sh/release-name") }}
{{- $isOwn := eq $owner (printf "%s/%s" .root.Release.Namespace .root.Release.Name) }}
{{- /* Of the manifests, or of a release that was uninstalled: there is nothing to create. */}}
{{- $isWeirs := eq (get $labels "app.kubernetes.io/name") "weir-operator" }}
{{- if eq .name .root.Release.Namespace }}
{{- else if not .create }}
{{- if and $hasCluster (not $live) }}
{{- fail (printf "operator.%s: the namespace %s does not exist. Create it, or set operator.%s=true" .value .name .switch) }}
{{- end }}
{{- else if or (not $live) $isOwn }}true
{{- else if not $isWeirs }}
{{- fail (printf "operator.%s: the namespace %s exists, and this release does not own it. Set operator.%s=false to use it as it is, or choose another name" .value .name .switch) }}
{{- end }}
{{- end }}

{{/* Whether the daemon puts the pod address on an interface, for which it needs NET_ADMIN. */}}
{{- define "weir.addsAddress" -}}
{{- if and .Values.podAddress .Values.podInterface }}true{{ end }}
{{- end }}

{{/* Where the container or the unit finds how registries are reached, and the signature policy. */}}
{{- define "weir.trustFolder" -}}
{{- if eq .Values.install "daemonset" }}/trust{{ else }}/etc/weir{{ end }}
{{- end }}

{{/* The files of that folder, as data of a ConfigMap. */}}
{{- define "weir.trustFiles" -}}
{{- $hosts := list }}
{{- range $index, $entry := .Values.registries.hosts }}
{{- if .ca }}
{{- $hosts = append $hosts (merge (dict "caFile" (printf "%s/registry-%d.crt" (include "weir.trustFolder" $) $index)) (omit . "ca")) }}
registry-{{ $index }}.crt: {{ .ca | quote }}
{{- else }}
{{- $hosts = append $hosts . }}
{{- end }}
{{- end }}
{{- with $hosts }}
registries.yaml: |
  registries: {{- toYaml . | nindent 4 }}
{{- end }}
{{- with .Values.signaturePolicy.policies }}
signature-policy.yaml: |
  policies: {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{/* The files of the pull secrets, as --registry-auth takes them. */}}
{{- define "weir.logins" -}}
{{- $folder := get (dict "daemonset" "/registry-auth" "systemd" "%d") .Values.install | default "/etc/weir" }}
{{- $paths := list }}
{{- range .Values.registries.pullSecrets }}
{{- $paths = append $paths (printf "%s/%s.json" $folder .name) }}
{{- end }}
{{- join "," $paths }}
{{- end }}

{{/* The filters with what is overridden, as a JSON list. */}}
{{- define "weir.filters" -}}
{{- $filters := list }}
{{- $names := list }}
{{- range .Values.filters }}
{{- if has .name $names }}
{{- fail (printf "filters: there are two filters %s" .name) }}
{{- end }}
{{- $names = append $names .name }}
{{- $filters = append $filters (mergeOverwrite (deepCopy .) (get $.Values.filterOverrides .name | default dict)) }}
{{- end }}
{{- range $name, $_ := .Values.filterOverrides }}
{{- if not (has $name $names) }}
{{- fail (printf "filterOverrides: there is no filter %s, filters has %s" $name (join ", " $names)) }}
{{- end }}
{{- end }}
{{- $filters | toJson }}
{{- end }}

{{/* A word of a command line of systemd. */}}
{{- define "weir.unitWord" -}}
{{- $word := . | replace "\\" "\\\\" | replace "\"" "\\\"" | replace "%" "%%" | replace "$" "$$" }}
{{- if regexMatch "^[A-Za-z0-9_./:=,@%+-]+$" $word }}{{ $word }}{{ else }}"{{ $word }}"{{ end }}
{{- end }}

{{/* `on` or `off`, which YAML reads as true and false; nothing for `auto`. */}}
{{- define "weir.nodeCondition" -}}
{{- get (dict "on" "on" "true" "on" "off" "off" "false" "off") (toString .Values.nodeCondition) }}
{{- end }}

{{/* Whether the DaemonSet has the credential of its node. */}}
{{- define "weir.hasNodeCredential" -}}
{{- if or .Values.nodeCredential .Values.peers.pools }}true{{ end }}
{{- end }}

{{/* The flags that all ways to run the daemon have in common, one a line. */}}
{{- define "weir.flags" -}}
{{- with .Values.podAddress }}
--pod-address={{ . }}
{{- if ne $.Values.podInterface "weir0" }}
--pod-interface={{ $.Values.podInterface }}
{{- end }}
{{- end }}
{{- if .Values.portOffset }}
--port-offset={{ .Values.portOffset }}
{{- end }}
--config-map={{ .Release.Namespace }}/{{ include "weir.fullname" . }}-filters
--modules-dir={{ if eq .Values.install "systemd" }}/usr/local/lib/weir/modules{{ else }}/modules{{ end }}
--cache-dir=/var/lib/weir/cache
--cache-key-dir=/var/lib/weir
{{- if kindIs "slice" .Values.cache.resources }}
--cache-resources={{ join "," .Values.cache.resources }}
{{- end }}
{{- if ne .Values.admin.address "127.0.0.1" }}
--admin-address={{ .Values.admin.address }}
{{- end }}
{{- $files := include "weir.trustFolder" . }}
{{- if .Values.registries.hosts }}
--registries={{ $files }}/registries.yaml
{{- end }}
{{- if ne .Values.install "systemd" }}
{{- with include "weir.logins" . }}
--registry-auth={{ . }}
{{- end }}
{{- end }}
{{- if .Values.signaturePolicy.configMap }}
--signature-policy=/signature-policy/signature-policy.yaml
{{- else if .Values.signaturePolicy.policies }}
--signature-policy={{ $files }}/signature-policy.yaml
{{- end }}
{{- range .Values.peers.pools }}
{{- $peers := list }}
{{- range $node, $url := . }}
{{- $peers = append $peers (printf "%s=%s" $node $url) }}
{{- end }}
--peer={{ join "," $peers }}
{{- end }}
{{- with include "weir.nodeCondition" . }}
--node-condition={{ . }}
{{- end }}
--log-format=json
{{- range .Values.extraArgs }}
{{ . }}
{{- end }}
{{- end }}

{{/* The arguments of the DaemonSet's container as YAML. */}}
{{- define "weir.daemonSetArgs" -}}
- serve
- --node-name=$(NODE_NAME)
- --certificate-authority=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt
- --token-file=/var/run/secrets/kubernetes.io/serviceaccount/token
{{- if gt (len .Values.servers) 1 }}
- --server-mode={{ .Values.serverMode }}
{{- end }}
{{- if .Values.clientCA.enabled }}
- --client-ca-file=/client-ca/client-ca.crt
{{- end }}
{{- if include "weir.hasNodeCredential" . }}
- --node-kubeconfig=/etc/kubernetes/kubelet.conf
{{- end }}
{{- if .Values.servingCertificate.secretName }}
- --tls-cert-file=/tls/tls.crt
- --tls-private-key-file=/tls/tls.key
{{- end }}
{{- range splitList "\n" (include "weir.flags" . | trim) }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* Those of the static pod. */}}
{{- define "weir.staticPodArgs" -}}
- serve
- --kubeconfig=/etc/weir/kubeconfig
- --node-name=$(NODE_NAME)
# For kubelet on the plain port (clients/kubelet-node-credential.conf), and to request the serving certificate.
- --node-kubeconfig=/etc/kubernetes/kubelet.conf
{{- if .Values.clientCA.enabled }}
# For kubelet on the HTTPS port (clients/kubelet.conf).
- --client-ca-file=/etc/kubernetes/pki/ca.crt
{{- end }}
{{- range splitList "\n" (include "weir.flags" . | trim) }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* The same user with a pod address and without. The kernel gives NET_ADMIN in a container to root only, and the host's folders
and kubeconfigs are root's: another user could neither create the cache nor use one that root has left. */}}
{{- define "weir.podSecurity" -}}
runAsUser: 0
runAsGroup: 0
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "weir.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- if include "weir.addsAddress" . }}
  add: [NET_ADMIN]
{{- end }}
{{- end }}

{{/* Resources by group as JSON, {"group": ["resource"]}, from a list of resource.group. */}}
{{- define "weir.byGroup" -}}
{{- $groups := dict }}
{{- range . | uniq | sortAlpha }}
{{- $parts := splitn "." 2 . }}
{{- $group := $parts._1 | default "" }}
{{- $_ := set $groups $group (append (get $groups $group | default list) $parts._0) }}
{{- end }}
{{- $groups | toJson }}
{{- end }}

{{/* Rules to list and watch a list of resource.group. */}}
{{- define "weir.readRules" -}}
{{- range $group, $resources := include "weir.byGroup" . | fromJson }}
- apiGroups: [{{ $group | quote }}]
  resources: {{ $resources | toJson }}
  verbs: [list, watch]
{{- end }}
{{- end }}

{{/* What the enabled filters look up, as a JSON list of resource.group: of bundled modules as files/lookups.yaml says, of
others as their entry says. */}}
{{- define "weir.lookups" -}}
{{- $bundled := .Files.Get "files/lookups.yaml" | fromYaml }}
{{- $lookups := .Values.lookups }}
{{- range $filter := include "weir.filters" . | fromJsonArray }}
{{- if not (has $filter.name $.Values.disabledFilters) }}
{{- with get $bundled ($filter.module | default (printf "%s.wasm" $filter.name)) }}
{{- $lookups = concat $lookups (.lookups | default list) }}
{{- range $key, $values := .settings | default dict }}
{{- $chosen := get ($filter.settings | default dict) $key | default "default" }}
{{- $lookups = concat $lookups (get $values $chosen | default list) }}
{{- end }}
{{- end }}
{{- $lookups = concat $lookups ($filter.lookups | default list) }}
{{- end }}
{{- end }}
{{- $lookups | uniq | sortAlpha | toJson }}
{{- end }}

{{/* Where the probes reach the admin port on the node: loopback, unless it listens on one other address. */}}
{{- define "weir.probeHost" -}}
{{- if has .Values.admin.address (list "0.0.0.0" "::") }}127.0.0.1{{ else }}{{ .Values.admin.address }}{{ end }}
{{- end }}
