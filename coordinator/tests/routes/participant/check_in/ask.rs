//! Criteria for devices, and their answers.

use std::time::Duration;

use serde_json::json;
use wire::participant::CheckInReply;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, Who, small_task};

#[tokio::test]
async fn a_task_that_follows_the_loss_asks_for_it_and_draws_by_what_is_told() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["metrics"] = json!(["train_loss"]);
    spec["rounds"]["select_min"] = json!(4);
    spec["selection"]["cohort"] = json!({ "count": 2 });
    spec["selection"]["strategy"] = json!({ "power_of_choice": { "candidates": 4 } });
    let task = t.create_task(&spec).await;
    let mut people = Vec::new();
    for name in ["a", "b", "c", "d"] {
        people.push(t.enroll(name).await.1);
    }
    t.work().await;
    let tell = async |who: &Who, task: wire::TaskId, level: u8| {
        let loss = json!({ "task": task, "level": level });
        let body = json!({ "task": "small", "examples": 10, "wait_ms": 0, "loss": loss });
        t.post(who, route::CHECK_IN, &body).await
    };
    for (who, level) in people.iter().zip([3, 25, 1, 20]) {
        assert!(matches!(tell(who, task, level).await.read(), CheckInReply::ComeBack { .. }));
    }
    t.work().await;
    for (who, drawn) in people.iter().zip([false, true, false, true]) {
        match t.check_in(who, "small").await {
            CheckInReply::Assigned(assignment) => assert!(drawn && assignment.report_loss),
            _ => assert!(!drawn, "the two highest losses are drawn"),
        }
    }
    tell(&people[0], task, 32).await.problem(ProblemType::MalformedRequest);
}

#[tokio::test]
async fn devices_decide_for_themselves_whether_a_task_is_for_them() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    let criterion = json!({ "attribute": "language", "one_of": ["de", "fr"] });
    spec["selection"]["on_device"] = json!([criterion]);
    let task = t.create_task(&spec).await;
    t.work().await;
    let say = async |who: &Who, eligible: bool| {
        let findings = json!([{ "task": task, "eligible": eligible }]);
        let body = json!({ "task": "small", "examples": 10, "wait_ms": 0, "findings": findings });
        t.post(who, route::CHECK_IN, &body).await.read::<CheckInReply>()
    };
    let (_, a) = t.enroll("a").await;
    let (_, b) = t.enroll("b").await;
    let (_, c) = t.enroll("c").await;
    for who in [&a, &b, &c] {
        let CheckInReply::Asked { questions } = t.check_in(who, "small").await else { panic!("nothing asked") };
        assert_eq!(serde_json::to_value(questions).unwrap(), json!([{ "task": task, "criteria": [criterion] }]));
    }
    t.work().await;
    assert!(matches!(say(&a, false).await, CheckInReply::ComeBack { .. }));
    assert!(matches!(say(&b, true).await, CheckInReply::ComeBack { .. }));
    // It was eligible, and no longer is: the next write withdraws its check-in.
    assert!(matches!(say(&c, true).await, CheckInReply::ComeBack { .. }));
    assert!(matches!(say(&c, false).await, CheckInReply::ComeBack { .. }));
    tokio::time::sleep(Duration::from_millis(60)).await;
    t.work().await;
    assert!(matches!(say(&b, true).await, CheckInReply::ComeBack { .. }), "alone");
    say(&a, true).await;
    t.work().await;
    for (who, eligible) in [(&a, true), (&b, true), (&c, false)] {
        assert_eq!(matches!(say(who, eligible).await, CheckInReply::Assigned(_)), eligible);
    }
    let many = vec![json!({ "task": task, "eligible": true }); 33];
    let body = json!({ "task": "small", "examples": 10, "wait_ms": 0, "findings": many });
    t.post(&a, route::CHECK_IN, &body).await.problem(ProblemType::InvalidValue);
}

