//! Models, whole and in part.

use std::time::Duration;

use axum::body::Body;
use http::Request;
use serde_json::json;
use tower::ServiceExt as _;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{Reply, TestCoordinator, Who, config, input, sha256, small_task};

async fn get(t: &TestCoordinator, who: &Who, path: &str, headers: &[(&str, &str)]) -> Reply {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    t.send(who, request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn a_model_is_read_whole_in_part_or_not_at_all() {
    let t = TestCoordinator::start().await;
    let task = t.create_task(&small_task()).await;
    let path = route::model_parameters(task, 0);
    let whole = get(&t, &t.viewer, &path, &[]).await;
    assert_eq!(
        (whole.status.as_u16(), &whole.headers["content-type"]),
        (200, &"application/vnd.safetensors".parse().unwrap())
    );
    let etag = format!("\"{}\"", sha256(&whole.body));
    assert_eq!(whole.headers["etag"], etag.as_str());
    let layout = learning::checkpoint::read_layout(&whole.body).unwrap();
    assert_eq!(layout.len(), 3);

    let none = get(&t, &t.viewer, &path, &[("if-none-match", &format!("\"x\", W/{etag}"))]).await;
    assert_eq!((none.status.as_u16(), none.body.len()), (304, 0));

    let size = whole.body.len();
    let part = get(&t, &t.viewer, &path, &[("range", "bytes=8-15")]).await;
    assert_eq!((part.status.as_u16(), &part.body[..]), (206, &whole.body[8..16]));
    assert_eq!(part.headers["content-range"], format!("bytes 8-15/{size}").as_str());
    let rest = get(&t, &t.viewer, &path, &[("range", "bytes=16-"), ("if-range", &etag)]).await;
    assert_eq!((rest.status.as_u16(), &rest.body[..]), (206, &whole.body[16..]));
    let other = get(&t, &t.viewer, &path, &[("range", "bytes=16-"), ("if-range", "\"other\"")]).await;
    assert_eq!((other.status.as_u16(), other.body.len()), (200, size));
    let outside = get(&t, &t.viewer, &path, &[("range", &format!("bytes={size}-"))]).await;
    outside.problem(ProblemType::RangeNotSatisfiable);
    assert_eq!(outside.headers["content-range"], format!("bytes */{size}").as_str());
}

#[tokio::test]
async fn what_is_sent_to_the_cohort_is_counted() {
    let t = TestCoordinator::start().await;
    let task = t.create_task(&small_task()).await;
    let (a, b, c) = (t.enroll("a").await, t.enroll("b").await, t.enroll("c").await);
    t.assigned(&[a.1.clone(), b.1]).await;
    let path = route::model_parameters(task, 0);
    let size = get(&t, &a.1, &path, &[]).await.body.len();
    get(&t, &a.1, &path, &[("range", "bytes=0-9")]).await;
    assert_eq!(get(&t, &c.1, &path, &[]).await.status, 200);
    tokio::time::sleep(Duration::from_millis(60)).await;
    let round = t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.json();
    assert_eq!(round["bytes_down"], json!(size + 10), "of the cohort alone");
}

#[tokio::test]
async fn only_versions_that_exist_are_served_and_only_to_known_peers() {
    let t = TestCoordinator::start().await;
    let task = t.create_task(&small_task()).await;
    get(&t, &t.viewer, &route::model_parameters(task, 1), &[]).await.problem(ProblemType::NotFound);
    get(&t, &Who::Nobody, &route::model_parameters(task, 0), &[]).await.problem(ProblemType::Unauthenticated);
    get(&t, &Who::Token("x".into()), &route::model_parameters(task, 0), &[])
        .await
        .problem(ProblemType::Unauthenticated);
}

/// Clients that request without reading must not exhaust files and connections.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn answers_that_nobody_reads_hold_no_files_open() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    config.blobs.url = format!("file:{}", folder.path().display());
    let t = TestCoordinator::with(&config).await;
    let task = t.create_task(&small_task()).await;
    let Who::Token(token) = &t.viewer else { panic!("a viewer has a token") };
    let mut unread = Vec::new();
    for _ in 0..10 {
        let request = Request::get(route::model_parameters(task, 0)).header("authorization", format!("Bearer {token}"));
        let response = t.inner.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        unread.push(response);
    }
    let open =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let is_lock = |path: &std::path::Path| path.ends_with("lock") || path.ends_with("coordinator.lock");
    let open: Vec<_> = open.filter(|path| path.starts_with(folder.path()) && !is_lock(path)).collect();
    assert!(open.is_empty(), "{open:?}");
}

/// Flips a bit of the blob's file, or flips it back.
fn flip(folder: &std::path::Path, sha256: &str) {
    let path = folder.join("blobs").join(&sha256[..2]).join(sha256);
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
}

#[tokio::test]
async fn a_damaged_model_is_not_served_and_its_task_pauses_until_it_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    config.blobs.url = format!("file:{}", folder.path().join("blobs").display());
    let t = TestCoordinator::with(&config).await;
    let task = t.create_task(&small_task()).await;
    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    let work = t.assigned(&[a.1.clone(), b.1.clone()]).await.remove(0);
    for (id, who) in [&a, &b] {
        assert_eq!(t.send(who, t.upload(&work, *id, &input([1, 2, 3]))).await.status, 200);
    }
    // The next round has already opened from the version damaged now.
    t.work().await;
    let version = t.get(&t.viewer, &route::fill(route::MODEL, &[&task, &1])).await.json();
    let sha256 = version["sha256"].as_str().unwrap().to_owned();
    let path = route::model_parameters(task, 1);
    let whole = get(&t, &a.1, &path, &[]).await.body;

    flip(folder.path(), &sha256);
    for headers in [&[][..], &[("range", "bytes=0-7")]] {
        let detail = get(&t, &a.1, &path, headers).await.problem(ProblemType::Unavailable);
        assert!(detail.contains("model version 1") && detail.contains(&sha256), "{detail}");
    }
    let shown = t.get(&t.viewer, "/v1/tasks/small").await.json();
    assert_eq!(shown["status"], "PAUSED");
    let why = shown["history"].as_array().unwrap().last().unwrap()["detail"].as_str().unwrap();
    assert!(why.contains("model version 1 is damaged") && why.contains(&sha256), "{why}");
    let ready = t.get(&Who::Nobody, route::READYZ).await;
    let told = String::from_utf8(ready.body).unwrap();
    assert_eq!(ready.status, 200, "other tasks are served");
    assert!(told.starts_with("degraded\n") && told.contains(&sha256), "{told}");

    flip(folder.path(), &sha256);
    assert_eq!(t.post(&t.operator, "/v1/tasks/small/resume", &json!({})).await.status, 200);
    assert_eq!(get(&t, &a.1, &path, &[]).await.body, whole);
    t.advance(Duration::from_secs(1));
    assert_eq!(t.get(&Who::Nobody, route::READYZ).await.body, b"ready\n");
}

