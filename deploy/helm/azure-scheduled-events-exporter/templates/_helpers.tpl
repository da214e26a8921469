{{- define "exporter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "exporter.fullname" -}}
{{- if not (hasKey .Values "rbac") }}
{{- fail "the values of an older chart are reused: upgrade with --reset-then-reuse-values instead of --reuse-values" }}
{{- end }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "exporter.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "exporter.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "exporter.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
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
{{- $registry := default .Values.image.registry (.Values.global).imageRegistry -}}
{{- $name := printf "%s/%s" $registry .Values.image.repository -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $name .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $name (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* "true" where the exporter talks to the API server. */}}
{{- define "exporter.usesKubernetes" -}}
{{- if or .Values.nodeConditions .Values.drain.enabled }}true{{ end }}
{{- end }}

{{- define "exporter.configuration" -}}
{{- $drain := .Values.drain }}
{{- $settings := dict "enabled" $drain.enabled "mode" $drain.mode "force" $drain.force "before" $drain.before
    "match" (dict "event_types" $drain.eventTypes)
    "exclude_from_load_balancers" $drain.excludeFromLoadBalancers
    "pod_grace_period" $drain.podGracePeriod
    "pod_selector" $drain.podSelector
    "skip_node_labels" $drain.skipNodeLabels }}
{{- $kubernetes := dict "conditions" .Values.nodeConditions "drain" $settings }}
{{- $own := dict "kubernetes" $kubernetes }}
{{- toYaml (mergeOverwrite $own (deepCopy .Values.config)) }}
{{- end }}
