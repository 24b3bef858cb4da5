//! `tributary participant withdraw`, by an operator, and `leave`, by the participant: the coordinator revokes the participant, and signs a
//! statement about its contributions.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use client_sdk::Participant;
use client_sdk::participant::WithdrawalError;
use serde::Serialize;
use serde_json::json;
use wire::audit::AuditKey;
use wire::contributions::{Contributions, SignedContributions, TaskContributions};
use wire::inspect::ParticipantView;
use wire::{ParticipantId, route};

use super::connection::ConnectionArgs;
use super::failures::build_failure;
use super::policy::JournalArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, check_writable, figure};
use crate::server::{Server, Tagged};

/// Maximum number of rounds that are listed one by one.
const ROUNDS_MAX: usize = 12;

/// Arguments of `tributary participant leave`.
#[derive(clap::Args)]
pub(crate) struct Leave {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    journal: JournalArgs,
    /// File for the signed statement, which must not exist
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Who withdraws the participant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Operator,
    Itself,
}

/// Output of the command.
#[derive(Serialize)]
struct Withdrawn<'f> {
    path: &'f Path,
    participant: ParticipantId,
    key: AuditKey,
    tasks: Vec<TaskContributions>,
}

/// Checks that the statement can be written, before anything is revoked.
///
/// # Errors
/// [`Exit::Io`].
pub(super) fn check(path: &Path) -> Outcome {
    if path.exists() {
        return Err(Failure::new(Exit::Io, format!("{} exists: choose another file", path.display())));
    }
    check_writable(path)
}

/// Revokes the participant, and writes the statement.
///
/// # Errors
/// Those of the connection, and of the file.
pub(super) async fn withdraw(server: &Server, id: ParticipantId, path: &Path, output: Output) -> Outcome {
    let revoke = route::fill(route::PARTICIPANT_REVOKE, &[&id]);
    // First: a round that completes after the statement has no update of it, unless that was accepted before.
    let _: Tagged<ParticipantView> = server.post_tagged(&revoke, &json!({}), None).await?;
    let contributions = route::fill(route::PARTICIPANT_CONTRIBUTIONS, &[&id]);
    let signed: SignedContributions = server.get(&contributions, &[]).await?;
    write(&signed, path, By::Operator, output)
}

impl Leave {
    pub(super) async fn run(self, output: Output) -> Outcome {
        check(&self.out)?;
        let builder = self.connection.set(Participant::builder())?.journal(self.journal.open()?);
        let signed = builder.withdraw().await.map_err(|error| match &error {
            WithdrawalError::Build(error) => build_failure(error),
            WithdrawalError::Unreachable(_) => Failure::new(Exit::Connection, error),
            WithdrawalError::Statement(_) => Failure::new(Exit::Integrity, error),
            _ => Failure::new(Exit::Internal, error),
        })?;
        write(&signed, &self.out, By::Itself, output)
    }
}

/// Writes the statement to the file, and its content to the output.
fn write(signed: &SignedContributions, path: &Path, by: By, output: Output) -> Outcome {
    let statement = signed.open().map_err(|error| Failure::new(Exit::Integrity, error))?;
    let cannot = || Failure::because(Exit::Io, format!("cannot write {}", path.display()));
    // Text alone: this cannot fail.
    let text = serde_json::to_string(signed).unwrap_or_default();
    let mut file = File::create_new(path).map_err(cannot())?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(cannot())?;
    let Contributions { coordinator: key, participant, tasks, .. } = statement;
    let withdrawn = Withdrawn { path, participant, key, tasks };
    output.answer(&withdrawn, || words(&withdrawn, by));
    Ok(())
}

fn words(withdrawn: &Withdrawn<'_>, by: By) -> String {
    let Withdrawn { path, participant, key, tasks } = withdrawn;
    let path = path.display();
    let mut text = format!("Participant {participant} is revoked. {path} states its contributions, signed by {key}.");
    if tasks.is_empty() {
        text.push_str("\nNo published version contains an update of it, and no open round has accepted one.");
    }
    for task in tasks {
        let TaskContributions { name, version_before, newest_version, .. } = task;
        let _ = match task.rounds.is_empty() {
            true => write!(text, "\n\nTask {name}: no published version contains an update of it."),
            false => {
                let (rounds, first) = (rounds(task), version_before.saturating_add(1));
                write!(
                    text,
                    "\n\nTask {name}: {rounds}; versions {first} to {newest_version} may depend on its updates."
                )
            }
        };
        for open in &task.open_rounds {
            let _ = write!(
                text,
                "\nRound {} is open and has accepted an update of it. The version that it publishes may depend on it",
                open.round
            );
            text.push_str(&match by {
                By::Operator => format!(", unless you end the\ntask first: `tributary task cancel {name}`."),
                By::Itself => ".".to_owned(),
            });
        }
        if let Some(spent) = &task.privacy {
            let (known, published) = (figure(spent.epsilon.cohort_known), figure(spent.epsilon.published));
            let delta = spent.delta.map(|delta| format!(" at delta {delta:e}")).unwrap_or_default();
            let _ = write!(
                text,
                "\nNoise bounds what they reveal: epsilon {known}{delta} for readers who know the participants of each round, {published} for others."
            );
        }
        let _ = match task.version_before_is_kept {
            // The operators' part.
            _ if by == By::Itself => Ok(()),
            true => write!(
                text,
                "\nTo go on without it: `tributary model restore {name} {version_before}`, or a new task with\n\
                 `model.initial = {{ task = \"{name}\", version = {version_before} }}`."
            ),
            false => write!(
                text,
                "\nThe file of version {version_before}, the last one without it, was removed (model.retain). To go on without it, create a\n\
                 task that starts anew, or from a copy of that version."
            ),
        };
    }
    text
}

/// The rounds with an update of the participant.
fn rounds(task: &TaskContributions) -> String {
    let numbers: Vec<_> = task.rounds.iter().take(ROUNDS_MAX).map(|round| round.round.to_string()).collect();
    let more = task.rounds.len().saturating_sub(ROUNDS_MAX);
    let listed = numbers.join(", ");
    match (task.rounds.len(), more) {
        (1, _) => format!("round {listed} has an update of it"),
        (_, 0) => format!("rounds {listed} have an update of it"),
        _ => format!("rounds {listed} and {more} more have an update of it"),
    }
}
