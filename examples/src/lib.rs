//! Shared by the examples: an in-process coordinator, in memory, on a loopback port, and its operator.
//!
//! In production the coordinator is `tributary serve`, and the operator uses `tributary task create` and related
//! commands. Here both take a few lines, so that each example is one self-contained file.

pub mod heterogeneity;

use anyhow::{Context as _, Result, ensure};
use client_sdk::journal::MemoryJournal;
use client_sdk::transport::Proxy;
use client_sdk::{Outcome, Participant, ParticipantError, SecurityPolicy, TableTrainer};
use coordinator::config::Config;
use coordinator::{Coordinator, Parts, Running};
use learning::ExactSum;
use learning::analytics::{Analysis, AnalyticsState, Table};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use wire::admin::Role;

/// A coordinator and its operator.
pub struct Lab {
    running: Running,
    client: reqwest::Client,
    token: String,
}

impl Lab {
    /// Starts a coordinator that stores nothing on disk.
    ///
    /// # Errors
    /// If it cannot start.
    pub async fn start() -> Result<Self> {
        // reqwest uses the process's TLS provider; a second example in one process finds it installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = Config::default();
        config.http.listen.set_port(0);
        config.database.url = "sqlite::memory:".to_owned();
        config.blobs.url = "memory:".to_owned();
        config.identity.ca_certificate_file = "".into();
        config.identity.ca_key_file = "".into();
        let running = Coordinator::start(&config, Parts::system()?).await?;
        let token = running.create_operator_token("example", Role::Admin).await?.token;
        let ca = reqwest::Certificate::from_pem(running.ca_pem().as_bytes())?;
        let client = reqwest::Client::builder().tls_certs_only([ca]).no_proxy().build()?;
        Ok(Self { running, client, token })
    }

    #[must_use]
    pub fn url(&self) -> &str {
        self.running.url()
    }

