//! `tributary serve`: hosts a coordinator until ctrl-c or SIGTERM.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use coordinator::config::{Config, ENVIRONMENT_PREFIX};
use coordinator::observe::LogLevel;
use coordinator::{Coordinator, Parts, Running, StartError, TokenError};
use wire::admin::OperatorTokenReply;

use crate::arguments::{log_level, parse_listen};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::signal;

/// Where its configuration comes from.
#[derive(clap::Args)]
pub(crate) struct Serve {
    /// TOML file, see docs/config/coordinator.toml; TRIBUTARY_<SECTION>_<KEY> in the environment overrides it
    #[arg(long, value_name = "FILE", required_unless_present = "dev", conflicts_with = "dev")]
    config: Option<PathBuf>,
    /// Development mode: create a certificate authority and store all data in --data-dir
    #[arg(long, requires = "data_dir")]
    dev: bool,
    /// Data folder of --dev
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    data_dir: Option<PathBuf>,
    /// Address or host name, and port, to listen on, overriding the configuration; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
}

/// Reported once the coordinator serves.
#[derive(serde::Serialize)]
struct Serving {
    url: String,
    /// Certificate file of the coordinator's own authority, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    ca: Option<PathBuf>,
    /// Address for signed requests from a balancer that ends TLS, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    signed: Option<SocketAddr>,
    /// Plain-HTTP address of `/healthz`, `/readyz` and `/metrics`, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    health: Option<SocketAddr>,
    /// The first admin token, if the database had none; shown only once.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl Serve {
    pub(super) async fn run(self, log: Option<&str>, output: Output) -> Outcome {
        let mut config = match (&self.config, &self.data_dir) {
            (Some(file), _) => load(file)?,
            (None, Some(folder)) => dev_config(folder)?,
            (None, None) => return Err(Failure::new(Exit::Usage, "give --config FILE, or --dev --data-dir DIR")),
        };
        if let Some(listen) = self.listen {
            config.http.listen = listen;
        }
        if let Some(level) = log {
            config.telemetry.level = log_level(level)?;
        }
        let level = coordinator::observe::start_logging(&config.telemetry)
            .map_err(Failure::because(Exit::Configuration, "cannot start logging"))?;
        // Before any key is read.
        coordinator::forbid_core_dumps();
        if let Some(file) = self.config.clone() {
            tokio::spawn(follow_level(file, level));
        }
        // Registered first: a signal during start-up must not be lost.
        let mut stop = std::pin::pin!(signal::shutdown());
        // The database may be waited for.
        let running = tokio::select! {
            running = start(&config) => running?,
            () = &mut stop => {
                stopped(output);
                return Ok(());
            }
        };
        let first = match running.coordinator().first_operator_token(|first| show(output, first)).await {
            Ok(first) => first,
            Err(error) => {
                running.shutdown().await;
                return Err(token_failure(&error));
            }
        };
        let serving = Serving {
            url: running.url().to_owned(),
            ca: config.needs_authority().then(|| config.identity.ca_certificate_file.clone()),
            signed: running.signed_address(),
            health: running.health_address(),
            token: first.map(|reply| reply.token),
        };
        announce(output, &serving);
        (&mut stop).await;
        output.line("Shutting down: finishing what was accepted.");
        running.shutdown().await;
        stopped(output);
        Ok(())
    }
}

/// At each SIGHUP, rereads the file and applies its `telemetry.level`. Ignores all other changes.
pub(super) async fn follow_level(file: PathBuf, level: LogLevel) {
    let mut asked = signal::hangups();
    while asked.next().await {
        let told = load(&file).map(|config| config.telemetry.level).map_err(|failure| failure.detail);
        match told.and_then(|told| level.set(&told).map(|()| told).map_err(|error| error.to_string())) {
            Ok(level) => tracing::warn!(level, "the log level is that of the file now: {level}"),
            Err(why) => tracing::error!("the log level stays as it is: {why}"),
        }
    }
}

/// Reports the end to programs.
pub(super) fn stopped(output: Output) {
    output.event("stopped", &serde_json::json!({}));
}

/// Shows the first token before it becomes valid: shown later, it could be lost.
fn show(output: Output, first: &OperatorTokenReply) -> io::Result<()> {
    let words = format!("Admin token  {}  (shown this once)", first.token);
    output.must_tell("first_token", &serde_json::json!({ "token": first.token }), words)
}

