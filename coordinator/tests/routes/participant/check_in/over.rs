//! A check-in for a finished task returns its last version with a verifiable record.

use recipe::AssignmentTerms;
use serde_json::{Value, json};
use wire::participant::{CheckInReply, FinalModel};
use wire::route;

use crate::support::{TestCoordinator, Who, input, named, sha256, small_task};

/// The last version in the answer to a participant's check-in.
async fn told(t: &TestCoordinator, who: &Who, task: &str) -> Option<FinalModel> {
    let CheckInReply::TaskOver { model, .. } = t.check_in(who, task).await else { panic!("it is not over") };
    model.map(|model| *model)
}

async fn cancel(t: &TestCoordinator, task: &str) {
    assert_eq!(t.post(&t.operator, &route::fill(route::TASK_CANCEL, &[&task]), &json!({})).await.status, 200);
}

#[tokio::test]
async fn all_are_told_the_same_last_version_with_its_record_whoever_made_it() {
    let t = TestCoordinator::start().await;
    let task = t.create_task(&small_task()).await;
    let (a, b, c) = (t.enroll("a").await, t.enroll("b").await, t.enroll("c").await);
    let mut told_in_rounds = Vec::new();
    for _ in 0..2 {
        let work = t.assigned(&[a.1.clone(), b.1.clone()]).await;
        for ((id, who), assignment) in [&a, &b].into_iter().zip(&work) {
            assert_eq!(t.send(who, t.upload(assignment, *id, &input([1, -2, 3]))).await.status, 200);
        }
        t.work().await;
        told_in_rounds.extend(work);
    }
    let last = told(&t, &a.1, "small").await.unwrap();
    assert_eq!((last.version.version, last.task_name.as_str()), (2, "small"));
    let record = last.provenance.open().unwrap();
    assert_eq!((record.task, record.version), (task, 2));
    assert_eq!((record.sha256, record.bytes), (last.version.sha256, last.version.bytes));
    assert_eq!(record.task_sha256, AssignmentTerms::from(&last).in_every_round(), "a participant derives it");
    let of_rounds = AssignmentTerms::from(&told_in_rounds[0]).in_every_round();
    assert_eq!(record.task_sha256, of_rounds, "what it was told in its rounds");
    // A participant that took part, and one never drawn: the answer does not reveal the draw.
    assert_eq!(told(&t, &b.1, "small").await.as_ref(), Some(&last));
    assert_eq!(told(&t, &c.1, "small").await.as_ref(), Some(&last));
    for (_, who) in [&a, &c] {
        let file = t.get(who, &format!("/v1/tasks/{task}/models/2/parameters")).await;
        assert_eq!((sha256(&file.body), file.body.len() as u64), (last.version.sha256, last.version.bytes));
    }
    let answer = t.post(&c.1, route::CHECK_IN, &json!({ "task": "small" })).await.json();
    let mut fields: Vec<_> = answer.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["kind", "model", "task"]);
}

#[tokio::test]
async fn version_with_newer_rules_for_tables_is_for_who_knows_them() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    let label = json!({ "column": "sick", "one_of": ["no", "yes"] });
    spec["model"]["table"] = json!({ "features": [{ "column": "age", "missing": 7 }], "label": label });
    let task = t.create_task(&spec).await;
    let (_, who) = t.enroll("a").await;
    cancel(&t, "small").await;
    let CheckInReply::Asked { questions } = t.check_in(&who, "small").await else { panic!("it is not asked") };
    let asked = json!([{ "task": task, "criteria": [{ "attribute": "table_version", "at_least": 2.0 }] }]);
    assert_eq!(serde_json::to_value(questions).unwrap(), asked);
    for (knows, has_model) in [(true, true), (false, false)] {
        let findings = json!([{ "task": task, "eligible": knows }]);
        let body = json!({ "task": "small", "examples": 10, "wait_ms": 0, "findings": findings });
        let CheckInReply::TaskOver { model, .. } = t.post(&who, route::CHECK_IN, &body).await.read() else {
            panic!("it is not over")
        };
        assert_eq!(model.is_some(), has_model);
    }
}

#[tokio::test]
async fn a_task_without_a_round_ends_with_the_version_that_it_began_with() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let (_, a) = t.enroll("a").await;
    cancel(&t, "small").await;
    let last = told(&t, &a, "small").await.unwrap();
    assert_eq!((last.version.version, last.provenance.open().unwrap().round), (0, None));
}

#[tokio::test]
async fn a_participant_that_the_task_would_not_take_and_one_of_an_analysis_are_told_no_model() {
    let t = TestCoordinator::start().await;
    let mut picky = named("picky");
    picky["selection"]["require"] = json!({ "labels": { "region": "eu" } });
    t.create_task(&picky).await;
    let mut analysis: Value = small_task();
    analysis.as_object_mut().unwrap().retain(|key, _| !["model", "metrics"].contains(&key.as_str()));
    analysis["name"] = json!("ages");
    analysis["rounds"] = json!({ "count": 1, "select_max": 10 });
    let column = json!({ "type": "category", "name": "group", "categories": 4 });
    analysis["analytics"] = json!({ "kind": "statistics", "max_rows": 100, "columns": [column] });
    t.create_task(&analysis).await;
    let (_, a) = t.enroll("a").await;
    for task in ["picky", "ages"] {
        cancel(&t, task).await;
        assert_eq!(told(&t, &a, task).await, None, "{task}");
    }
}
