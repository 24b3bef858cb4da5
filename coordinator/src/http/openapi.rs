//! The contract as OpenAPI 3.1, made from the same types and route templates that are served.

use std::sync::LazyLock;

use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{ComponentsBuilder, RefOr, Schema};
use wire::admin::{
    CreateEnrollmentToken, CreateOperatorToken, CreateTask, EnrollmentTokenReply, OperatorTokenReply,
    OperatorTokenView, RebaseTask,
};
use wire::headers::{
    ATTEMPT, CONTENT_SHA256, IDEMPOTENCY_KEY, MEDIA_MASKED_INPUT, MEDIA_PROBLEM, MEDIA_SAFETENSORS, MEDIA_SECURE_AGG,
    SIGNED_INPUT,
};
use wire::inspect::{
    AssignmentView, ModelView, Page, ParticipantView, PrivacyReport, PrivacyTotal, RoundView, TaskSummary, TaskView,
};
use wire::participant::{
    AbandonRequest, CheckInReply, CheckInRequest, EnrollReply, EnrollRequest, Receipt, RenewRequest,
};
use wire::problem::{Problem, ProblemType};
use wire::route;

/// Who may call an operation.
#[derive(Clone, Copy)]
enum Caller {
    Anybody,
    Participant,
    Operator(&'static str),
    Reader,
}

/// What an operation takes or gives.
enum Content {
    Nothing,
    Json(String),
    Media(&'static str),
}

struct Operation {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    caller: Caller,
    takes: Content,
    gives: (u16, Content),
    /// `query` or `header`, name, whether it is required, description.
    parameters: &'static [(&'static str, &'static str, bool, &'static str)],
}

fn json_of<T: ToSchema>() -> Content {
    Content::Json(T::name().into_owned())
}

const PAGED: &[(&str, &str, bool, &str)] = &[
    ("query", "cursor", false, "`next_cursor` of the page before"),
    ("query", "limit", false, "items of the page, 1 to 500; 50 unless given"),
];
const PAGED_ATTEMPT: &[(&str, &str, bool, &str)] =
    &[PAGED[0], PAGED[1], ("query", "attempt", false, "the attempt; the latest unless given")];

fn operations() -> Vec<Operation> {
    let mut all = participant_operations();
    all.extend(session_operations());
    all.extend(inspect_operations());
    all.extend(admin_operations());
    let plain = |path, summary, media| get(path, summary, Caller::Anybody, Content::Media(media), &[]);
    all.push(plain(route::HEALTHZ, "The process is up", "text/plain"));
    all.push(plain(
        route::READYZ,
        "The process can serve: rows and blobs can be written; `degraded` if a task cannot go on",
        "text/plain",
    ));
    let metrics = "Metrics for Prometheus; without a token on the listener for the service's own";
    all.push(get(route::METRICS, metrics, Caller::Operator("viewer"), Content::Media("text/plain"), &[]));
    all.push(plain(route::OPENAPI, "This document", "application/json"));
    all
}

type Parameters = &'static [(&'static str, &'static str, bool, &'static str)];

fn get(path: &'static str, summary: &'static str, caller: Caller, gives: Content, parameters: Parameters) -> Operation {
    Operation { method: "get", path, summary, caller, takes: Content::Nothing, gives: (200, gives), parameters }
}

fn post(
    path: &'static str,
    summary: &'static str,
    caller: Caller,
    takes: Content,
    gives: (u16, Content),
    parameters: Parameters,
) -> Operation {
    Operation { method: "post", path, summary, caller, takes, gives, parameters }
}

