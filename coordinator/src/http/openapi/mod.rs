//! The contract as OpenAPI 3.1, generated from the handlers' descriptions.

mod answers;
mod names;
mod shapes;

use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{OpenApi, RefOr, Required, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};
use wire::headers::{ATTEMPT, SIGN_IN_COOKIE};
use wire::problem::{Problem, ProblemType};

pub(super) use shapes::{FIELDS, RFC3339, Shape, Shapes, TIMES};

/// A binary body.
pub(super) struct Octets;

impl PartialSchema for Octets {
    fn schema() -> RefOr<Schema> {
        let binary = SchemaFormat::KnownFormat(KnownFormat::Binary);
        ObjectBuilder::new().schema_type(Type::String).format(Some(binary)).into()
    }
}

impl ToSchema for Octets {}

/// A request header.
pub(super) fn header(name: &str, is_required: bool, description: &str) -> Parameter {
    described(name, is_required, description, ObjectBuilder::new().schema_type(Type::String))
}

fn described(name: &str, is_required: bool, description: &str, schema: ObjectBuilder) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(if is_required { Required::True } else { Required::False })
        .description(Some(description))
        .schema(Some(schema))
        .build()
}

/// The attempt header.
pub(super) fn attempt() -> Parameter {
    let number = SchemaFormat::KnownFormat(KnownFormat::Int32);
    let schema = ObjectBuilder::new().schema_type(Type::Integer).format(Some(number)).minimum(Some(0));
    described(ATTEMPT, true, "The attempt of the round.", schema)
}

/// Headers of a request with only the attempt.
pub(super) struct AttemptHeader;

impl IntoParams for AttemptHeader {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        vec![attempt()]
    }
}

/// The document as text. Generated once with the router, so that responses share its memory.
#[derive(Default)]
pub(crate) struct Document(OnceLock<Bytes>);

impl Document {
    /// The document of all described routes with the common parts, as JSON, and the shapes of responses.
    pub(super) fn of(described: &OpenApi) -> (Bytes, Shapes) {
        let mut document = complete(described);
        let shapes = shapes::describe(&mut document);
        (document.to_string().into(), shapes)
    }

    /// Stores the document. All routers of a service describe the same, so only the first call writes it.
    pub(super) fn write(&self, document: Bytes) {
        self.0.get_or_init(|| document);
    }

    pub(super) fn text(&self) -> Bytes {
        self.0.get().cloned().unwrap_or_default()
    }
}

/// Adds the parts common to all operations.
fn complete(described: &OpenApi) -> Value {
    let mut document = json!(described);
    for (path, item) in document["paths"].as_object_mut().into_iter().flatten() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            describe(method, path, operation);
        }
    }
    let mut components = document["components"].take();
    let mut problem = vec![(Problem::name().into_owned(), Problem::schema())];
    Problem::schemas(&mut problem);
    for (name, schema) in problem {
        components["schemas"][name] = json!(schema);
    }
    components["schemas"].as_object_mut().into_iter().flatten().for_each(|(_, schema)| close(schema));
    components["schemas"].as_object_mut().into_iter().for_each(name_objects);
    bound(&mut components);
    bound(&mut document["paths"]);
    components["securitySchemes"] = json!({
        "certificate": { "type": "mutualTLS", "description": "the client certificate that enrolment gave" },
        "token": { "type": "http", "scheme": "bearer", "description": "an operator's token" },
        "sign_in": { "type": "apiKey", "in": "cookie", "name": SIGN_IN_COOKIE, "description": "the cookie of an operator's sign-in" },
    });
    let problem_type =
        |kind: &ProblemType| json!({ "type": kind.uri(), "status": kind.status(), "title": kind.title() });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tributary coordinator",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": document["paths"].take(),
        "components": components,
        "x-problem-types": ProblemType::ALL.iter().map(problem_type).collect::<Vec<_>>(),
    })
}

/// Closes externally tagged enum variants such as `{ "count": … }` to other keys, which their generated schema omits.
fn close(schema: &mut Value) {
    for branch in schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
        let told_by_key = branch["properties"].as_object().is_some_and(|properties| {
            let mut values = properties.values();
            values.len() == 1 && values.all(|value| value["enum"].as_array().is_none_or(|names| names.len() != 1))
        });
        if told_by_key && branch["required"].as_array().is_some_and(|required| required.len() == 1) {
            branch["additionalProperties"] = false.into();
        }
    }
}

/// Names the object within each enum variant: client generators need a named type for every object.
fn name_objects(schemas: &mut Map<String, Value>) {
    let mut named = Map::new();
    for (name, schema) in schemas.iter_mut() {
        for branch in schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
            for (key, inner) in branch.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
                if inner["type"] == "object" && inner.get("properties").is_some() {
                    let own = format!("{name}_{key}");
                    let reference = json!({ "$ref": format!("#/components/schemas/{own}") });
                    named.insert(own, std::mem::replace(inner, reference));
                }
            }
        }
    }
    schemas.extend(named);
}

/// Adds the maximum of unsigned integers, which the generated schema formats as signed.
fn bound(schema: &mut Value) {
    let is_unsigned = schema["minimum"].as_f64().is_some_and(|minimum| minimum >= 0.0);
    let unsigned = match schema["format"].as_str().filter(|_| is_unsigned) {
        Some("int32") => Some(("uint32", u64::from(u32::MAX))),
        Some("int64") => Some(("uint64", u64::MAX)),
        Some(_) | None => None,
    };
    match schema {
        Value::Object(fields) => {
            if let Some((format, maximum)) = unsigned {
                fields.insert("format".to_owned(), format.into());
                fields.entry("maximum").or_insert(maximum.into());
            }
            fields.values_mut().for_each(bound);
        }
        Value::Array(parts) => parts.iter_mut().for_each(bound),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Adds the path variables, the undeclared responses, and the required role.
fn describe(method: &str, path: &str, operation: &mut Value) {
    let is_list = operation["parameters"].as_array().into_iter().flatten().any(|own| own["name"] == "cursor");
    // Handler names repeat across files; operation ids must be unique.
    operation["operationId"] = names::operation(method, path, is_list).into();
    let names = path.split('{').skip(1).filter_map(|part| part.split_once('}')).map(|(name, _)| name);
    let mut parameters: Vec<_> =
        names.map(|name| json!({ "in": "path", "name": name, "required": true, "schema": variable(name) })).collect();
    parameters.extend(operation["parameters"].take().as_array_mut().into_iter().flat_map(std::mem::take));
    operation["parameters"] = json!(parameters);
    answers::complete(operation);
    if let Some(role) = operation["security"][0]["token"].get(0).cloned() {
        operation["x-role"] = role;
        operation["security"].as_array_mut().into_iter().for_each(|ways| ways.push(json!({ "sign_in": [] })));
    }
}

/// The schema of a path variable.
fn variable(name: &str) -> Value {
    match name {
        "round" | "version" | "part" => {
            json!({ "type": "integer", "format": "int32", "minimum": 0, "maximum": u32::MAX })
        }
        "participant" | "token" => json!({ "type": "string", "format": "uuid" }),
        // By id or name.
        _ => json!({ "type": "string", "minLength": 1 }),
    }
}
