//! Compares tasks and rounds in one call.

use std::time::Duration;

use serde_json::json;
use wire::inspect::{ComparedLine, Comparison, Page, RoundView};
use wire::problem::ProblemType;

use crate::support::{TestCoordinator, input, named, small_task};

fn line<T: Clone>(lines: &[ComparedLine<T>], name: &str) -> Option<Vec<Option<T>>> {
    lines.iter().find(|line| line.name == name).map(|line| line.values.clone())
}

#[tokio::test]
async fn tasks_and_rounds_are_side_by_side() {
    let t = TestCoordinator::start().await;
    let a = t.create_task(&named("a")).await;
    let mut spec = named("b");
    spec["rounds"]["count"] = json!(7);
    let b = t.create_task(&spec).await;
    t.work().await;
    assert_eq!(t.post(&t.operator, "/v1/tasks/b/cancel", &json!({})).await.status, 200);
    let compared: Comparison = t.get(&t.viewer, &format!("/v1/compare?task=a&task={b}&task=a")).await.read();
    assert_eq!(compared.tasks, [a, b, a]);
    assert_eq!(compared.names, ["a", "b", "a"]);
    assert_eq!(line(&compared.keys, "rounds.count").unwrap()[1].as_deref(), Some("7"));
    assert_eq!(line(&compared.keys, "model.tensors"), None, "they are the same");
    assert_eq!(line(&compared.total, "completed rounds"), Some(vec![Some(0.0); 3]));
    assert_eq!(compared.last, [], "no round completed");

    let rounds: Comparison = t.get(&t.viewer, "/v1/compare?round=a/1&round=b/1/1").await.read();
    assert_eq!((rounds.tasks, rounds.names), (vec![a, b], vec!["a/1/1".to_owned(), "b/1/1".to_owned()]));
    assert_eq!(line(&rounds.last, "cohort"), Some(vec![Some(0.0); 2]));
    assert_eq!(rounds.total, []);
}

/// Two participants complete most of a hundred rounds, and one round is cancelled while it collects.
#[tokio::test]
async fn a_task_is_the_sum_of_its_rounds_and_the_last_that_completed() {
    const ROUNDS: u32 = 100;
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["rounds"]["count"] = json!(2 * ROUNDS);
    t.create_task(&spec).await;
    t.create_task(&named("other")).await;
    assert_eq!(t.post(&t.operator, "/v1/tasks/other/pause", &json!({})).await.status, 200);
    let people = [t.enroll("a").await, t.enroll("b").await];
    let who: Vec<_> = people.iter().map(|(_, who)| who.clone()).collect();
    for number in 1..=ROUNDS {
        let work = t.assigned(&who).await.remove(0);
        assert_eq!(work.round, number);
        t.advance(Duration::from_millis(1037 + u64::from(number % 7)));
        for (id, who) in &people {
            assert_eq!(t.send(who, t.upload(&work, *id, &input([1, 2, 3]))).await.status, 200);
        }
        t.work().await;
    }
    t.assigned(&who).await;
    assert_eq!(t.post(&t.operator, "/v1/tasks/small/cancel", &json!({})).await.status, 200);

    let page: Page<RoundView> = t.get(&t.viewer, "/v1/tasks/small/rounds?limit=500").await.read();
    let sum = |of: &dyn Fn(&RoundView) -> f64| page.items.iter().map(of).sum::<f64>();
    let completed = page.items.iter().filter(|round| round.state.as_str() == "COMPLETED").count();
    assert_eq!((page.items.len(), completed), (ROUNDS as usize + 1, ROUNDS as usize));
    let compared: Comparison = t.get(&t.viewer, "/v1/compare?task=small&task=other").await.read();
    let total = |name: &str| line(&compared.total, name).unwrap()[0].unwrap();
    assert!((total("seconds") - sum(&|round| round.seconds)).abs() < 1e-6, "{}", total("seconds"));
    assert_eq!(total("bytes_up"), sum(&|round| round.bytes_up as f64));
    assert_eq!(total("bytes_down"), sum(&|round| round.bytes_down as f64));
    assert_eq!((total("completed rounds"), total("failed attempts")), (f64::from(ROUNDS), 0.0));
    assert_eq!(line(&compared.total, "seconds").unwrap()[1], None, "no round of the other has opened");

    let last: Comparison = t.get(&t.viewer, &format!("/v1/compare?round=small/{ROUNDS}&round=small/1")).await.read();
    assert!(last.last.len() > 5, "{:?}", last.last);
    for ComparedLine { name, values } in &last.last {
        assert_eq!(line(&compared.last, name).unwrap()[0], values[0], "{name}");
    }
}

