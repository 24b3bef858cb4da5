//! `tributary participant`: look at participants, revoke them, or run one.

use wire::inspect::ParticipantView;
use wire::{ParticipantId, route};

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Align, Output, Table, when};
use crate::server::{Server, ServerArgs};

mod events;
mod meters;
mod program;
mod run;
mod traces;

pub(crate) use run::{build_failure, default_name, failure};

/// What to do with participants.
#[derive(clap::Subcommand)]
pub(crate) enum ParticipantCommand {
    /// List participants
    List {
        /// Maximum number of entries
        #[arg(long, default_value_t = 1000)]
        limit: usize,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show one participant
    Show(ParticipantArg),
    /// Refuse a participant's certificate from now on
    Revoke(ParticipantArg),
    /// Run a participant in this process until the task is over or ctrl-c
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
    /// Whether it prints events.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Self::Run(_))
    }

    pub(crate) async fn run(self, output: Output) -> Outcome {
        match self {
            Self::List { limit, server } => {
                let all: Vec<ParticipantView> = Server::new(&server)?.list(route::PARTICIPANTS, limit).await?;
                output.answer(&all, || table(&all));
                Ok(())
            }
            Self::Show(named) => named.act(None, output).await,
            Self::Revoke(named) => named.act(Some(route::PARTICIPANT_REVOKE), output).await,
            Self::Run(run) => run.run(output).await,
        }
    }
}

impl ParticipantArg {
    async fn act(self, action: Option<&str>, output: Output) -> Outcome {
        let server = Server::new(&self.server)?;
        let id = find(&server, &self.participant).await?;
        if let Some(template) = action {
            server.act(&route::fill(template, &[&id])).await?;
        }
        let participant: ParticipantView = server.get(&route::fill(route::PARTICIPANT, &[&id]), &[]).await?;
        output.answer(&participant, || words(&participant));
        Ok(())
    }
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
            format!("nobody is called `{id_or_name}`; `tributary participant list` shows them"),
        )
    })
}

fn labels(participant: &ParticipantView) -> String {
    let words: Vec<_> = participant.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    words.join(", ")
}

fn table(participants: &[ParticipantView]) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("NAME", Align::Left),
        ("ROUNDS", Align::Right),
        ("LAST SEEN", Align::Left),
        ("CERTIFICATE", Align::Left),
        ("LABELS", Align::Left),
    ]);
    for one in participants {
        table.row(vec![
            one.id.to_string(),
            one.name.clone(),
            one.participations.to_string(),
            one.last_seen_at.map_or_else(|| "never".to_owned(), when),
            certificate(one),
            labels(one),
        ]);
    }
    table.render("Nobody has enrolled. `tributary token create --enrollment` makes a token to enrol with.")
}

fn certificate(participant: &ParticipantView) -> String {
    match participant.revoked_at {
        Some(at) => format!("revoked {}", when(at)),
        None => format!("until {}", when(participant.certificate_expires_at)),
    }
}

fn words(one: &ParticipantView) -> String {
    [
        format!("Participant  {} ({})", one.name, one.id),
        format!("Enrolled     {}", when(one.enrolled_at)),
        format!("Certificate  {}", certificate(one)),
        format!("Last seen    {}", one.last_seen_at.map_or_else(|| "never".to_owned(), when)),
        format!("Rounds       {}", one.participations),
        format!("Labels       {}", labels(one)),
    ]
    .join("\n")
}
