//! The answers of an operation: those that its handler names, and those that follow from what it takes.

use serde_json::{Value, json};
use utoipa::ToSchema as _;
use wire::headers::MEDIA_PROBLEM;
use wire::problem::{Problem, ProblemType};

/// What any request may be answered with: it speaks another version, is badly signed, takes too long or comes too often, or the
/// coordinator cannot serve it.
const ANY: [u16; 6] = [400, 401, 408, 429, 500, 503];
/// What a request that needs somebody may be answered with: whoever it is may not do this.
const OF_SOMEBODY: [u16; 1] = [403];
/// What a request with a body may be answered with: the body is too large, of another type, or says what cannot be.
const WITH_BODY: [u16; 3] = [413, 415, 422];

/// Adds the statuses that the handler does not name, and to every problem its types and form.
pub(super) fn complete(operation: &mut Value) {
    let takes = |place: &str| {
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        parameters.into_iter().any(|parameter| parameter["in"] == place)
    };
    let statuses = ANY
        .into_iter()
        .chain(OF_SOMEBODY.into_iter().filter(|_| !operation["security"].is_null()))
        .chain(WITH_BODY.into_iter().filter(|_| !operation["requestBody"].is_null()))
        .chain(Some(404).filter(|_| takes("path")))
        .chain(Some(422).filter(|_| takes("query") || takes("header")));
    for status in statuses.collect::<Vec<_>>() {
        let answer = &mut operation["responses"][status.to_string()];
        if answer.is_null() {
            *answer = json!({});
        }
    }
    let summary = operation["summary"].clone();
    for (status, answer) in operation["responses"].as_object_mut().into_iter().flatten() {
        let mut described = problem(status);
        let is_described = |answer: &Value| answer["description"].as_str().is_some_and(|text| !text.is_empty());
        if is_described(answer) {
            described["description"] = answer["description"].take();
        } else if !is_described(&described) {
            described["description"] = summary.clone();
        }
        if described["content"].is_null() && !answer["content"].is_null() {
            described["content"] = answer["content"].take();
        }
        if !answer["headers"].is_null() {
            described["headers"] = answer["headers"].take();
        }
        *answer = described;
    }
}

/// The answer of a status that problems have, with their types; of any other, nothing.
pub(super) fn problem(status: &str) -> Value {
    let kinds = ProblemType::ALL.iter().filter(|kind| kind.status().to_string() == status);
    let codes: Vec<_> = kinds.map(|kind| kind.code()).collect();
    if codes.is_empty() {
        return json!({});
    }
    let form = json!({ "$ref": format!("#/components/schemas/{}", Problem::name()) });
    json!({ "description": codes.join(", "), "content": { MEDIA_PROBLEM: { "schema": form } } })
}