#[tokio::test]
async fn task_with_a_graph_asks_for_its_format() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["model"] = json!({
        "tensors": [{ "name": "w", "shape": [2, 3] }],
        "architecture": {
            "kind": "graph",
            "graph": {
                "version": 1,
                "inputs": [{ "name": "x", "element": "f32", "shape": [{ "factor": 1, "batch": 1 }, { "offset": 2 }] }],
                "parameters": [{ "name": "w", "shape": [2, 3] }],
                "nodes": [{ "do": "mat_mul", "of": [0, 1] }],
                "outputs": [{ "name": "y", "value": 2 }],
            },
            "loss": { "kind": "cross_entropy" },
        },
    });
    let task = t.create_task(&spec).await;
    t.work().await;
    let (_, who) = t.enroll("a").await;
    let CheckInReply::Asked { questions } = t.check_in(&who, "small").await else { panic!("nothing asked") };
    let criterion = json!({ "attribute": "graph_version", "at_least": 1.0 });
    assert_eq!(serde_json::to_value(questions).unwrap(), json!([{ "task": task, "criteria": [criterion] }]));
}

#[tokio::test]
async fn task_with_holes_in_its_table_asks_for_the_rules() {
    let t = TestCoordinator::start().await;
    let (_, who) = t.enroll("a").await;
    let criterion = json!({ "attribute": "table_version", "at_least": 2.0 });
    let label = json!({ "column": "sick", "one_of": ["no", "yes"] });
    for (name, features, asks) in [
        ("plain", json!([{ "column": "age", "low": 0, "high": 120 }]), false),
        ("filled", json!([{ "column": "age", "missing": 7 }]), true),
        ("others", json!([{ "column": "ward", "one_of": ["icu"], "other": true }]), true),
    ] {
        let mut spec = small_task();
        spec["name"] = json!(name);
        spec["model"]["table"] = json!({ "features": features, "label": label });
        let task = t.create_task(&spec).await;
        t.work().await;
        let reply = t.check_in(&who, name).await;
        let CheckInReply::Asked { questions } = reply else {
            assert!(!asks, "{name}");
            continue;
        };
        assert_eq!(serde_json::to_value(questions).unwrap(), json!([{ "task": task, "criteria": [criterion] }]));
        assert!(asks, "{name}");
    }
}

#[tokio::test]
async fn who_does_not_say_how_many_examples_it_has_is_asked_whether_they_are_enough() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["selection"]["require"] = json!({ "min_examples": 10 });
    let task = t.create_task(&spec).await;
    t.work().await;
    let say = async |who: &Who, findings: serde_json::Value, name: Option<&str>| {
        let body = json!({ "task": name, "wait_ms": 0, "findings": findings });
        t.post(who, route::CHECK_IN, &body).await.read::<CheckInReply>()
    };
    let (_, a) = t.enroll("a").await;
    let (_, b) = t.enroll("b").await;
    let (_, c) = t.enroll("c").await;
    let criterion = json!({ "attribute": "examples", "at_least": 10.0 });
    for (who, name) in [(&a, Some("small")), (&b, None), (&c, Some("small"))] {
        let CheckInReply::Asked { questions } = say(who, json!([]), name).await else { panic!("nothing asked") };
        assert_eq!(serde_json::to_value(questions).unwrap(), json!([{ "task": task, "criteria": [criterion] }]));
    }
    let found = |eligible: bool| json!([{ "task": task, "eligible": eligible }]);
    for (who, eligible) in [(&a, true), (&b, true), (&c, false)] {
        assert!(matches!(say(who, found(eligible), Some("small")).await, CheckInReply::ComeBack { .. }));
    }
    t.work().await;
    for (who, eligible) in [(&a, true), (&b, true), (&c, false)] {
        let reply = say(who, found(eligible), Some("small")).await;
        assert_eq!(matches!(reply, CheckInReply::Assigned(_)), eligible);
    }
}
