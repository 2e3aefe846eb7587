{{/* What values.schema.json cannot say, because it compares two values. It renders nothing. */}}
{{- define "weir.checks" -}}
{{- include "weir.checkUnique" (dict "at" "extraEnv" "list" .Values.extraEnv "key" "name") }}
{{- include "weir.checkUnique" (dict "at" "extraVolumes" "list" .Values.extraVolumes "key" "name") }}
{{- include "weir.checkUnique" (dict "at" "extraVolumeMounts" "list" .Values.extraVolumeMounts "key" "mountPath") }}
{{- include "weir.checkUnique" (dict "at" "registries.hosts" "list" .Values.registries.hosts "key" "host") }}
{{- include "weir.checkUnique" (dict "at" "signaturePolicy.policies" "list" .Values.signaturePolicy.policies "key" "prefix") }}
{{- $volumes := list }}
{{- range .Values.extraVolumes }}
{{- $volumes = append $volumes .name }}
{{- end }}
{{- range .Values.extraVolumeMounts }}
{{- if not (has .name $volumes) }}
{{- fail (printf "extraVolumeMounts: there is no volume %s, extraVolumes has %s" .name (join ", " $volumes | default "none")) }}
{{- end }}
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
