//! Unknown paths and wrong methods.

use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, small_task};

#[tokio::test]
async fn what_does_not_exist_is_a_problem_of_one_kind() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    for path in [
        "/v1/tasks/unknown",
        "/v1/tasks/00000000-0000-4000-8000-000000000000",
        "/v1/tasks/no%20name",
        "/v1/tasks/small/rounds/1",
        "/v1/tasks/small/rounds/first",
        "/v1/tasks/small/rounds/1/assignments",
        "/v1/tasks/small/models/1",
        "/v1/tasks/small/models/99999999999",
        "/v1/participants/not-an-id",
        "/v1/participants/00000000-0000-4000-8000-000000000000",
        "/v2/tasks",
    ] {
        t.get(&t.viewer, path).await.problem(ProblemType::NotFound);
    }
    t.call(&t.viewer, http::Method::DELETE, route::TASKS).await.problem(ProblemType::MethodNotAllowed);
    t.call(&t.viewer, http::Method::GET, route::ENROLL).await.problem(ProblemType::MethodNotAllowed);
}
