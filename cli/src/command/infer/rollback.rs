//! `tributary infer rollback`: one command back.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;
use wire::problem::Problem;

use crate::failure::{Exit, Failure, Outcome, chain};
use crate::output::Output;
use crate::server::{authorities, read_ca};

/// How long the server may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Which model, and where it is served.
#[derive(clap::Args)]
pub(crate) struct Rollback {
    /// Name of the model
    model: String,
    /// URL of the server of models
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8500")]
    at: Url,
    /// PEM file of the authority that signed its certificate; without it, the authorities this machine trusts
    #[arg(long, env = "TRIBUTARY_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Token with the role operator
    #[arg(long, env = "TRIBUTARY_TOKEN", value_name = "TOKEN", hide_env_values = true, allow_hyphen_values = true)]
    token: Option<String>,
}

impl Rollback {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let mut builder = reqwest::Client::builder().no_proxy().timeout(TIMEOUT);
        if let Some(path) = self.ca.as_deref().filter(|_| self.at.scheme() == "https") {
            builder = builder.tls_certs_only(authorities(&read_ca(path)?)?);
        }
        let client = builder.build().map_err(Failure::because(Exit::Configuration, "cannot set up TLS"))?;
        let mut url = self.at.clone();
        url.path_segments_mut()
            .map_err(|()| Failure::new(Exit::Usage, "--at is the URL of a server of models"))?
            .pop_if_empty()
            .extend(["tributary", "models", &self.model, "rollback"]);
        let mut request = client.post(url);
        // A token does not travel in the clear; on a loopback address none is needed.
        if let Some(token) = self.token.as_ref().filter(|_| self.at.scheme() == "https") {
            request = request.bearer_auth(token);
        }
        let unreachable = |error: reqwest::Error| {
            Failure::new(Exit::Connection, format!("{}: {}", self.at, chain(&error.without_url())))
        };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let body = response.bytes().await.map_err(unreachable)?;
        if !status.is_success() {
            let problem = serde_json::from_slice::<Problem>(&body);
            return Err(problem.unwrap_or_else(|_| Problem::without_details(status, None)).into());
        }
        let answer: serde_json::Value = serde_json::from_slice(&body)
            .map_err(Failure::because(Exit::Connection, "this is not the answer of a server of models"))?;
        output.answer(&answer, || {
            format!("{} answers by version {} again.", self.model, answer["version"].as_str().unwrap_or("?"))
        });
        Ok(())
    }
}