fn participant_operations() -> Vec<Operation> {
    let who = Caller::Participant;
    let enrolled = || (200, json_of::<EnrollReply>());
    vec![
        post(
            route::ENROLL,
            "Enrol with a one-time token",
            Caller::Anybody,
            json_of::<EnrollRequest>(),
            enrolled(),
            &[],
        ),
        post(route::RENEW, "Renew the certificate", who, json_of::<RenewRequest>(), enrolled(), &[]),
        post(
            route::CHECK_IN,
            "Long-poll for work",
            who,
            json_of::<CheckInRequest>(),
            (200, json_of::<CheckInReply>()),
            &[],
        ),
        Operation {
            method: "put",
            path: route::MASKED_INPUT,
            summary: "Send a masked input",
            caller: who,
            takes: Content::Media(MEDIA_MASKED_INPUT),
            gives: (200, json_of::<Receipt>()),
            parameters: &[
                ("header", ATTEMPT, true, "the attempt of the round"),
                ("header", CONTENT_SHA256, true, "SHA-256 of the body, 64 hexadecimal digits"),
                ("header", SIGNED_INPUT, false, "secure aggregation: the signed digest of the body, in base64"),
            ],
        },
        post(
            route::ABANDON,
            "Give up a place in a round",
            who,
            json_of::<AbandonRequest>(),
            (204, Content::Nothing),
            &[],
        ),
        get(
            route::MODEL_PARAMETERS,
            "A model version as safetensors",
            Caller::Reader,
            Content::Media(MEDIA_SAFETENSORS),
            &[
                ("header", "if-none-match", false, "answered with 304 if it names this version"),
                ("header", "range", false, "one range of bytes, answered with 206 or 416"),
                ("header", "if-range", false, "the range only if it names this version"),
            ],
        ),
    ]
}

/// The messages of secure aggregation, in the order in which they travel.
fn session_operations() -> Vec<Operation> {
    const ASKED: Parameters = &[
        ("query", "attempt", true, "the attempt of the round"),
        ("query", "wait_ms", false, "wait at most so long until it is time; answered with 204 if it is not then"),
    ];
    let tell = |path, summary| get(path, summary, Caller::Participant, Content::Media(MEDIA_SECURE_AGG), ASKED);
    let take = |path, summary| Operation {
        method: "put",
        path,
        summary,
        caller: Caller::Participant,
        takes: Content::Media(MEDIA_SECURE_AGG),
        gives: (204, Content::Nothing),
        parameters: &[("header", ATTEMPT, true, "the attempt of the round")],
    };
    vec![
        tell(route::ROSTER, "Who takes part in a session"),
        take(route::KEY_SHARES, "Deal key shares"),
        get(
            route::KEY_SHARES,
            "What a dealer dealt, as it signed it",
            Caller::Participant,
            Content::Media(MEDIA_SECURE_AGG),
            &ASKED[..1],
        ),
        tell(route::DELIVERY, "What the others dealt to this participant"),
        take(route::COMPLAINT, "Complain that a dealer's shares do not open"),
        tell(route::SURVIVORS, "Whose inputs are included"),
        take(route::CONSISTENCY, "Sign whose inputs are included"),
        tell(route::AGREEMENT, "Everybody's signatures on that"),
        take(route::UNMASK_SHARES, "Answer with the shares that open the sum"),
        take(route::ABORT_STATEMENT, "Say that this participant left the session for good and never answered"),
        get(
            route::ABORT_STATEMENTS,
            "Enough of these, with the roster, that the session was never opened; 204 as long as they are not",
            Caller::Participant,
            Content::Media(MEDIA_SECURE_AGG),
            &ASKED[..1],
        ),
    ]
}

fn inspect_operations() -> Vec<Operation> {
    let who = Caller::Operator("viewer");
    vec![
        get(route::TASKS, "Tasks, newest first", who, json_of::<Page<TaskSummary>>(), PAGED),
        get(route::TASK, "One task, by id or name", who, json_of::<TaskView>(), &[]),
        get(route::ROUNDS, "Rounds, newest first", who, json_of::<Page<RoundView>>(), PAGED),
        get(
            route::ROUND,
            "One round",
            who,
            json_of::<RoundView>(),
            &[
                ("query", "attempt", false, "the attempt; the latest unless given"),
                ("query", "after_state", false, "wait while the round is in this state"),
                ("query", "wait_ms", false, "wait at most so long, also for a round that does not exist yet"),
            ],
        ),
        get(route::ASSIGNMENTS, "Who was drawn into a round", who, json_of::<Page<AssignmentView>>(), PAGED_ATTEMPT),
        get(
            route::TASK_PRIVACY,
            "What the task has told about its participants",
            who,
            json_of::<PrivacyReport>(),
            PAGED,
        ),
        get(
            route::PRIVACY,
            "What all private tasks together have told about a participant of each",
            who,
            json_of::<PrivacyTotal>(),
            &[("query", "delta", false, "at which delta; the smallest of the tasks' unless given")],
        ),
        get(route::MODELS, "Model versions, newest first", who, json_of::<Page<ModelView>>(), PAGED),
        get(route::MODEL, "One model version", who, json_of::<ModelView>(), &[]),
        get(route::PARTICIPANTS, "Participants", who, json_of::<Page<ParticipantView>>(), PAGED),
        get(route::PARTICIPANT, "One participant", who, json_of::<ParticipantView>(), &[]),
    ]
}

