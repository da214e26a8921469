{{- define "exporter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "exporter.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "exporter.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "exporter.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "exporter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "exporter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "exporter.labels" -}}
{{ include "exporter.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "exporter.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "exporter.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "exporter.image" -}}
{{- $registry := required "image.registry is required: where did you push the image?" .Values.image.registry -}}
{{- $name := printf "%s/%s" $registry .Values.image.repository -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $name .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $name (default (printf "%s%s" .Chart.AppVersion (ternary "-drain" "" .Values.drain.enabled)) .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "exporter.configuration" -}}
{{- $config := deepCopy .Values.config }}
{{- if .Values.drain.enabled }}
{{- $hooks := default list $config.hooks }}
{{- range $name, $transitions := dict
    "drain" (list "scheduled" "started")
    "uncordon" (list "completed" "cancelled" "vanished") }}
{{- $hooks = append $hooks (dict
    "name" $name
    "match" (dict "event_types" $.Values.drain.eventTypes "transitions" $transitions)
    "command" (list (printf "/opt/scheduled-events/kubernetes/%s" $name))
    "timeout" $.Values.drain.timeout) }}
{{- end }}
{{- $config = set $config "hooks" $hooks }}
{{- end }}
{{- toYaml $config }}
{{- end }}
