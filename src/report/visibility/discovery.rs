//! What this API says of itself: discovery and `OpenAPI` documents.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::api::names::{VERSION, VISIBILITY_GROUP};

use super::objects::{
    EXPLANATION_KIND, Explanation, GROUP_KIND, GROUP_LIST_KIND, Group, GroupList, api_version,
};
use super::{EXPLANATION, GROUPS};

/// `/apis`.
pub fn group_list() -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]})
}

/// `/apis/GROUP`.
pub fn group() -> Value {
    let version = json!({"groupVersion": api_version(), "version": VERSION});
    json!({
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": VISIBILITY_GROUP,
        "versions": [version],
        "preferredVersion": version,
    })
}

/// `/apis/GROUP/VERSION`.
pub fn resources() -> Value {
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version(),
        "resources": [
            {
                "name": GROUPS,
                "singularName": "group",
                "namespaced": true,
                "kind": GROUP_KIND,
                "verbs": ["get", "list"],
                "shortNames": ["tg"],
                "categories": ["tidegate"],
            },
            {
                "name": format!("{GROUPS}/{EXPLANATION}"),
                "singularName": "",
                "namespaced": true,
                "kind": EXPLANATION_KIND,
                "verbs": ["get"],
            },
        ],
    })
}

/// `/openapi/v2`: nothing but its frame, since clients prefer version 3.
pub fn openapi_v2() -> Value {
    json!({"swagger": "2.0", "info": info(), "paths": {}, "definitions": {}})
}

/// `/openapi/v3`: where the document is.
pub fn openapi_v3_index() -> Value {
    let path = format!("apis/{}", api_version());
    let url = format!("/openapi/v3/{path}?hash={}", env!("CARGO_PKG_VERSION"));
    json!({"paths": {path: {"serverRelativeURL": url}}})
}

/// `/openapi/v3/apis/GROUP/VERSION`: the schemas that `kubectl explain` shows.
pub fn openapi_v3() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
        json!({
            "openapi": "3.0.0",
            "info": info(),
            "paths": paths(),
            "components": {"schemas": schemas()},
        })
    });
    &DOCUMENT
}

fn info() -> Value {
    json!({"title": "Tidegate visibility", "version": VERSION})
}

fn paths() -> Value {
    let base = format!("/apis/{}", api_version());
    let one = format!("{base}/namespaces/{{namespace}}/{GROUPS}/{{name}}");
    json!({
        format!("{base}/{GROUPS}"): operation("list", GROUP_LIST_KIND, GROUP_KIND),
        format!("{base}/namespaces/{{namespace}}/{GROUPS}"):
            operation("list", GROUP_LIST_KIND, GROUP_KIND),
        format!("{one}/{EXPLANATION}"): operation("get", EXPLANATION_KIND, EXPLANATION_KIND),
        one: operation("get", GROUP_KIND, GROUP_KIND),
    })
}

/// A read that answers with `answer` and is about `kind`.
fn operation(action: &str, answer: &str, kind: &str) -> Value {
    let schema = json!({"$ref": format!("#/components/schemas/{answer}")});
    json!({"get": {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": group_version_kind(kind),
        "responses": {"200": {
            "description": "OK",
            "content": {"application/json": {"schema": schema}},
        }},
    }})
}

fn schemas() -> Map<String, Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    generator.subschema_for::<Group>();
    generator.subschema_for::<GroupList>();
    generator.subschema_for::<Explanation>();
    let mut schemas = generator.take_definitions(true);
    for kind in [GROUP_KIND, GROUP_LIST_KIND, EXPLANATION_KIND] {
        if let Some(Value::Object(schema)) = schemas.get_mut(kind) {
            let kinds = json!([group_version_kind(kind)]);
            schema.insert("x-kubernetes-group-version-kind".to_owned(), kinds);
        }
    }
    schemas
}

fn group_version_kind(kind: &str) -> Value {
    json!({"group": VISIBILITY_GROUP, "version": VERSION, "kind": kind})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_of_the_schema_leads_somewhere() {
        let text = openapi_v3().to_string();
        let schemas = &openapi_v3()["components"]["schemas"];
        let targets: Vec<_> = text.split("#/components/schemas/").skip(1).collect();
        assert!(targets.len() > 10, "{text}");
        for target in targets {
            let name = target.split('"').next().unwrap();
            assert!(schemas[name].is_object(), "{name}");
        }
        assert!(schemas["Group"]["properties"]["queue"]["description"].is_string(), "{schemas}");
    }
}
