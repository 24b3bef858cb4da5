//! `tributary infer serve`: serves models until ctrl-c or SIGTERM.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use client_sdk::train::DeviceChoice;
use inference::batcher::Batching;
use inference::rollout::{Abort, Rollout};
use inference::scale::Replicas;
use serving::{Running, Settings, TlsFiles};
use task_spec::is_name;
use url::Url;
use wire::inspect::is_server_name;

use crate::arguments::parse_token;
use crate::device;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::server::proxy::ProxyArgs;
use crate::server::{Server, read_ca};
use crate::signal;

/// Arguments of `tributary infer serve`.
#[derive(clap::Args)]
pub(crate) struct Serve {
    /// URL of the coordinator whose published versions are served [default: serve the folder --models]
    #[arg(long, value_name = "URL", requires_all = ["token", "tasks"])]
    from: Option<Url>,
    /// PEM file of the CA that signed the coordinator's certificate [default: the system's CAs]
    #[arg(long, env = "TRIBUTARY_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    #[command(flatten)]
    proxy: ProxyArgs,
    /// Token with the role viewer for the tasks
    #[arg(long, env = "TRIBUTARY_TOKEN", value_name = "TOKEN", value_parser = parse_token, hide_env_values = true, allow_hyphen_values = true)]
    token: Option<String>,
    /// Task whose model is served; may be repeated. Without --from, a folder in --models [default: all folders]
    #[arg(long = "task", value_name = "NAME")]
    tasks: Vec<String>,
    /// Folder of model files, NAME/VERSION/model.safetensors; downloads are stored here
    #[arg(long, value_name = "DIR", default_value = "models")]
    models: PathBuf,
    /// Address and port to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8500")]
    listen: SocketAddr,
    /// PEM file of the server's certificate; without it, only loopback addresses are allowed and requests need no credentials
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// PEM file of the certificate's key
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// PEM file of a CA whose client certificates are accepted
    #[arg(long, value_name = "FILE", requires = "certificate")]
    client_ca: Option<PathBuf>,
    /// PEM file of client certificates that may also roll back; read at startup
    #[arg(long, value_name = "FILE", requires = "client_ca")]
    operators: Option<PathBuf>,
    /// Plain-HTTP address for health and metrics
    #[arg(long, value_name = "ADDRESS")]
    health: Option<SocketAddr>,
    /// Number of compute threads [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Compute device: auto, cpu, cuda or metal
    #[arg(long, default_value = "cpu")]
    device: DeviceChoice,
    /// Maximum batch size
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=4096))]
    max_batch: u16,
    /// Maximum time to hold a batch open for requests that are still being read, in milliseconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=1000), value_name = "MS")]
    max_delay_ms: u64,
    /// Maximum queue length per model; further requests get 429 with Retry-After
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    queue: u16,
    /// Maximum request body, in bytes
    #[arg(long, default_value_t = 16 << 20, value_parser = clap::value_parser!(u32).range(1024..=1 << 30), value_name = "BYTES")]
    body_max: u32,
    /// Size of the prediction cache, in bytes; 0 disables it
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    cache: u64,
    #[command(flatten)]
    rollout: RolloutArgs,
    /// Minimum of the desired-replicas metric
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    replicas_min: u32,
    /// Maximum of the desired-replicas metric
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    replicas_max: u32,
    /// DNS name with one address per replica, such as a headless service, used to count replicas
    #[arg(long, value_name = "HOST")]
    replicas_of: Option<String>,
    /// Name shown by `infer servers` [default: host name and port]
    #[arg(long, value_name = "NAME", value_parser = server_name, requires = "from")]
    name: Option<String>,
}

/// Maximum trial time of a version: a year.
const HOLD_MAX_S: u64 = 365 * 24 * 3600;

/// How new versions are introduced.
#[derive(clap::Args)]
struct RolloutArgs {
    /// Percentage of keys (header tributary-key) that a canary answers; 0 activates new versions immediately
    #[arg(long, default_value_t = 0.0, value_parser = percent, value_name = "PERCENT")]
    canary_percent: f64,
    /// Duration of the canary, in seconds
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(0..=HOLD_MAX_S), value_name = "SECONDS")]
    hold_s: u64,
    /// Minimum requests before a verdict
    #[arg(long, default_value_t = 50, value_name = "COUNT")]
    abort_min_requests: u64,
    /// Maximum fraction of failed requests before the canary is rolled back
    #[arg(long, default_value_t = 0.01, value_parser = part, value_name = "PART")]
    abort_error_rate: f64,
    /// Maximum 99th percentile of the latency before the canary is rolled back, in milliseconds
    #[arg(long, default_value_t = 250, value_name = "MS")]
    abort_p99_ms: u64,
    /// Maximum fraction of predictions that differ from the stable version before the canary is rolled back
    #[arg(long, default_value_t = 0.2, value_parser = part, value_name = "PART")]
    abort_disagreement: f64,
}

fn server_name(text: &str) -> Result<String, String> {
    let is_one = is_server_name(text).then(|| text.to_owned());
    is_one.ok_or_else(|| "it has 1 to 128 letters, digits, `-`, `_`, `.` or `:`".to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "it is a number from 0 to 100".to_owned())
}

