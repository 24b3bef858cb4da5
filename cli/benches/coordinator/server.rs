//! A coordinator as its own process, an operator's connection to it and enrolled devices.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{self, Command, Stdio};
use std::sync::Arc;

use client_sdk::identity::{Certified, Identity, SigningKey};
use client_sdk::transport::{Download, HttpsTransport, Request, Response, Transport as _, Upload};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, Stream, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use wire::participant::{Assignment, CheckInReply, CheckInRequest, EnrollRequest};
use wire::{ParticipantId, route};

use crate::{Outcome, processor};

/// Name of the only task, where there is one.
pub(crate) const TASK: &str = "bench";
pub(crate) const OTHER: &str = "the answer to something else";

/// `tributary serve` with a folder of its own.
pub(crate) struct Server {
    child: Child,
    url: String,
    ca_pem: String,
    /// The first admin token; empty if the database had one already.
    token: String,
    /// Address of the health listener; empty without one.
    health: String,
    operator: reqwest::Client,
    pub(crate) folder: tempfile::TempDir,
}

impl Server {
    pub(crate) fn start() -> Outcome<Self> {
        Self::start_with(&[])
    }

    /// With these settings, as the environment names them.
    pub(crate) fn start_with(settings: &[(&str, &str)]) -> Outcome<Self> {
        let folder = tempfile::tempdir()?;
        let place = folder.path().display().to_string();
        Self::launch(&["--dev", "--data-dir", &place, "--listen", "127.0.0.1:0"], settings, folder)
    }

    /// Killed, and started again in the same folder with these settings.
    pub(crate) fn restart_with(self, settings: &[(&str, &str)]) -> Outcome<Self> {
        let Self { child, token, folder, .. } = self;
        drop(child);
        let place = folder.path().display().to_string();
        let again = Self::launch(&["--dev", "--data-dir", &place, "--listen", "127.0.0.1:0"], settings, folder)?;
        // A restarted server prints no first token, since its database has one.
        Ok(Self { token, ..again })
    }

    /// With these arguments of `serve`.
    pub(crate) fn launch(args: &[&str], settings: &[(&str, &str)], folder: tempfile::TempDir) -> Outcome<Self> {
        let mut child = Child(
            Command::new(program())
                .args(["--format", "json", "serve"])
                .args(args)
                .envs(settings.iter().copied())
                .env("TRIBUTARY_LOG", "error")
                .stdout(Stdio::piped())
                .spawn()?,
        );
        let serving = serving(BufReader::new(child.0.stdout.take().unwrap()))?;
        let text = |key: &str| serving[key].as_str().unwrap_or_default().to_owned();
        let ca_pem = std::fs::read_to_string(text("ca"))?;
        let operator = operator(&ca_pem)?;
        Ok(Self { child, url: text("url"), ca_pem, token: text("token"), health: text("health"), operator, folder })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Creates a task with a model of `parameters` numbers in which all of `cohort` take part. It measures the
    /// coordinator itself, without the phases of secure aggregation.
    pub(crate) async fn create_task(&self, parameters: usize, cohort: u32, rounds: u32) -> Outcome {
        self.create_task_named(TASK, parameters, cohort, rounds).await
    }

    pub(crate) async fn create_task_named(&self, name: &str, parameters: usize, cohort: u32, rounds: u32) -> Outcome {
        let mut spec = spec(parameters, cohort, rounds);
        spec["name"] = name.into();
        self.create_clear_task(spec).await
    }

    /// A task without secure aggregation, with the other settings from `spec`.
    pub(crate) async fn create_clear_task(&self, mut spec: Value) -> Outcome {
        spec["secure_aggregation"] = json!({ "enabled": false });
        self.post(route::TASKS, &json!({ "spec": spec })).await.map(drop)
    }

    /// The same with secure aggregation.
    pub(crate) async fn create_secure_task(&self, parameters: usize, cohort: u32, rounds: u32) -> Outcome {
        self.post(route::TASKS, &json!({ "spec": spec(parameters, cohort, rounds) })).await.map(drop)
    }

    /// The rounds so far, newest first.
    pub(crate) async fn rounds(&self) -> Outcome<Vec<Value>> {
        self.rounds_of(TASK).await
    }

    /// The same of one task.
    pub(crate) async fn rounds_of(&self, task: &str) -> Outcome<Vec<Value>> {
        let tasks = self.get(route::TASKS).await?;
        let mut tasks = tasks["items"].as_array().unwrap().iter();
        let task = tasks.find(|known| known["name"] == task).unwrap()["id"].as_str().unwrap().to_owned();
        let page = self.get(&format!("{}?limit=500", route::fill(route::ROUNDS, &[&task]))).await?;
        Ok(page["items"].as_array().unwrap().clone())
    }

    /// How many rounds of a task have completed, of the newest 500.
    pub(crate) async fn completed(&self, task: &str) -> Outcome<usize> {
        Ok(self.rounds_of(task).await?.iter().filter(|round| round["state"] == "COMPLETED").count())
    }

    /// Milliseconds from one model version of a task to the next.
    pub(crate) async fn cycles(&self, task: &str) -> Outcome<Vec<i64>> {
        let rounds = self.rounds_of(task).await?;
        let mut ended: Vec<i64> = rounds.iter().filter_map(|round| round["ended_at"].as_i64()).collect();
        ended.sort_unstable();
        let mut cycles: Vec<i64> = ended.windows(2).map(|pair| pair[1] - pair[0]).collect();
        cycles.sort_unstable();
        Ok(cycles)
    }

    /// Counters so far, by name and labels.
    pub(crate) async fn counters(&self) -> Outcome<BTreeMap<String, u64>> {
        let text = self.operator.get(format!("http://{}/metrics", self.health)).send().await?.text().await?;
        let counter = |line: &str| {
            let (name, count) = line.rsplit_once(' ')?;
            Some((name.to_owned(), count.parse().ok()?))
        };
        Ok(text.lines().filter_map(counter).collect())
    }

    /// A reader of all metrics, without a token.
    pub(crate) fn metrics_reader(&self) -> impl Fn() -> BoxFuture<'static, Outcome<String>> + Send + use<> {
        let (operator, url) = (self.operator.clone(), format!("http://{}/metrics", self.health));
        move || {
            let asked = operator.get(&url).send();
            async move { Ok(asked.await?.text().await?) }.boxed()
        }
    }

