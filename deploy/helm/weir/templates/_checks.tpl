{{/* What values.schema.json cannot say, because it compares two values. It renders nothing. */}}
{{- define "weir.checks" -}}
{{- include "weir.checkUnique" (dict "at" "extraEnv" "list" .Values.extraEnv "key" "name") }}
{{- include "weir.checkUnique" (dict "at" "extraVolumes" "list" .Values.extraVolumes "key" "name") }}
{{- include "weir.checkUnique" (dict "at" "registries.hosts" "list" .Values.registries.hosts "key" "host") }}
{{- include "weir.checkUnique" (dict "at" "signaturePolicy.policies" "list" .Values.signaturePolicy.policies "key" "prefix") }}
{{- $volumes := list }}
{{- range .Values.extraVolumes }}
{{- $volumes = append $volumes .name }}
{{- end }}
{{- $paths := list "/var/lib/weir" "/var/cache/weir" "/client-ca" "/tls" "/etc/kubernetes/kubelet.conf" "/etc/kubernetes/pki/ca.crt" }}
{{- $paths = concat $paths (list "/var/lib/kubelet/pki" "/trust" "/registry-auth" "/signature-policy" "/etc/weir") }}
{{- range .Values.extraVolumeMounts }}
{{- if not (has .name $volumes) }}
{{- fail (printf "extraVolumeMounts: there is no volume %s, extraVolumes has %s" .name (join ", " $volumes | default "none")) }}
{{- end }}
{{- if has (clean .mountPath) $paths }}
{{- fail (printf "extraVolumeMounts: the chart or another entry has the mountPath %s" (clean .mountPath)) }}
{{- end }}
{{- $paths = append $paths (clean .mountPath) }}
{{- end }}
{{- $arguments := get (dict "daemonset" "weir.daemonSetArgs" "static-pod" "weir.staticPodArgs" "systemd" "weir.service") .Values.install }}
{{- $known := dict "--admin-port" "portOffset" }}
{{- if eq .Values.install "daemonset" }}
{{- $_ := set $known "--server" "WEIR_SERVER" }}
{{- end }}
{{- $repeatable := .Files.Get "files/repeatable.yaml" | fromYaml }}
{{- include "weir.checkFlags" (dict "at" "extraArgs" "arguments" (include $arguments .) "variables" .Values.extraEnv "known" $known "repeatable" $repeatable.weir) }}
{{- if .Values.operator.enabled }}
{{- include "weir.checkFlags" (dict "at" "operator.extraArgs" "arguments" (include "weir.operatorArgs" .Values.operator) "known" dict "repeatable" $repeatable.operator) }}
{{- end }}
{{- include "weir.checkResources" (dict "at" "resources" "resources" .Values.resources) }}
{{- include "weir.checkResources" (dict "at" "operator.resources" "resources" .Values.operator.resources) }}
{{- end }}

{{/* Refuses two entries of a list with the same value of a key. */}}
{{- define "weir.checkUnique" -}}
{{- $known := list }}
{{- range .list }}
{{- $value := get . $.key }}
{{- if has $value $known }}
{{- fail (printf "%s: there are two entries with the %s %s" $.at $.key $value) }}
{{- end }}
{{- $known = append $known $value }}
{{- end }}
{{- end }}

{{/* Refuses a flag that is given twice, or beside one that excludes it, with which the program would end, and a variable of a flag that
is given, which would count for nothing. `known` has the flags that are given in another way. */}}
{{- define "weir.checkFlags" -}}
{{- $same := dict "--config-file" "--config-map" "--kubeconfig" "--server" "-v" "--verbose" }}
{{- $known := .known }}
{{- range regexFindAll "(?m)^ *(- )?\"?--?[A-Za-z0-9][A-Za-z0-9-]*" .arguments -1 }}
{{- $flag := regexFind "--?[A-Za-z0-9][A-Za-z0-9-]*$" . }}
{{- $key := get $same $flag | default $flag }}
{{- if and (hasKey $known $key) (not (has $flag $.repeatable)) }}
{{- fail (printf "%s: %s: the chart or another entry has %s already" $.at $flag (get $known $key)) }}
{{- end }}
{{- $_ := set $known $key $flag }}
{{- end }}
{{- range .variables }}
{{- $flag := printf "--%s" (trimPrefix "WEIR_" .name | lower | replace "_" "-") }}
{{- $key := get $same $flag | default $flag }}
{{- if and (hasPrefix "WEIR_" .name) (hasKey $known $key) }}
{{- fail (printf "extraEnv: %s: the chart or extraArgs has %s already" .name (get $known $key)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Refuses a request above its limit. */}}
{{- define "weir.checkResources" -}}
{{- $resources := .resources | default dict }}
{{- $limits := $resources.limits | default dict }}
{{- range $name, $request := $resources.requests | default dict }}
{{- $limit := get $limits $name }}
{{- if and (hasKey $limits $name) (not (kindIs "invalid" $limit)) (not (kindIs "invalid" $request)) }}
{{- if gt (include "weir.quantity" $request | float64) (include "weir.quantity" $limit | float64) }}
{{- fail (printf "%s: the request of %s, %v, is above its limit, %v" $.at $name $request $limit) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The number of a quantity, such as 0.5Gi. */}}
{{- define "weir.quantity" -}}
{{- if kindIs "string" . }}
{{- $units := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 }}
{{- $units = merge $units (dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976) }}
{{- mulf (regexFind "^[0-9.]+" .) (get $units (regexReplaceAll "^[0-9.]+" . "")) }}
{{- else }}
{{- . }}
{{- end }}
{{- end }}