fn admin_operations() -> Vec<Operation> {
    let (who, admin) = (Caller::Operator("operator"), Caller::Operator("admin"));
    let task = |path, summary| post(path, summary, who, Content::Nothing, (200, json_of::<TaskView>()), &[]);
    let token = || json_of::<Page<OperatorTokenView>>();
    vec![
        post(
            route::TASKS,
            "Create a task",
            who,
            json_of::<CreateTask>(),
            (201, json_of::<TaskView>()),
            &[("header", IDEMPOTENCY_KEY, false, "a repeated request gets the first one's answer")],
        ),
        task(route::TASK_PAUSE, "Open no further rounds"),
        task(route::TASK_RESUME, "Go on"),
        task(route::TASK_CANCEL, "End the task and its present round"),
        post(
            route::TASK_REBASE,
            "Use no round number again that participants have seen, after an older database was restored",
            who,
            json_of::<RebaseTask>(),
            (200, json_of::<TaskView>()),
            &[],
        ),
        post(
            route::PARTICIPANT_REVOKE,
            "Refuse a participant's certificate from now on",
            who,
            Content::Nothing,
            (200, json_of::<ParticipantView>()),
            &[],
        ),
        post(
            route::EXCUSE,
            "Do not wait for a participant in a round",
            who,
            Content::Nothing,
            (204, Content::Nothing),
            &[],
        ),
        post(
            route::ENROLLMENT_TOKENS,
            "A one-time token for one participant",
            who,
            json_of::<CreateEnrollmentToken>(),
            (201, json_of::<EnrollmentTokenReply>()),
            &[],
        ),
        get(route::OPERATOR_TOKENS, "Operators' tokens", admin, token(), PAGED),
        post(
            route::OPERATOR_TOKENS,
            "A token for an operator",
            admin,
            json_of::<CreateOperatorToken>(),
            (201, json_of::<OperatorTokenReply>()),
            &[],
        ),
        post(
            route::OPERATOR_TOKEN_REVOKE,
            "Revoke an operator's token",
            admin,
            Content::Nothing,
            (204, Content::Nothing),
            &[("query", "force", false, "true: also the last admin token, after which nobody can make another here")],
        ),
    ]
}

fn schemas() -> ComponentsBuilder {
    let mut schemas = Vec::new();
    add::<EnrollRequest>(&mut schemas);
    add::<EnrollReply>(&mut schemas);
    add::<RenewRequest>(&mut schemas);
    add::<CheckInRequest>(&mut schemas);
    add::<CheckInReply>(&mut schemas);
    add::<Receipt>(&mut schemas);
    add::<AbandonRequest>(&mut schemas);
    add::<Page<TaskSummary>>(&mut schemas);
    add::<TaskView>(&mut schemas);
    add::<Page<RoundView>>(&mut schemas);
    add::<Page<AssignmentView>>(&mut schemas);
    add::<Page<ModelView>>(&mut schemas);
    add::<Page<ParticipantView>>(&mut schemas);
    add::<CreateTask>(&mut schemas);
    add::<RebaseTask>(&mut schemas);
    add::<CreateEnrollmentToken>(&mut schemas);
    add::<EnrollmentTokenReply>(&mut schemas);
    add::<Page<OperatorTokenView>>(&mut schemas);
    add::<CreateOperatorToken>(&mut schemas);
    add::<OperatorTokenReply>(&mut schemas);
    add::<Problem>(&mut schemas);
    add::<RoundView>(&mut schemas);
    add::<ModelView>(&mut schemas);
    add::<PrivacyReport>(&mut schemas);
    add::<PrivacyTotal>(&mut schemas);
    add::<ParticipantView>(&mut schemas);
    add::<TaskSummary>(&mut schemas);
    add::<AssignmentView>(&mut schemas);
    add::<OperatorTokenView>(&mut schemas);
    ComponentsBuilder::new().schemas_from_iter(schemas)
}

