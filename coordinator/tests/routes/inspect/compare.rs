//! Tasks and rounds are put side by side in one call.

use serde_json::{Value, json};
use wire::inspect::{ComparedLine, Comparison};
use wire::problem::ProblemType;

use crate::support::{TestCoordinator, small_task};

fn line<T: Clone>(lines: &[ComparedLine<T>], name: &str) -> Option<Vec<Option<T>>> {
    lines.iter().find(|line| line.name == name).map(|line| line.values.clone())
}

fn named(name: &str) -> Value {
    let mut spec = small_task();
    spec["name"] = json!(name);
    spec
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
