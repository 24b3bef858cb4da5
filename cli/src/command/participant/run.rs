//! `tributary participant run`: one participant as a process of its own, on its shard of ready-made data.
//!
//! An app embeds the SDK instead. This command is for experiments, and shows that processes get the demo's model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use client_sdk::identity::CertificateError;
use client_sdk::journal::{JournalError, JournalFiles};
use client_sdk::participant::{BuildError, Builder, Event, Outcome as End, Participant, ParticipantError};
use client_sdk::train::{Device, DeviceChoice};
use client_sdk::transport::ServerRoots;
use client_sdk::{Attribute, Attributes, Lifetime, ModelTrainer, PreIssued, PrivacyPolicy, SecurityPolicy};
use coordinator::observe::SpanQueue;
use tokio_util::sync::CancellationToken;
use url::Url;
use wire::Digest;
use wire::audit::AuditKey;
use zeroize::Zeroizing;

use super::events::{EventPrinter, tell_lifetime, tell_spent};
use super::meters::{self, MetricsArgs};
use super::program::ProgramArgs;
use super::traces::{Traces, TracesArgs, trace};
use crate::arguments::{parse_label, parse_token};
use crate::data::{self, DataArgs, DataChoice};
use crate::device;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::server::proxy::ProxyArgs;
use crate::server::read_ca;
use crate::signal;
use crate::table_file::{FileTrainer, Misfit};
use crate::trainer::owned;

