//! Whether a stored object is what this version renders. Pure.
//!
//! What is rendered must be there. What is there beside it must be a default that the
//! apiserver fills in: an added match condition would let things through. Not compared:
//! metadata, status, and what belongs to the installation (bundle and port).

use serde_json::{Map, Value};

/// Fields that belong to the installation.
const OF_THE_INSTALLATION: [&str; 2] = ["caBundle", "port"];
/// What the apiserver fills in, beside empty objects and lists.
const DEFAULTS: [(&str, &str); 6] = [
    ("listKind", "QueueList"),
    ("strategy", "None"),
    ("matchPolicy", "Equivalent"),
    ("scope", "*"),
    ("reinvocationPolicy", "Never"),
    ("reason", "Invalid"),
];
/// Where a policy lists who is exempt.
const ACCOUNTS: &str = "request.userInfo.username in [";

/// The first path at which two objects differ, with what was wanted and what is there.
pub fn difference(rendered: &Value, stored: &Value) -> Option<String> {
    let (Value::Object(rendered), Value::Object(stored)) = (rendered, stored) else {
        return Some("it is no object".to_owned());
    };
    let parts = rendered
        .iter()
        .filter(|(key, _)| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
    parts
        .into_iter()
        .find_map(|(key, part)| differs(part, stored.get(key).unwrap_or(&Value::Null), key))
}

fn differs(rendered: &Value, stored: &Value, path: &str) -> Option<String> {
    match (rendered, stored) {
        (Value::Object(wanted), Value::Object(there)) => fields(wanted, there, path),
        (Value::Array(wanted), Value::Array(there)) if wanted.len() == there.len() => {
            let pairs = wanted.iter().zip(there).enumerate();
            pairs
                .into_iter()
                .find_map(|(at, (wanted, there))| differs(wanted, there, &format!("{path}[{at}]")))
        }
        (Value::String(wanted), Value::String(there)) if canonical(wanted) == canonical(there) => {
            None
        }
        // A schema's `1000000.0` is stored as `1000000`.
        (Value::Number(wanted), Value::Number(there)) if wanted.as_f64() == there.as_f64() => None,
        (wanted, there) if wanted == there => None,
        _ => Some(format!("{path} is not as rendered")),
    }
}

fn fields(wanted: &Map<String, Value>, there: &Map<String, Value>, path: &str) -> Option<String> {
    let missing = wanted.iter().filter(|(key, _)| !OF_THE_INSTALLATION.contains(&key.as_str()));
    let missing = missing.into_iter().find_map(|(key, wanted)| {
        let there = there.get(key).unwrap_or(&Value::Null);
        differs(wanted, there, &format!("{path}.{key}"))
    });
    missing.or_else(|| {
        let added = there.iter().find(|(key, value)| {
            !wanted.contains_key(*key)
                && !OF_THE_INSTALLATION.contains(&key.as_str())
                && !is_default(key, value)
        });
        added.map(|(key, _)| format!("{path}.{key} was added"))
    })
}

fn is_default(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.iter().all(|(key, value)| is_default(key, value)),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => DEFAULTS.contains(&(key, text)),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// An expression with its list of exempt accounts taken out: it belongs to the installation.
fn canonical(text: &str) -> String {
    match list_of_accounts(text) {
        Some((before, _, after)) => format!("{before}{after}"),
        None => text.trim_end().to_owned(),
    }
}

fn list_of_accounts(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once(ACCOUNTS)?;
    let (list, after) = rest.split_once(']')?;
    Some((before, list, after))
}

/// Accounts that a policy's expressions exempt.
pub fn exempt_accounts(policy: &Value) -> Vec<String> {
    let variables = policy.pointer("/spec/variables").and_then(Value::as_array);
    let expressions = variables.into_iter().flatten().map(|v| super::text(v, "/expression"));
    let lists = expressions.filter_map(list_of_accounts);
    let names = lists.flat_map(|(_, list, _)| list.split(','));
    let names = names.map(|name| name.trim().trim_matches('\'').to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifests::{self, Values};
    use rstest::rstest;
    use serde_json::json;

    fn policy() -> Value {
        let values = Values::new("tidegate-system", &[]);
        manifests::guard(&values).into_iter().next().unwrap()
    }

    #[test]
    fn what_is_rendered_and_what_the_apiserver_fills_in_are_the_same() {
        let mut stored = policy();
        stored["metadata"]["uid"] = json!("u");
        stored["status"] = json!({"observedGeneration": 1});
        stored["spec"]["matchConstraints"]["objectSelector"] = json!({});
        assert_eq!(difference(&policy(), &stored), None);
    }

    #[rstest]
    #[case::value("/spec/failurePolicy", json!("Ignore"), "spec.failurePolicy is not as rendered")]
    #[case::fewer("/spec/validations", json!([]), "spec.validations is not as rendered")]
    #[case::gone("/spec/variables", Value::Null, "spec.variables is not as rendered")]
    #[case::expression("/spec/validations/0/expression", json!("true"), "spec.validations[0].expression is not")]
    #[case::condition("/spec/matchConditions/0/expression", json!("false"), "spec.matchConditions[0].expression is not")]
    #[case::added("/spec/auditAnnotations", json!([{"key": "k", "valueExpression": "'v'"}]), "spec.auditAnnotations was added")]
    #[case::selector("/spec/matchConstraints/objectSelector", json!({"matchLabels": {"a": "b"}}), "objectSelector was added")]
    fn anything_else_is_told(#[case] at: &str, #[case] value: Value, #[case] said: &str) {
        let mut stored = policy();
        let (parent, key) = at.rsplit_once('/').unwrap();
        let parent = stored.pointer_mut(parent).unwrap();
        match parent {
            Value::Object(fields) => drop(fields.insert(key.to_owned(), value)),
            other => other[key.parse::<usize>().unwrap()] = value,
        }
        let found = difference(&policy(), &stored).unwrap();
        assert!(found.contains(said), "{found}");
    }

    #[test]
    fn numbers_are_compared_by_value() {
        let one = |number: Value| json!({"spec": {"maximum": number}});
        assert_eq!(difference(&one(json!(1_000_000.0)), &one(json!(1_000_000))), None);
        assert!(difference(&one(json!(2)), &one(json!(1))).is_some());
    }

    #[test]
    fn exempt_accounts_are_the_installations_and_are_listed() {
        let account = "system:serviceaccount:velero:velero".to_owned();
        let with =
            manifests::guard(&Values::new("tidegate-system", std::slice::from_ref(&account)));
        assert_eq!(difference(&policy(), &with[0]), None);
        let daemons = crate::api::names::USER_DAEMON_SET_CONTROLLER.to_owned();
        assert_eq!(exempt_accounts(&with[0]), [daemons, account]);
    }

    #[test]
    fn bundle_and_port_are_the_installations() {
        let rendered = manifests::validating(&Values::new("tidegate-system", &[]));
        let mut stored = rendered.clone();
        stored["webhooks"][0]["clientConfig"]["caBundle"] = json!("YQ==");
        stored["webhooks"][0]["clientConfig"]["service"]["port"] = json!(9443);
        assert_eq!(difference(&rendered, &stored), None);
        stored["webhooks"][0]["clientConfig"]["service"]["namespace"] = json!("elsewhere");
        assert!(difference(&rendered, &stored).is_some());
    }
}
