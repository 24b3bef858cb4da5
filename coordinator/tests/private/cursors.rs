//! A cursor is only valid in its own list. A task with a ledger has every list.

use axum::body::Body;
use http::Request;
use serde_json::json;
use wire::problem::ProblemType;
use wire::route;

use crate::support::private::in_the_clear;
use crate::support::secure::World;
use crate::support::small_task;

#[tokio::test]
async fn each_list_refuses_the_cursors_of_all_others() {
    let mut world = World::with(3, |spec| {
        in_the_clear(spec, "central_gaussian");
        spec["rounds"]["count"] = json!(2);
    })
    .await;
    for number in 1..=2 {
        world.run_in_the_clear(number, |_| true, |_| true).await;
    }
    let t = &world.t;
    let small = t.create_task(&small_task()).await;
    t.work().await;
    t.sum_by(small, "another", None).await;
    let report = json!({ "version": 1, "over_ms": 30_000, "requests": 0, "errors": 0, "queue": 0 }).to_string();
    for server in ["icu", "ward"] {
        let told =
            Request::put(format!("/v1/tasks/secure/servers/{server}")).header("content-type", "application/json");
        assert_eq!(t.send(&t.viewer, told.body(Body::from(report.clone())).unwrap()).await.status, 204);
    }
    t.inner.engine.number_events().await.unwrap();
    let document = t.get(&t.viewer, route::OPENAPI).await.json();
    let takes_a_cursor = |item: &serde_json::Value| {
        item["get"]["parameters"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == "cursor"))
    };
    let paths = document["paths"].as_object().unwrap();
    let lists: Vec<_> = paths.iter().filter(|(_, item)| takes_a_cursor(item)).map(|(path, _)| path).collect();
    assert!(lists.len() >= 8, "{lists:?}");
    let lists: Vec<_> =
        lists.into_iter().map(|path| path.replace("{task}", "secure").replace("{round}", "1")).collect();
    let mut cursors = Vec::new();
    for list in &lists {
        let page = t.get(&t.admin, &format!("{list}?limit=1")).await.json();
        let next = page["next_cursor"].as_str();
        cursors.push(next.unwrap_or_else(|| panic!("{list} has but one page: {page}")).to_owned());
    }
    for (list, own) in lists.iter().zip(&cursors) {
        for cursor in &cursors {
            let reply = t.get(&t.admin, &format!("{list}?cursor={cursor}")).await;
            if cursor == own {
                assert_eq!(reply.status, 200, "{list} {cursor}");
            } else {
                let detail = reply.problem(ProblemType::InvalidValue);
                assert!(detail.contains("next_cursor"), "{list} {cursor}: {detail}");
            }
        }
    }
}