#[tokio::test]
async fn a_damaged_first_version_is_made_anew_from_its_seed() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    config.blobs.url = format!("file:{}", folder.path().join("blobs").display());
    let t = TestCoordinator::with(&config).await;
    let task = t.create_task(&small_task()).await;
    let path = route::model_parameters(task, 0);
    let whole = get(&t, &t.viewer, &path, &[]).await.body;
    flip(folder.path(), &sha256(&whole).to_string());
    assert_eq!(get(&t, &t.viewer, &path, &[]).await.body, whole);
    assert_eq!(t.get(&t.viewer, "/v1/tasks/small").await.json()["status"], "ACTIVE");
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_sent_is_not_sent_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    config.blobs.url = format!("file:{}", folder.path().join("blobs").display());
    let t = TestCoordinator::with(&config).await;
    let mut task = small_task();
    task["model"]["tensors"][0]["shape"] = json!([300_000]);
    let task = t.create_task(&task).await;
    let version = t.get(&t.viewer, &route::fill(route::MODEL, &[&task, &0])).await.json();
    let mut request = Request::get(route::model_parameters(task, 0)).body(Body::empty()).unwrap();
    let Who::Token(token) = &t.viewer else { unreachable!() };
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request.extensions_mut().insert(coordinator::http::Connection::default());
    let response = t.inner.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    assert!(http_body_util::BodyExt::frame(&mut body).await.unwrap().is_ok());
    flip(folder.path(), version["sha256"].as_str().unwrap());
    let mut last = Ok(());
    while let Some(frame) = http_body_util::BodyExt::frame(&mut body).await {
        last = frame.map(drop);
    }
    assert!(last.is_err(), "it ends without an end");
}
