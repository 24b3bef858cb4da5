//! `tributary infer rollback`: one command back.

use std::path::{Path, PathBuf};
use std::time::Duration;

use url::Url;
use wire::problem::Problem;
use zeroize::Zeroizing;

use crate::arguments::parse_token;
use crate::failure::{Exit, Failure, Outcome, chain};
use crate::output::Output;
use crate::server::{authorities, read_ca};

/// Timeout of the rollback request to the model server.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Arguments of `tributary infer rollback`.
#[derive(clap::Args)]
pub(crate) struct Rollback {
    /// Name of the model
    model: String,
    /// URL of the model server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8500")]
    at: Url,
    /// PEM file of the CA that signed the server's certificate [default: the system's CAs]
    #[arg(long, env = "TRIBUTARY_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Token with the role operator
    #[arg(long, env = "TRIBUTARY_TOKEN", value_name = "TOKEN", value_parser = parse_token, hide_env_values = true, allow_hyphen_values = true)]
    token: Option<String>,
    /// PEM file of a client certificate listed in the server's --operators; replaces the token
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// PEM file of the certificate's key
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
}

impl Rollback {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let client = self.client()?;
        let mut url = self.at.clone();
        url.path_segments_mut()
            .map_err(|()| Failure::new(Exit::Usage, "--at is the URL of a server of models"))?
            .pop_if_empty()
            .extend(["tributary", "models", &self.model, "rollback"]);
        let mut request = client.post(url);
        // A token is sent only over TLS; a loopback address works without one.
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
            format!("{} is rolled back to version {}.", self.model, answer["version"].as_str().unwrap_or("?"))
        });
        Ok(())
    }

    fn client(&self) -> Outcome<reqwest::Client> {
        let mut builder = reqwest::Client::builder().no_proxy().timeout(TIMEOUT);
        if let Some(path) = self.ca.as_deref().filter(|_| self.at.scheme() == "https") {
            builder = builder.tls_certs_only(authorities(&read_ca(path)?)?);
        }
        if let (Some(certificate), Some(key)) = (&self.certificate, &self.key) {
            if self.at.scheme() != "https" {
                let detail = format!("--certificate requires TLS: use --at https://…, not {}", self.at);
                return Err(Failure::new(Exit::Usage, detail));
            }
            builder = builder.identity(identity(certificate, key)?);
        }
        builder.build().map_err(Failure::because(Exit::Configuration, "cannot set up TLS"))
    }
}

/// A certificate and its key, from their PEM files.
fn identity(certificate: &Path, key: &Path) -> Outcome<reqwest::Identity> {
    let read = |path: &Path| {
        let cannot = Failure::because(Exit::Configuration, format!("cannot read {}", path.display()));
        std::fs::read(path).map(Zeroizing::new).map_err(cannot)
    };
    let (certificate_pem, key_pem) = (read(certificate)?, read(key)?);
    // Of several keys the last one counts: the one in its own file.
    let pem = Zeroizing::new([&certificate_pem[..], b"\n", &key_pem[..]].concat());
    let detail = format!("{} and {} hold no certificate and key in PEM", certificate.display(), key.display());
    reqwest::Identity::from_pem(&pem).map_err(Failure::because(Exit::Configuration, detail))
}
