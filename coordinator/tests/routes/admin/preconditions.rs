//! A write with an entity tag requires an unchanged view.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use wire::problem::ProblemType;
use wire::route;

use crate::support::{Reply, TestCoordinator, input, small_task};

fn tag(reply: &Reply) -> String {
    reply.headers["etag"].to_str().unwrap().to_owned()
}

async fn post_if(t: &TestCoordinator, path: &str, tag: &str, body: &Value) -> Reply {
    let request = Request::post(path).header("content-type", "application/json").header("if-match", tag);
    t.send(&t.operator, request.body(Body::from(body.to_string())).unwrap()).await
}

#[tokio::test]
async fn controls_of_a_task_are_refused_once_it_shows_something_else() {
    let t = TestCoordinator::start().await;
    let created = t.post(&t.operator, route::TASKS, &json!({ "spec": small_task() })).await;
    let before = t.get(&t.viewer, "/v1/tasks/small").await;
    assert_eq!(tag(&before), tag(&created));
    assert_eq!(tag(&t.get(&t.viewer, "/v1/tasks/small?fields=name").await), tag(&before), "it is the view's");
    let paused = post_if(&t, "/v1/tasks/small/pause", &tag(&before), &json!({})).await;
    assert_eq!(paused.status, 200);
    assert_ne!(tag(&paused), tag(&before));
    let now = t.get(&t.viewer, "/v1/tasks/small").await;
    assert_eq!((tag(&now), &now.body), (tag(&paused), &paused.body));
    for (action, body) in
        [("pause", json!({})), ("resume", json!({})), ("cancel", json!({})), ("rebase", json!({ "beyond": 5 }))]
    {
        let refused = post_if(&t, &format!("/v1/tasks/small/{action}"), &tag(&before), &body).await;
        refused.problem(ProblemType::PreconditionFailed);
        assert_eq!(tag(&refused), tag(&now), "{action}");
        assert_eq!(t.get(&t.viewer, "/v1/tasks/small").await.body, now.body, "{action} changed nothing");
    }
    post_if(&t, "/v1/tasks/small/resume", &format!("W/{}", tag(&now)), &json!({}))
        .await
        .problem(ProblemType::PreconditionFailed);
    assert_eq!(post_if(&t, "/v1/tasks/small/resume", &format!("\"x\", {}", tag(&now)), &json!({})).await.status, 200);
    assert_eq!(post_if(&t, "/v1/tasks/small/rebase", "*", &json!({ "beyond": 5 })).await.status, 200);
    post_if(&t, "/v1/tasks/none/pause", "*", &json!({})).await.problem(ProblemType::NotFound);
}

#[tokio::test]
async fn versions_and_participants_are_changed_as_they_were_seen() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let version = "/v1/tasks/small/models/0";
    let before = t.get(&t.viewer, version).await;
    let pinned = post_if(&t, &format!("{version}/pin"), &tag(&before), &json!({})).await;
    assert_eq!((pinned.status.as_u16(), tag(&pinned)), (200, tag(&t.get(&t.viewer, version).await)));
    post_if(&t, &format!("{version}/unpin"), &tag(&before), &json!({})).await.problem(ProblemType::PreconditionFailed);
    assert_eq!(t.get(&t.viewer, version).await.body, pinned.body);

    let (id, who) = t.enroll("a").await;
    let (view, revoke) = (route::fill(route::PARTICIPANT, &[&id]), route::fill(route::PARTICIPANT_REVOKE, &[&id]));
    post_if(&t, &revoke, "\"other\"", &json!({})).await.problem(ProblemType::PreconditionFailed);
    assert_eq!(t.get(&t.viewer, &view).await.json()["revoked_at"], json!(null));
    t.check_in(&who, "small").await;
    let seen = tag(&t.get(&t.viewer, &view).await);
    assert_eq!(post_if(&t, &revoke, &seen, &json!({})).await.status, 200);
    post_if(&t, &revoke, &seen, &json!({})).await.problem(ProblemType::PreconditionFailed);
}