    /// A gauge without labels.
    pub(crate) async fn gauge(&self, name: &str) -> Outcome<f64> {
        let text = self.metrics_reader()().await?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.ok_or("there is no such gauge")?.parse()?)
    }

    /// A stream of events, compressed, over a connection of its own: one connection has few streams.
    pub(crate) async fn events(&self) -> Outcome<impl Stream<Item = reqwest::Result<bytes::Bytes>> + Unpin + use<>> {
        let request = operator(&self.ca_pem)?.get(self.url(route::EVENTS)).bearer_auth(&self.token);
        let request = request.header("accept-encoding", "gzip");
        Ok(request.send().await?.error_for_status()?.bytes_stream().boxed())
    }

    /// The header with which its operator is known.
    pub(crate) fn authorization(&self) -> String {
        format!("Bearer {}", self.token)
    }

    pub(crate) async fn get(&self, path: &str) -> Outcome<Value> {
        Ok(serde_json::from_slice(&self.fetch(path).await?)?)
    }

    /// The bytes of an answer, which are not looked at.
    pub(crate) async fn fetch(&self, path: &str) -> Outcome<bytes::Bytes> {
        let request = self.operator.get(self.url(path)).bearer_auth(&self.token);
        Ok(request.send().await?.error_for_status()?.bytes().await?)
    }

    async fn post(&self, path: &str, body: &Value) -> Outcome<Value> {
        let request = self.operator.post(format!("{}{path}", self.url)).bearer_auth(&self.token).json(body);
        let response = request.send().await?;
        let (status, body) = (response.status(), response.text().await?);
        if status.is_success() { Ok(serde_json::from_str(&body)?) } else { Err(body.into()) }
    }

    pub(crate) async fn enrollment_token(&self, name: &str) -> Outcome<String> {
        let token = self.post(route::ENROLLMENT_TOKENS, &json!({ "name": name })).await?;
        Ok(token["token"].as_str().unwrap().to_owned())
    }

    pub(crate) async fn enroll(&self, name: &str) -> Outcome<Device> {
        let transport = HttpsTransport::new(&self.url, &self.ca_pem)?;
        let key = Arc::new(SigningKey::generate()?);
        let request = EnrollRequest {
            token: self.enrollment_token(name).await?,
            csr_pem: Some(key.signing_request()?),
            certificate_pem: None,
            evidence: None,
            name: None,
            labels: BTreeMap::new(),
        };
        let Response::Enrolled(reply) = transport.send(&Request::Enroll(request)).await else {
            return Err(OTHER.into());
        };
        self.again(Identity { key, certified: Certified::from(reply?) })
    }

    pub(crate) async fn enroll_many(&self, count: u32) -> Outcome<Vec<Device>> {
        self.each(0..count, |index| async move { self.enroll(&format!("device-{index:05}")).await }).await
    }

    /// Does one thing for each, a few at a time.
    pub(crate) async fn each<T, U, F: Future<Output = Outcome<U>>>(
        &self,
        of: impl IntoIterator<Item = T>,
        act: impl Fn(T) -> F,
    ) -> Outcome<Vec<U>> {
        futures_util::stream::iter(of).map(act).buffered(8).try_collect().await
    }

    /// The device of this identity over a new connection.
    pub(crate) fn again(&self, identity: Identity) -> Outcome<Device> {
        let transport = HttpsTransport::new(&self.url, &self.ca_pem)?;
        transport.identify(&identity)?;
        Ok(Device { transport, participant: identity.certified.participant, identity, task: TASK })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Processor time the server has used, in seconds.
    pub(crate) fn cpu_seconds(&self) -> Outcome<f64> {
        processor::seconds(self.pid())
    }

    /// `VmRSS` now or `VmHWM`, the peak since [`Server::forget_peak`], in bytes.
    pub(crate) fn memory(&self, what: &str) -> Outcome<f64> {
        processor::memory(self.pid(), what)
    }

    pub(crate) fn forget_peak(&self) -> Outcome {
        processor::forget_peak(self.pid())
    }
}

