{{/* The pod of replicas and workers: called with root, component, command, resources and env. */}}
{{- define "tributary.pod" -}}
{{- $root := .root }}
{{- $v := $root.Values }}
{{- $name := include "tributary.name" $root }}
{{- $mounts := (include "tributary.mounts" $root | fromYaml).mounts | default list }}
metadata:
  labels:
    {{- include "tributary.labels" (dict "root" $root "component" .component) | nindent 4 }}
    {{- with $v.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ include "tributary.config" $root | sha256sum }}
spec:
  {{- include "tributary.pod.common" (dict "root" $root "component" .component) | nindent 2 }}
  # Requests that were accepted have http.shutdown_timeout_ms (30 s); then running steps end and queued facts are written.
  terminationGracePeriodSeconds: 75
  containers:
    - name: tributary
      image: {{ printf "%s@%s" $v.image.repository $v.image.digest }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      args: [{{ .command }}, --config, /etc/tributary/coordinator.toml]
      {{- with .env }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        {{- if eq .component "replica" }}
        - {name: https, containerPort: 8443, protocol: TCP}
        {{- if .root.Values.signedRequests.enabled }}
        - {name: signed, containerPort: 8445, protocol: TCP}
        {{- end }}
        {{- end }}
        - {name: health, containerPort: 8444, protocol: TCP}
      securityContext: {{ include "tributary.container.security" . }}
      # Migrating and opening a large database come before the first answer.
      startupProbe:
        httpGet: {path: /healthz, port: health}
        periodSeconds: 2
        failureThreshold: 150
      livenessProbe:
        httpGet: {path: /healthz, port: health}
        periodSeconds: 10
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: health}
        periodSeconds: 10
        timeoutSeconds: 5
      lifecycle:
        # Until balancers have learnt that it goes.
        preStop: {sleep: {seconds: 10}}
      resources:
        {{- toYaml .resources | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/tributary/coordinator.toml, subPath: coordinator.toml, readOnly: true}
        {{- if include "tributary.volume" $root }}
        - {name: state, mountPath: /var/lib/tributary}
        {{- end }}
        {{- if hasPrefix "s3://" $v.blobs.url }}
        - {name: cache, mountPath: /var/cache/tributary}
        {{- end }}
        {{- if and $v.identity.sealSecret.name (not $v.identity.sealUrl) }}
        # Beside it are the folders seal.releases and seal.ledgers, on the volume.
        - {name: seal, mountPath: /var/lib/tributary/seal.key, subPath: {{ $v.identity.sealSecret.key }}, readOnly: true}
        {{- end }}
        {{- range $mounts }}
        - {name: {{ .name }}, mountPath: {{ .path }}, readOnly: true}
        {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ $name }}}
    {{- if include "tributary.volume" $root }}
    - name: state
      persistentVolumeClaim: {claimName: {{ $v.state.existingClaim | default $name }}}
    {{- end }}
    {{- if hasPrefix "s3://" $v.blobs.url }}
    - name: cache
      emptyDir: {sizeLimit: {{ $v.blobs.cacheSize }}}
    {{- end }}
    {{- if and $v.identity.sealSecret.name (not $v.identity.sealUrl) }}
    - name: seal
      secret: {secretName: {{ $v.identity.sealSecret.name }}, defaultMode: 0440}
    {{- end }}
    {{- range $mounts }}
    - name: {{ .name }}
      {{- if .secret }}
      secret: {secretName: {{ .secret }}, defaultMode: 0440}
      {{- else }}
      configMap: {name: {{ .configMap }}}
      {{- end }}
    {{- end }}
{{- end }}

{{/* What the pods of all components have in common: called with root and component. */}}
{{- define "tributary.pod.common" -}}
serviceAccountName: {{ include "tributary.name" .root }}
automountServiceAccountToken: false
# Kubernetes would set TRIBUTARY_… variables after Services of such names, and the coordinator reads those as its own.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $.root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
topologySpreadConstraints:
  {{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "tributary.selector" (dict "root" $.root "component" $.component) | nindent 8 }}
  {{- end }}
{{- with $.root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "tributary.container.security" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}
