//! A task starts from an uploaded file, or from a model version of another task; an evaluation measures one.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use learning::analytics::AnalyticsState;
use learning::{Layout, Parameters, TensorSpec, checkpoint};
use secure_agg::upload::PART_BYTES;
use serde_json::{Value, json};
use wire::Digest;
use wire::admin::{ModelFile, ModelFileReply};
use wire::problem::{Problem, ProblemType};
use wire::route;

use crate::support::{Reply, TestCoordinator, Who, named, sha256, small_task};

/// A file of one tensor.
fn file(name: &str, values: &[f32]) -> Vec<u8> {
    let tensor = TensorSpec { name: name.to_owned(), shape: vec![values.len() as u64] };
    let layout = Arc::new(Layout::new(vec![tensor]).unwrap());
    checkpoint::write(&Parameters::new(layout, values.to_vec()).unwrap()).unwrap()
}

fn request(path: &str, media: &str, body: impl Into<Body>) -> Request<Body> {
    Request::put(path).header("content-type", media).body(body.into()).unwrap()
}

async fn put_part(t: &TestCoordinator, who: &Who, digest: Digest, part: &[u8]) -> Reply {
    let path = route::fill(route::MODEL_FILE_PART, &[&digest]);
    t.send(who, request(&path, "application/octet-stream", part.to_vec())).await
}

async fn put_file(t: &TestCoordinator, who: &Who, digest: Digest, content: &ModelFile) -> Reply {
    let body = serde_json::to_vec(content).unwrap();
    t.send(who, request(&route::fill(route::MODEL_FILE, &[&digest]), "application/json", body)).await
}

fn content(bytes: &[u8]) -> ModelFile {
    ModelFile { bytes: bytes.len() as u64, parts: bytes.chunks(PART_BYTES).map(sha256).collect() }
}

/// Uploads a file as `tributary task create` does; returns its digest.
async fn upload(t: &TestCoordinator, bytes: &[u8]) -> Digest {
    let (digest, content) = (sha256(bytes), content(bytes));
    let missing = put_file(t, &t.operator, digest, &content).await.read::<ModelFileReply>().missing;
    for number in missing {
        let part = bytes.chunks(PART_BYTES).nth(number as usize).unwrap();
        assert_eq!(put_part(t, &t.operator, sha256(part), part).await.status, 204);
    }
    let reply: ModelFileReply = put_file(t, &t.operator, digest, &content).await.read();
    assert_eq!(reply.missing, [] as [u32; 0]);
    digest
}

async fn create(t: &TestCoordinator, spec: &Value) -> Reply {
    t.post(&t.operator, route::TASKS, &json!({ "spec": spec })).await
}

async fn dry_run(t: &TestCoordinator, spec: &Value) -> Reply {
    t.post(&t.operator, &format!("{}?dry_run=true", route::TASKS), &json!({ "spec": spec })).await
}

/// `small_task` from this model.
fn from(initial: Value) -> Value {
    let mut spec = small_task();
    spec["model"]["initial"] = initial;
    spec
}

fn problem_of(reply: &Reply) -> String {
    reply.problem(ProblemType::InvalidTask);
    let problem: Problem = serde_json::from_slice(&reply.body).unwrap();
    let [error] = &problem.errors[..] else { panic!("{problem:?}") };
    assert_eq!(error.field, "model.initial");
    error.detail.clone()
}

async fn first_version(t: &TestCoordinator, task: &str) -> Vec<u8> {
    t.get(&t.viewer, &format!("/v1/tasks/{task}/models/0/parameters")).await.body
}

#[tokio::test]
async fn task_starts_from_an_uploaded_file() {
    let t = TestCoordinator::start().await;
    let bytes = file("w", &[1.0, -2.0, 0.5]);
    let digest = upload(&t, &bytes).await;
    let spec = from(json!(format!("sha256:{digest}")));
    assert_eq!(dry_run(&t, &spec).await.status, 200);
    let created = create(&t, &spec).await;
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(created.json()["spec"]["model"]["initial"], json!(format!("sha256:{digest}")));
    assert_eq!(first_version(&t, "small").await, bytes);
    assert_eq!(t.get(&t.viewer, "/v1/tasks/small/models/0").await.json()["sha256"], json!(digest));
}

