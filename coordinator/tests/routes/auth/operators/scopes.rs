//! Access of task-scoped tokens: declared by each route, also by new ones.

use std::collections::BTreeMap;
use std::time::Duration;

use federation::id::TaskId;
use http::Method;
use serde_json::{Value, json};
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, Who, named};

/// Access of a task-scoped token to a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    /// Route of a task: open for tasks in scope; others appear missing.
    OfTask,
    /// A list filtered to the tasks in scope.
    Narrowed,
    /// Rejected: unrelated to a task.
    Refused,
    /// About the bearer.
    Own,
    /// About the bearer's sign-in, absent for tokens.
    SignIn,
}

fn operators_routes() -> BTreeMap<String, Is> {
    let of = |method: &str, paths: &[&str], is: Is| -> Vec<(String, Is)> {
        paths.iter().map(|path| (format!("{method} {path}"), is)).collect()
    };
    let all = [
        of(
            "GET",
            &[
                route::TASK,
                route::ROUNDS,
                route::ROUND,
                route::ASSIGNMENTS,
                route::TASK_PRIVACY,
                route::TASK_PRIVACY_EXPORT,
                route::MODELS,
                route::MODEL,
                route::MODEL_PARAMETERS,
                route::MODEL_PROVENANCE,
                route::TASK_SERVERS,
                route::TASK_EVENTS,
            ],
            Is::OfTask,
        ),
        of(
            "POST",
            &[
                route::TASK_PAUSE,
                route::TASK_RESUME,
                route::TASK_REBASE,
                route::TASK_CANCEL,
                route::MODEL_PIN,
                route::MODEL_UNPIN,
                route::MODEL_PROMOTE,
                route::MODEL_RESTORE,
                route::EXCUSE,
            ],
            Is::OfTask,
        ),
        of("PUT", &[route::TASK_SERVER], Is::OfTask),
        of("DELETE", &[route::TASK_SERVER], Is::OfTask),
        of(
            "GET",
            &[route::TASKS, route::PRIVACY, route::EVENTS, route::AUDIT, route::COMPARE, route::DEVICES],
            Is::Narrowed,
        ),
        of(
            "GET",
            &[
                route::PRESETS,
                route::PARTICIPANTS,
                route::PARTICIPANT,
                route::PARTICIPANT_CONTRIBUTIONS,
                route::AUDIT_EXPORT,
                route::AUDIT_KEY,
                route::OPERATOR_TOKENS,
                route::METRICS,
            ],
            Is::Refused,
        ),
        of(
            "POST",
            &[
                route::TASKS,
                route::PARTICIPANT_REVOKE,
                route::ENROLLMENT_TOKENS,
                route::OPERATOR_TOKENS,
                route::OPERATOR_TOKEN_REVOKE,
            ],
            Is::Refused,
        ),
        of("PUT", &[route::MODEL_FILE, route::MODEL_FILE_PART], Is::Refused),
        of("GET", &[route::OPERATOR_TOKEN], Is::Own),
        of("GET", &[route::SIGN_IN], Is::SignIn),
        of("DELETE", &[route::SIGN_IN], Is::SignIn),
    ];
    all.into_iter().flatten().collect()
}

async fn made(t: &TestCoordinator, body: &Value) -> Who {
    let reply = t.post(&t.admin, route::OPERATOR_TOKENS, body).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    Who::Token(reply.json()["token"].as_str().unwrap().to_owned())
}

async fn two_tasks(t: &TestCoordinator) -> [TaskId; 2] {
    [t.create_task(&named("small")).await, t.create_task(&named("other")).await]
}

/// A stream would not end: one starting beyond the log's end is rejected after authorization.
fn asked(path: &str) -> String {
    let path = path.replace("{round}", "1").replace("{version}", "0").replace("{server}", "ward-7");
    let path = ["{participant}", "{token}"]
        .iter()
        .fold(path, |path, name| path.replace(name, "00000000-0000-4000-8000-000000000000"));
    match path {
        path if path.ends_with("/events") => format!("{path}?after=999999"),
        path if path == route::COMPARE => format!("{path}?task=small&task=small"),
        path => path,
    }
}

#[tokio::test]
async fn every_route_says_what_it_is_for_a_token_for_some_tasks() {
    let t = TestCoordinator::start().await;
    let [small, other] = two_tasks(&t).await;
    let who = made(&t, &json!({ "name": "ward", "role": "operator", "tasks": ["small"] })).await;
    let document = t.get(&Who::Nobody, route::OPENAPI).await.json();
    let mut expected = operators_routes();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
            let security = &item[method.as_str().to_lowercase()]["security"];
            if !security.as_array().is_some_and(|all| all.iter().any(|one| one.get("token").is_some())) {
                continue;
            }
            let key = format!("{method} {path}");
            let is = expected.remove(&key).unwrap_or_else(|| panic!("say what {key} is for a token for some tasks"));
            let call = async |task: &str| t.call(&who, method.clone(), &asked(&path.replace("{task}", task))).await;
            match is {
                Is::OfTask => {
                    assert!(path.contains("{task}"), "{key}");
                    for there in [small.to_string(), "small".to_owned()] {
                        let reply = call(&there).await;
                        let text = String::from_utf8_lossy(&reply.body);
                        assert!(![401, 403].contains(&reply.status.as_u16()), "{key}: {text}");
                        assert!(!text.contains("there is no task"), "{key}: {text}");
                    }
                    for away in [other.to_string(), "other".to_owned(), "none".to_owned()] {
                        let detail = call(&away).await.problem(ProblemType::NotFound);
                        assert_eq!(detail, format!("there is no task {away:?}"), "{key}");
                    }
                }
                Is::Narrowed => {
                    let status = call("").await.status.as_u16();
                    assert_eq!(status, if path.ends_with("events") { 422 } else { 200 }, "{key}");
                }
                Is::Refused => drop(call("").await.problem(ProblemType::Forbidden)),
                Is::Own => assert_eq!(call("").await.json()["tasks"], json!([small]), "{key}"),
                Is::SignIn => drop(call("").await.problem(ProblemType::NotFound)),
            }
        }
    }
    assert!(expected.is_empty(), "no such routes: {expected:?}");
    let view = t.get(&t.viewer, "/v1/tasks/other").await.json();
    assert_eq!((&view["status"], &view["history"].as_array().unwrap().len()), (&json!("ACTIVE"), &1), "untouched");
}

