//! The responses of an operation: those declared by its handler, and those implied by its inputs.

use serde_json::{Value, json};
use utoipa::ToSchema as _;
use wire::headers::MEDIA_PROBLEM;
use wire::problem::{Problem, ProblemType};

/// Statuses of any request: unsupported version, bad signature, timeout, rate limit, or coordinator failure.
const ANY: [u16; 6] = [400, 401, 408, 429, 500, 503];
/// 403 of authenticated routes.
const OF_SOMEBODY: [u16; 1] = [403];
/// Statuses of requests with a body: too large, wrong media type, or invalid content.
const WITH_BODY: [u16; 3] = [413, 415, 422];

/// Adds the undeclared statuses, and the types and format of every problem.
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

/// The response for a problem status, with its types; an empty object for other statuses.
pub(super) fn problem(status: &str) -> Value {
    let kinds = ProblemType::ALL.iter().filter(|kind| kind.status().to_string() == status);
    let codes: Vec<_> = kinds.map(|kind| kind.code()).collect();
    if codes.is_empty() {
        return json!({});
    }
    let form = json!({ "$ref": format!("#/components/schemas/{}", Problem::name()) });
    json!({ "description": codes.join(", "), "content": { MEDIA_PROBLEM: { "schema": form } } })
}