fn part(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "it is a number from 0 to 1".to_owned())
}

impl RolloutArgs {
    fn rollout(&self) -> Rollout {
        Rollout {
            canary_percent: self.canary_percent,
            hold: Duration::from_secs(self.hold_s),
            abort: Abort {
                min_requests: self.abort_min_requests,
                error_rate: self.abort_error_rate,
                p99: Duration::from_millis(self.abort_p99_ms),
                disagreement: self.abort_disagreement,
            },
        }
    }
}

/// Reported when the server is ready.
#[derive(serde::Serialize)]
struct Serving {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    health: Option<SocketAddr>,
    models: Vec<ServedModel>,
}

#[derive(serde::Serialize)]
struct ServedModel {
    name: String,
    /// `None` before a version is ready.
    version: Option<u32>,
}

impl Serve {
    pub(super) async fn run(self, output: Output) -> Outcome {
        // Before the token and the key of its certificate are read.
        coordinator::forbid_core_dumps();
        let from = self.from()?;
        let settings = self.settings()?;
        let files = self.certificate.as_deref().zip(self.key.as_deref());
        let tls = files.map(|(certificate, key)| TlsFiles {
            certificate,
            key,
            client_ca: self.client_ca.as_deref(),
            operators: self.operators.as_deref(),
        });
        // Registered first: a signal during start-up must not be lost.
        let mut stop = std::pin::pin!(signal::shutdown());
        let running = serving::start(settings, tls, from, output.transfers()).await?;
        announce(&running, tls.is_some(), output);
        output.line("Ctrl-c ends it.");
        (&mut stop).await;
        output.line("Shutting down: finishing what was asked.");
        let answered = running.shutdown().await;
        output.event("stopped", &serde_json::json!({ "answered": answered }));
        Ok(())
    }

    fn from(&self) -> Outcome<Option<Server>> {
        let (Some(url), Some(token)) = (&self.from, &self.token) else { return Ok(None) };
        let ca = self.ca.as_deref().map(read_ca).transpose()?;
        Server::with_ca(url.clone(), ca.as_deref(), token.clone(), &self.proxy.setting()?).map(Some)
    }

    fn settings(&self) -> Outcome<Settings> {
        let mut names = self.tasks.clone();
        names.sort();
        names.dedup();
        if let Some(wrong) = names.iter().find(|name| !is_name(name)) {
            return Err(Failure::new(Exit::Usage, format!("--task: {wrong:?} is not a task name")));
        }
        if names.is_empty() {
            names = folders(&self.models)?;
        }
        let device = device::open(self.device)?;
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Settings {
            models: self.models.clone(),
            names,
            listen: self.listen,
            health: self.health,
            batching: Batching {
                max_batch: self.max_batch.into(),
                max_delay: Duration::from_millis(self.max_delay_ms),
                queue: self.queue.into(),
            },
            rollout: self.rollout.rollout(),
            threads: self.threads.map_or_else(cores, usize::from),
            device,
            body_max: usize::try_from(self.body_max).unwrap_or(usize::MAX),
            cache_bytes: self.cache,
            replicas: Replicas { min: self.replicas_min, max: self.replicas_max.max(self.replicas_min) },
            replicas_of: self.replicas_of.clone(),
            name: self.name.clone(),
        })
    }
}

/// Names of the models in a folder, without names that begin with a dot.
fn folders(models: &std::path::Path) -> Outcome<Vec<String>> {
    let cannot = || Failure::because(Exit::Io, format!("cannot read the folder {}", models.display()));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(models).map_err(cannot())? {
        let entry = entry.map_err(cannot())?;
        // Skips `..data` of Kubernetes and `.snapshot` of file servers, which are not models.
        let is_model = |name: &String| is_name(name) && !name.starts_with('.') && entry.path().is_dir();
        let name = entry.file_name().into_string().ok().filter(is_model);
        names.extend(name);
    }
    if names.is_empty() {
        let detail = format!("{} holds no models: NAME/VERSION/model.safetensors", models.display());
        return Err(Failure::new(Exit::NotFound, detail));
    }
    names.sort();
    Ok(names)
}

/// Prints the served models and their address.
fn announce(running: &Running, is_tls: bool, output: Output) {
    let scheme = if is_tls { "https" } else { "http" };
    let models: Vec<_> = running.models().into_iter().map(|(name, version)| ServedModel { name, version }).collect();
    let serving = Serving { url: format!("{scheme}://{}", running.address), health: running.health, models };
    output.event("serving", &serving);
    output.line(format!("Serving at   {}", serving.url));
    for ServedModel { name, version } in &serving.models {
        let version = version.map_or_else(|| "no version yet".to_owned(), |version| format!("version {version}"));
        output.line(format!("Model        {name}, {version}"));
    }
}

#[cfg(test)]
mod tests {
    use super::folders;

    #[test]
    fn folders_that_begin_with_a_dot_are_no_models() {
        let models = tempfile::tempdir().unwrap();
        for name in ["digits", "..data", ".snapshot"] {
            std::fs::create_dir(models.path().join(name)).unwrap();
        }
        assert_eq!(folders(models.path()).unwrap(), ["digits"]);
    }
}
