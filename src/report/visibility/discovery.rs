//! What this API says of itself: discovery and `OpenAPI` documents.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

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

/// Each kind in one piece: kubectl does not follow references of optional fields.
fn schemas() -> Value {
    json!({
        GROUP_KIND: schema::<Group>(GROUP_KIND),
        GROUP_LIST_KIND: schema::<GroupList>(GROUP_LIST_KIND),
        EXPLANATION_KIND: schema::<Explanation>(EXPLANATION_KIND),
    })
}

fn schema<T: JsonSchema>(kind: &str) -> Schema {
    let mut settings = SchemaSettings::openapi3();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    let kinds = json!([group_version_kind(kind)]);
    schema.insert("x-kubernetes-group-version-kind".to_owned(), kinds);
    schema
}

fn group_version_kind(kind: &str) -> Value {
    json!({"group": VISIBILITY_GROUP, "version": VERSION, "kind": kind})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_schema_is_described() {
        let schemas = &openapi_v3()["components"]["schemas"];
        for (kind, path) in [
            ("Group", "/properties/queue"),
            ("Group", "/properties/wait/properties/groupsAhead"),
            ("GroupList", "/properties/items/items/properties/root/properties/kind"),
            ("Explanation", "/properties/queuePath/items/properties/problem/properties/reason"),
        ] {
            let field = schemas[kind].pointer(path);
            assert!(field.is_some_and(|field| field["description"].is_string()), "{kind}{path}");
        }
        assert!(!schemas.to_string().contains("$ref"), "{schemas}");
    }
}
