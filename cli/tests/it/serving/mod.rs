//! Models served by a separate process, over HTTP.

mod access;
mod bad_requests;
mod canary;
mod columns;
mod faults;
mod followed;
mod graphs;
mod secrecy;
mod swaps;
mod told;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client_sdk::models::{Architecture, Mlp};
use client_sdk::train::{Device, Inputs, scores};
use learning::{Parameters, checkpoint};
use serde_json::{Value, json};

use crate::support::{Background, tributary};

fn model() -> Architecture {
    Architecture::Mlp(Mlp { inputs: 5, hidden: vec![7], classes: 3 })
}

/// The parameters that a test publishes as this version.
fn parameters(version: u32) -> Parameters {
    model().initial(version.into()).unwrap()
}

/// A version's prediction for a row, computed here.
fn expected(version: u32, row: &[f32]) -> Vec<f32> {
    scores(&model(), &parameters(version), Inputs::Rows(row), &Device::Cpu).unwrap().values().to_vec()
}

/// Puts a version into the folder of `digits`, whole.
pub(crate) fn publish(models: &Path, version: u32, parameters: &Parameters) {
    publish_with(models, version, &checkpoint::write(parameters).unwrap(), None);
}

fn publish_with(models: &Path, version: u32, file: &[u8], record: Option<Value>) {
    let (draft, place) = (models.join(format!("digits/.new-{version}")), models.join(format!("digits/{version}")));
    std::fs::create_dir_all(&draft).unwrap();
    std::fs::write(draft.join("model.safetensors"), file).unwrap();
    if let Some(record) = record {
        std::fs::write(draft.join("record.json"), record.to_string()).unwrap();
    }
    std::fs::rename(draft, place).unwrap();
}

/// A server of models.
pub(crate) struct Models {
    process: Background,
    pub(crate) url: String,
    health: String,
    client: reqwest::Client,
}

impl Models {
    /// Serves `digits` from a folder, with more flags.
    pub(crate) fn serve(models: &Path, flags: &[&str]) -> Self {
        Self::until(Self::command(models, flags))
    }

    fn command(models: &Path, flags: &[&str]) -> Command {
        let mut command = tributary();
        command.args(["--format", "json", "infer", "serve", "--listen", "127.0.0.1:0", "--health", "127.0.0.1:0"]);
        command.arg("--models").arg(models).args(flags);
        command
    }

    fn until(mut command: Command) -> Self {
        command.stderr(Stdio::null());
        Self::until_in_words(command)
    }

    /// The same with the command's stderr.
    fn until_in_words(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let process = Background(child);
        let mut events = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        let event = events.find(|event| event["event"] == "serving").expect("it ended before");
        let text = |key: &str| event[key].as_str().unwrap().to_owned();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { process, url: text("url"), health: text("health"), client }
    }

    /// Has it stop in order, and waits until it has.
    fn stop(mut self) {
        let process = self.process.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &process]).status().unwrap().success());
        assert!(self.process.0.wait().unwrap().success());
    }

    /// Posts this body to the path; returns status and JSON.
    pub(crate) async fn post(&self, path: &str, body: &Value, key: Option<&str>) -> (u16, Value) {
        let mut request = self.client.post(format!("{}{path}", self.url)).body(body.to_string());
        if let Some(key) = key {
            request = request.header("tributary-key", key);
        }
        answer(request).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        answer(self.client.get(format!("{}{path}", self.url))).await
    }

    /// Predicts one row by `digits`; returns version and scores.
    pub(crate) async fn infer(&self, row: &[f32], key: Option<&str>) -> Result<(u32, Vec<f32>), (u16, Value)> {
        let (status, answer) = self.post("/v2/models/digits/infer", &asked(row), key).await;
        if status != 200 {
            return Err((status, answer));
        }
        let version = answer["model_version"].as_str().unwrap().parse().unwrap();
        assert_eq!(answer["outputs"][0]["name"], "scores");
        Ok((version, serde_json::from_value(answer["outputs"][0]["data"].clone()).unwrap()))
    }

    /// The sum of a metric over its labels, where these words are among them.
    pub(crate) async fn metric(&self, name: &str, words: &str) -> f64 {
        let text =
            self.client.get(format!("http://{}/metrics", self.health)).send().await.unwrap().text().await.unwrap();
        let is_it = |line: &&str| line.starts_with(name) && line.contains(words);
        text.lines().filter(is_it).map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    /// Waits until the stable version is this one.
    pub(crate) async fn until_answers(&self, version: u32) {
        self.wait(&format!("version {version}"), async || {
            self.metric("tributary_infer_version{", "side=\"stable\"").await == f64::from(version)
        })
        .await;
    }

    pub(crate) async fn wait(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !holds().await {
            assert!(Instant::now() < end, "{what} never came");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or_default())
}

/// The body of a request about one row.
pub(crate) fn asked(row: &[f32]) -> Value {
    json!({ "inputs": [{ "name": "input", "shape": [1, row.len()], "datatype": "FP32", "data": row }] })
}

/// A row that is another for each number.
fn row(number: u32) -> Vec<f32> {
    (0..5_u16).map(|place| f32::from(place) - (number % 1000) as f32 / 300.0).collect()
}

/// Whether scores are those of this version, to a millionth.
fn are_of(version: u32, row: &[f32], scores: &[f32]) -> bool {
    let expected = expected(version, row);
    expected.len() == scores.len() && expected.iter().zip(scores).all(|(one, other)| (one - other).abs() <= 1e-6)
}

/// A folder with version 1 of `digits`.
fn folder() -> Arc<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    publish(folder.path(), 1, &parameters(1));
    Arc::new(folder)
}
