//! `tributary participant`: look at participants, revoke them, or run one.

use std::path::PathBuf;

use serde_json::json;
use wire::inspect::{ParticipantState, ParticipantView};
use wire::{ParticipantId, Timestamp, route};

use crate::arguments::{one_of, parse_label};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cells, Output, Table, day, when};
use crate::server::{IfMatchArgs, PartArgs, Server, ServerArgs, Tagged, none_of};

mod check;
mod connection;
mod events;
mod failures;
mod meters;
mod once;
mod policy;
mod program;
mod run;
mod traces;
mod withdraw;

pub(crate) use events::EventPrinter;
pub(crate) use failures::{build_failure, failure};
pub(crate) use policy::{JournalArgs, PolicyArgs};
pub(crate) use run::default_name;

/// Participant commands.
#[derive(clap::Subcommand)]
pub(crate) enum ParticipantCommand {
    /// List participants
    List {
        /// Only participants with this label; may be repeated to require all of them
        #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
        labels: Vec<(String, String)>,
        /// Only participants in this state
        #[arg(long, value_name = "STATE", value_parser = one_of(ParticipantState::ALL, ParticipantState::as_str))]
        state: Option<ParticipantState>,
        /// Only participants that enrolled at or after this time: RFC 3339 or milliseconds since 1970
        #[arg(long, value_name = "TIME", value_parser = coordinator::parse_time)]
        since: Option<Timestamp>,
        #[command(flatten)]
        part: PartArgs,
    },
    /// Show one participant
    Show(ParticipantArg),
    /// Revoke a participant's certificate
    Revoke {
        #[command(flatten)]
        named: ParticipantArg,
        #[command(flatten)]
        if_match: IfMatchArgs,
    },
    /// Revoke a participant, and write the coordinator's signed statement about the versions that contain its updates
    Withdraw {
        #[command(flatten)]
        named: ParticipantArg,
        /// File for the signed statement, which must not exist
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Withdraw your own participant: revoke it, and write the coordinator's signed statement about the versions that
    /// contain its updates
    ///
    /// The participant must be stopped. Its journal stays; delete it to delete personalized models.
    Leave(Box<withdraw::Leave>),
    /// Check a table of your own against a task: rows used, skipped and filled in, and every problem with its place
    ///
    /// Nothing is sent. The exit code is 0 if the task accepts the table, and otherwise 4.
    Check(check::Check),
    /// Run a participant in this process until the task ends or ctrl-c
    Run(Box<run::Run>),
}

/// A participant, by id or name.
#[derive(clap::Args)]
pub(crate) struct ParticipantArg {
    /// Id or name of the participant
    participant: String,
    #[command(flatten)]
    server: ServerArgs,
}

impl ParticipantCommand {
    /// Whether the command prints events.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Self::Run(_) | Self::Check(_))
    }

    pub(crate) async fn run(self, output: Output) -> Outcome {
        match self {
            Self::List { labels, state, since, part } => {
                let mut narrow: Vec<_> =
                    labels.iter().map(|(key, value)| ("label", format!("{key}={value}"))).collect();
                narrow.extend(state.map(|state| ("state", state.as_str().to_owned())));
                narrow.extend(since.map(|since| ("since", since.0.to_string())));
                let part = part.server.client()?.part::<ParticipantView>(route::PARTICIPANTS, &narrow, part).await?;
                let nothing = none_of(
                    &narrow,
                    "Nobody has enrolled. `tributary token create --enrollment` makes a token to enrol with.",
                );
                output.answer_list(&part, |participants, terminal| table(participants, terminal, nothing));
                Ok(())
            }
            Self::Show(named) => {
                let (server, id) = named.find().await?;
                show(output, &server.get_tagged(&route::fill(route::PARTICIPANT, &[&id])).await?);
                Ok(())
            }
            Self::Revoke { named, if_match } => {
                let (server, id) = named.find().await?;
                let path = route::fill(route::PARTICIPANT_REVOKE, &[&id]);
                show(output, &server.post_tagged(&path, &json!({}), if_match.condition()).await?);
                Ok(())
            }
            Self::Withdraw { named, out } => {
                withdraw::check(&out)?;
                let (server, id) = named.find().await?;
                withdraw::withdraw(&server, id, &out, output).await
            }
            Self::Leave(leave) => leave.run(output).await,
            Self::Check(check) => check.run(output).await,
            Self::Run(run) => run.run(output).await,
        }
    }
}