/// Arguments of `tributary participant run`.
#[derive(clap::Args)]
pub(crate) struct Run {
    /// URL of the coordinator
    #[arg(long, env = "TRIBUTARY_SERVER", value_name = "URL")]
    server: Url,
    /// PEM file of the CA that signed the coordinator's certificate and certifies participants
    #[arg(long, env = "TRIBUTARY_CA", value_name = "FILE", required_unless_present_all = ["signed", "members_ca"])]
    ca: Option<PathBuf>,
    /// Sign each request, for a coordinator behind a balancer that ends TLS and whose certificate this machine trusts
    #[arg(long)]
    signed: bool,
    /// PEM file of the CA that signed the balancer's certificate [default: the system's CAs]
    #[arg(long, value_name = "FILE", requires = "signed")]
    balancer_ca: Option<PathBuf>,
    #[command(flatten)]
    proxy: ProxyArgs,
    /// PEM file of the CA that certifies participants, if it differs from --ca; certificates of other CAs are
    /// rejected
    #[arg(long, env = "TRIBUTARY_MEMBERS_CA", value_name = "FILE")]
    members_ca: Option<PathBuf>,
    /// Key that must sign model versions, as shown by `tributary audit head`; may be repeated [default: the first key
    /// seen, pinned]
    #[arg(long = "coordinator-key", value_name = "HEX")]
    coordinator_keys: Vec<AuditKey>,
    /// PEM file of this device's certificate, if the coordinator does not issue certificates; reread for renewals
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// PEM file of its private key (Ed25519, PKCS #8)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// One-time enrolment token (`tributary token create --enrollment`); not needed with an enrolled journal
    #[arg(
        long,
        alias = "token",
        env = "TRIBUTARY_ENROLLMENT_TOKEN",
        value_name = "TOKEN",
        value_parser = parse_token,
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    enrollment_token: Option<String>,
    /// Name of the participant, unless the token sets one [default: participant-INDEX]
    #[arg(long)]
    name: Option<String>,
    /// Label of the participant, unless the token sets it; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
    /// Attribute of this device, for tasks with criteria; only the result of the check is sent. May be repeated
    #[arg(long = "attribute", value_name = "KEY=VALUE", value_parser = parse_attribute)]
    attributes: Vec<(String, Attribute)>,
    /// Name of the task to take part in [default: any]
    #[arg(long)]
    task: Option<String>,
    /// Folder for persistent state: key, certificate, pending update. Do not restore it from a copy
    #[arg(long, value_name = "DIR")]
    journal: PathBuf,
    /// File with the key that seals the journal, created on first use [default: DIR.key]
    #[arg(long, value_name = "FILE")]
    journal_key: Option<PathBuf>,
    /// File that identifies the latest state of the journal, created on first use; store it on another disk, so that
    /// copies exclude it [default: DIR.generation]
    #[arg(long, value_name = "FILE")]
    journal_generation: Option<PathBuf>,
    /// Index of this participant's shard among --participants, from 0
    #[arg(long, default_value_t = 0)]
    index: u32,
    /// Also take part in tasks whose updates the coordinator can read
    #[arg(long)]
    insecure_aggregation: bool,
    /// Minimum cohort to take part in
    #[arg(long, value_name = "N", default_value_t = SecurityPolicy::default().min_cohort)]
    min_cohort: u16,
    /// Minimum number of colluding participants that the smallest cohort must tolerate
    #[arg(long, value_name = "N", default_value_t = SecurityPolicy::default().min_tolerated_colluders)]
    min_tolerated_colluders: u16,
    /// Minimum fraction of colluding participants that a cohort must tolerate, 0 to 0.5
    #[arg(long, value_name = "FRACTION", default_value_t = SecurityPolicy::default().min_tolerated_corrupt)]
    min_tolerated_corrupt: f64,
    /// Minimum number of updates in an opened sum; in a sum of two, each member can compute the other's update
    #[arg(long, value_name = "N", default_value_t = SecurityPolicy::default().min_included)]
    min_included: u16,
    /// Minimum size of the fixed batch that every member of a session must belong to; 0: the task decides
    #[arg(long, value_name = "N", default_value_t = SecurityPolicy::default().min_batch)]
    min_batch: u16,
    /// Id of the fixed batch to leave for another one, for example because a member is gone for good
    #[arg(long, value_name = "ID")]
    leave_batch: Option<Digest>,
    /// Maximum staleness of updates in asynchronous tasks, in versions; above 0, a dishonest coordinator may isolate an
    /// update by publishing a version from which nothing can be learned
    #[arg(long, value_name = "N", default_value_t = SecurityPolicy::default().max_staleness)]
    max_staleness: u32,
    /// Maximum epsilon per task, against observers who know that this participant took part
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    max_epsilon: Option<f64>,
    /// Maximum epsilon of all private tasks together at delta 1e-5, counted in the same way, over the journal's
    /// lifetime
    #[arg(long, value_name = "E", default_value_t = Lifetime::default().epsilon, allow_negative_numbers = true)]
    lifetime_epsilon: f64,
    /// Only take part in tasks with a privacy mechanism
    #[arg(long)]
    require_privacy: bool,
    /// Report a coarse training loss (32 levels) to secure tasks that select participants by loss
    #[arg(long)]
    tell_loss: bool,
    /// Maximum size of a model, model file, local part of a model, and encoded update, in megabytes each
    #[arg(long, value_name = "MB", default_value_t = 256)]
    max_model_mb: u64,
    /// SHA-256 digest of a graph file to accept; tasks with other graphs are refused. May be repeated [default: any
    /// graph]
    #[arg(long = "accept-graph", value_name = "HEX")]
    accepted_graphs: Vec<Digest>,
    /// Training device: auto, cpu, cuda or metal
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    traces: TracesArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// `memory_gb=4` is a number, `language=de` a text.
fn parse_attribute(text: &str) -> Result<(String, Attribute), String> {
    let (key, value) =
        text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or("an attribute is written KEY=VALUE")?;
    let number = value.parse::<f64>().ok().filter(|number| number.is_finite());
    Ok((key.to_owned(), number.map_or_else(|| value.into(), Attribute::from)))
}

/// Default name of the participant of shard `index`.
pub(crate) fn default_name(index: u32) -> String {
    format!("participant-{index:03}")
}

impl Run {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let metrics = self.metrics.start(output).await?;
        let traces = self.traces.start()?;
        let unfit = Unfit::default();
        let mut participant = self.build(output, traces.as_ref().map(Traces::queue), &unfit)?;
        let stopped = async {
            tokio::select! {
                () = signal::shutdown() => {}
                () = unfit.given_up.cancelled() => {}
            }
        };
        let ended = participant.run(stopped).await;
        self.program.end(&participant).await;
        if let Some(traces) = traces {
            traces.end().await;
        }
        if let Some(metrics) = metrics {
            metrics.end().await;
        }
        let spent = participant.privacy_spent();
        spent.iter().for_each(|spent| tell_spent(output, spent));
        if !spent.is_empty() {
            tell_lifetime(output, &participant.privacy_lifetime());
        }
        match ended {
            Ok(End::TaskOver { task }) => {
                output.event("task_over", &serde_json::json!({ "task": task }));
                output.line(format!("task {task} is over"));
                Ok(())
            }
            Ok(_) if unfit.given_up.is_cancelled() => {
                Err(Failure::new(Exit::Data, unfit.misfit.why().unwrap_or("the data do not fit the task")))
            }
            Ok(_) => {
                output.event("stopped", &serde_json::json!({}));
                let is_enrolled = participant.certified().is_some();
                output.line(if is_enrolled {
                    "stopped; started again with the same journal, it goes on from here"
                } else {
                    "stopped before it had enrolled"
                });
                Ok(())
            }
            Err(error) => Err(failure(&error)),
        }
    }

