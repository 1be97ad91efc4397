//! The committed files.

use serde_json::{Value, json};

use super::values::Values;
use super::{crds, gate_policy, guard, mutating, owners, validating, validating_with_pods};

/// First line of each file.
const HEADER: &str = "# Generated from src/manifests; see there for changes.\n";

/// Words that stand for Helm expressions until the text is made. They need no
/// quotes in YAML, so neither do the expressions.
const NAMESPACE: &str = "HELM-NAMESPACE";
const EXEMPT: &str = "HELM-EXEMPT";
const PORT: &str = "HELM-PORT";
const INJECTION: &str = "HELM-INJECTION";
const PLACEHOLDERS: [(&str, &str); 4] = [
    (NAMESPACE, "{{ .Release.Namespace }}"),
    (EXEMPT, r#"{{ include "tidegate.exemptAccounts" . }}"#),
    (PORT, "{{ .Values.webhook.service.port }}"),
    (INJECTION, r#"{{ include "tidegate.caInjection" . }}"#),
];

/// Why manifests have no text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A value is not YAML. A fault of ours: stop.
    #[error("yaml: {0}")]
    Yaml(String),
    /// A kind has no schema. A fault of ours: stop.
    #[error("schema: {0}")]
    Schema(#[from] serde_json::Error),
}

/// Manifests as one YAML stream.
pub fn yaml(manifests: &[Value]) -> Result<String, Error> {
    let mut text = HEADER.to_owned();
    for manifest in manifests {
        text.push_str("---\n");
        let one =
            serde_yaml::to_string(manifest).map_err(|error| Error::Yaml(error.to_string()))?;
        text.push_str(&one);
    }
    Ok(text)
}

/// Every generated file: its path in the repository and its text.
pub fn files() -> Result<Vec<(&'static str, String)>, Error> {
    let plain = Values::new("tidegate-system", &[]);
    let chart = Values {
        namespace: NAMESPACE.to_owned(),
        exempt: EXEMPT.to_owned(),
        port: json!(PORT),
        injection: json!(INJECTION),
    };
    let by_webhook =
        helm_if(r#"eq .Values.admission.gateBy "webhook""#, &yaml(&[mutating(&chart)])?);
    let by_policy =
        helm_if(r#"eq .Values.admission.gateBy "policy""#, &yaml(&gate_policy(&chart))?);
    let checks = helm_if_else(
        r#"and (eq .Values.admission.gateBy "policy") .Values.admission.maxPending"#,
        &yaml(&[validating_with_pods(&chart)])?,
        &yaml(&[validating(&chart)])?,
    );
    Ok(vec![
        ("charts/tidegate/crds/crds.yaml", yaml(&crds()?)?),
        ("charts/tidegate/templates/gate-webhook.yaml", by_webhook),
        ("charts/tidegate/templates/gate-policy.yaml", by_policy),
        ("charts/tidegate/templates/queue-webhook.yaml", checks),
        ("charts/tidegate/templates/guard.yaml", helm(&yaml(&guard(&chart))?)),
        ("charts/tidegate/templates/owners.yaml", yaml(&owners())?),
        ("webhook-config/webhooks.yaml", yaml(&[mutating(&plain), validating(&plain)])?),
        ("webhook-config/webhooks-beside-policy.yaml", yaml(&[validating_with_pods(&plain)])?),
        ("webhook-config/gate-policy.yaml", yaml(&gate_policy(&plain))?),
        ("webhook-config/guard.yaml", yaml(&guard(&plain))?),
    ])
}

fn helm(text: &str) -> String {
    PLACEHOLDERS.iter().fold(text.to_owned(), |text, (word, helm)| text.replace(word, helm))
}

fn helm_if(condition: &str, text: &str) -> String {
    format!("{{{{- if {condition} }}}}\n{}{{{{- end }}}}\n", helm(text))
}

fn helm_if_else(condition: &str, text: &str, other: &str) -> String {
    let (text, other) = (helm(text), helm(other));
    format!("{{{{- if {condition} }}}}\n{text}{{{{- else }}}}\n{other}{{{{- end }}}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// `TIDEGATE_BLESS=1` rewrites the files instead.
    #[test]
    fn committed_files_are_what_is_generated() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for (path, text) in files().unwrap() {
            let path = root.join(path);
            if std::env::var_os("TIDEGATE_BLESS").is_some() {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, &text).unwrap();
            }
            let committed = fs::read_to_string(&path).unwrap_or_default();
            assert!(committed == text, "{} is stale: TIDEGATE_BLESS=1", path.display());
        }
    }

    #[test]
    fn no_bundle_and_no_word_of_ours_is_left_in_a_file() {
        for (path, text) in files().unwrap() {
            assert!(!text.contains("caBundle") && !text.contains("HELM-"), "{path}");
        }
    }
}
