//! `tributary region`: takes part in a task of another coordinator with a whole region. Its training is a task of the regional
//! coordinator that starts from the received model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client_sdk::participant::{Builder, Outcome as End, Participant};
use operator_client::Server;
use tokio::runtime::Handle;
use url::Url;
use wire::audit::AuditKey;

use self::regional_tasks::RegionalTasks;
use self::trainer::RegionTrainer;
use crate::arguments::{parse_label, parse_token};
use crate::command::participant::{EventPrinter, JournalArgs, PolicyArgs, build_failure, failure};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::server::proxy::{self, ProxyArgs};
use crate::server::read_ca;
use crate::signal;
use crate::task_input::SetArgs;

mod answer;
mod regional_tasks;
mod spec;
mod trainer;

pub(crate) use spec::check;

/// Arguments of `tributary region`.
#[derive(clap::Args)]
pub(crate) struct Region {
    /// URL of the upper coordinator, in whose task the region takes part
    #[arg(long, value_name = "URL")]
    upstream: Url,
    /// PEM file of the CA that signed the upper coordinator's certificate and certifies its participants
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// One-time enrolment token of the upper coordinator; not needed with an enrolled journal
    #[arg(
        long,
        env = "TRIBUTARY_ENROLLMENT_TOKEN",
        value_name = "TOKEN",
        value_parser = parse_token,
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    token: Option<String>,
    /// File with that token
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// Name of the upper coordinator's task; without it the region takes part in every task there
    #[arg(long)]
    task: Option<String>,
    /// Name of the region as a participant, unless the token sets one; regions that share a regional coordinator need different names
    #[arg(long, default_value = "region")]
    name: String,
    /// Label of the region, unless the token sets it; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
    /// PEM file of the CA that certifies the upper coordinator's participants, if it differs from --ca
    #[arg(long, value_name = "FILE")]
    members_ca: Option<PathBuf>,
    /// Key that must sign the upper coordinator's model versions; may be repeated [default: the first key seen, pinned]
    #[arg(long = "coordinator-key", value_name = "HEX")]
    coordinator_keys: Vec<AuditKey>,
    #[command(flatten)]
    proxy: ProxyArgs,
    #[command(flatten)]
    regional: RegionalArgs,
    #[command(flatten)]
    journal: JournalArgs,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Maximum size of a model, model file, and encoded update, in megabytes each
    #[arg(long, value_name = "MB", default_value_t = 256)]
    max_model_mb: u64,
    /// Seed of the update's rounding, for repeatable experiments [default: random]
    #[arg(long)]
    seed: Option<u64>,
}

/// The regional coordinator, and its tasks.
#[derive(clap::Args)]
struct RegionalArgs {
    /// URL of the regional coordinator
    #[arg(long, env = "TRIBUTARY_SERVER", value_name = "URL", help_heading = "Regional coordinator")]
    server: Url,
    /// PEM file of the CA that signed the regional coordinator's certificate [default: the system's CAs]
    #[arg(long, env = "TRIBUTARY_CA", value_name = "FILE", help_heading = "Regional coordinator")]
    server_ca: Option<PathBuf>,
    /// Operator token of the regional coordinator
    #[arg(
        long,
        env = "TRIBUTARY_TOKEN",
        value_name = "TOKEN",
        value_parser = parse_token,
        hide_env_values = true,
        allow_hyphen_values = true,
        required_unless_present = "operator_token_file",
        help_heading = "Regional coordinator"
    )]
    operator_token: Option<String>,
    /// File with that token
    #[arg(long, value_name = "FILE", conflicts_with = "operator_token", help_heading = "Regional coordinator")]
    operator_token_file: Option<PathBuf>,
    /// Task file of the regional tasks, without an initial model; without a model, they have the upper task's
    #[arg(long, value_name = "FILE", help_heading = "Regional coordinator")]
    through: String,
    #[command(flatten)]
    set: SetArgs,
    /// Number of regional rounds for each round of the upper task
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Regional coordinator")]
    rounds: u32,
    /// Answer this many seconds before the upper round's deadline, with the regional rounds completed by then
    #[arg(long, value_name = "SECONDS", default_value_t = 15, help_heading = "Regional coordinator")]
    reserve: u64,
    /// Number of examples to report until a regional round reports it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Regional coordinator")]
    examples: u64,
}

