//! The shapes of responses, read from the OpenAPI document, and their description in it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::answers;

/// The parameter with the response fields, separated by commas.
pub(in crate::http) const FIELDS: &str = "fields";
/// The parameter for the format of times.
pub(in crate::http) const TIMES: &str = "times";
/// The value of [`TIMES`].
pub(in crate::http) const RFC3339: &str = "rfc3339";

/// The response of one operation.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::http) struct Shape {
    /// Whether it is a page; fields are then filtered in its items.
    pub(in crate::http) is_page: bool,
    /// The fields of a view or an item; empty for changing operations.
    pub(in crate::http) fields: Vec<String>,
}

/// The shapes of operators' JSON responses, by method and path.
pub(in crate::http) type Shapes = BTreeMap<(String, String), Shape>;

const JSON: &str = "application/json";

/// Finds and documents the shapes of all operators' operations.
pub(super) fn describe(document: &mut Value) -> Shapes {
    let mut shapes = Shapes::new();
    let components = document["components"]["schemas"].clone();
    for (path, item) in document["paths"].as_object_mut().into_iter().flatten() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            if operation["security"][0]["token"].is_null() {
                continue;
            }
            let Some(answer) = ["200", "201"].into_iter().find_map(|status| {
                let schema = &operation["responses"][status]["content"][JSON]["schema"];
                (!schema.is_null()).then(|| (status, schema.clone()))
            }) else {
                continue;
            };
            let shape = describe_one(method, operation, answer, &components);
            shapes.insert((method.clone(), path.clone()), shape);
        }
    }
    let number = json!({ "type": "integer", "format": "int64" });
    document["components"]["schemas"]["Timestamp"] = json!({
        "description": "Milliseconds since 1970-01-01T00:00:00 UTC; to an operator that asks for `times=rfc3339`, RFC 3339.",
        "oneOf": [number, { "type": "string", "format": "date-time" }],
    });
    shapes
}

fn describe_one(method: &str, operation: &mut Value, (status, schema): (&str, Value), components: &Value) -> Shape {
    let mut added = vec![json!({
        "in": "query", "name": TIMES, "required": false, "schema": { "enum": [RFC3339] },
        "description": "Every field `at` or `…_at` as RFC 3339, UTC, rather than as milliseconds since 1970.",
    })];
    let mut shape = Shape::default();
    if method == "get" {
        let whole = properties(&schema, components);
        let items = whole.get("items").map(|items| properties(&items["items"], components));
        let of_view = items.as_ref().unwrap_or(&whole);
        shape = Shape { is_page: items.is_some(), fields: of_view.keys().cloned().collect() };
        let mut chosen = json!({ "type": "object", "properties": of_view, "additionalProperties": false });
        if shape.is_page {
            let mut page = whole.clone();
            page.insert("items".to_owned(), json!({ "type": "array", "items": chosen }));
            chosen =
                json!({ "type": "object", "properties": page, "required": ["items"], "additionalProperties": false });
        }
        chosen["description"] = "With `fields`.".into();
        operation["responses"][status]["content"][JSON]["schema"] = json!({ "anyOf": [schema, chosen] });
        added.push(json!({
            "in": "query", "name": FIELDS, "required": false, "style": "form", "explode": false,
            "schema": { "type": "array", "minItems": 1, "items": { "enum": shape.fields } },
            "description": "Only these fields, of each item if it is a list.",
        }));
    }
    if operation["responses"]["422"].is_null() {
        // Every such operation has a body or a query.
        operation["responses"]["422"] = answers::problem("422");
    }
    operation["parameters"].as_array_mut().into_iter().for_each(|parameters| parameters.extend(added.clone()));
    shape
}

/// The properties of an object, including inherited ones.
fn properties(schema: &Value, components: &Value) -> Map<String, Value> {
    let mut found = schema["properties"].as_object().cloned().unwrap_or_default();
    if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        found.extend(properties(&components[name], components));
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        found.extend(properties(part, components));
    }
    found
}
