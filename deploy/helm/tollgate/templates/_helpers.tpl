{{- define "tollgate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tollgate.labels" -}}
{{ include "tollgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "tollgate.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "tollgate.policies" -}}
{{ .Values.policies.existingConfigMap | default (printf "%s-policies" (include "tollgate.fullname" .)) }}
{{- end -}}

{{- define "tollgate.store" -}}
{{- $store := .Values.store -}}
{{- $s := ternary "s" "" $store.tls -}}
{{- $hosts := join "," $store.addresses -}}
{{- if eq $store.type "memory" -}}
memory
{{- else if not $store.addresses -}}
{{- fail (printf "store.type is %s, and store.addresses is empty: name its servers, such as [redis:6379]" $store.type) -}}
{{- else if eq $store.type "redis" -}}
{{- if ne (len $store.addresses) 1 -}}
{{- fail (printf "store.type is redis, and store.addresses has %d servers: one, or set store.type to sentinel or cluster" (len $store.addresses)) -}}
{{- end -}}
redis{{ $s }}://{{ $hosts }}
{{- else if eq $store.type "sentinel" -}}
redis{{ $s }}-sentinel://{{ $store.master }}@{{ $hosts }}
{{- else -}}
redis{{ $s }}-cluster://{{ $hosts }}
{{- end -}}
{{- end -}}

{{/* The ports of the store and the control plane, a list. Sentinels tell the address of a server, by default on 6379. */}}
{{- define "tollgate.egressPorts" -}}
{{- $ports := list -}}
{{- $default := ternary "26379" "6379" (eq .Values.store.type "sentinel") -}}
{{- if ne .Values.store.type "memory" -}}
{{- range .Values.store.addresses -}}
{{- $ports = append $ports (regexFind ":[0-9]+$" . | trimPrefix ":" | default $default) -}}
{{- end -}}
{{- if eq .Values.store.type "sentinel" -}}
{{- $ports = append $ports "6379" -}}
{{- end -}}
{{- end -}}
{{- with .Values.policies.controlPlane -}}
{{- $ports = append $ports (regexFind ":[0-9]+$" . | trimPrefix ":" | default "443") -}}
{{- end -}}
{{- range uniq $ports }}
- {{ . }}
{{- end }}
{{- end }}

{{/* The Secrets of the store: a list of the Secret's name, its key, the setting, and the file below /etc/tollgate-redis. */}}
{{- define "tollgate.storeFiles" -}}
{{- $store := .Values.store -}}
{{- $files := list -}}
{{- if $store.passwordSecret.name -}}
{{- $files = append $files (dict "secret" $store.passwordSecret.name "key" $store.passwordSecret.key "setting" "TOLLGATE_REDIS_PASSWORD_FILE" "file" "password") -}}
{{- end -}}
{{- if $store.sentinelPasswordSecret.name -}}
{{- $files = append $files (dict "secret" $store.sentinelPasswordSecret.name "key" $store.sentinelPasswordSecret.key "setting" "TOLLGATE_SENTINEL_PASSWORD_FILE" "file" "sentinel-password") -}}
{{- end -}}
{{- if $store.caSecret.name -}}
{{- $files = append $files (dict "secret" $store.caSecret.name "key" $store.caSecret.key "setting" "TOLLGATE_REDIS_CA" "file" "ca.crt") -}}
{{- end -}}
{{- if $store.clientCertificateSecret -}}
{{- $files = append $files (dict "secret" $store.clientCertificateSecret "key" "tls.crt" "setting" "TOLLGATE_REDIS_CERT" "file" "tls.crt") -}}
{{- $files = append $files (dict "secret" $store.clientCertificateSecret "key" "tls.key" "setting" "TOLLGATE_REDIS_KEY" "file" "tls.key") -}}
{{- end -}}
{{- toJson $files -}}
{{- end -}}
