//! `tributary infer serve`: serves models until ctrl-c or SIGTERM.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use client_sdk::train::DeviceChoice;
use inference::batcher::Batching;
use inference::rollout::{Abort, Rollout};
use inference::scale::Replicas;
use task_spec::is_name;
use url::Url;
use wire::inspect::is_server_name;

use crate::device;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::server::{Server, read_ca};
use crate::serving::{self, Running, Settings, TlsFiles};
use crate::signal;

/// Which models, from where, for whom.
#[derive(clap::Args)]
pub(crate) struct Serve {
    /// URL of the coordinator whose published versions are served; without it, what is in --models
    #[arg(long, value_name = "URL", requires_all = ["token", "tasks"])]
    from: Option<Url>,
    /// PEM file of the authority that signed its certificate; without it, the authorities this machine trusts
    #[arg(long, env = "TRIBUTARY_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Token with the role viewer for the tasks
    #[arg(long, env = "TRIBUTARY_TOKEN", value_name = "TOKEN", hide_env_values = true, allow_hyphen_values = true)]
    token: Option<String>,
    /// Name of a task whose model is served; may be repeated. Without --from: of a folder in --models [default: all of them]
    #[arg(long = "task", value_name = "NAME")]
    tasks: Vec<String>,
    /// Folder of the versions, NAME/VERSION/model.safetensors: those that were fetched, or those that you put there
    #[arg(long, value_name = "DIR", default_value = "models")]
    models: PathBuf,
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8500")]
    listen: SocketAddr,
    /// PEM file of its certificate; without it, it listens on a loopback address alone, and lets everybody ask
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// PEM file of the certificate's key
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// PEM file of an authority whose certificates let clients ask
    #[arg(long, value_name = "FILE", requires = "certificate")]
    client_ca: Option<PathBuf>,
    /// PEM file of those of its certificates whose holders may roll back, too; read at the start
    #[arg(long, value_name = "FILE", requires = "client_ca")]
    operators: Option<PathBuf>,
    /// Address that tells health and metrics in the clear
    #[arg(long, value_name = "ADDRESS")]
    health: Option<SocketAddr>,
    /// Threads that compute [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Where to compute: auto, cpu, cuda or metal
    #[arg(long, default_value = "cpu")]
    device: DeviceChoice,
    /// Most examples in a batch
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=4096))]
    max_batch: u16,
    /// Longest that a batch is kept open for requests that are being read, in milliseconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=1000), value_name = "MS")]
    max_delay_ms: u64,
    /// Most requests for a model that wait; further ones are told to come back
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    queue: u16,
    /// Most bytes of a request
    #[arg(long, default_value_t = 16 << 20, value_parser = clap::value_parser!(u32).range(1024..=1 << 30), value_name = "BYTES")]
    body_max: u32,
    /// Memory for predictions that are remembered, in bytes; 0 remembers none
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    cache: u64,
    #[command(flatten)]
    rollout: RolloutArgs,
    /// Fewest replicas that the metric of desired replicas asks for
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    replicas_min: u32,
    /// Most replicas that it asks for
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    replicas_max: u32,
    /// A name with an address for each replica, such as a headless service's, by which they are counted
    #[arg(long, value_name = "HOST")]
    replicas_of: Option<String>,
    /// What it calls itself to the coordinator, see `infer servers` [default: this machine's name and the port]
    #[arg(long, value_name = "NAME", value_parser = server_name, requires = "from")]
    name: Option<String>,
}

/// Longest that a version is tried: a year.
const HOLD_MAX_S: u64 = 365 * 24 * 3600;

/// How new versions are introduced.
#[derive(clap::Args)]
struct RolloutArgs {
    /// Share of keys (the header tributary-key) that a new version answers while it is tried; 0 uses it at once
    #[arg(long, default_value_t = 0.0, value_parser = percent, value_name = "PERCENT")]
    canary_percent: f64,
    /// How long it is tried, in seconds
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(0..=HOLD_MAX_S), value_name = "SECONDS")]
    hold_s: u64,
    /// Requests or predictions from which on it is judged
    #[arg(long, default_value_t = 50, value_name = "COUNT")]
    abort_min_requests: u64,
    /// It is taken back if more than this part of its requests fail
    #[arg(long, default_value_t = 0.01, value_parser = part, value_name = "PART")]
    abort_error_rate: f64,
    /// It is taken back if its 99th percentile is longer, in milliseconds
    #[arg(long, default_value_t = 250, value_name = "MS")]
    abort_p99_ms: u64,
    /// It is taken back if it predicts otherwise than the stable version for more than this part of the same inputs
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

/// Reported once it serves.
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
    /// None before a version is ready.
    version: Option<u32>,
}

impl Serve {
    pub(super) async fn run(self, output: Output) -> Outcome {
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
        let running = serving::start(settings, tls, from, output).await?;
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
        Server::with_ca(url.clone(), ca.as_deref(), token.clone()).map(Some)
    }

    fn settings(&self) -> Outcome<Settings> {
        let mut names = self.tasks.clone();
        names.sort();
        names.dedup();
        if let Some(wrong) = names.iter().find(|name| !is_name(name)) {
            return Err(Failure::new(Exit::Usage, format!("--task: {wrong:?} is no name of a task")));
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

/// Names of the models in a folder; those that begin with a dot are none.
fn folders(models: &std::path::Path) -> Outcome<Vec<String>> {
    let cannot = || Failure::because(Exit::Io, format!("cannot read the folder {}", models.display()));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(models).map_err(cannot())? {
        let entry = entry.map_err(cannot())?;
        // `..data` of Kubernetes and `.snapshot` of file servers are no models.
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

/// Says what is served where.
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
