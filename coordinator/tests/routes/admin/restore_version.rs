//! An earlier version can be restored only between rounds, and the next round starts from it.

use serde_json::{Value, json};
use wire::participant::Assignment;
use wire::problem::ProblemType;
use wire::route;
use wire::{ParticipantId, TaskId};

use crate::support::{TestCoordinator, Who, input, small_task};

type Participants = [(ParticipantId, Who); 2];

async fn draw(t: &TestCoordinator, of: &Participants) -> Assignment {
    t.assigned(&[of[0].1.clone(), of[1].1.clone()]).await.remove(0)
}

async fn report(t: &TestCoordinator, work: &Assignment, of: &Participants) {
    for (id, who) in of {
        assert_eq!(t.send(who, t.upload(work, *id, &input([1, 2, 3]))).await.status, 200);
    }
    t.work().await;
}

async fn newest(t: &TestCoordinator, task: TaskId) -> Value {
    t.get(&t.viewer, &route::fill(route::TASK, &[&task])).await.json()["model_version"].clone()
}

#[tokio::test]
async fn a_version_is_published_again_when_no_round_is_in_progress() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["rounds"]["count"] = json!(6);
    // Optimizer state is kept only for the two newest versions, so an older one continues without it.
    spec["aggregation"] = json!({ "optimizer": { "name": "fed_adam" } });
    let task = t.create_task(&spec).await;
    let restore = |version: u32| route::fill(route::MODEL_RESTORE, &[&task, &version]);
    t.post(&t.viewer, &restore(0), &json!({})).await.problem(ProblemType::Forbidden);
    let told = t.post(&t.operator, &restore(0), &json!({})).await.problem(ProblemType::Conflict);
    assert!(told.contains("version 0 is the newest"), "{told}");
    t.post(&t.operator, &restore(9), &json!({})).await.problem(ProblemType::NotFound);

    let participants = [t.enroll("a").await, t.enroll("b").await];
    for _ in 0..2 {
        report(&t, &draw(&t, &participants).await, &participants).await;
    }
    let told = t.post(&t.operator, &restore(1), &json!({})).await.problem(ProblemType::Conflict);
    assert!(told.contains("round 3 is in progress, from version 2: pause the task"), "{told}");
    assert_eq!(newest(&t, task).await, 2, "nothing changed");

    let work = draw(&t, &participants).await;
    t.post(&t.operator, &route::fill(route::TASK_PAUSE, &[&task]), &json!({})).await;
    report(&t, &work, &participants).await;
    let first = t.get(&t.viewer, &route::fill(route::MODEL, &[&task, &1])).await.json();
    let again = t.post(&t.operator, &restore(1), &json!({})).await.json();
    assert_eq!((&again["version"], &again["parent"], &again["round"]), (&json!(4), &json!(1), &json!(3)));
    assert_eq!(again["sha256"], first["sha256"]);
    assert_eq!(t.post(&t.operator, &restore(1), &json!({})).await.json(), again, "asked twice");

    t.post(&t.operator, &route::fill(route::TASK_RESUME, &[&task]), &json!({})).await;
    let work = draw(&t, &participants).await;
    assert_eq!(work.base.version, 4);
    report(&t, &work, &participants).await;
    assert_eq!(newest(&t, task).await, 5, "its successor is made");
    t.post(&t.operator, &route::fill(route::TASK_CANCEL, &[&task]), &json!({})).await;
    t.post(&t.operator, &restore(2), &json!({})).await.problem(ProblemType::TaskStatus);
}
