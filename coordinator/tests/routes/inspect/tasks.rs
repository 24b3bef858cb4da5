//! Lists in pages, and the state of a task that cannot continue.

use std::time::Duration;

use serde_json::json;
use wire::RoundState;
use wire::inspect::{Page, ParticipantView, RoundView, TaskSummary};
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, Who, input, key_and_csr, small_task, who};

#[tokio::test]
async fn lists_come_in_pages() {
    let t = TestCoordinator::start().await;
    for n in 0..5 {
        let mut spec = small_task();
        spec["name"] = json!(format!("task-{n}"));
        t.create_task(&spec).await;
        t.enroll(&format!("p{n}")).await;
        t.advance(Duration::from_secs(1));
    }
    let mut names = Vec::new();
    let mut cursor = String::new();
    loop {
        let page: Page<TaskSummary> = t.get(&t.viewer, &format!("/v1/tasks?limit=2{cursor}")).await.read();
        assert!(page.items.len() <= 2);
        names.extend(page.items.into_iter().map(|task| task.name));
        match page.next_cursor {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(names, ["task-4", "task-3", "task-2", "task-1", "task-0"]);
    let page: Page<ParticipantView> = t.get(&t.viewer, "/v1/participants?limit=5").await.read();
    assert_eq!((page.items.len(), page.next_cursor), (5, None));
    for (query, kind) in [
        ("limit=0", ProblemType::InvalidValue),
        ("limit=501", ProblemType::InvalidValue),
        ("cursor=x", ProblemType::InvalidValue),
        ("limt=1", ProblemType::MalformedRequest),
        ("limit=many", ProblemType::MalformedRequest),
    ] {
        t.get(&t.viewer, &format!("/v1/tasks?{query}")).await.problem(kind);
    }
}

#[tokio::test]
async fn a_task_with_a_limit_of_attempts_pauses_where_too_few_are_enrolled() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["rounds"]["max_attempts"] = json!(2);
    t.create_task(&spec).await;
    for _ in 0..5 {
        t.work().await;
        t.advance(Duration::from_secs(600));
    }
    let task = t.get(&t.viewer, "/v1/tasks/small").await.json();
    assert_eq!(task["status"], "PAUSED");
    assert_eq!(t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.json()["attempt"], 2);
}

#[tokio::test]
async fn a_round_that_needs_more_than_are_enrolled_is_tried_again_when_enough_are_and_says_so_until_then() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["selection"]["cohort"]["count"] = json!(8);
    spec["selection"]["require"] = json!({ "labels": { "region": "eu" } });
    t.create_task(&spec).await;
    let enroll = async |n: usize, region: &str| {
        let token = t.post(&t.operator, route::ENROLLMENT_TOKENS, &json!({ "labels": { "region": region } })).await;
        let (_, csr) = key_and_csr();
        let body = json!({ "token": token.json()["token"], "csr_pem": csr, "name": format!("p{n}") });
        who(&t.post(&Who::Nobody, route::ENROLL, &body).await.read())
    };
    let mut people = Vec::new();
    for n in 0..6 {
        people.push(enroll(n, "eu").await);
    }
    // Participants elsewhere can never be in it.
    let elsewhere = [enroll(10, "us").await, enroll(11, "us").await, enroll(12, "us").await];
    let shortage = async || t.get(&t.viewer, "/v1/tasks/small").await.json()["shortage"].clone();
    t.work().await;
    assert_eq!(shortage().await, json!({ "needed": 8, "enrolled": 6, "waiting": 0 }));
    t.advance(Duration::from_secs(600));
    t.work().await;
    let latest = async || {
        let round = t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.json();
        (round["attempt"].clone(), round["state"].clone(), round["failure"].clone())
    };
    let failed = (json!(1), json!("FAILED"), json!("too_few_participants"));
    assert_eq!(latest().await, failed);
    for _ in 0..5 {
        t.advance(Duration::from_secs(3600));
        for who in people[..5].iter().chain(&elsewhere) {
            t.check_in(who, "small").await;
        }
        t.work().await;
        assert_eq!(latest().await, failed, "nothing can come of another attempt");
    }
    assert_eq!(shortage().await, json!({ "needed": 8, "enrolled": 6, "waiting": 5 }));
    let task = t.get(&t.viewer, "/v1/tasks/small").await.json();
    assert_eq!(task["waiting_for"], json!({ "kind": "participants", "more": 3 }), "no attempt opens before");
    for n in 6..8 {
        people.push(enroll(n, "eu").await);
    }
    t.work().await;
    assert_eq!(latest().await, (json!(2), json!("SELECTING"), json!(null)));
    assert_eq!(shortage().await["enrolled"], 8);
    for who in &people {
        t.check_in(who, "small").await;
    }
    t.work().await;
    assert_eq!(latest().await.1, "COLLECTING");
    assert_eq!(shortage().await, json!(null));
}

