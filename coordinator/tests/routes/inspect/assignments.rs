//! Who is unusual in a round is seen by its assignments.

use serde_json::json;
use wire::inspect::{AssignmentView, Page, RoundView};
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, input, small_task};

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