    fn build(&self, output: Output, spans: Option<SpanQueue>, unfit: &Unfit) -> Outcome<Participant> {
        if self.index >= self.data.participants {
            let detail = format!("--index {} is not below --participants {}", self.index, self.data.participants);
            return Err(Failure::new(Exit::Usage, detail));
        }
        if self.max_epsilon.is_some_and(|epsilon| !(epsilon.is_finite() && epsilon > 0.0)) {
            return Err(Failure::new(Exit::Usage, "--max-epsilon must be finite and above 0"));
        }
        if !(self.lifetime_epsilon.is_finite() && self.lifetime_epsilon > 0.0) {
            return Err(Failure::new(Exit::Usage, "--lifetime-epsilon must be finite and above 0"));
        }
        let device = device::open(self.device)?;
        let ca = self.ca.as_deref().map(read_ca).transpose()?;
        let balancer_ca = self.balancer_ca.as_deref().map(read_ca).transpose()?;
        let of_members =
            |failure: Failure| Failure::new(failure.exit, format!("the authority of members: {}", failure.detail));
        let members_ca = self.members_ca.as_deref().map(read_ca).transpose().map_err(of_members)?;
        let builder = self.with_trainer(Participant::builder(), device, &unfit.misfit, output)?;
        let beside = JournalFiles::beside(&self.journal);
        let journal = JournalFiles {
            key: self.journal_key.clone().unwrap_or(beside.key),
            generation: self.journal_generation.clone().unwrap_or(beside.generation),
            folder: beside.folder,
        };
        let journal = journal.open().map_err(|error| failure(&error.into()))?;
        let attributes: Attributes = self.attributes.iter().cloned().collect();
        let told = EventPrinter::default();
        // One that takes part in any task may find one that its table fits.
        let noticed = self.task.is_some().then(|| unfit.clone());
        let mut builder = builder
            .server(self.server.as_str())
            .proxy(self.proxy.setting()?)
            .name(self.name.clone().unwrap_or_else(|| default_name(self.index)))
            .labels(self.labels.iter().cloned().collect::<BTreeMap<_, _>>())
            .attributes(move || attributes.clone())
            .journal(journal)
            .seed(self.data.seed)
            .secure_aggregation(SecurityPolicy {
                required: !self.insecure_aggregation,
                min_cohort: self.min_cohort,
                min_tolerated_colluders: self.min_tolerated_colluders,
                min_tolerated_corrupt: self.min_tolerated_corrupt,
                min_included: self.min_included,
                min_batch: self.min_batch,
                leave_batch: self.leave_batch,
                max_staleness: self.max_staleness,
                tell_loss: self.tell_loss,
            })
            .privacy(PrivacyPolicy {
                required: self.require_privacy,
                max_epsilon: self.max_epsilon,
                lifetime: Some(Lifetime { epsilon: self.lifetime_epsilon, ..Lifetime::default() }),
                ..PrivacyPolicy::default()
            })
            .coordinator_keys(self.coordinator_keys.iter().copied())
            .max_model_bytes(self.max_model_mb.saturating_mul(1_000_000))
            .accepted_graphs(self.accepted_graphs.iter().copied())
            .on_event(move |event| {
                spans.iter().for_each(|spans| trace(spans, event));
                meters::count(event);
                told.tell(output, event);
                noticed.iter().for_each(|unfit| unfit.notice(event));
            });
        if let Some(pem) = &ca {
            builder = builder.ca_pem(String::from_utf8_lossy(pem));
        }
        if self.signed {
            let pem = balancer_ca.map(|pem| ServerRoots::Pem(String::from_utf8_lossy(&pem).into_owned()));
            builder = builder.signed_requests(pem.unwrap_or(ServerRoots::Device));
        }
        if let Some(pem) = &members_ca {
            builder = builder.members_ca_pem(String::from_utf8_lossy(pem));
        }
        if let (Some(certificate), Some(key)) = (self.certificate.clone(), self.key.clone()) {
            builder = builder.certificates(move || read_certificate(&certificate, &key));
        }
        if let Some(token) = &self.enrollment_token {
            builder = builder.enrollment_token(token);
        }
        if let Some(task) = &self.task {
            builder = builder.task(task);
        }
        builder.build().map_err(|error| build_failure(&error))
    }