impl Region {
    pub(crate) async fn run(self, output: Output) -> Outcome {
        self.policy.check()?;
        let tasks = Arc::new(self.regional_tasks(output)?);
        tasks.check().await?;
        let mut participant = self.participant(Arc::clone(&tasks), output)?;
        match participant.run(signal::shutdown()).await {
            Ok(End::TaskOver { task }) => {
                if let Err(failure) = tasks.cancel_others(None).await {
                    output.note(format!("the last regional task may still run: {}", failure.detail));
                }
                output.event("task_over", &serde_json::json!({ "task": task }));
                output.line(format!("task {task} is over"));
                Ok(())
            }
            Ok(End::Stopped) => {
                output.event("stopped", &serde_json::json!({}));
                output.line("stopped; started again with the same journal, it goes on from here");
                Ok(())
            }
            Err(error) => Err(failure(&error)),
        }
    }

    fn regional_tasks(&self, output: Output) -> Outcome<RegionalTasks> {
        let RegionalArgs { server, server_ca, operator_token, operator_token_file, through, set, rounds, .. } =
            &self.regional;
        let ca = server_ca.as_deref().map(read_ca).transpose()?;
        let token = token(operator_token.as_deref(), operator_token_file.as_deref())?.unwrap_or_default();
        let server = Server::with_ca(server.clone(), ca.as_deref(), token, &proxy::setting(None)?)?;
        let spec = spec::read(through, set, *rounds)?;
        let origin = format!("{}\0{}\0{}", self.upstream, self.task.as_deref().unwrap_or_default(), self.name);
        Ok(RegionalTasks::new(server, spec, &origin, output))
    }

    fn participant(&self, tasks: Arc<RegionalTasks>, output: Output) -> Outcome<Participant> {
        let text = |pem: Vec<u8>| String::from_utf8_lossy(&pem).into_owned();
        let members_ca = self.members_ca.as_deref().map(read_ca).transpose()?;
        let token = token(self.token.as_deref(), self.token_file.as_deref())?;
        let reserve = Duration::from_secs(self.regional.reserve);
        let trainer = RegionTrainer::new(tasks, Handle::current(), reserve, self.regional.examples);
        let told = EventPrinter::default();
        let builder = Participant::builder()
            .server(self.upstream.as_str())
            .ca_pem(text(read_ca(&self.ca)?))
            .proxy(self.proxy.setting()?)
            .name(self.name.clone())
            .labels(self.labels.iter().cloned().collect::<BTreeMap<_, _>>())
            .journal(self.journal.open()?)
            .seed(self.seed)
            .secure_aggregation(self.policy.security(false))
            .privacy(self.policy.privacy())
            .coordinator_keys(self.coordinator_keys.iter().copied())
            .max_model_bytes(self.max_model_mb.saturating_mul(1_000_000))
            .trainer(trainer)
            .given(self.task.as_deref(), Builder::task)
            .given(members_ca.map(text), Builder::members_ca_pem)
            .given(token.as_deref(), Builder::enrollment_token)
            .on_event(move |event| told.tell(output, event));
        builder.build().map_err(|error| build_failure(&error))
    }
}

/// A token, or the one in a file.
fn token(text: Option<&str>, file: Option<&Path>) -> Outcome<Option<String>> {
    let Some(path) = file else { return Ok(text.map(str::to_owned)) };
    let read = std::fs::read_to_string(path);
    let read =
        read.map_err(Failure::because(Exit::Configuration, format!("cannot read the token in {}", path.display())))?;
    match read.trim() {
        "" => Err(Failure::new(Exit::Configuration, format!("{} is empty: it should contain a token", path.display()))),
        token => Ok(Some(token.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_text_or_the_content_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert_eq!(token(Some("abc"), None).unwrap().as_deref(), Some("abc"));
        assert_eq!(token(None, None).unwrap(), None);
        assert!(token(None, Some(&path)).unwrap_err().detail.contains("cannot read the token"));
        std::fs::write(&path, " \n").unwrap();
        assert!(token(None, Some(&path)).unwrap_err().detail.contains("is empty"));
        std::fs::write(&path, "abc\n").unwrap();
        assert_eq!(token(None, Some(&path)).unwrap().as_deref(), Some("abc"));
    }
}
