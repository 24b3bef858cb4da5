//! A model server waits for the next version.

use std::time::Duration;

use serde_json::json;
use wire::problem::ProblemType;

use crate::support::{TestCoordinator, input, small_task};

#[tokio::test]
async fn a_newer_version_ends_the_wait_and_nothing_else_does() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let newest = |list: serde_json::Value| list["items"][0]["version"].clone();
    let waiting = t.get(&t.viewer, "/v1/tasks/small/models?after_version=0&wait_ms=60000");
    let changes = async {
        // The task's round progresses without a new model.
        let (a, b) = (t.enroll("a").await, t.enroll("b").await);
        let work = t.assigned(&[a.1.clone(), b.1.clone()]).await.remove(0);
        for (id, who) in [&a, &b] {
            assert_eq!(t.send(who, t.upload(&work, *id, &input([1, 2, 3]))).await.status, 200);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        t.post(&t.operator, "/v1/tasks/small/pause", &json!({})).await;
        t.work().await;
    };
    let both = async { tokio::join!(waiting, changes) };
    let (list, ()) = tokio::time::timeout(Duration::from_secs(30), both).await.expect("it is told at once");
    assert_eq!(newest(list.json()), 1);
    for (path, expected) in [
        // A newer version already exists.
        ("/v1/tasks/small/models?after_version=0&wait_ms=60000", 1),
        // After the wait the list is unchanged.
        ("/v1/tasks/small/models?after_version=1&wait_ms=20", 1),
        ("/v1/tasks/small/models?after_version=7", 1),
        // Without a parameter there is no wait.
        ("/v1/tasks/small/models?wait_ms=60000", 1),
    ] {
        let list = tokio::time::timeout(Duration::from_secs(30), t.get(&t.viewer, path)).await.expect(path);
        assert_eq!(newest(list.json()), expected, "{path}");
    }
    for wrong in ["after_version=-1", "wait_ms=soon", "after=1"] {
        t.get(&t.viewer, &format!("/v1/tasks/small/models?{wrong}")).await.problem(ProblemType::MalformedRequest);
    }
}