/// Adds a type and those it is made of.
fn add<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}

/// The document.
#[must_use]
pub(crate) fn document() -> Value {
    let mut paths = Map::new();
    for operation in operations() {
        let item = paths.entry(operation.path).or_insert_with(|| json!({}));
        item[operation.method] = describe(&operation);
    }
    let mut components = serde_json::to_value(schemas().build()).unwrap_or_default();
    components["securitySchemes"] = json!({
        "certificate": { "type": "mutualTLS", "description": "the client certificate that enrolment gave" },
        "token": { "type": "http", "scheme": "bearer", "description": "an operator's token" },
    });
    let codes: Vec<_> = ProblemType::ALL
        .iter()
        .map(|kind| {
            json!({
                "type": kind.uri(), "status": kind.status(), "title": kind.title(),
            })
        })
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tributary coordinator",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": components,
        "x-problem-types": codes,
    })
}

fn describe(operation: &Operation) -> Value {
    let content = |content: &Content| match content {
        Content::Nothing => Value::Null,
        Content::Json(name) => json!({ "application/json": { "schema": reference(name) } }),
        Content::Media(media) => json!({ *media: { "schema": { "type": "string", "format": "binary" } } }),
    };
    let mut parameters: Vec<_> = operation
        .path
        .split('{')
        .skip(1)
        .filter_map(|part| part.split_once('}'))
        .map(|(name, _)| json!({ "in": "path", "name": name, "required": true, "schema": { "type": "string" } }))
        .collect();
    parameters.extend(operation.parameters.iter().map(|(place, name, required, description)| {
        json!({
            "in": place, "name": name, "required": required, "description": description,
            "schema": { "type": "string" },
        })
    }));
    let problem = json!({
        "description": "a problem, RFC 9457",
        "content": { MEDIA_PROBLEM: { "schema": reference(&Problem::name()) } },
    });
    let mut success = json!({ "description": operation.summary });
    let gives = content(&operation.gives.1);
    if !gives.is_null() {
        success["content"] = gives;
    }
    let mut value = json!({
        "summary": operation.summary,
        "parameters": parameters,
        "responses": { operation.gives.0.to_string(): success, "default": problem },
    });
    let takes = content(&operation.takes);
    if !takes.is_null() {
        value["requestBody"] = json!({ "required": true, "content": takes });
    }
    match operation.caller {
        Caller::Anybody => {}
        Caller::Participant => value["security"] = json!([{ "certificate": [] }]),
        Caller::Reader => value["security"] = json!([{ "certificate": [] }, { "token": [] }]),
        Caller::Operator(role) => {
            value["security"] = json!([{ "token": [] }]);
            value["x-role"] = json!(role);
        }
    }
    value
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// `GET /openapi.json`.
pub(super) async fn serve(_: super::authenticate::Anybody) -> Response {
    // Made once: an answer takes no memory of its own.
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| document().to_string().into());
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.clone()).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let mut wanted = BTreeSet::new();
        collect(&document, &mut wanted);
        assert!(wanted.len() > 20);
        for reference in wanted {
            let name = reference.strip_prefix("#/components/schemas/").unwrap();
            assert!(schemas.contains_key(name), "{name} is not described");
        }
    }

    fn collect(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => {
                if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
                    found.insert(reference.to_owned());
                }
                object.values().for_each(|value| collect(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| collect(value, found)),
            _ => {}
        }
    }
}
