//! The REST API from outside: create a task, watch a round, list its participants, download the model.
//!
//! Run it with `cargo run -p examples --bin inspect`. `GET /openapi.json` describes every route.

use anyhow::{Context as _, Result, ensure};
use client_sdk::journal::MemoryJournal;
use client_sdk::learning::{MetricValue, Parameters};
use client_sdk::transport::Proxy;
use client_sdk::{Participant, SecurityPolicy, Trained, Trainer, TrainerError, TrainingJob};
use examples::{Lab, say};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// Moves the model halfway towards a number.
struct Pull(f32);

impl Trainer for Pull {
    fn train(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Trained, TrainerError> {
        let mut parameters = model.clone();
        parameters.values_mut().iter_mut().for_each(|value| *value += (self.0 - *value) / 2.0);
        Ok(Trained { parameters, examples: 1, metrics: vec![] })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(vec![])
    }

    fn examples(&self) -> u64 {
        1
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let lab = Lab::start().await?;
    create(&lab).await?;
    for (index, number) in [0.0, 0.25, 0.5].into_iter().enumerate() {
        let mut participant = Participant::builder()
            .server(lab.url())
            .proxy(Proxy::none()) // the coordinator is in this process
            .ca_pem(lab.ca_pem())
            .enrollment_token(lab.enrollment_token(&format!("site-{index}")).await?)
            .journal(MemoryJournal::new())
            // Fewer participants than an app should require.
            .secure_aggregation(SecurityPolicy::lowest())
            .trainer(Pull(number))
            .build()?;
        tokio::spawn(async move { participant.run(std::future::pending()).await });
    }
    lab.round("mean", 3).await?;

    let rounds = lab.get("/v1/tasks/mean/rounds?limit=10").await?;
    for round in rounds["items"].as_array().context("a list of rounds")? {
        let Value::Object(round) = round else { anyhow::bail!("a round is an object") };
        let [number, state, cohort, reported] = ["number", "state", "cohort", "reported"].map(|key| &round[key]);
        say(&format!("round {number}: {state}, {reported} of {cohort} reported, model {}", round["model"]["sha256"]));
    }
    let assignments = lab.get("/v1/tasks/mean/rounds/3/assignments").await?;
    for one in assignments["items"].as_array().context("a list of assignments")? {
        say(&format!("  {} {}", one["name"], one["state"]));
    }

    download(&lab).await?;
    let model = lab.model("mean", 3).await?;
    say(&format!("model version 3: {:?}", model.values()));
    lab.stop().await;
    // Three times halfway from 0 to 0.25.
    ensure!(model.values().iter().all(|value| (value - 0.218_75).abs() < 1e-3), "that is not where they pulled it");
    Ok(())
}

/// Repeating a request with the same idempotency key creates one task.
async fn create(lab: &Lab) -> Result<()> {
    let spec = json!({ "spec": {
        "name": "mean",
        "model": { "tensors": [{ "name": "mean", "shape": [4] }] },
        "rounds": { "count": 3, "select_max": 3 },
        "selection": { "cohort": { "count": 3 } },
        "metrics": []
    } });
    let key = [("idempotency-key", "inspect-1")];
    let task: Value = lab.send(Method::POST, "/v1/tasks", &key, Some(&spec)).await?.json().await?;
    let again: Value = lab.send(Method::POST, "/v1/tasks", &key, Some(&spec)).await?.json().await?;
    ensure!(task["id"] == again["id"], "an idempotency key was not honoured");
    say(&format!("task {} ({}), status {}", task["name"], task["id"], task["status"]));
    Ok(())
}

/// Model versions never change: an ETag avoids the second download, and a range request resumes an interrupted one.
async fn download(lab: &Lab) -> Result<()> {
    let path = "/v1/tasks/mean/models/3/parameters";
    let whole = lab.send(Method::GET, path, &[], None).await?;
    let etag = whole.headers().get("etag").context("an ETag")?.to_str()?.to_owned();
    let bytes = whole.bytes().await?;
    let cached = lab.send(Method::GET, path, &[("if-none-match", &etag)], None).await?;
    ensure!(cached.status() == StatusCode::NOT_MODIFIED, "got {}", cached.status());
    let part = lab.send(Method::GET, path, &[("range", "bytes=8-"), ("if-range", &etag)], None).await?;
    ensure!(part.status() == StatusCode::PARTIAL_CONTENT, "got {}", part.status());
    ensure!(part.bytes().await? == bytes.slice(8..), "a part is not that of the whole");
    say(&format!("downloaded {} bytes, ETag {etag}", bytes.len()));
    Ok(())
}
