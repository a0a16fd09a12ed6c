{{/* The Brain's certificate. Helm makes it when there is none, with an authority that signs this one
     and whose key nobody keeps, and leaves it as it is from then on. */}}

{{/* Values that a release without TLS has left, and --reuse-values takes over, have none of these. */}}
{{- define "penstock.tls" -}}
{{- $defaults := dict "enabled" true "source" "generated" "issuer" dict "secretName" "" "authority" "" "plain" "auto" }}
{{- $_ := set .Values.brain "tls" (mergeOverwrite $defaults (.Values.brain.tls | default dict)) }}
{{- end }}

{{- define "penstock.brainScheme" -}}
{{- include "penstock.tls" . }}
{{- ternary "https" "http" .Values.brain.tls.enabled }}
{{- end }}

{{- define "penstock.brainPort" -}}
{{- include "penstock.tls" . }}
{{- ternary 8443 8477 .Values.brain.tls.enabled }}
{{- end }}

{{- define "penstock.brainNames" -}}
{{- $service := printf "penstock-brain.%s" .Release.Namespace -}}
{{ list (printf "%s.svc" $service) (printf "%s.svc.cluster.local" $service) $service "penstock-brain" "localhost" | toJson }}
{{- end }}

{{- define "penstock.brainSecret" -}}
{{ ternary .Values.brain.tls.secretName "penstock-brain-tls" (eq .Values.brain.tls.source "secret") }}
{{- end }}

{{/* Sets .Values.brain.tls.made, once for all templates. */}}
{{- define "penstock.makeCertificate" -}}
{{- $tls := .Values.brain.tls }}
{{- if not (hasKey $tls "made") }}
{{- $secret := lookup "v1" "Secret" .Release.Namespace "penstock-brain-tls" }}
{{- $published := lookup "v1" "ConfigMap" .Release.Namespace "penstock-brain-ca" }}
{{- if and $secret $published }}
{{- $_ := set $tls "made" (dict "certificate" (index $secret.data "tls.crt" | b64dec) "key" (index $secret.data "tls.key" | b64dec) "authority" (index $published.data "ca.crt")) }}
{{- else }}
{{- $authority := genCA "penstock-brain-ca" 3650 }}
{{- $signed := genSignedCert "penstock-brain" (list "127.0.0.1" "::1") (include "penstock.brainNames" . | fromJsonArray) 3650 $authority }}
{{- $_ := set $tls "made" (dict "certificate" $signed.Cert "key" $signed.Key "authority" $authority.Cert) }}
{{- end }}
{{- end }}
{{- end }}

{{/* What clients of the Brain are to trust, as far as Helm knows it. */}}
{{- define "penstock.brainAuthority" -}}
{{- include "penstock.tls" . }}
{{- if eq .Values.brain.tls.source "generated" }}
{{- include "penstock.makeCertificate" . }}
{{- .Values.brain.tls.made.authority }}
{{- else }}
{{- .Values.brain.tls.authority }}
{{- end }}
{{- end }}

{{- define "penstock.brainAuthorityVolume" -}}
name: brain-ca
{{- if include "penstock.brainAuthority" . }}
configMap: {name: penstock-brain-ca}
{{- else }}
secret:
  secretName: {{ include "penstock.brainSecret" . | quote }}
  items: [{key: ca.crt, path: ca.crt}]
{{- end }}
{{- end }}

{{/* "true" where trainers may be about that know the Brain by its port without TLS. */}}
{{- define "penstock.brainPlain" -}}
{{- include "penstock.tls" . }}
{{- $tls := .Values.brain.tls }}
{{- if and $tls.enabled (ne $tls.plain "never") }}
{{- if eq $tls.plain "always" }}true
{{- else if .Release.IsUpgrade }}
{{- $service := lookup "v1" "Service" .Release.Namespace "penstock-brain" }}
{{- if $service }}
{{- $encrypted := false }}
{{- range $service.spec.ports }}
{{- if eq .name "https" }}{{ $encrypted = true }}{{ end }}
{{- end }}
{{- if not $encrypted }}true{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
