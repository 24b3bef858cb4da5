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

/// A body of bytes.
pub(super) struct Octets;

impl PartialSchema for Octets {
    fn schema() -> RefOr<Schema> {
        let binary = SchemaFormat::KnownFormat(KnownFormat::Binary);
        ObjectBuilder::new().schema_type(Type::String).format(Some(binary)).into()
    }
}

impl ToSchema for Octets {}

/// A header of a request.
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

/// The header that names the attempt.
pub(super) fn attempt() -> Parameter {
    let number = SchemaFormat::KnownFormat(KnownFormat::Int32);
    let schema = ObjectBuilder::new().schema_type(Type::Integer).format(Some(number)).minimum(Some(0));
    described(ATTEMPT, true, "The attempt of the round.", schema)
}

/// Headers of a request that needs only the attempt.
pub(super) struct AttemptHeader;

impl IntoParams for AttemptHeader {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        vec![attempt()]
    }
}

/// The document as text: generated once with the router, so that answers share its memory.
#[derive(Default)]
pub(crate) struct Document(OnceLock<Bytes>);

impl Document {
    /// Everything that the routers described, with what all paths have in common, as JSON; and the shapes of answers.
    pub(super) fn of(described: &OpenApi) -> (Bytes, Shapes) {
        let mut document = complete(described);
        let shapes = shapes::describe(&mut document);
        (document.to_string().into(), shapes)
    }

    /// Keeps the document. All routers of a service describe the same, so the first one writes it.
    pub(super) fn write(&self, document: Bytes) {
        self.0.get_or_init(|| document);
    }

    pub(super) fn text(&self) -> Bytes {
        self.0.get().cloned().unwrap_or_default()
    }
}

/// Adds parts that all operations share.
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

/// Says of each `{ "count": … }` or `{ "fraction": … }` that it has no other key: an enum that its key tells is an object of one key,
/// which its generated schema does not say.
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

/// Gives each object within a variant of an enum a name of its own: generators of clients make a type of every object, and those that
/// have none are lost.
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

/// Says of unsigned integers what they may be at most: as generated, they have the formats of signed ones.
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

/// Adds the path's variables, the answers that its handler does not name, and the role that a token needs.
fn describe(method: &str, path: &str, operation: &mut Value) {
    let is_list = operation["parameters"].as_array().into_iter().flatten().any(|own| own["name"] == "cursor");
    // Handlers in different files share names, which an operation id must not.
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

/// What a variable of a path may be.
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