#[tokio::test]
async fn lists_show_what_is_of_the_tokens_tasks_alone() {
    let t = TestCoordinator::start().await;
    let [small, other] = two_tasks(&t).await;
    t.advance(Duration::from_millis(1));
    let third = t.create_task(&named("third")).await;
    let who = made(&t, &json!({ "name": "ward", "role": "viewer", "tasks": [small, "third", "third"] })).await;
    for action in ["pause", "resume"] {
        for task in [small, other] {
            let path = format!("/v1/tasks/{task}/{action}");
            assert_eq!(t.post(&t.operator, &path, &json!({})).await.status, 200);
        }
    }
    t.inner.engine.number_events().await.unwrap();
    let tasks = |page: &Value, key: &str| -> Vec<Value> {
        page["items"].as_array().unwrap().iter().map(|item| item[key].clone()).collect()
    };
    let first = t.get(&who, "/v1/tasks?limit=1").await.json();
    assert_eq!(tasks(&first, "id"), [json!(third)]);
    let next = format!("/v1/tasks?limit=1&cursor={}", first["next_cursor"].as_str().unwrap());
    let last = t.get(&who, &next).await.json();
    assert_eq!((tasks(&last, "id"), &last["next_cursor"]), (vec![json!(small)], &Value::Null));

    let all = t.get(&t.viewer, "/v1/audit?limit=500").await.json();
    let told = t.get(&who, "/v1/audit?limit=500").await.json();
    let all = all["items"].as_array().unwrap().iter();
    let within: Vec<_> = all.filter(|item| [json!(small), json!(third)].contains(&item["task"])).collect();
    assert_eq!(told["items"], json!(within), "with the positions that they have in the whole log");
    assert_eq!(tasks(&told, "kind").len(), 6);
    let of_small = t.get(&who, "/v1/audit?task=small&kind=task_paused,task_resumed").await.json();
    assert_eq!(tasks(&of_small, "kind"), ["task_resumed", "task_paused"]);
    t.get(&who, "/v1/audit?task=other").await.problem(ProblemType::NotFound);

    let view = &t.get(&t.admin, route::OPERATOR_TOKENS).await.json()["items"];
    let ward = view.as_array().unwrap().iter().find(|token| token["name"] == "ward").unwrap();
    assert_eq!(ward["tasks"], json!([small, third]), "each once, by its id");
    assert!(view.as_array().unwrap().iter().filter(|token| token.get("tasks").is_some()).count() == 1);
}

/// A name may be reused by another task; a token is bound to the task.
#[tokio::test]
async fn a_token_is_for_the_task_that_had_the_name_when_it_was_made() {
    let t = TestCoordinator::start().await;
    let [small, _] = two_tasks(&t).await;
    let who = made(&t, &json!({ "name": "ward", "role": "viewer", "tasks": ["small"] })).await;
    assert_eq!(t.get(&who, "/v1/tasks/small").await.status, 200);
    assert_eq!(t.post(&t.operator, "/v1/tasks/small/cancel", &json!({})).await.status, 200);
    assert_eq!(t.get(&who, "/v1/tasks/small").await.status, 200);
    let heir = t.create_task(&named("small")).await;
    t.get(&who, "/v1/tasks/small").await.problem(ProblemType::NotFound);
    t.get(&who, &format!("/v1/tasks/{heir}")).await.problem(ProblemType::NotFound);
    assert_eq!(t.get(&who, &format!("/v1/tasks/{small}")).await.status, 200);
}

#[tokio::test]
async fn a_scope_that_cannot_be_is_refused() {
    let t = TestCoordinator::start().await;
    two_tasks(&t).await;
    let many: Vec<_> = (0..65).map(|n| format!("task-{n}")).collect();
    for (role, tasks, words) in [
        ("viewer", json!([]), "1 to 64"),
        ("viewer", json!(many), "1 to 64"),
        ("operator", json!(["small", "none"]), "there is no task \"none\""),
        ("viewer", json!(["no name"]), "there is no task"),
        ("admin", json!(["small"]), "leave tasks out"),
    ] {
        let body = json!({ "name": "ward", "role": role, "tasks": tasks });
        let detail = t.post(&t.admin, route::OPERATOR_TOKENS, &body).await.problem(ProblemType::InvalidValue);
        assert!(detail.contains(words), "{detail}");
    }
    let body = json!({ "name": "ward", "role": "viewer", "tasks": "small" });
    t.post(&t.admin, route::OPERATOR_TOKENS, &body).await.problem(ProblemType::MalformedRequest);
    assert_eq!(t.get(&t.admin, route::OPERATOR_TOKENS).await.json()["items"].as_array().unwrap().len(), 3);
}