#[tokio::test]
async fn task_starts_from_a_version_of_another_task() {
    let t = TestCoordinator::start().await;
    assert_eq!(create(&t, &small_task()).await.status, 201);
    let earlier = first_version(&t, "small").await;
    for (name, version) in [("newest", json!({ "task": "small" })), ("first", json!({ "task": "small", "version": 0 }))]
    {
        let mut spec = named(name);
        spec["model"]["seed"] = json!(8);
        spec["model"]["initial"] = version;
        let created = create(&t, &spec).await;
        assert_eq!(created.status, 201, "{created:?}");
        // The task is stored with the digest, so that its initial model does not change with the other task.
        assert_eq!(created.json()["spec"]["model"]["initial"], json!(format!("sha256:{}", sha256(&earlier))));
        assert_eq!(first_version(&t, name).await, earlier);
    }
}

fn evaluation(name: &str, model: Value) -> Value {
    json!({
        "name": name,
        "model": model,
        "analytics": { "kind": "evaluation", "max_rows": 100 },
        "rounds": { "count": 1 },
        "selection": { "cohort": { "count": 10 } },
    })
}

#[tokio::test]
async fn evaluation_gets_the_model_of_another_task() {
    let t = TestCoordinator::start().await;
    let mut other = small_task();
    other["model"]["architecture"] = json!({ "kind": "own", "classes": 4 });
    assert_eq!(create(&t, &other).await.status, 201);
    let model = first_version(&t, "small").await;
    let created = create(&t, &evaluation("measured", json!({ "initial": { "task": "small" } }))).await;
    assert_eq!(created.status, 201, "{created:?}");
    let spec = created.json()["spec"].clone();
    assert_eq!(spec["model"]["tensors"], other["model"]["tensors"]);
    assert_eq!(spec["model"]["initial"], json!(format!("sha256:{}", sha256(&model))));
    assert_eq!(spec["analytics"]["target"], json!({ "type": "class", "classes": 4 }));
    let first = first_version(&t, "measured").await;
    let AnalyticsState::Evaluation(state) = serde_json::from_slice(&first).unwrap() else { panic!("{first:?}") };
    assert_eq!(state.model_file().unwrap(), model, "the first version carries the model");
}

#[tokio::test]
async fn evaluations_that_cannot_be_are_refused() {
    let t = TestCoordinator::start().await;
    assert_eq!(create(&t, &named("small")).await.status, 201);
    let tensors = &small_task()["model"]["tensors"];
    for (model, field, expected) in [
        (json!({}), "model.initial", "must name the model to evaluate"),
        (json!({ "initial": { "task": "nowhere" } }), "model.initial", "there is no task"),
        (json!({ "initial": { "task": "small" } }), "analytics.target", "must say what the model predicts"),
        (
            json!({ "initial": { "task": "small" }, "tensors": tensors, "personal": ["w"] }),
            "model.personal",
            "one model for all",
        ),
    ] {
        let reply = create(&t, &evaluation("measured", model)).await;
        reply.problem(ProblemType::InvalidTask);
        let problem: Problem = serde_json::from_slice(&reply.body).unwrap();
        let found = problem.errors.iter().find(|error| error.field == field);
        assert!(found.is_some_and(|error| error.detail.contains(expected)), "{field}: {problem:?}");
    }
}