impl ParticipantArg {
    async fn find(&self) -> Outcome<(Server, ParticipantId)> {
        let server = self.server.client()?;
        let id = find(&server, &self.participant).await?;
        Ok((server, id))
    }
}

fn show(output: Output, Tagged { view, etag }: &Tagged<ParticipantView>) {
    output.answer_tagged(view, etag.as_deref(), || {
        let tag = etag.as_ref().map(|etag| format!("\nETag         {etag}")).unwrap_or_default();
        words(view) + &tag
    });
}

/// The id of a participant given by id or name.
pub(crate) async fn find(server: &Server, id_or_name: &str) -> Outcome<ParticipantId> {
    if let Ok(id) = id_or_name.parse() {
        return Ok(id);
    }
    let all: Vec<ParticipantView> = server.list(route::PARTICIPANTS, usize::MAX).await?;
    all.iter().find(|one| one.name == id_or_name).map(|one| one.id).ok_or_else(|| {
        Failure::new(
            Exit::NotFound,
            format!("no participant is called `{id_or_name}`; `tributary participant list` shows all of them"),
        )
    })
}

fn labels(participant: &ParticipantView) -> String {
    let words: Vec<_> = participant.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    words.join(", ")
}

fn table(participants: &[ParticipantView], terminal: Option<usize>, nothing: &str) -> String {
    let mut table = Table::new(&[
        ("ID", Cells::Key),
        ("NAME", Cells::Text),
        ("ROUNDS", Cells::Number),
        ("LAST SEEN", Cells::Text),
        ("CERTIFICATE", Cells::Text),
        ("LABELS", Cells::Words),
    ])
    .dispensable(&["ID"]);
    for one in participants {
        table.row(vec![
            one.id.to_string(),
            one.name.clone(),
            one.participations.to_string(),
            one.last_seen_at.map_or_else(|| "never".to_owned(), when),
            certificate(one, day),
            labels(one),
        ]);
    }
    table.render(terminal, nothing)
}

/// How long its certificate counts, or since when it does not, to the second ([`when`]) or the [`day`].
fn certificate(participant: &ParticipantView, time: fn(Timestamp) -> String) -> String {
    match participant.revoked_at {
        Some(at) => format!("revoked {}", time(at)),
        None => format!("until {}", time(participant.certificate_expires_at)),
    }
}

fn words(one: &ParticipantView) -> String {
    [
        format!("Participant  {} ({})", one.name, one.id),
        format!("Enrolled     {}", when(one.enrolled_at)),
        format!("Certificate  {}", certificate(one, when)),
        format!("Last seen    {}", one.last_seen_at.map_or_else(|| "never".to_owned(), when)),
        format!("Rounds       {}", one.participations),
        format!("Labels       {}", labels(one)),
    ]
    .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fits_eighty;

    #[test]
    fn a_list_of_participants_fits_eighty_columns() {
        let participant = serde_json::json!({
            "id": "01934c2e-7d3a-7b1c-9f00-0123456789ab", "name": "n".repeat(30), "enrolled_at": 0,
            "labels": { "region": "europe-west", "hospital": "university", "ward": "cardiology", "device": "x".repeat(30) },
            "certificate_expires_at": 1_700_000_000_000_i64, "revoked_at": 1_700_000_000_000_i64,
            "last_seen_at": 1_700_000_000_000_i64, "participations": 1000,
        });
        let all: [ParticipantView; 1] = [serde_json::from_value(participant).unwrap()];
        let (whole, narrow) = (table(&all, None, ""), table(&all, Some(80), ""));
        assert!(fits_eighty(&narrow) && !fits_eighty(&whole), "{narrow}");
        let kept = ["n".repeat(30), "x".repeat(30), "revoked 2023-11-14".to_owned(), "ward=cardiology".to_owned()];
        assert!(kept.iter().all(|words| narrow.contains(words)), "{narrow}");
    }
}
