{{- define "tributary.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "tributary.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "tributary.labels" -}}
{{ include "tributary.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* "yes" where more than one process works on the data. */}}
{{- define "tributary.several" -}}
{{- if or (gt (int .Values.replicas.count) 1) .Values.replicas.autoscaling.enabled (gt (int .Values.workers.count) 0) }}yes{{ end }}
{{- end }}

{{/* "yes" where something is on a volume: not if rows, blobs, and the keys of releases are all elsewhere. */}}
{{- define "tributary.volume" -}}
{{- if not (and .Values.identity.sealUrl (hasPrefix "postgres://" .Values.database.url) (hasPrefix "s3://" .Values.blobs.url)) }}yes{{ end }}
{{- end }}

{{/* Where the sealing key is mounted, if it is given: by itself, or beside the folders of keys of releases and ends of ledgers. */}}
{{- define "tributary.sealKey" -}}
{{- if .Values.identity.sealUrl }}/run/secrets/tributary/seal/{{ .Values.identity.sealSecret.key }}{{ else }}/var/lib/tributary/seal.key{{ end }}
{{- end }}

{{/* Stops where values cannot work together, and says what would. */}}
{{- define "tributary.check" -}}
{{- $identity := .Values.identity }}
{{- if include "tributary.several" . }}
{{- if not (hasPrefix "postgres://" .Values.database.url) }}{{ fail "several replicas or workers need one database: give database.url postgres://…, or replicas.count 1 and workers.count 0" }}{{ end }}
{{- if not (hasPrefix "s3://" .Values.blobs.url) }}{{ fail "several replicas or workers need one store of blobs: give blobs.url s3://…" }}{{ end }}
{{- if not $identity.sealSecret.name }}{{ fail "several replicas or workers need the same sealing key: give identity.sealSecret.name" }}{{ end }}
{{- if and (not $identity.caSecret.name) (not (and $identity.serverTlsSecret.name $identity.membersCa.configMap)) }}{{ fail "several replicas need the same authority: give identity.caSecret.name, or identity.serverTlsSecret.name and identity.membersCa.configMap" }}{{ end }}
{{- if not (or $identity.sealUrl .Values.state.existingClaim (eq .Values.state.accessMode "ReadWriteMany")) }}{{ fail "several replicas or workers share the keys of releases and the ends of privacy ledgers: give identity.sealUrl s3://…, or state.accessMode ReadWriteMany, or a claim that has it" }}{{ end }}
{{- end }}
{{- if $identity.sealUrl }}
{{- if not $identity.sealSecret.name }}{{ fail "with identity.sealUrl no coordinator makes the sealing key: give identity.sealSecret.name" }}{{ end }}
{{- if and (not $identity.caSecret.name) (not (and $identity.serverTlsSecret.name $identity.membersCa.configMap)) }}{{ fail "with identity.sealUrl no coordinator makes an authority: give identity.caSecret.name, or identity.serverTlsSecret.name and identity.membersCa.configMap" }}{{ end }}
{{- end }}
{{- if and $identity.membersCa.configMap (not $identity.signer.url) (not $identity.serverTlsSecret.name) }}{{ fail "where devices have certificates already, the coordinator is no authority: give identity.serverTlsSecret.name" }}{{ end }}
{{- if and .Values.signedRequests.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.balancers) }}{{ fail "signedRequests.enabled opens a port without TLS: name the balancer's peers in networkPolicy.balancers" }}{{ end }}
{{- if and $identity.signer.url (not $identity.membersCa.configMap) }}{{ fail "identity.signer.url needs identity.membersCa.configMap: the certificate of the authority that signs there" }}{{ end }}
{{- if and $identity.signer.url (not $identity.signer.caConfigMap) }}{{ fail "identity.signer.url needs identity.signer.caConfigMap: the authority that vouches for the signer's server" }}{{ end }}
{{- end }}

{{/* A value as TOML. YAML's numbers may arrive as floating point; all of the coordinator's are whole. */}}
{{- define "tributary.toml.value" -}}
{{- if kindIs "string" . }}{{ toRawJson . }}
{{- else if kindIs "bool" . }}{{ . }}
{{- else if kindIs "slice" . }}[{{ range $i, $item := . }}{{ if $i }}, {{ end }}{{ include "tributary.toml.value" $item }}{{ end }}]
{{- else if eq (float64 (int64 .)) (float64 .) }}{{ int64 . }}
{{- else }}{{ . }}
{{- end }}
{{- end }}

{{/* The coordinator's file: what the values say, and over it what `config` says. */}}
{{- define "tributary.config" -}}
{{- $v := .Values }}
{{- $secrets := "/run/secrets/tributary" }}
{{- $http := dict "listen" "0.0.0.0:8443" "health_listen" "0.0.0.0:8444" "public_names" $v.publicNames }}
{{- if $v.signedRequests.enabled }}{{ $_ := merge $http (dict "signed_listen" "0.0.0.0:8445" "signed_names" $v.signedRequests.names) }}{{ end }}
{{- if $v.identity.serverTlsSecret.name }}{{ $_ := merge $http (dict "certificate_file" (printf "%s/server/tls.crt" $secrets) "key_file" (printf "%s/server/tls.key" $secrets)) }}{{ end }}
{{- $database := dict "url" $v.database.url }}
{{- if $v.database.passwordSecret.name }}{{ $_ := set $database "password_file" (printf "%s/database/%s" $secrets $v.database.passwordSecret.key) }}{{ end }}
{{- $blobs := dict "url" $v.blobs.url }}
{{- with $v.blobs.endpoint }}{{ $_ := set $blobs "endpoint" . }}{{ end }}
{{- with $v.blobs.region }}{{ $_ := set $blobs "region" . }}{{ end }}
{{- if $v.blobs.credentialsSecret.name }}{{ $_ := set $blobs "credentials_file" (printf "%s/blobs/%s" $secrets $v.blobs.credentialsSecret.key) }}{{ end }}
{{- if hasPrefix "s3://" $v.blobs.url }}{{ $_ := set $blobs "cache" "/var/cache/tributary" }}{{ end }}
{{- with $v.blobs.replicas }}{{ $_ := set $blobs "replicas" . }}{{ end }}
{{- $identity := dict "seal_key_file" (include "tributary.sealKey" .) "ca_certificate_file" "/var/lib/tributary/ca.pem" "ca_key_file" "/var/lib/tributary/ca-key.pem" }}
{{- with $v.identity.sealUrl }}{{ $_ := set $identity "seal_url" . }}{{ end }}
{{- with $v.identity.caSecret }}{{ if .name }}
{{- $_ := set $identity "ca_certificate_file" (printf "%s/ca/%s" $secrets .certificateKey) }}
{{- $_ := set $identity "ca_key_file" (printf "%s/ca/%s" $secrets .keyKey) }}
{{- end }}{{ end }}
{{- if $v.identity.membersCa.configMap }}{{ $_ := set $identity "members_ca_certificate_file" (printf "/etc/tributary/members/%s" $v.identity.membersCa.key) }}{{ end }}
{{- $sections := dict "http" $http "database" $database "blobs" $blobs "identity" $identity "telemetry" (dict "format" "json") }}
{{- with $v.identity.signer }}{{ if .url }}
{{- $signer := dict "url" .url "ca_certificate_file" (printf "/etc/tributary/signer/%s" .caKey) }}
{{- if .tokenSecret.name }}{{ $_ := set $signer "token_file" (printf "%s/signer/%s" $secrets .tokenSecret.key) }}{{ end }}
{{- $_ := set $sections "identity.signer" $signer }}
{{- end }}{{ end }}
{{- $sections = mergeOverwrite $sections (deepCopy $v.config) }}
{{- range $section := keys $sections | sortAlpha }}
[{{ $section }}]
{{- $table := get $sections $section }}
{{- range $key := keys $table | sortAlpha }}
{{ $key }} = {{ include "tributary.toml.value" (get $table $key) }}
{{- end }}
{{ end }}
{{- end }}

{{/* Mounted everywhere: name, kind of source, its name, where. Called with the root, gives YAML for `range`. */}}
{{- define "tributary.mounts" -}}
{{- $identity := .Values.identity }}
mounts:
{{- with .Values.database.passwordSecret.name }}
  - {name: database, secret: {{ . }}, path: /run/secrets/tributary/database}
{{- end }}
{{- with .Values.database.caSecret.name }}
  - {name: database-ca, secret: {{ . }}, path: /run/secrets/tributary/database-ca}
{{- end }}
{{- with .Values.blobs.credentialsSecret.name }}
  - {name: blobs, secret: {{ . }}, path: /run/secrets/tributary/blobs}
{{- end }}
{{- if $identity.sealUrl }}
  - {name: seal, secret: {{ $identity.sealSecret.name }}, path: /run/secrets/tributary/seal}
{{- end }}
{{- with $identity.caSecret.name }}
  - {name: ca, secret: {{ . }}, path: /run/secrets/tributary/ca}
{{- end }}
{{- with $identity.serverTlsSecret.name }}
  - {name: server, secret: {{ . }}, path: /run/secrets/tributary/server}
{{- end }}
{{- with $identity.signer.tokenSecret.name }}
  - {name: signer-token, secret: {{ . }}, path: /run/secrets/tributary/signer}
{{- end }}
{{- with $identity.membersCa.configMap }}
  - {name: members-ca, configMap: {{ . }}, path: /etc/tributary/members}
{{- end }}
{{- with $identity.signer.caConfigMap }}
  - {name: signer-ca, configMap: {{ . }}, path: /etc/tributary/signer}
{{- end }}
{{- end }}
