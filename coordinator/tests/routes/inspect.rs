//! What operators see: pages, rounds with their phases, watches, and what does not exist.

use std::time::Duration;

use federation::id::RoundKey;
use federation::round::RoundState;
use serde_json::json;
use wire::inspect::{AssignmentView, ModelView, Page, ParticipantView, RoundView, TaskSummary};
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, Who, config, input, key_and_csr, sha256, small_task, who};

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
async fn a_robust_rule_tells_who_is_unusual_and_needs_enough_participants() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["selection"]["cohort"] = json!({ "count": 3 });
    spec["rounds"]["collect_min"] = json!(3);
    spec["aggregation"] = json!({ "robust": { "rule": "krum", "attackers": 0.3 } });
    let body = json!({ "spec": spec });
    let refused = t.post(&t.operator, route::TASKS, &body).await;
    refused.problem(ProblemType::InvalidTask);
    let detail = refused.json().to_string();
    assert!(detail.contains("krum needs at least 5 participants against 1 attackers, there are 3"), "{detail}");
    spec["aggregation"]["robust"]["rule"] = json!("median");
    t.create_task(&spec).await;
    let mut people = Vec::new();
    for name in ["a", "b", "c"] {
        people.push(t.enroll(name).await);
    }
    let who: Vec<_> = people.iter().map(|(_, who)| who.clone()).collect();
    let work = t.assigned(&who).await.remove(0);
    for ((id, who), words) in people.iter().zip([[100, 200, 300], [110, 190, 310], [-90_000, 90_000, 90_000]]) {
        assert_eq!(t.send(who, t.upload(&work, *id, &input(words))).await.status, 200);
    }
    t.work().await;
    let page: Page<AssignmentView> = t.get(&t.viewer, "/v1/tasks/small/rounds/1/assignments").await.read();
    let score = |name| page.items.iter().find(|view| view.name == name).unwrap().anomaly.unwrap();
    assert!(score("a") <= 1.0 && score("b") <= 1.0 && score("c") > 100.0, "{page:?}");
    let round: RoundView = t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.read();
    assert_eq!((round.model.unwrap().version, round.rolled_back_to), (1, None));
}

#[tokio::test]
async fn a_round_is_shown_with_its_phases_and_what_it_made() {
    let t = TestCoordinator::start().await;
    let task = t.create_task(&small_task()).await;
    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    t.advance(Duration::from_secs(1));
    let work = t.assigned(&[a.1.clone(), b.1.clone()]).await.remove(0);
    t.advance(Duration::from_secs(2));
    let view: RoundView = t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.read();
    assert_eq!((view.cohort, view.reported, view.phases.len(), view.model.clone()), (2, 0, 2, None));
    assert_eq!(view.phases[1].deadline_at, Some(view.phases[1].started_at.plus(Duration::from_secs(600))));
    for (id, who) in [&a, &b] {
        assert_eq!(t.send(who, t.upload(&work, *id, &input([1, 2, 3]))).await.status, 200);
    }
    t.work().await;
    let view: RoundView = t.get(&t.viewer, &format!("/v1/tasks/{task}/rounds/1?attempt=1")).await.read();
    assert_eq!((view.state.as_str(), view.reported, view.bytes_up, view.dropped), ("COMPLETED", 2, 32, 0));
    let counts: Vec<_> = view.phases.iter().map(|phase| (phase.state.as_str(), phase.count)).collect();
    assert_eq!(counts, [("SELECTING", Some(2)), ("COLLECTING", Some(2)), ("AGGREGATING", Some(2))]);
    assert!(view.phases.iter().all(|phase| phase.ended_at.is_some() && phase.deadline_at.is_none()));
    assert!((view.seconds - 2.0).abs() < 1e-9, "{}", view.seconds);
    let made = view.model.unwrap();
    let model: ModelView = t.get(&t.viewer, "/v1/tasks/small/models/1").await.read();
    assert_eq!((made.version, made.sha256, model.parent, model.round), (1, model.sha256, Some(0), Some(1)));
    let file = t.get(&t.viewer, "/v1/tasks/small/models/1/parameters").await;
    assert_eq!(sha256(&file.body), model.sha256);
    let models: Page<ModelView> = t.get(&t.viewer, "/v1/tasks/small/models").await.read();
    assert_eq!(models.items.iter().map(|model| model.version).collect::<Vec<_>>(), [1, 0]);
    let rounds: Page<RoundView> = t.get(&t.viewer, "/v1/tasks/small/rounds?limit=1").await.read();
    assert_eq!(rounds.items[0].number, 2);
    let seen: ParticipantView = t.get(&t.viewer, &format!("/v1/participants/{}", a.0)).await.read();
    assert_eq!(seen.participations, 1);
}