#[tokio::test]
async fn what_cannot_be_compared_is_refused() {
    let t = TestCoordinator::start().await;
    t.create_task(&named("a")).await;
    t.work().await;
    let nine = ["task=a"; 9].join("&");
    for (query, problem) in [
        ("", ProblemType::InvalidValue),
        ("task=a", ProblemType::InvalidValue),
        (&*nine, ProblemType::InvalidValue),
        ("task=a&task=a&round=a/1&round=a/1", ProblemType::InvalidValue),
        ("task=a&task=none", ProblemType::NotFound),
        ("round=a&round=a/1", ProblemType::InvalidValue),
        ("round=a/x&round=a/1", ProblemType::InvalidValue),
        ("round=a/1&round=a/2", ProblemType::NotFound),
        ("round=a/1&round=a/1/2", ProblemType::NotFound),
        ("rounds=a/1", ProblemType::MalformedRequest),
    ] {
        t.get(&t.viewer, &format!("/v1/compare?{query}")).await.problem(problem);
    }
}

#[tokio::test]
async fn two_rounds_of_a_task_are_compared_by_what_came_of_them() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["selection"]["cohort"]["count"] = json!(3);
    spec["rounds"]["collect_min"] = json!(2);
    let task = t.create_task(&spec).await;
    let people = [t.enroll("a").await, t.enroll("b").await, t.enroll("c").await];
    let who: Vec<_> = people.iter().map(|(_, who)| who.clone()).collect();
    // In the longer second round, the third participant gives up.
    for (reporting, seconds) in [(3, 2), (2, 5)] {
        t.advance(Duration::from_secs(1));
        let work = t.assigned(&who).await.remove(0);
        t.advance(Duration::from_secs(seconds));
        for (id, who) in &people[reporting..] {
            let path = wire::route::abandon(work.task, work.round, *id);
            assert_eq!(t.post(who, &path, &json!({ "attempt": 1, "reason": "conditions" })).await.status, 204);
        }
        for (id, who) in &people[..reporting] {
            assert_eq!(t.send(who, t.upload(&work, *id, &input([1, 2, 3]))).await.status, 200);
        }
        t.work().await;
    }

    let rounds: Comparison = t.get(&t.viewer, "/v1/compare?round=small/1&round=small/2/1").await.read();
    assert_eq!((rounds.tasks, rounds.keys, rounds.total), (vec![task; 2], vec![], vec![]));
    assert_eq!(rounds.names, ["small/1/1", "small/2/1"]);
    for (name, values) in [
        ("seconds", [2.0, 6.0]),
        ("phases.SELECTING.seconds", [0.0, 1.0]),
        ("phases.COLLECTING.seconds", [2.0, 5.0]),
        ("phases.COLLECTING.count", [3.0, 2.0]),
        ("cohort", [3.0, 3.0]),
        ("reported", [3.0, 2.0]),
        ("dropped", [0.0, 1.0]),
        ("bytes_up", [48.0, 32.0]),
    ] {
        assert_eq!(line(&rounds.last, name), Some(values.map(Some).to_vec()), "{name}");
    }

    let tasks: Comparison = t.get(&t.viewer, "/v1/compare?task=small&task=small").await.read();
    for (name, value) in [("completed rounds", 2.0), ("failed attempts", 0.0), ("seconds", 8.0), ("bytes_up", 80.0)] {
        assert_eq!(line(&tasks.total, name), Some(vec![Some(value); 2]), "{name}");
    }
    assert_eq!(line(&tasks.last, "reported"), Some(vec![Some(2.0); 2]), "of the second round");
}
