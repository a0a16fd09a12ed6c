{{/* What the pods of all components have in common: no rights on their node, none beyond their
     account in the cluster, and probes on the port of health and metrics. */}}

{{- define "penstock.podMetadata" -}}
labels:
  {{- include "penstock.labels" . | nindent 2 }}
annotations:
  kubectl.kubernetes.io/default-container: {{ .component }}
  {{- with .restartWith }}
  penstock.dev/restart-with: {{ . | sha256sum | trunc 8 | quote }}
  {{- end }}
{{- end }}

{{- define "penstock.podPlacement" -}}
serviceAccountName: penstock-{{ .component }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
terminationGracePeriodSeconds: 30
enableServiceLinks: false
{{- $own := index .root.Values .component }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with $own.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  {{- if $own.affinity }}
  {{- toYaml $own.affinity | nindent 2 }}
  {{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "penstock.selector" . | nindent 12 }}
  {{- end }}
{{- end }}

{{- define "penstock.container" -}}
name: {{ .component }}
image: {{ include "penstock.image" (dict "root" .root "image" "control") }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
ports:
{{- $scheme := .scheme | default "http" }}
- name: {{ $scheme }}
  containerPort: {{ .port }}
{{- with .plainPort }}
- name: http
  containerPort: {{ . }}
{{- end }}
startupProbe:
  httpGet: {path: /healthz, port: {{ $scheme }}, scheme: {{ upper $scheme }}}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: {{ $scheme }}, scheme: {{ upper $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: {{ $scheme }}, scheme: {{ upper $scheme }}}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 3
{{- with (index .root.Values .component).resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
