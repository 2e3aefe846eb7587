{{- define "weir.staticPod" -}}
# For nodes whose kubelet is a client of Weir: put it into kubelet's staticPodPath. /etc/weir/kubeconfig holds the daemon's own
# credential; the other paths are those of a kubeadm node.
apiVersion: v1
kind: Pod
metadata:
  name: {{ include "weir.fullname" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
  labels: {app.kubernetes.io/name: {{ include "weir.name" . | quote }}}
spec:
  hostNetwork: true
  priorityClassName: {{ .Values.priorityClassName | quote }}
  securityContext: {{- include "weir.podSecurity" . | nindent 4 }}
  containers:
    - name: weir
      image: {{ include "weir.image" . | quote }}
{{- with .Values.image.pullPolicy }}
      imagePullPolicy: {{ . }}
{{- end }}
      args: {{- include "weir.staticPodArgs" . | nindent 8 }}
      env:
        - name: NODE_NAME
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
        # For `weir explain` in this pod.
        - {name: KUBECONFIG, value: /etc/weir/kubeconfig}
{{- with .Values.extraEnv }}
{{- toYaml . | nindent 8 }}
{{- end }}
      ports:
        - {name: http, containerPort: {{ add 10261 $.Values.portOffset }}, hostPort: {{ add 10261 $.Values.portOffset }}, hostIP: 127.0.0.1}
        - {name: admin, containerPort: {{ add 10267 $.Values.portOffset }}, hostPort: {{ add 10267 $.Values.portOffset }}, hostIP: {{ .Values.admin.address | quote }}}
      livenessProbe:
        httpGet: {host: {{ include "weir.probeHost" . | quote }}, port: admin, path: /livez}
      resources: {{- toYaml .Values.resources | nindent 8 }}
      securityContext: {{- include "weir.containerSecurity" . | nindent 8 }}
      volumeMounts:
        - {name: cache, mountPath: /var/lib/weir}
        - {name: former-cache, mountPath: /var/cache/weir}
        - {name: config, mountPath: /etc/weir, readOnly: true}
        - {name: kubelet-conf, mountPath: /etc/kubernetes/kubelet.conf, readOnly: true}
        - {name: ca, mountPath: /etc/kubernetes/pki/ca.crt, readOnly: true}
        - {name: kubelet-pki, mountPath: /var/lib/kubelet/pki, readOnly: true}
{{- with .Values.extraVolumeMounts }}
{{- toYaml . | nindent 8 }}
{{- end }}
  volumes:
    # A replaced pod serves at once, also without the API server. Weir trusts what it reads here.
    - name: cache
      hostPath: {path: {{ .Values.cache.hostPath | quote }}, type: DirectoryOrCreate}
    # Where earlier versions had the cache. The first start copies it; a day later it goes.
    - name: former-cache
      hostPath: {path: {{ .Values.cache.formerHostPath | quote }}, type: DirectoryOrCreate}
    - name: config
      hostPath: {path: /etc/weir, type: Directory}
    - name: kubelet-conf
      hostPath: {path: /etc/kubernetes/kubelet.conf, type: File}
    - name: ca
      hostPath: {path: /etc/kubernetes/pki/ca.crt, type: File}
    # The certificate that kubelet.conf names; kubelet replaces it there when it rotates.
    - name: kubelet-pki
      hostPath: {path: /var/lib/kubelet/pki, type: Directory}
{{- with .Values.extraVolumes }}
{{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{/* The arguments of the unit, one a line with a continuation. */}}
{{- define "weir.service" -}}
# For nodes whose kubelet is a client of Weir: it starts before kubelet. Install the binary as /usr/local/bin/weir, the
# modules in /usr/local/lib/weir/modules, and the daemon's own kubeconfig as /etc/weir/kubeconfig. The client CA is where
# kubeadm puts it.
[Unit]
Description=Weir, a filtering Kubernetes API proxy
Documentation=file:///usr/local/share/doc/weir/README.md
Requires=weir.socket
After=weir.socket
Before=kubelet.service
# It serves from disk where there is no network, and is started again however often it ends.
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/local/bin/weir serve \
    --kubeconfig=%d/kubeconfig \
{{- if .Values.clientCA.enabled }}
    --client-ca-file=%d/client-ca.crt \
{{- end }}
{{- with include "weir.logins" . }}
    --registry-auth={{ . }} \
{{- end }}
{{- $flags := list }}
{{- range splitList "\n" (include "weir.flags" . | trim) }}
{{- $flags = append $flags (include "weir.unitWord" .) }}
{{- end }}
    {{ join " \\\n    " $flags }}
# The name of the Node: %H is the host name. WEIR_NODE_NAME in weir.env goes before it.
Environment=WEIR_NODE_NAME={{ .Values.systemd.nodeName }}
EnvironmentFile=-/etc/weir/weir.env
Restart=always
RestartSec=1
TimeoutStopSec=20
DynamicUser=yes
CacheDirectory=weir
CacheDirectoryMode=0700
StateDirectory=weir
StateDirectoryMode=0700
# systemd copies these files at the start alone: after a change of one, `systemctl restart weir.service`, see README.md.
LoadCredential=kubeconfig:/etc/weir/kubeconfig
{{- if .Values.clientCA.enabled }}
LoadCredential=client-ca.crt:/etc/kubernetes/pki/ca.crt
{{- end }}
{{- range .Values.registries.pullSecrets }}
# What .dockerconfigjson of the Secret {{ .name }} has.
LoadCredential={{ .name }}.json:/etc/weir/{{ .name }}.json
{{- end }}
{{- with (.Values.resources.limits | default dict).memory | default "512Mi" }}
MemoryMax={{ if kindIs "string" . }}{{ trimSuffix "i" . | upper }}{{ else }}{{ int64 . }}{{ end }}
{{- end }}
{{- if include "weir.addsAddress" . }}
# Only to put --pod-address on an interface. Without it, or with --pod-interface=, none is needed.
CapabilityBoundingSet=CAP_NET_ADMIN
AmbientCapabilities=CAP_NET_ADMIN
{{- else }}
CapabilityBoundingSet=
{{- end }}
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
LockPersonality=yes
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
Also=weir.socket
{{- end }}

{{- define "weir.socket" -}}
# Holds the ports while the daemon is restarted: connections wait in their queues and none is refused.
[Unit]
Description=Ports of Weir, a filtering Kubernetes API proxy
Before=kubelet.service

[Socket]
ListenStream=127.0.0.1:{{ add 10261 $.Values.portOffset }}
ListenStream={{ contains ":" .Values.admin.address | ternary (printf "[%s]" .Values.admin.address) .Values.admin.address }}:{{ add 10267 $.Values.portOffset }}
{{- with .Values.podAddress }}
# --pod-address: leave these two lines out with that flag. The daemon puts it on an interface, so it is not there yet.
ListenStream={{ contains ":" . | ternary (printf "[%s]" .) . }}:{{ add 10268 $.Values.portOffset }}
FreeBind=true
{{- end }}
Backlog=4096
NoDelay=true

[Install]
WantedBy=sockets.target
{{- end }}
