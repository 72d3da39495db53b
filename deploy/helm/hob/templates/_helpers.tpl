{{- define "hob.name" -}}
{{- if contains "hob" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-hob{{ end }}
{{- end }}

{{- define "hob.selector" -}}
app.kubernetes.io/name: hob
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "hob.labels" -}}
{{ include "hob.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "hob.secret" -}}
{{- .Values.existingSecret | default (include "hob.name" .) }}
{{- end }}

{{- /* The names under which clients and the kubelet reach a node. */ -}}
{{- define "hob.hosts" -}}
{{- $name := include "hob.name" . }}
{{- $hosts := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) }}
{{- if .Values.ingress.enabled }}{{ $hosts = append $hosts .Values.ingress.host }}{{ end }}
{{- concat $hosts .Values.hosts | uniq | toJson }}
{{- end }}

{{- define "hob.check" -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.existingSecret) (or (not .Values.redisUrl) (not .Values.databaseUrl)) }}
{{- fail "several nodes need Redis and PostgreSQL: set redisUrl and databaseUrl, or existingSecret" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled (not .Values.serviceMonitor.tokenSecret) }}
{{- fail "serviceMonitor needs tokenSecret: a Secret with the key `token`, made with `hob token create prometheus --scope metrics:read`" }}
{{- end }}
{{- end }}
