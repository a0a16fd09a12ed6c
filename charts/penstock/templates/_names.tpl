{{/* Names and labels. Names are fixed: the CRDs, the trainer's role and its policies exist once in a
     cluster, and so does Penstock. */}}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "penstock.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: penstock
{{- with .component }}
{{ include "penstock.selector" $ }}
{{- end }}
{{- end }}

{{/* The components of this release with the port of their health and metrics. */}}
{{- define "penstock.components" -}}
- {name: controller, port: 8478, scheme: http}
- {name: brain, port: {{ include "penstock.brainPort" . }}, scheme: {{ include "penstock.brainScheme" . }}}
{{- if .Values.scheduler.enabled }}
- {name: scheduler, port: 8479, scheme: http}
{{- end }}
{{- end }}

{{- define "penstock.image" -}}
{{- $image := index .root.Values.image .image -}}
{{- with .root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .root.Chart.AppVersion }}{{ end -}}
{{- end }}

{{- define "penstock.brainUrl" -}}
{{ include "penstock.brainScheme" . }}://penstock-brain.{{ .Release.Namespace }}.svc:{{ include "penstock.brainPort" . }}
{{- end }}

{{/* The memory request of a cache's pod: what it holds, and a fiftieth and 64 MiB for itself. A quantity
     in other units than these is asked for as it is. */}}
{{- define "penstock.cacheRequest" -}}
{{- $memory := toString . -}}
{{- $mebibytes := 0 -}}
{{- range $unit, $size := dict "Mi" 1 "Gi" 1024 "Ti" 1048576 -}}
{{- if regexMatch (printf "^[0-9]+%s$" $unit) $memory -}}
{{- $mebibytes = mul $size (trimSuffix $unit $memory | int) -}}
{{- end -}}
{{- end -}}
{{- if $mebibytes -}}
{{- printf "%dMi" (add $mebibytes (div $mebibytes 50) 64) -}}
{{- else -}}
{{- $memory -}}
{{- end -}}
{{- end }}

{{/* Where the cache of a node listens; the same path on the node, in its pod and in those of jobs. */}}
{{- define "penstock.cacheSocket" -}}
/run/penstock/cache.sock
{{- end }}