    /// Certificate authority that participants must trust.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.running.ca_pem()
    }

    /// Sends a request as the operator.
    ///
    /// # Errors
    /// If the connection fails or the coordinator answers with a problem.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Response> {
        let mut request = self.client.request(method, format!("{}{path}", self.url())).bearer_auth(&self.token);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await?;
        let status = response.status();
        if status.is_client_error() || status.is_server_error() {
            anyhow::bail!("{path}: {}", response.text().await?);
        }
        Ok(response)
    }

    /// `GET` of JSON.
    ///
    /// # Errors
    /// As for [`Self::send`].
    pub async fn get(&self, path: &str) -> Result<Value> {
        Ok(self.send(Method::GET, path, &[], None).await?.json().await?)
    }

    /// `POST` of JSON.
    ///
    /// # Errors
    /// As for [`Self::send`].
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        Ok(self.send(Method::POST, path, &[], Some(body)).await?.json().await?)
    }

    /// Creates a one-time token for one participant.
    ///
    /// # Errors
    /// As for [`Self::send`].
    pub async fn enrollment_token(&self, name: &str) -> Result<String> {
        let reply = self.post("/v1/enrollment-tokens", &json!({ "name": name })).await?;
        Ok(reply["token"].as_str().context("a token")?.to_owned())
    }

    /// Waits until a round is over, and returns it.
    ///
    /// # Errors
    /// As for [`Self::send`], and if the round published no model.
    pub async fn round(&self, task: &str, number: u32) -> Result<Value> {
        let mut state = String::new();
        loop {
            let path = format!("/v1/tasks/{task}/rounds/{number}?wait_ms=10000{state}");
            let round = self.get(&path).await?;
            match round["state"].as_str().context("a state")? {
                "COMPLETED" => return Ok(round),
                "FAILED" | "CANCELLED" => anyhow::bail!("round {number} made no model: {round}"),
                // Long polling: the coordinator answers when the state has changed.
                other => state = format!("&after_state={other}"),
            }
        }
    }

    /// The values of a published model, after verifying its digest.
    ///
    /// # Errors
    /// As for [`Self::send`], and if the bytes are not a model.
    pub async fn model(&self, task: &str, version: u32) -> Result<learning::Parameters> {
        let path = format!("/v1/tasks/{task}/models/{version}/parameters");
        let bytes = self.send(Method::GET, &path, &[], None).await?.bytes().await?;
        let published = self.get(&format!("/v1/tasks/{task}/models/{version}")).await?;
        ensure!(published["bytes"] == bytes.len(), "the file has another length than was announced");
        let layout = learning::checkpoint::read_layout(&bytes)?;
        Ok(learning::checkpoint::read(&bytes, &layout.into())?)
    }

    /// Creates an analytics task with a participant per table, and waits for its result. `tell` is called after every
    /// round.
    ///
    /// # Errors
    /// As for [`Self::send`], and errors of participants.
    pub async fn analyze(
        &self,
        name: &str,
        analytics: &Value,
        tables: Vec<Table>,
        mut tell: impl FnMut(u32, &Value),
    ) -> Result<AnalyticsState> {
        let cohort = tables.len();
        // The largest cohort determines the resolution of the sums' grids.
        let analysis = Analysis::new(serde_json::from_value(analytics.clone())?, 32, u32::try_from(cohort)?)?;
        let rounds = analysis.rounds();
        let task = json!({ "spec": {
            "name": name,
            "analytics": analytics,
            "rounds": { "count": rounds, "select_max": cohort },
            "selection": { "cohort": { "count": cohort } },
        } });
        self.post("/v1/tasks", &task).await?;
        let mut participants: JoinSet<Result<Outcome, ParticipantError>> = JoinSet::new();
        for (index, table) in tables.into_iter().enumerate() {
            let mut participant = Participant::builder()
                .server(self.url())
                .proxy(Proxy::none())
                .ca_pem(self.ca_pem())
                .enrollment_token(self.enrollment_token(&format!("{name}-{index}")).await?)
                .task(name)
                .journal(MemoryJournal::new())
                // So that few participants suffice; an app should require at least ten.
                .secure_aggregation(SecurityPolicy::lowest())
                .trainer(TableTrainer::new(table))
                .build()?;
            participants.spawn(async move { participant.run(std::future::pending()).await });
        }
        for number in 1..=rounds {
            tell(number, &self.round(name, number).await?);
        }
        while let Some(ended) = participants.join_next().await {
            ended??;
        }
        let path = format!("/v1/tasks/{name}/models/{rounds}/parameters");
        let bytes = self.send(Method::GET, &path, &[], None).await?.bytes().await?;
        Ok(analysis.read(&bytes)?)
    }

    /// Stops the coordinator in good order.
    pub async fn stop(self) {
        self.running.shutdown().await;
    }
}

/// What the same analysis finds where all rows are in one place.
///
/// # Errors
/// An analysis that cannot be, or rows that are none for it.
pub fn pooled(analytics: &Value, table: &Table) -> Result<AnalyticsState> {
    let mut analytics = analytics.clone();
    analytics["max_rows"] = table.rows().into();
    let analysis = Analysis::new(serde_json::from_value(analytics)?, 32, 1)?;
    let mut state = analysis.initial();
    for _ in 0..analysis.rounds() {
        let words = analysis.codec().encode(&analysis.contribution(&state, table)?)?;
        state = analysis.advance(&state, &ExactSum::new(words, 32, 1)?.release_without_noise())?.state;
    }
    Ok(state)
}

/// Rows `from..to` of a table, with their targets if they have any.
///
/// # Errors
/// None for rows that are there.
pub fn rows(table: &Table, from: usize, to: usize) -> Result<Table> {
    let values = (from..to).flat_map(|row| table.row(row).to_vec()).collect();
    let part = Table::new(table.width(), values)?;
    let part = if table.targets().is_empty() { part } else { part.with_targets(table.targets()[from..to].to_vec())? };
    Ok(part)
}

/// Prints a line of the example's output.
#[expect(clippy::print_stdout, reason = "an example tells what it found")]
pub fn say(words: &str) {
    println!("{words}");
}

/// Uniform on [0, 1): a small repeatable generator (SplitMix64), so that an example needs no other crate.
pub fn unit(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / 9_007_199_254_740_992.0
}

/// Normal, from twelve uniform numbers.
pub fn normal(state: &mut u64) -> f64 {
    (0..12).map(|_| unit(state)).sum::<f64>() - 6.0
}
