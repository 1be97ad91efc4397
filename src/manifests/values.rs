//! What differs between clusters.

use serde_json::{Value, json};

use crate::api::names::{LABEL_MANAGED, LABEL_NAMESPACE_NAME, MANAGED, SYSTEM_NAMESPACES};

/// An object with one more field.
pub(super) fn with(object: Value, field: &str, value: Value) -> Value {
    match object {
        Value::Object(mut fields) => {
            fields.insert(field.to_owned(), value);
            Value::Object(fields)
        }
        other => other,
    }
}

/// What differs between clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values {
    /// Where Tidegate is installed: never gated.
    pub namespace: String,
    /// CEL: further exempt accounts, as items of a list of strings.
    pub(super) exempt: String,
    /// Port of the webhook's Service.
    pub(super) port: Value,
    /// Annotations of objects that hold a bundle.
    pub(super) injection: Value,
}

impl Values {
    /// Values of a cluster. Accounts are full user names; those with characters that
    /// no account has are left out.
    #[must_use]
    pub fn new(namespace: &str, exempt_accounts: &[String]) -> Self {
        let plain = |c: char| c.is_ascii_alphanumeric() || ":._@/-".contains(c);
        let quoted = exempt_accounts.iter().filter(|name| name.chars().all(plain));
        let quoted: Vec<_> = quoted.map(|name| format!("'{name}'")).collect();
        Self {
            namespace: namespace.to_owned(),
            exempt: quoted.join(", "),
            port: json!(443),
            injection: json!({}),
        }
    }

    /// Namespaces that are never touched, and ours.
    fn untouched(&self) -> Value {
        let system = SYSTEM_NAMESPACES.iter().copied();
        let namespaces: Vec<_> = system.chain([self.namespace.as_str()]).collect();
        json!({"key": LABEL_NAMESPACE_NAME, "operator": "NotIn", "values": namespaces})
    }

    /// Selects namespaces that opted in and may.
    pub(super) fn opted_in(&self) -> Value {
        let managed = json!({"key": LABEL_MANAGED, "operator": "In", "values": [MANAGED]});
        json!({"matchExpressions": [managed, self.untouched()]})
    }

    /// Selects namespaces that could opt in and did not.
    pub(super) fn not_opted_in(&self) -> Value {
        let managed = json!({"key": LABEL_MANAGED, "operator": "NotIn", "values": [MANAGED]});
        json!({"matchExpressions": [managed, self.untouched()]})
    }

    /// Selects every namespace that could ever have opted in.
    pub(super) fn touchable(&self) -> Value {
        json!({"matchExpressions": [self.untouched()]})
    }
}
