//! A task has one promoted version, and keeps its file.

use serde_json::json;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, input, small_task};

#[tokio::test]
async fn the_promoted_version_is_told_and_its_file_stays() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["retain"] = json!({ "last": 1 });
    let task = t.create_task(&spec).await;
    let promote = |version: u32| route::fill(route::MODEL_PROMOTE, &[&task, &version]);
    let shown = async || t.get(&t.viewer, &route::fill(route::TASK, &[&task])).await.json()["promoted_version"].clone();
    assert_eq!(shown().await, json!(null));
    t.post(&t.viewer, &promote(0), &json!({})).await.problem(ProblemType::Forbidden);
    t.post(&t.operator, &promote(1), &json!({})).await.problem(ProblemType::NotFound);
    assert_eq!(t.post(&t.operator, &promote(0), &json!({})).await.json()["promoted_version"], 0);

    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    for version in [1, 2] {
        let work = t.assigned(&[a.1.clone(), b.1.clone()]).await.remove(0);
        for (id, who) in [&a, &b] {
            assert_eq!(t.send(who, t.upload(&work, *id, &input([1, 2, 3]))).await.status, 200);
        }
        t.work().await;
        assert_eq!(t.get(&t.viewer, &route::model_parameters(task, 0)).await.status, 200, "promoted");
        if version == 1 {
            continue;
        }
        assert_eq!(
            t.get(&t.viewer, &route::model_parameters(task, 1)).await.status,
            410,
            "neither promoted nor newest"
        );
        t.post(&t.operator, &promote(1), &json!({})).await.problem(ProblemType::VersionRemoved);
        assert_eq!(shown().await, json!(0), "nothing changed");
        assert_eq!(t.post(&t.operator, &promote(version), &json!({})).await.json()["promoted_version"], version);
    }
    assert_eq!(shown().await, json!(2));
}
