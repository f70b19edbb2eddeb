{{- define "kerf.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "kerf.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "kerf.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "kerf.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "kerf.selectorLabels" -}}
app.kubernetes.io/name: {{ include "kerf.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kerf.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "kerf.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The metadata that all objects have; the caller adds nothing or a namespace. */}}
{{- define "kerf.metadata" -}}
name: {{ include "kerf.fullname" . }}
labels:
  {{- include "kerf.labels" . | nindent 2 }}
{{- with .Values.additionalAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "kerf.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "kerf.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is not set: with serviceAccount.create=false the chart needs the name of a ServiceAccount" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "kerf.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- /* Whether the page is there for more than the pod itself, and for kubectl port-forward, which comes from there. */}}
{{- define "kerf.pageIsReachable" -}}
{{- $address := .Values.settings.dashboardAddress | default "127.0.0.1" }}
{{- if and (gt (int .Values.settings.dashboardPort) 0) (not (hasPrefix "127." $address)) (ne $address "::1") }}true{{ end }}
{{- end }}

{{- define "kerf.leaseNamespace" -}}
{{- default .Release.Namespace .Values.settings.leaderElectionNamespace }}
{{- end }}

{{- /* A setting as the text of its flag. Helm reads every number as a float, and writes large ones as 1e+06. */}}
{{- define "kerf.flag" -}}
{{- $value := .value }}
{{- if eq .flag "feature-gates" }}
{{- $gates := list }}
{{- range $gate, $on := $value }}
{{- $gates = append $gates (printf "%s%s=%t" (substr 0 1 $gate | upper) (substr 1 -1 $gate) $on) }}
{{- end }}
{{- join "," $gates }}
{{- else if kindIs "map" $value }}
{{- toJson $value }}
{{- else if kindIs "float64" $value }}
{{- if eq $value (floor $value) }}{{ int64 $value }}{{ else }}{{ $value }}{{ end }}
{{- else }}
{{- $value }}
{{- end }}
{{- end }}

{{- /* What each value alone does not show. */}}
{{- define "kerf.check" -}}
{{- if and .Values.settings.disableLeaderElection (gt (int .Values.replicas) 1) }}
{{- fail (printf "settings.disableLeaderElection is true with %d replicas: all of them would launch and terminate nodes at once; set replicas to 1" (int .Values.replicas)) }}
{{- end }}
{{- if and (eq .Values.settings.provider "aws") (not .Values.settings.clusterName) }}
{{- fail "settings.clusterName is not set: the provider aws finds what belongs to the cluster by its name" }}
{{- end }}
{{- if eq (int .Values.settings.metricsPort) (int .Values.settings.healthProbePort) }}
{{- fail (printf "settings.metricsPort and settings.healthProbePort are both %d: they need two ports" (int .Values.settings.metricsPort)) }}
{{- end }}
{{- if and .Values.podDisruptionBudget.maxUnavailable .Values.podDisruptionBudget.minAvailable }}
{{- fail "podDisruptionBudget has maxUnavailable and minAvailable: Kubernetes takes one of them; set the other to null" }}
{{- end }}
{{- end }}
