//! Responses to operators can omit fields, and write times as text.

use serde_json::{Value, json};
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, Who, small_task};

fn names(view: &Value) -> Vec<&str> {
    view.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn fields_are_chosen_of_views_and_of_items() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let mut other = small_task();
    other["name"] = json!("other");
    t.create_task(&other).await;
    let page = t.get(&t.viewer, "/v1/tasks?fields=name,status&limit=1").await.json();
    assert_eq!(names(&page), ["items", "next_cursor"]);
    assert_eq!(names(&page["items"][0]), ["name", "status"]);
    let view = t.get(&t.viewer, "/v1/tasks/small?fields=spec,id").await.json();
    assert_eq!(names(&view), ["id", "spec"]);
    assert_eq!(view["spec"]["name"], "small");
    for (path, known) in
        [("/v1/tasks", "rounds_completed"), ("/v1/tasks/small", "history"), ("/v1/tasks/small/rounds", "phases")]
    {
        let detail = t.get(&t.viewer, &format!("{path}?fields=secret")).await.problem(ProblemType::InvalidValue);
        assert!(detail.contains("secret") && detail.contains(known), "{path}: {detail}");
    }
    t.get(&Who::Nobody, "/v1/tasks?fields=name").await.problem(ProblemType::Unauthenticated);
    t.get(&t.viewer, "/v1/tasks/none?fields=name").await.problem(ProblemType::NotFound);
    // A rejected change is not applied.
    let pause = "/v1/tasks/small/pause";
    t.post(&t.operator, &format!("{pause}?times=iso"), &json!({})).await.problem(ProblemType::InvalidValue);
    assert_eq!(t.get(&t.viewer, "/v1/tasks/small").await.json()["status"], "ACTIVE");
}

#[tokio::test]
async fn times_are_text_where_that_is_asked_for() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    t.enroll("a").await;
    t.inner.engine.number_events().await.unwrap();
    let text = "2025-06-15T15:06:40Z";
    let view = t.get(&t.viewer, "/v1/tasks/small?times=rfc3339").await.json();
    assert_eq!((&view["created_at"], &view["history"][0]["at"]), (&json!(text), &json!(text)));
    assert_eq!(t.get(&t.viewer, "/v1/tasks/small").await.json()["created_at"], json!(1_750_000_000_000_i64));
    let page = t.get(&t.viewer, "/v1/participants?times=rfc3339&fields=enrolled_at,revoked_at").await.json();
    assert_eq!(page["items"], json!([{ "enrolled_at": text, "revoked_at": null }]));
    let page = t.get(&t.viewer, &format!("{}?times=rfc3339&kind=task_created", route::AUDIT)).await.json();
    assert_eq!(page["items"][0]["at"], text);
    let paused = t.post(&t.operator, "/v1/tasks/small/pause?times=rfc3339", &json!({})).await.json();
    assert_eq!((&paused["status"], &paused["created_at"]), (&json!("PAUSED"), &json!(text)));
    t.get(&t.viewer, "/v1/tasks?times=iso").await.problem(ProblemType::InvalidValue);
}