#[tokio::test]
async fn a_task_says_until_when_it_pauses_after_a_failed_attempt() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let (a, b) = (t.enroll("a").await.1, t.enroll("b").await.1);
    let waiting_for = async || t.get(&t.viewer, "/v1/tasks/small").await.json()["waiting_for"].clone();
    for (attempt, pause) in [(1, 1), (2, 2), (3, 4)] {
        t.assigned(&[a.clone(), b.clone()]).await;
        t.advance(Duration::from_secs(600));
        t.work().await;
        let round: RoundView = t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.read();
        assert_eq!((round.attempt, round.state), (attempt, RoundState::Failed));
        let pause = Duration::from_secs(pause);
        let paused = json!({ "kind": "round", "round": 1, "at": t.now().plus(pause) });
        assert_eq!(waiting_for().await, paused);
        t.advance(pause - Duration::from_millis(1));
        assert_eq!(waiting_for().await, paused);
        t.advance(Duration::from_millis(1));
        assert_eq!(waiting_for().await, json!({ "kind": "round", "round": 1 }), "it may open now");
    }
}

#[tokio::test]
async fn a_task_says_what_it_waits_for_and_until_when() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let waiting_for = async || t.get(&t.viewer, "/v1/tasks/small").await.json()["waiting_for"].clone();
    let act = async |action: &str| {
        let path = format!("/v1/tasks/small/{action}");
        assert_eq!(t.post(&t.operator, &path, &json!({})).await.status, 200);
    };
    let phase = async || {
        let round: RoundView = t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.read();
        round.phases.last().unwrap().clone()
    };
    assert_eq!(waiting_for().await, json!({ "kind": "round", "round": 1 }));
    t.advance(Duration::from_secs(1));
    act("pause").await;
    let paused = json!({ "kind": "operator", "status": "PAUSED", "since": t.now() });
    assert_eq!(waiting_for().await, paused);
    t.advance(Duration::from_secs(1));
    assert_eq!(waiting_for().await, paused);
    act("resume").await;
    t.work().await;
    let until = phase().await.deadline_at.unwrap();
    assert_eq!(waiting_for().await, json!({ "kind": "participants", "more": 2, "until": until }));

    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    let work = t.assigned(&[a.1.clone(), b.1.clone()]).await.remove(0);
    let collecting = phase().await;
    let (until, min) = (collecting.deadline_at.unwrap(), collecting.min.unwrap());
    let in_phase = |more: u32| json!({ "kind": "phase", "round": 1, "attempt": 1, "state": "COLLECTING", "more": more, "until": until });
    assert_eq!(waiting_for().await, in_phase(min));
    // The round continues without the operator.
    act("pause").await;
    assert_eq!(t.send(&a.1, t.upload(&work, a.0, &input([1, 2, 3]))).await.status, 200);
    assert_eq!(waiting_for().await, in_phase(min - 1));
    assert_eq!(t.send(&b.1, t.upload(&work, b.0, &input([1, 2, 3]))).await.status, 200);
    t.work().await;
    assert_eq!(waiting_for().await["kind"], "operator");
    act("cancel").await;
    assert_eq!(waiting_for().await, json!({ "kind": "nothing" }));
}