/// The program under test.
pub(crate) fn program() -> OsString {
    std::env::var_os("TRIBUTARY_BENCHED").unwrap_or_else(|| env!("CARGO_BIN_EXE_tributary").into())
}

/// A client that trusts this authority.
fn operator(ca_pem: &str) -> Outcome<reqwest::Client> {
    let authority = reqwest::Certificate::from_pem(ca_pem.as_bytes())?;
    Ok(reqwest::Client::builder().tls_certs_only([authority]).build()?)
}

pub(crate) fn spec(parameters: usize, cohort: u32, rounds: u32) -> Value {
    json!({
        "name": TASK,
        "model": { "tensors": [{ "name": "w", "shape": [parameters] }] },
        "rounds": { "count": rounds, "select_max": cohort },
        "selection": { "cohort": { "count": cohort } },
        // Room for any number of updates in 32 bits.
        "aggregation": { "max_weight": 1 },
        "metrics": [],
    })
}

/// A process that is killed when dropped.
struct Child(process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        // Fails if the server has ended already, which is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server's event `serving`; its first token comes on a line before.
fn serving(lines: impl BufRead) -> Outcome<Value> {
    for line in lines.lines() {
        let event: Value = serde_json::from_str(&line?)?;
        if event["event"] == "serving" {
            return Ok(event);
        }
    }
    Err("the server ended before it served".into())
}

/// An enrolled device that does not train.
pub(crate) struct Device {
    pub(crate) transport: HttpsTransport,
    pub(crate) participant: ParticipantId,
    pub(crate) identity: Identity,
    /// Name of the task that it has data for.
    pub(crate) task: &'static str,
}

impl Device {
    pub(crate) async fn check_in(&self, wait_ms: u64) -> Outcome<CheckInReply> {
        let request = CheckInRequest {
            task: Some(self.task.to_owned()),
            examples: 100,
            wait_ms,
            keys: None,
            loss: None,
            findings: Vec::new(),
            training: None,
            declined: None,
            batch: None,
            round_trip_ms: None,
            refusals: Vec::new(),
        };
        let Response::CheckedIn(reply) = self.transport.send(&Request::CheckIn(request)).await else {
            return Err(OTHER.into());
        };
        Ok(reply?)
    }

    /// Takes part in every round until the task is over.
    pub(crate) async fn take_part(&self, parameters: usize) -> Outcome {
        let input = Input::zeros(parameters)?;
        loop {
            match self.check_in(20_000).await? {
                CheckInReply::TaskOver { .. } => return Ok(()),
                CheckInReply::ComeBack { after_ms, .. } => {
                    tokio::time::sleep(std::time::Duration::from_millis(after_ms)).await;
                }
                CheckInReply::Assigned(work) => self.report(&work, &input).await?,
                other @ (CheckInReply::Invited(_)
                | CheckInReply::Asked { .. }
                | CheckInReply::Batch(_)
                | CheckInReply::Train(_)
                | CheckInReply::Discard { .. }) => {
                    return Err(
                        format!("the bench's task is in the clear, in step and for any device, but {other:?}").into()
                    );
                }
            }
        }
    }

    /// Does the work it was assigned.
    pub(crate) async fn take_part_once(&self, parameters: usize) -> Outcome {
        match self.check_in(20_000).await? {
            CheckInReply::Assigned(work) => self.report(&work, &Input::zeros(parameters)?).await,
            other => Err(format!("no work, but {other:?}").into()),
        }
    }

    /// Fetches the model and sends an update of zeros.
    pub(crate) async fn report(&self, work: &Assignment, input: &Input) -> Outcome {
        let mut model = Download::in_memory(Vec::new());
        self.transport.fetch_model(work.task, &work.base, &mut model).await?;
        drop(model);
        let place = work.attempt_key();
        let Input { body, sha256 } = input.clone();
        let upload = Upload { place, participant: self.participant, sha256, body, signed: None, below: None };
        let Response::Uploaded(receipt) = self.transport.send(&Request::Upload(upload)).await else {
            return Err(OTHER.into());
        };
        Ok(receipt.map(drop)?)
    }
}

/// A masked input of zeros, with its digest.
#[derive(Clone)]
pub(crate) struct Input {
    body: bytes::Bytes,
    sha256: wire::Digest,
}

impl Input {
    /// 32-bit words, little-endian: the parameters, then the weight. Metrics are empty.
    pub(crate) fn zeros(parameters: usize) -> Outcome<Self> {
        let mut body = vec![0; (parameters + 1) * 4];
        body[parameters * 4] = 1;
        let digest = ring::digest::digest(&ring::digest::SHA256, &body);
        Ok(Self { body: body.into(), sha256: wire::Digest(digest.as_ref().try_into()?) })
    }
}
