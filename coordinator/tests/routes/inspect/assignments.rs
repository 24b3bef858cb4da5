//! Assignments show unusual participants of a round.

use serde_json::json;
use wire::inspect::{AssignmentView, Page, RoundView};
use wire::participant::EnrollReply;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, Who, input, key_and_csr, small_task, who};

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
async fn a_cohort_is_narrowed_down_by_states_and_labels() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let mut people = Vec::new();
    for (name, region) in [("a", "eu"), ("b", "us")] {
        let labels = json!({ "labels": { "region": region } });
        let token = t.post(&t.operator, route::ENROLLMENT_TOKENS, &labels).await.json()["token"].clone();
        let body = json!({ "token": token, "csr_pem": key_and_csr().1, "name": name });
        let reply: EnrollReply = t.post(&Who::Nobody, route::ENROLL, &body).await.read();
        people.push((reply.participant, who(&reply)));
    }
    let whos: Vec<_> = people.iter().map(|(_, who)| who.clone()).collect();
    let work = t.assigned(&whos).await.remove(0);
    let (id, a) = &people[0];
    assert_eq!(t.send(a, t.upload(&work, *id, &input([1, 2, 3]))).await.status, 200);
    let path = |query: &str| format!("/v1/tasks/small/rounds/1/assignments?{query}");
    let names = async |query: &str| {
        let page: Page<AssignmentView> = t.get(&t.viewer, &path(query)).await.read();
        let mut names: Vec<_> = page.items.into_iter().map(|view| view.name).collect();
        names.sort();
        names.join(" ")
    };
    for (query, found) in [
        ("", "a b"),
        ("state=REPORTED", "a"),
        ("state=ASSIGNED,WORKING", "b"),
        ("state=LATE", ""),
        ("label=region=us", "b"),
        ("label=region=eu&state=ASSIGNED,WORKING", ""),
        ("label=region=eu&attempt=1&limit=1", "a"),
    ] {
        assert_eq!(names(query).await, found, "{query}");
    }
    for query in ["state=reported", "state=", "label=region", "label=region=eu&label=region=us"] {
        t.get(&t.viewer, &path(query)).await.problem(ProblemType::InvalidValue);
    }
    // A token for one task does not reveal labels by any query.
    let body = json!({ "name": "ward", "role": "viewer", "tasks": ["small"] });
    let made = t.post(&t.admin, route::OPERATOR_TOKENS, &body).await.json();
    let scoped = Who::Token(made["token"].as_str().unwrap().to_owned());
    assert_eq!(t.get(&scoped, &path("state=REPORTED")).await.status, 200);
    t.get(&scoped, &path("label=region=eu")).await.problem(ProblemType::Forbidden);
}