#[tokio::test]
async fn who_is_excused_has_a_place_in_the_round_that_was_seen() {
    let t = TestCoordinator::start().await;
    let task = t.create_task(&small_task()).await;
    let people = [t.enroll("a").await, t.enroll("b").await];
    let whos: Vec<_> = people.iter().map(|(_, who)| who.clone()).collect();
    let round = async |number: u32| t.get(&t.viewer, &format!("/v1/tasks/small/rounds/{number}")).await;
    let excuse = async |number: u32, tag: &str| {
        let path = route::fill(route::EXCUSE, &[&task, &number, &people[1].0]);
        post_if(&t, &path, tag, &json!({})).await
    };
    let first = t.assigned(&whos).await.remove(0);
    let seen = tag(&round(1).await);
    for (id, who) in &people {
        assert_eq!(t.send(who, t.upload(&first, *id, &input([1, 2, 3]))).await.status, 200);
    }
    t.work().await;
    t.advance(std::time::Duration::from_secs(1));
    let second = t.assigned(&whos).await.remove(0);
    assert_eq!(second.round, 2);
    let now = round(2).await;
    let refused = excuse(2, &seen).await;
    refused.problem(ProblemType::PreconditionFailed);
    assert_eq!(tag(&refused), tag(&now));
    let states = |reply: &Reply| reply.json()["dropped_why"].clone();
    assert_eq!(states(&round(2).await), json!({}), "nobody is excused");
    // An input received in between does not conflict.
    assert_eq!(t.send(&whos[0], t.upload(&second, people[0].0, &input([1, 2, 3]))).await.status, 200);
    assert_ne!(tag(&round(2).await), tag(&now));
    assert_eq!(excuse(2, &tag(&now)).await.status, 204);
    assert_eq!(states(&round(2).await), json!({ "EXCUSED": 1 }));
    let known = tag(&round(1).await);
    let again = Request::get("/v1/tasks/small/rounds/1").header("if-none-match", &known).body(Body::empty()).unwrap();
    assert_eq!(t.send(&t.viewer, again).await.status, 304);
}

#[tokio::test]
async fn what_is_known_already_is_not_sent_again() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let ask = async |tag: &str| {
        let request = Request::get("/v1/tasks/small").header("if-none-match", tag).body(Body::empty()).unwrap();
        t.send(&t.viewer, request).await
    };
    let known = tag(&t.get(&t.viewer, "/v1/tasks/small").await);
    for named in [known.clone(), format!("\"x\", W/{known}")] {
        let reply = ask(&named).await;
        assert_eq!((reply.status.as_u16(), tag(&reply), reply.body.len()), (304, known.clone(), 0));
    }
    assert_eq!(ask("\"x\"").await.status, 200);
    t.post(&t.operator, "/v1/tasks/small/pause", &json!({})).await;
    assert_eq!(ask(&known).await.status, 200);
}

#[tokio::test]
async fn a_busy_task_is_changed_as_it_was_seen() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    let task = async || t.get(&t.viewer, "/v1/tasks/small").await;
    let before = task().await;
    let whole = async |seen: &Reply| {
        let request = Request::get("/v1/tasks/small").header("if-none-match", tag(seen)).body(Body::empty()).unwrap();
        t.send(&t.viewer, request).await.status.as_u16()
    };
    // A round waits for participants, opens, and publishes a version.
    t.work().await;
    t.check_in(&a.1, "small").await;
    let waiting = task().await;
    assert_ne!(waiting.body, before.body, "somebody waits");
    assert_ne!(tag(&waiting), tag(&before), "a view that is another is not taken for the same");
    assert_eq!((whole(&before).await, whole(&waiting).await), (200, 304));
    let participants = [a, b];
    let whos: Vec<_> = participants.iter().map(|(_, who)| who.clone()).collect();
    for (assignment, (id, who)) in t.assigned(&whos).await.iter().zip(&participants) {
        let sent = t.send(who, t.upload(assignment, *id, &input([1, 2, 3]))).await;
        assert_eq!(sent.status, 200, "{sent:?}");
    }
    let paused = post_if(&t, "/v1/tasks/small/pause", &tag(&before), &json!({})).await;
    assert_eq!(paused.status, 200, "none of it contradicts the pause");
    t.work().await;
    assert_eq!(task().await.json()["model_version"], 1);
    // Restored and promoted versions are conflicts; an ended round is not.
    let restored = post_if(&t, "/v1/tasks/small/models/0/restore", &tag(&paused), &json!({})).await;
    assert_eq!(restored.status, 200, "{restored:?}");
    for tag in [tag(&before), tag(&paused)] {
        let refused = post_if(&t, "/v1/tasks/small/models/1/restore", &tag, &json!({})).await;
        refused.problem(ProblemType::PreconditionFailed);
    }
    let seen = task().await;
    let promoted = post_if(&t, "/v1/tasks/small/models/2/promote", &tag(&seen), &json!({})).await;
    post_if(&t, "/v1/tasks/small/resume", &tag(&seen), &json!({})).await.problem(ProblemType::PreconditionFailed);
    assert_eq!(post_if(&t, "/v1/tasks/small/resume", &tag(&promoted), &json!({})).await.status, 200);

    let (view, revoke) = participants
        .map(|(id, _)| (route::fill(route::PARTICIPANT, &[&id]), route::fill(route::PARTICIPANT_REVOKE, &[&id])))[0]
        .clone();
    let seen = tag(&t.get(&t.viewer, &view).await);
    t.advance(std::time::Duration::from_secs(3600));
    t.check_in(&whos[0], "small").await;
    assert_ne!(tag(&t.get(&t.viewer, &view).await), seen);
    assert_eq!(post_if(&t, &revoke, &seen, &json!({})).await.status, 200, "a check-in does not save it");
}
