{{/* Labels of everything. */}}
{{- define "tidegate.labels" -}}
app.kubernetes.io/name: tidegate
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Labels that select the pods of one program: (list . "webhook"). */}}
{{- define "tidegate.selector" -}}
app.kubernetes.io/name: tidegate
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "tidegate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* Exempt accounts as items of a CEL list; the schema keeps quotes out of them. */}}
{{- define "tidegate.exemptAccounts" -}}
{{- range $i, $account := .Values.admission.exemptAccounts }}{{ if $i }}, {{ end }}'{{ $account }}'{{ end }}
{{- end }}

{{/* Annotations of objects that hold a bundle, as one flow mapping. */}}
{{- define "tidegate.caInjection" -}}
{{- if .Values.certManager.enabled -}}
{cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/tidegate-tls}
{{- else -}}
{}
{{- end }}
{{- end }}

{{/* A Service of one program: (list . "webhook" PORT TARGET). */}}
{{- define "tidegate.service" -}}
{{- $root := index . 0 -}}
apiVersion: v1
kind: Service
metadata:
  name: tidegate-{{ index . 1 }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "tidegate.labels" $root | nindent 4 }}
spec:
  {{- if $root.Values.service.externalName }}
  type: ExternalName
  externalName: {{ $root.Values.service.externalName }}
  {{- else }}
  selector: {{- include "tidegate.selector" (list $root (index . 1)) | nindent 4 }}
  ports:
  - name: https
    port: {{ index . 2 }}
    targetPort: https
  {{- end }}
{{- end }}

{{/* What the pods of both programs have in common. */}}
{{- define "tidegate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "tidegate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "tidegate.env" -}}
- name: TIDEGATE_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: TIDEGATE_LOG
  value: {{ .Values.log | quote }}
{{- end }}

{{/* The leaf only: the key of the authority stays in the Secret. */}}
{{- define "tidegate.tlsVolume" -}}
- name: tls
  secret:
    secretName: tidegate-tls
    defaultMode: 288 # 0440, which YAML 1.2 reads as a decimal
    items:
    - {key: tls.crt, path: tls.crt}
    - {key: tls.key, path: tls.key}
{{- end }}

{{/* Annotations of what exists only while the chart is uninstalled: (list WEIGHT). */}}
{{- define "tidegate.preDelete" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ index . 0 | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
