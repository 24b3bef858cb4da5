//! `tributary participant run`: one participant as a process of its own, on its shard of ready-made data.
//!
//! An app embeds the SDK instead. This command is for experiments, and shows that processes get the demo's model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client_sdk::identity::CertificateError;
use client_sdk::participant::{Builder, Event, Outcome as End, Participant};
use client_sdk::train::{Device, DeviceChoice};
use client_sdk::{Attribute, Attributes, ModelTrainer, PreIssued};
use coordinator::observe::SpanQueue;
use tokio_util::sync::CancellationToken;
use wire::Digest;
use zeroize::Zeroizing;

use super::connection::ConnectionArgs;
use super::events::{EventPrinter, tell_lifetime, tell_spent};
use super::failures::{build_failure, failure};
use super::meters::{self, MetricsArgs};
use super::once::{Once, ended};
use super::policy::{JournalArgs, PolicyArgs};
use super::program::ProgramArgs;
use super::traces::{Traces, TracesArgs, trace};
use crate::arguments::{parse_label, parse_token};
use crate::data::{self, DataArgs};
use crate::device;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::signal;
use crate::table_file::{FileTrainer, Misfit};
use crate::trainer::owned;

/// Arguments of `tributary participant run`.
#[derive(clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    connection: ConnectionArgs,
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
    /// Take part in one round, then exit; with 19 if there was nothing to do
    #[arg(long)]
    once: bool,
    /// With --once, the longest wait for a round, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, requires = "once", value_parser = clap::value_parser!(u64).range(1..))]
    once_within: u64,
    #[command(flatten)]
    journal: JournalArgs,
    /// Index of this participant's shard among --participants, from 0
    #[arg(long, default_value_t = 0)]
    index: u32,
    #[command(flatten)]
    policy: PolicyArgs,
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
        let once = self.once.then(|| Once::new(Duration::from_secs(self.once_within)));
        let mut participant = self.build(output, traces.as_ref().map(Traces::queue), &unfit, once.clone())?;
        let stopped = async {
            tokio::select! {
                () = signal::shutdown() => {}
                () = unfit.given_up.cancelled() => {}
                () = ended(once.as_ref()) => {}
            }
        };
        let end = participant.run(stopped).await;
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
        match end {
            Ok(End::TaskOver { task }) => {
                output.event("task_over", &serde_json::json!({ "task": task }));
                output.line(format!("task {task} is over"));
                once.map_or(Ok(()), |once| once.result("the task is over"))
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
                once.map_or(Ok(()), |once| once.result("it was stopped"))
            }
            Err(error) => Err(failure(&error)),
        }
    }

    fn check(&self) -> Outcome {
        if self.index >= self.data.participants {
            let detail = format!("--index {} is not below --participants {}", self.index, self.data.participants);
            return Err(Failure::new(Exit::Usage, detail));
        }
        self.policy.check()
    }

    fn build(
        &self,
        output: Output,
        spans: Option<SpanQueue>,
        unfit: &Unfit,
        once: Option<Once>,
    ) -> Outcome<Participant> {
        self.check()?;
        let device = device::open(self.device)?;
        let builder = self.with_trainer(Participant::builder(), device, &unfit.misfit, output)?;
        let journal = self.journal.open()?;
        let attributes: Attributes = self.attributes.iter().cloned().collect();
        let told = EventPrinter::default();
        // One that takes part in any task may find one that its table fits.
        let noticed = self.task.is_some().then(|| unfit.clone());
        let builder = self
            .connection
            .set(builder)?
            .name(self.name.clone().unwrap_or_else(|| default_name(self.index)))
            .labels(self.labels.iter().cloned().collect::<BTreeMap<_, _>>())
            .attributes(move || attributes.clone())
            .journal(journal)
            .seed(self.data.seed)
            .secure_aggregation(self.policy.security(self.tell_loss))
            .privacy(self.policy.privacy())
            .max_model_bytes(self.max_model_mb.saturating_mul(1_000_000))
            .accepted_graphs(self.accepted_graphs.iter().copied())
            .given(self.certificate.clone().zip(self.key.clone()), |builder, (certificate, key)| {
                builder.certificates(move || read_certificate(&certificate, &key))
            })
            .given(self.enrollment_token.as_deref(), Builder::enrollment_token)
            .given(self.task.as_deref(), Builder::task)
            .on_event(move |event| {
                spans.iter().for_each(|spans| trace(spans, event));
                meters::count(event);
                told.tell(output, event);
                noticed.iter().for_each(|unfit| unfit.notice(event));
                once.iter().for_each(|once| once.notice(event));
            });
        builder.build().map_err(|error| build_failure(&error))
    }

    fn with_trainer(&self, builder: Builder, device: Device, misfit: &Misfit, output: Output) -> Outcome<Builder> {
        if let Some(trainer) = self.program.open(output)? {
            return Ok(builder.trainer(trainer));
        }
        if let Some(table) = self.data.table()? {
            let trainer = FileTrainer::new(table.open()?, self.data.seed(), device, misfit.clone(), output)?;
            return Ok(builder.trainer(trainer));
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
