//! Views for operators are compressed for supporting clients; responses to writes and to participants are not.

use std::io::Read as _;

use axum::body::Body;
use flate2::read::GzDecoder;
use http::Request;
use serde_json::{Value, json};
use wire::problem::ProblemType;
use wire::route;

use crate::support::{Reply, TestCoordinator, Who, small_task};

async fn asked(t: &TestCoordinator, who: &Who, path: &str, headers: &[(&str, &str)]) -> Reply {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    t.send(who, request.body(Body::empty()).unwrap()).await
}

fn opened(reply: &Reply) -> Vec<u8> {
    assert_eq!(reply.headers["content-encoding"], "gzip");
    let mut plain = Vec::new();
    GzDecoder::new(&reply.body[..]).read_to_end(&mut plain).unwrap();
    plain
}

/// A task whose view and model are long enough for compression.
fn long_task() -> Value {
    let mut spec = small_task();
    spec["description"] = json!("long ".repeat(400));
    spec["model"]["tensors"][0]["shape"] = json!([600]);
    spec
}

const GZIP: (&str, &str) = ("accept-encoding", "gzip, deflate");

#[tokio::test]
async fn whatever_operators_read_is_shorter_and_the_same() {
    let t = TestCoordinator::start().await;
    for number in 0..20 {
        let mut spec = long_task();
        spec["name"] = json!(format!("small-{number}"));
        t.create_task(&spec).await;
    }
    t.inner.engine.number_events().await.unwrap();
    for path in [
        "/v1/tasks",
        "/v1/tasks/small-3",
        "/v1/tasks?fields=name,status,created_at",
        "/v1/presets",
        "/v1/audit",
        route::AUDIT_EXPORT,
    ] {
        let plain = t.get(&t.viewer, path).await;
        let packed = asked(&t, &t.viewer, path, &[GZIP]).await;
        assert!(!plain.headers.contains_key("content-encoding"), "{path}");
        for reply in [&plain, &packed] {
            assert_eq!(reply.headers["vary"], "accept-encoding", "{path}");
        }
        assert_eq!(plain.headers["content-type"], packed.headers["content-type"], "{path}");
        assert!(packed.body.len() < plain.body.len(), "{path}: {} of {}", packed.body.len(), plain.body.len());
        assert_eq!(opened(&packed), plain.body, "{path}");
    }
    let document = asked(&t, &Who::Nobody, route::OPENAPI, &[GZIP]).await;
    assert_eq!(serde_json::from_slice::<Value>(&opened(&document)).unwrap()["openapi"], "3.1.0");
    let refused = asked(&t, &t.viewer, "/v1/tasks?limit=501", &[GZIP]).await;
    refused.problem(ProblemType::InvalidValue);
}

#[tokio::test]
async fn what_is_short_or_made_or_a_participants_stays_as_it_is() {
    let t = TestCoordinator::start().await;
    let created = Request::post(route::TASKS).header("content-type", "application/json").header(GZIP.0, GZIP.1);
    let body = json!({ "spec": long_task() }).to_string();
    let created = t.send(&t.operator, created.body(Body::from(body)).unwrap()).await;
    assert_eq!(created.status, 201);
    let token =
        Request::post(route::ENROLLMENT_TOKENS).header("content-type", "application/json").header(GZIP.0, GZIP.1);
    let token = t.send(&t.operator, token.body(Body::from("{}")).unwrap()).await;
    let short = asked(&t, &t.viewer, route::OPERATOR_TOKEN, &[GZIP]).await;
    let model = asked(&t, &t.viewer, "/v1/tasks/small/models/0/parameters", &[GZIP]).await;
    assert!(model.body.len() > 2400);
    for reply in [created, token, short, model] {
        assert!(reply.status.is_success() && !reply.headers.contains_key("content-encoding"), "{reply:?}");
    }
}

#[tokio::test]
async fn each_form_of_a_view_has_a_tag_of_its_own_and_writes_go_by_either() {
    let t = TestCoordinator::start().await;
    t.create_task(&long_task()).await;
    let view = "/v1/tasks/small";
    let tag = |reply: &Reply| reply.headers["etag"].to_str().unwrap().to_owned();
    let (plain, packed) = (tag(&t.get(&t.viewer, view).await), asked(&t, &t.viewer, view, &[GZIP]).await);
    opened(&packed);
    let packed = tag(&packed);
    assert_ne!(plain, packed);
    for (known, codings, status) in [
        (plain.as_str(), "identity", 304),
        (plain.as_str(), "gzip", 200),
        (packed.as_str(), "gzip", 304),
        (packed.as_str(), "identity", 200),
    ] {
        let reply = asked(&t, &t.viewer, view, &[("if-none-match", known), ("accept-encoding", codings)]).await;
        assert_eq!(reply.status.as_u16(), status, "{known} {codings}");
        let is_packed = codings == "gzip";
        assert_eq!(tag(&reply), if is_packed { packed.clone() } else { plain.clone() });
        assert_eq!(reply.headers["vary"], "accept-encoding");
        assert_eq!(reply.headers.contains_key("content-encoding"), is_packed && status == 200);
        assert!(status == 200 || reply.body.is_empty());
    }
    let pause = async |tag: &str| {
        let request = Request::post("/v1/tasks/small/pause").header("content-type", "application/json");
        t.send(&t.operator, request.header("if-match", tag).body(Body::from("{}")).unwrap()).await
    };
    assert_eq!(pause(&packed).await.status, 200);
    pause(&packed).await.problem(ProblemType::PreconditionFailed);
    pause(&plain).await.problem(ProblemType::PreconditionFailed);
}