/// Nothing of it is remembered wrong: a coordinator that has just started says the same.
#[tokio::test]
async fn a_page_says_of_each_round_what_is_said_of_it_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    config.database.url = format!("sqlite:{}", folder.path().join("coordinator.db").display());
    let mut t = TestCoordinator::with(&config).await;
    let mut spec = small_task();
    spec["rounds"]["count"] = json!(4);
    let task = t.create_task(&spec).await;
    let people = [t.enroll("a").await, t.enroll("b").await];
    let who: Vec<_> = people.iter().map(|(_, who)| who.clone()).collect();
    for _ in 0..2 {
        t.advance(Duration::from_secs(1));
        let work = t.assigned(&who).await.remove(0);
        t.advance(Duration::from_secs(2));
        for (id, who) in &people {
            assert_eq!(t.send(who, t.upload(&work, *id, &input([1, 2, 3]))).await.status, 200);
        }
        t.work().await;
    }
    let work = t.assigned(&who).await.remove(0);
    let path = route::abandon(work.task, work.round, people[0].0);
    assert_eq!(t.post(&who[0], &path, &json!({ "attempt": 1, "reason": "conditions" })).await.status, 204);
    t.work().await;
    let states = |page: &str| -> Vec<String> {
        let page: Page<RoundView> = serde_json::from_str(page).unwrap();
        page.items.iter().map(|round| round.state.to_string()).collect()
    };
    t.rounds("small").await;
    t.post(&t.operator, "/v1/tasks/small/cancel", &json!({})).await;
    let page = t.rounds("small").await;
    assert_eq!(states(&page)[1..], ["COMPLETED", "COMPLETED"], "{page}");
    assert_eq!(page, t.rounds("small").await);
    t.restart(&config, 2).await;
    assert_eq!(page, t.rounds("small").await);
    // Bytes that were on their way when a round ended are counted when they are sent.
    let (key, state) = (RoundKey { task, number: 1 }, RoundState::Collecting);
    let counted = t
        .inner
        .store
        .transact("test", |tx| Box::pin(async move { tx.add_bytes_down(key.attempt(1), state, 77).await }));
    assert!(counted.await.unwrap());
    let first = t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.json();
    assert_eq!((&first["bytes_down"], &first["phases"][1]["bytes_down"]), (&json!(77), &json!(77)));
    assert_ne!(page, t.rounds("small").await);
}

#[tokio::test]
async fn a_watch_returns_when_the_round_moves_on() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let watch = t.get(&t.viewer, "/v1/tasks/small/rounds/1?wait_ms=10000");
    let open = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        t.work().await;
    };
    let (reply, ()) = tokio::join!(watch, open);
    assert_eq!(reply.json()["state"], "SELECTING", "even one that was not there yet");
    let watch = t.get(&t.viewer, "/v1/tasks/small/rounds/1?after_state=SELECTING&wait_ms=10000");
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        t.post(&t.operator, "/v1/tasks/small/cancel", &json!({})).await;
    };
    let (reply, ()) = tokio::join!(watch, cancel);
    assert_eq!(reply.json()["state"], "CANCELLED");
    let reply = t.get(&t.viewer, "/v1/tasks/small/rounds/1?after_state=CANCELLED&wait_ms=20").await;
    assert_eq!(reply.json()["state"], "CANCELLED", "after its time it says what there is");
}

#[tokio::test]
async fn what_does_not_exist_is_a_problem_of_one_kind() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    for path in [
        "/v1/tasks/unknown",
        "/v1/tasks/00000000-0000-4000-8000-000000000000",
        "/v1/tasks/no%20name",
        "/v1/tasks/small/rounds/1",
        "/v1/tasks/small/rounds/first",
        "/v1/tasks/small/rounds/1/assignments",
        "/v1/tasks/small/models/1",
        "/v1/tasks/small/models/99999999999",
        "/v1/participants/not-an-id",
        "/v1/participants/00000000-0000-4000-8000-000000000000",
        "/v2/tasks",
        "/",
    ] {
        t.get(&t.viewer, path).await.problem(ProblemType::NotFound);
    }
    t.call(&t.viewer, http::Method::DELETE, route::TASKS).await.problem(ProblemType::MethodNotAllowed);
    t.call(&t.viewer, http::Method::GET, route::ENROLL).await.problem(ProblemType::MethodNotAllowed);
}

#[tokio::test]
async fn a_round_that_waits_in_vain_tells_how_many_are_there() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["selection"]["cohort"]["count"] = json!(8);
    t.create_task(&spec).await;
    t.work().await;
    for n in 0..6 {
        let (_, who) = t.enroll(&format!("p{n}")).await;
        t.check_in(&who, "small").await;
    }
    let selecting = async || {
        let round = t.get(&t.viewer, "/v1/tasks/small/rounds/1?attempt=1").await.json();
        (round["state"].clone(), round["phases"][0]["count"].clone(), round["phases"][0]["min"].clone())
    };
    let (state, count, min) = selecting().await;
    assert_eq!((state, count), (json!("SELECTING"), json!(6)));
    assert!(min.as_u64() > Some(6), "{min}");
    // Not so long that those who wait are not counted on any more.
    let task = t.get(&t.viewer, "/v1/tasks/small").await.json();
    assert_eq!(task["status"], "ACTIVE");
    t.post(&t.operator, "/v1/tasks/small/cancel", &json!({})).await;
    assert_eq!(selecting().await.0, "CANCELLED");
    assert_eq!(selecting().await.1, 6, "and so it does when it is over");
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
    // Those of elsewhere can never be in it.
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
