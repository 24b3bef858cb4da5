//! What the examples share: a coordinator in this process, in memory, on a loopback port, and its operator.
//!
//! A real coordinator is `tributary serve`; a real operator uses `tributary task create` and its siblings. Here both are a
//! few lines, so that each example is one file that runs by itself.

use anyhow::{Context as _, Result, ensure};
use coordinator::config::Config;
use coordinator::{Coordinator, Parts, Running};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use wire::admin::Role;

/// A coordinator and its operator.
pub struct Lab {
    running: Running,
    client: reqwest::Client,
    token: String,
}

impl Lab {
    /// Starts a coordinator that forgets everything at the end.
    ///
    /// # Errors
    /// Whatever keeps it from starting.
    pub async fn start() -> Result<Self> {
        // reqwest takes the process's TLS provider; a second example in one process would find it installed.
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

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> &str {
        self.running.url()
    }

    /// What participants must trust.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.running.ca_pem()
    }

    /// Sends a request as the operator.
    ///
    /// # Errors
    /// A connection that fails, or a problem the coordinator tells.
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
    /// As [`Self::send`].
    pub async fn get(&self, path: &str) -> Result<Value> {
        Ok(self.send(Method::GET, path, &[], None).await?.json().await?)
    }

    /// `POST` of JSON.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        Ok(self.send(Method::POST, path, &[], Some(body)).await?.json().await?)
    }

    /// A one-time token for one participant.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn enrollment_token(&self, name: &str) -> Result<String> {
        let reply = self.post("/v1/enrollment-tokens", &json!({ "name": name })).await?;
        Ok(reply["token"].as_str().context("a token")?.to_owned())
    }

    /// Waits until a round is over, and returns it.
    ///
    /// # Errors
    /// As [`Self::send`], and for a round that made no model.
    pub async fn round(&self, task: &str, number: u32) -> Result<Value> {
        let mut state = String::new();
        loop {
            let path = format!("/v1/tasks/{task}/rounds/{number}?wait_ms=10000{state}");
            let round = self.get(&path).await?;
            match round["state"].as_str().context("a state")? {
                "COMPLETED" => return Ok(round),
                "FAILED" | "CANCELLED" => anyhow::bail!("round {number} made no model: {round}"),
                // Asked again, the coordinator answers when the state is another one.
                other => state = format!("&after_state={other}"),
            }
        }
    }

    /// The values of a published model, after its digest was checked.
    ///
    /// # Errors
    /// As [`Self::send`], and for bytes that are no model.
    pub async fn model(&self, task: &str, version: u32) -> Result<learning::Parameters> {
        let path = format!("/v1/tasks/{task}/models/{version}/parameters");
        let bytes = self.send(Method::GET, &path, &[], None).await?.bytes().await?;
        let published = self.get(&format!("/v1/tasks/{task}/models/{version}")).await?;
        ensure!(published["bytes"] == bytes.len(), "the file has another length than was announced");
        let layout = learning::checkpoint::read_layout(&bytes)?;
        Ok(learning::checkpoint::read(&bytes, &layout.into())?)
    }

    /// Stops the coordinator in good order.
    pub async fn stop(self) {
        self.running.shutdown().await;
    }
}