#[tokio::test]
async fn models_that_are_absent_or_do_not_fit_are_refused() {
    let t = TestCoordinator::start().await;
    assert_eq!(create(&t, &named("other")).await.status, 201);
    let foreign = upload(&t, &file("v", &[1.0, 2.0, 3.0])).await;
    let long = upload(&t, &file("w", &[1.0; 4])).await;
    let text = upload(&t, b"{\"this\": \"is no model\"}").await;
    for (initial, expected) in [
        (json!("net.safetensors"), "only `tributary task create` can upload"),
        (json!(format!("sha256:{}", Digest([7; 32]))), "upload it"),
        (json!({ "task": "nowhere" }), "there is no task \"nowhere\""),
        (json!({ "task": "other", "version": 9 }), "has no such model version"),
        (json!(format!("sha256:{foreign}")), "tensor \"v\" does not belong to the model"),
        (json!(format!("sha256:{long}")), "tensor \"w\" has shape [4] where the model has [3]"),
        (json!(format!("sha256:{text}")), "safetensors"),
    ] {
        let spec = from(initial);
        for reply in [dry_run(&t, &spec).await, create(&t, &spec).await] {
            let detail = problem_of(&reply);
            assert!(detail.contains(expected), "{detail}");
        }
    }
    assert_eq!(t.get(&t.viewer, "/v1/tasks").await.json()["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn upload_that_was_cut_goes_on_with_the_missing_parts() {
    let t = TestCoordinator::start().await;
    let bytes: Vec<u8> = (0..=252).cycle().take(2 * PART_BYTES + 5).collect();
    let (digest, content) = (sha256(&bytes), content(&bytes));
    let missing = async || put_file(&t, &t.operator, digest, &content).await.read::<ModelFileReply>().missing;
    assert_eq!(missing().await, [0, 1, 2]);
    let part = &bytes[PART_BYTES..2 * PART_BYTES];
    assert_eq!(put_part(&t, &t.operator, sha256(part), part).await.status, 204);
    assert_eq!(missing().await, [0, 2]);
    assert_eq!(upload(&t, &bytes).await, digest);
    assert_eq!(missing().await, [] as [u32; 0]);
}

#[tokio::test]
async fn parts_and_lists_that_are_wrong_are_refused() {
    let t = TestCoordinator::start().await;
    let bytes = file("w", &[1.0, 2.0, 3.0]);
    put_part(&t, &t.operator, Digest([1; 32]), &bytes).await.problem(ProblemType::InvalidValue);
    let large = vec![0; PART_BYTES + 1];
    put_part(&t, &t.operator, sha256(&large), &large).await.problem(ProblemType::TooLarge);
    assert_eq!(put_part(&t, &t.operator, sha256(&bytes), &bytes).await.status, 204);
    let right = content(&bytes);
    // Its parts belong to another file.
    put_file(&t, &t.operator, Digest([1; 32]), &right).await.problem(ProblemType::InvalidValue);
    let short = ModelFile { parts: Vec::new(), ..right.clone() };
    put_file(&t, &t.operator, sha256(&bytes), &short).await.problem(ProblemType::InvalidValue);
    let endless = ModelFile { bytes: u64::MAX, ..right };
    put_file(&t, &t.operator, sha256(&bytes), &endless).await.problem(ProblemType::InvalidValue);
}

#[tokio::test]
async fn uploads_need_an_operator() {
    let t = TestCoordinator::start().await;
    let bytes = file("w", &[1.0, 2.0, 3.0]);
    let (digest, content) = (sha256(&bytes), content(&bytes));
    put_part(&t, &t.viewer, digest, &bytes).await.problem(ProblemType::Forbidden);
    put_file(&t, &t.viewer, digest, &content).await.problem(ProblemType::Forbidden);
}

#[tokio::test]
async fn shared_adapters_and_analyses_take_no_initial_model() {
    let t = TestCoordinator::start().await;
    let digest = upload(&t, &file("w", &[1.0, 2.0, 3.0])).await;
    let mut spec = from(json!(format!("sha256:{digest}")));
    spec["model"]["tensors"] = json!([{ "name": "w", "shape": [3, 3] }]);
    spec["personalization"] = json!({ "method": "lora", "layers": ["w"], "rank": 1, "adapters": "shared" });
    let reply = create(&t, &spec).await;
    reply.problem(ProblemType::InvalidTask);
    assert!(String::from_utf8_lossy(&reply.body).contains("draw the frozen model from model.seed"), "{reply:?}");
}

#[tokio::test]
async fn uploads_stay_for_a_day() {
    let t = TestCoordinator::start().await;
    let bytes: Vec<u8> = (0..=252).cycle().take(PART_BYTES + 5).collect();
    let (digest, content) = (sha256(&bytes), content(&bytes));
    put_part(&t, &t.operator, sha256(&bytes[PART_BYTES..]), &bytes[PART_BYTES..]).await;
    for (hours, missing) in [(1, &[0][..]), (22, &[0]), (2, &[0, 1])] {
        t.advance(Duration::from_secs(3600 * hours));
        t.inner.engine.collect_garbage().await.unwrap();
        let reply: ModelFileReply = put_file(&t, &t.operator, digest, &content).await.read();
        assert_eq!(reply.missing, missing, "{hours} hours later");
    }
}