    fn with_trainer(&self, builder: Builder, device: Device, misfit: &Misfit, output: Output) -> Outcome<Builder> {
        if let Some(trainer) = self.program.open(output)? {
            return Ok(builder.trainer(trainer));
        }
        if let DataChoice::Table(table) = &self.data.data {
            return Ok(builder.trainer(FileTrainer::new(table.read()?, self.data.seed(), device, misfit.clone())));
        }
        let federated = self.data.load()?;
        let shard = federated.shards.into_iter().nth(self.index as usize);
        let shard = shard.ok_or_else(|| Failure::new(Exit::Data, format!("there is no shard {}", self.index)))?;
        let (train, held_out) = data::own_split(shard, self.data.seed());
        Ok(builder.trainer(ModelTrainer::new(owned(train), owned(held_out), device)))
    }
}

/// Notices when the participant's table does not fit the one task that it is for: it has given up its place then, and would
/// give up the next.
#[derive(Clone, Default)]
struct Unfit {
    misfit: Misfit,
    given_up: CancellationToken,
}

impl Unfit {
    fn notice(&self, event: &Event) {
        if matches!(event, Event::Abandoned { .. }) && self.misfit.why().is_some() {
            self.given_up.cancel();
        }
    }
}

fn read_certificate(certificate: &Path, key: &Path) -> Result<PreIssued, CertificateError> {
    let read = |path: &Path| {
        let text = std::fs::read_to_string(path).map(Zeroizing::new);
        text.map_err(|error| CertificateError::Unavailable(format!("{}: {error}", path.display())))
    };
    let named = |error: CertificateError| CertificateError::Unavailable(format!("{}: {error}", key.display()));
    PreIssued::from_pem(read(certificate)?.as_str(), &read(key)?).map_err(named)
}

/// The process's result for a participant's end.
pub(crate) fn failure(error: &ParticipantError) -> Failure {
    let problem = |problem: &wire::problem::Problem| {
        let mut failure = Failure::from(problem.clone());
        failure.detail = error.to_string();
        failure
    };
    match error {
        ParticipantError::NotEnrolled | ParticipantError::AuthorityReplaced { .. } => Failure::new(Exit::Denied, error),
        ParticipantError::EnrollmentRefused(said)
        | ParticipantError::Revoked(said)
        | ParticipantError::Expired(said)
        | ParticipantError::Refused { problem: said, .. } => problem(said),
        ParticipantError::Journal(JournalError::Restored { .. }) => Failure::new(Exit::Integrity, error),
        ParticipantError::Journal(_) => Failure::new(Exit::Io, error),
        ParticipantError::PreIssuedCertificate(_) => Failure::new(Exit::Configuration, error),
        ParticipantError::Certificate(_) | ParticipantError::Uncertified(_) => Failure::new(Exit::Connection, error),
        _ => Failure::new(Exit::Internal, error),
    }
}

/// The failure for a participant that cannot be built.
pub(crate) fn build_failure(error: &BuildError) -> Failure {
    match error {
        BuildError::Participant(error) => failure(error),
        BuildError::BadName { .. } | BuildError::BadPolicy(_) => Failure::new(Exit::Usage, error),
        BuildError::Transport(_) | BuildError::BadMembers(_) => Failure::new(Exit::Configuration, error),
        _ => Failure::new(Exit::Internal, error),
    }
}
