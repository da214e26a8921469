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
{{- include "exporter.labelsWith" (list . dict) }}
{{- end }}

{{/* Of a list of the root and further labels: these and commonLabels win, but not over those that select the pods. */}}
{{- define "exporter.labelsWith" -}}
{{- with first . }}
{{- $own := dict "app.kubernetes.io/version" .Chart.AppVersion "app.kubernetes.io/managed-by" .Release.Service
    "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") }}
{{- $selecting := include "exporter.selectorLabels" . | fromYaml }}
{{- toYaml (mergeOverwrite $own (deepCopy .Values.commonLabels) (deepCopy (last $)) $selecting) }}
{{- end }}
{{- end }}

{{/* Of the name of a key, entries as YAML and entries of the user: the user's win over those with the same key. */}}
{{- define "exporter.entries" -}}
{{- $key := first . }}
{{- $given := last . }}
{{- $keys := list }}
{{- range $given }}
{{- $keys = append $keys (get . $key) }}
{{- end }}
{{- $entries := list }}
{{- range index . 1 | fromYamlArray }}
{{- if not (has (get . $key) $keys) }}
{{- $entries = append $entries . }}
{{- end }}
{{- end }}
{{- with concat $entries $given }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- define "exporter.imagePullSecrets" -}}
{{- $secrets := list }}
{{- range concat (default list (.Values.global).imagePullSecrets) .Values.imagePullSecrets }}
{{- if kindIs "string" . }}
{{- $secrets = append $secrets (dict "name" .) }}
{{- else }}
{{- $secrets = append $secrets . }}
{{- end }}
{{- end }}
{{- with $secrets -}}
imagePullSecrets:
  {{- toYaml (uniq .) | nindent 2 }}
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

{{/* What the configuration has the exporter do by the API: token, roles and admission policy follow from it. */}}
{{- define "exporter.access" -}}
{{- with (include "exporter.configuration" . | fromYaml).kubernetes }}
any: {{ or .conditions .drain.enabled }}
conditions: {{ .conditions }}
drain: {{ .drain.enabled }}
cordons: {{ and .drain.enabled (ne .drain.mode "dry_run") }}
excludes: {{ and .drain.enabled (ne .drain.mode "dry_run") .drain.exclude_from_load_balancers }}
lists: {{ and .drain.enabled (ne .drain.mode "cordon") }}
evicts: {{ and .drain.enabled (eq .drain.mode "drain") }}
deletes: {{ and .drain.enabled (eq .drain.mode "drain") (regexMatch "[1-9]" (toString .drain.delete_before)) }}
{{- end }}
{{- end }}

{{- define "exporter.configuration" -}}
{{- $drain := .Values.drain }}
{{- $settings := dict "enabled" $drain.enabled "mode" $drain.mode "force" $drain.force "before" $drain.before
    "match" (dict "event_types" $drain.eventTypes)
    "exclude_from_load_balancers" $drain.excludeFromLoadBalancers
    "pod_grace_period" $drain.podGracePeriod
    "pod_selector" $drain.podSelector
    "delete_before" $drain.deleteBefore
    "skip_node_labels" $drain.skipNodeLabels }}
{{- $kubernetes := dict "conditions" .Values.nodeConditions "drain" $settings }}
{{- $own := dict "kubernetes" $kubernetes }}
{{- toYaml (mergeOverwrite $own (deepCopy .Values.config)) }}
{{- end }}