fn announce(output: Output, serving: &Serving) {
    output.event("serving", serving);
    output.line(format!("Serving at   {}", serving.url));
    let ca = serving.ca.as_ref().map_or_else(|| "FILE".to_owned(), |ca| ca.display().to_string());
    match &serving.ca {
        Some(_) => output.line(format!("CA           {ca}")),
        None => output.line("CA           none of its own: the one that signed http.certificate_file"),
    }
    if let Some(signed) = serving.signed {
        output.line(format!("Signed       http://{signed}, for a balancer that ends TLS"));
    }
    if let Some(health) = serving.health {
        output.line(format!("Health       http://{health}/readyz"));
    }
    match &serving.token {
        Some(token) => {
            output.line("");
            output.command(format!("export TRIBUTARY_SERVER={} TRIBUTARY_CA={ca}", serving.url));
            output.command(format!("export TRIBUTARY_TOKEN={token}"));
            output.command("tributary task list");
            output.line("");
        }
        None => output.line("Tokens       as before (`tributary token create` makes more)"),
    }
    output.line("Ctrl-c ends it.");
}

/// Starts a coordinator; failures are classified by cause.
pub(crate) async fn start(config: &Config) -> Outcome<Running> {
    let parts = Parts::system().map_err(|error| start_failure(&error))?;
    Coordinator::start(config, parts).await.map_err(|error| start_failure(&error))
}

/// The failure of a coordinator that did not start.
pub(super) fn start_failure(error: &StartError) -> Failure {
    let exit = match error {
        StartError::Randomness => Exit::Internal,
        StartError::Locked(_)
        | StartError::Database(_)
        | StartError::Store(_)
        | StartError::Apart(_)
        | StartError::Look(_)
        | StartError::Listen { .. } => Exit::Io,
        StartError::Authority(_)
        | StartError::Oidc(_)
        | StartError::Seal(_)
        | StartError::Differs(_)
        | StartError::Lost { .. }
        | StartError::Traces(_)
        | StartError::Tls(_) => Exit::Configuration,
        StartError::Device(_) => Exit::Device,
    };
    Failure::new(exit, crate::failure::chain(error))
}

/// The failure of creating an operator token.
pub(super) fn token_failure(error: &TokenError) -> Failure {
    let exit = match error {
        TokenError::Invalid(_) => Exit::Usage,
        TokenError::NoTask(_) | TokenError::NoDatabase(_) => Exit::NotFound,
        TokenError::Show(_) | TokenError::Store(_) | TokenError::Locked(_) | TokenError::Database(_) => Exit::Io,
    };
    Failure::new(exit, crate::failure::chain(error))
}

/// The variables of the environment that may configure a coordinator.
///
/// # Errors
/// One of them is not UTF-8.
pub(super) fn environment() -> Outcome<Vec<(String, String)>> {
    let own = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let own = own.filter(|(name, _)| name.starts_with(ENVIRONMENT_PREFIX));
    own.map(|(name, value)| match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(_) => Err(Failure::new(Exit::Configuration, format!("environment {name}: the value is not UTF-8"))),
    })
    .collect()
}

/// Reads a configuration file. The environment overrides its settings.
pub(super) fn load(file: &Path) -> Outcome<Config> {
    Config::load(Some(file), environment()?).map_err(|error| Failure::new(Exit::Configuration, error))
}

/// A configuration with everything in one folder.
pub(crate) fn dev_config(folder: &Path) -> Outcome<Config> {
    let unusable = || Failure::because(Exit::Io, format!("cannot use the folder {}", folder.display()));
    coordinator::make_private_folder(folder).map_err(unusable())?;
    let folder = folder.canonicalize().map_err(unusable())?;
    // The environment may still set values that are independent of the folder, such as rate limits.
    let mut config = Config::load(None, environment()?).map_err(|error| Failure::new(Exit::Configuration, error))?;
    config.database.url = format!("sqlite:{}", folder.join("coordinator.db").display());
    config.blobs.url = format!("file:{}", folder.join("blobs").display());
    config.identity.ca_certificate_file = folder.join("ca.pem");
    config.identity.ca_key_file = folder.join("ca-key.pem");
    Ok(config)
}
