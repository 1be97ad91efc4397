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

/// Beginning of a `ServiceAccount`'s user name.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Characters of user names that mean nothing in CEL.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || ":._@/-".contains(c)
}

/// DNS-1123 label.
fn is_label(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.chars().all(|c| alphanumeric(c) || c == '-')
        && !text.starts_with('-')
        && !text.ends_with('-')
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
    /// no account has are left out, see [`Self::account`].
    #[must_use]
    pub fn new(namespace: &str, exempt_accounts: &[String]) -> Self {
        let quoted = exempt_accounts.iter().filter(|name| name.chars().all(is_plain));
        let quoted: Vec<_> = quoted.map(|name| format!("'{name}'")).collect();
        Self {
            namespace: namespace.to_owned(),
            exempt: quoted.join(", "),
            port: json!(443),
            injection: json!({}),
        }
    }

    /// A namespace's name as somebody wrote it.
    ///
    /// # Errors
    /// It is no DNS-1123 label, so no namespace has it; says what one looks like.
    pub fn namespace(text: &str) -> Result<String, String> {
        is_label(text).then(|| text.to_owned()).ok_or_else(|| {
            "a namespace's name has lower-case letters, digits and inner hyphens, 63 at most"
                .to_owned()
        })
    }

    /// An account's full user name as somebody wrote it.
    ///
    /// # Errors
    /// It is neither a `ServiceAccount`'s nor that of a user as credentials hold it: such an
    /// exemption would exempt nobody, silently. Says what is expected.
    pub fn account(text: &str) -> Result<String, String> {
        let service_account = || {
            let (namespace, name) = text.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
            (is_label(namespace) && name.split('.').all(is_label)).then_some(())
        };
        let other = || {
            let qualified = text.contains(['@', ':', '/']) && text.chars().all(is_plain);
            (qualified && !text.starts_with(SERVICE_ACCOUNT)).then_some(())
        };
        service_account().or_else(other).map(|()| text.to_owned()).ok_or_else(|| {
            format!(
                "an account is a full user name, as audit logs show it: \
                 {SERVICE_ACCOUNT}NAMESPACE:NAME, or a user such as ann@example.com or oidc:ann"
            )
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("tidegate-system", true)]
    #[case("1", true)]
    #[case("", false)]
    #[case("BAD", false)]
    #[case("a.b", false)]
    #[case("-a", false)]
    #[case("a-", false)]
    #[case("a b", false)]
    fn a_namespace_is_a_dns_label(#[case] text: &str, #[case] good: bool) {
        assert_eq!(Values::namespace(text).is_ok(), good);
        assert!(Values::namespace(&"n".repeat(63)).is_ok());
        assert!(Values::namespace(&"n".repeat(64)).is_err());
    }

    #[rstest]
    #[case("system:serviceaccount:velero:velero-server", true)]
    #[case("system:serviceaccount:ci:runner.v2", true)]
    #[case("system:node:n1", true)]
    #[case("ann@example.com", true)]
    #[case("oidc:ann", true)]
    #[case("foo", false)]
    #[case("", false)]
    #[case("velero/velero server", false)]
    #[case("system:serviceaccount:velero", false)]
    #[case("system:serviceaccount:velero:", false)]
    #[case("system:serviceaccount:Velero:server", false)]
    #[case("system:serviceaccount:a:b:c", false)]
    #[case("x' || true || 'y@z", false)]
    fn an_account_is_a_full_user_name(#[case] text: &str, #[case] good: bool) {
        let read = Values::account(text);
        assert_eq!(read.is_ok(), good, "{read:?}");
        if let Err(said) = read {
            assert!(said.contains("system:serviceaccount:NAMESPACE:NAME"), "{said}");
        }
    }
}
