//! `tributary audit`: lists, exports and checks the log of everything that changed.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use wire::audit::{AuditKey, AuditKeyView, EventView, Finding, Head, Line, Verified, Verifier};
use wire::event::{Actor, Event, EventKind, Fact};
use wire::{Timestamp, route};

use crate::arguments::one_of;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cells, Output, Table, number, when};
use crate::server::{PartArgs, Server, ServerArgs, given, listed, none_of};

mod chain;

/// Longest line of an export that is read.
const LINE_MAX_BYTES: u64 = 1 << 20;

/// What to do with the audit log.
#[derive(clap::Subcommand)]
pub(crate) enum AuditCommand {
    /// List entries, newest first
    List(List),
    /// Write the complete log and its signed head to a file
    Export {
        /// Output file; must not exist
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show the log's signing key and its newest signed head; store both elsewhere
    Head {
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Verify an exported log, or the record of a version and all records below it, offline
    Verify(Verify),
}

#[derive(clap::Args)]
pub(crate) struct List {
    /// Only entries about this task, by id or name
    #[arg(long)]
    task: Option<String>,
    /// Only these kinds of events, separated by commas
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    #[arg(value_parser = one_of(EventKind::ALL, EventKind::as_str))]
    kind: Vec<EventKind>,
    /// Only entries at or after this time: RFC 3339 or milliseconds since 1970
    #[arg(long, value_name = "TIME", value_parser = coordinator::parse_time)]
    since: Option<Timestamp>,
    /// Only entries before this time: RFC 3339 or milliseconds since 1970
    #[arg(long, value_name = "TIME", value_parser = coordinator::parse_time)]
    until: Option<Timestamp>,
    /// Only entries by this actor: name or id of an operator token, participant id, SHA-256 of an identity, or coordinator
    #[arg(long, value_name = "ACTOR")]
    actor: Option<String>,
    #[command(flatten)]
    part: PartArgs,
}

#[derive(clap::Args)]
pub(crate) struct Verify {
    /// A file written by `audit export`; with --recursive, by `model fetch --provenance`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Expected signing key, 64 hexadecimal digits [default: the key named in the file]
    #[arg(long, value_name = "HEX")]
    key: Option<AuditKey>,
    /// A stored head to compare with: output of `audit head --format json`, or the last line of an earlier export
    #[arg(long, value_name = "FILE")]
    head: Option<PathBuf>,
    /// Verify the record of a version, and the records of regions' versions that it names, on all levels
    #[arg(long, conflicts_with = "head")]
    recursive: bool,
    /// Record of a region's version, or a folder of such records; may be repeated
    #[arg(long, value_name = "PATH", requires = "recursive")]
    below: Vec<PathBuf>,
}

impl AuditCommand {
    pub(crate) async fn run(self, output: Output) -> Outcome {
        match self {
            Self::List(list) => list.run(output).await,
            Self::Export { file, server } => export(&server.client()?, &file, output).await,
            Self::Head { server } => {
                let view: AuditKeyView = server.client()?.get(route::AUDIT_KEY, &[]).await?;
                output.answer(&view, || told(&view));
                Ok(())
            }
            Self::Verify(verify) => verify.run(output),
        }
    }
}

fn told(AuditKeyView { key, head }: &AuditKeyView) -> String {
    match head {
        Some(head) => format!(
            "Key       {key}\nPosition  {}\nHash      {}\nSigned    {}",
            number(head.position),
            head.hash,
            when(head.at)
        ),
        None => format!("Key       {key}\nNothing was signed yet."),
    }
}

impl List {
    async fn run(self, output: Output) -> Outcome {
        let time = |at: Option<Timestamp>| at.map(|at| at.0.to_string());
        let narrow = given([
            ("task", self.task),
            ("kind", listed(&self.kind)),
            ("since", time(self.since)),
            ("until", time(self.until)),
            ("actor", self.actor),
        ]);
        let part = self.part.server.client()?.part::<EventView>(route::AUDIT, &narrow, self.part).await?;
        let nothing = none_of(&narrow, "Nothing happened yet.");
        output.answer_list(&part, |entries, terminal| table(entries, terminal, nothing));
        Ok(())
    }
}

fn table(entries: &[EventView], terminal: Option<usize>, nothing: &str) -> String {
    let mut table = Table::new(&[
        ("POSITION", Cells::Number),
        ("TIME", Cells::Text),
        ("EVENT", Cells::Text),
        ("BY", Cells::Text),
        ("ABOUT", Cells::Words),
    ]);
    for EventView { entry, .. } in entries {
        let event = &entry.event;
        table.row(vec![
            entry.position.to_string(),
            when(event.at),
            event.kind.to_string(),
            match &event.actor {
                Actor::Coordinator => "coordinator".to_owned(),
                Actor::Operator { name, .. } => name.clone(),
                Actor::Identity { issuer, subject_sha256 } => format!("{subject_sha256} of {issuer}"),
                Actor::Participant { participant } => participant.to_string(),
            },
            about(event),
        ]);
    }
    table.render(terminal, nothing)
}

fn about(event: &Event) -> String {
    let mut words = Vec::new();
    words.extend(event.task.map(|task| format!("task {task}")));
    words.extend(event.round.map(|round| format!("round {round}/{}", event.attempt.unwrap_or(1))));
    words.extend(event.body.iter().map(|(name, fact)| match fact {
        Fact::Flag(flag) => format!("{name} {flag}"),
        Fact::Number(number) => format!("{name} {number}"),
        Fact::Text(text) => format!("{name} {text}"),
    }));
    words.join(", ")
}

/// Output of an export.
#[derive(Serialize)]
struct Exported<'f> {
    path: &'f Path,
    /// Size of the file.
    bytes: u64,
}

async fn export(server: &Server, path: &Path, output: Output) -> Outcome {
    let cannot = || Failure::because(Exit::Io, format!("cannot write {}", path.display()));
    let mut response = server.stream(route::AUDIT_EXPORT).await?;
    let mut file = BufWriter::new(File::create_new(path).map_err(cannot())?);
    let mut bytes = 0;
    while let Some(chunk) = response.chunk().await.map_err(|error| {
        Failure::caused(Exit::Connection, format!("cut off after {bytes} bytes"), &error.without_url())
    })? {
        file.write_all(&chunk).map_err(cannot())?;
        bytes += chunk.len() as u64;
    }
    let file = file.into_inner().map_err(|error| cannot()(error.into_error()))?;
    file.sync_all().map_err(cannot())?;
    output.answer(&Exported { path, bytes }, || {
        format!("{} bytes in {}; `tributary audit verify` checks them.", number(bytes), path.display())
    });
    Ok(())
}

/// The verdict about a valid log.
#[derive(Serialize)]
struct Verdict {
    entries: u64,
    signed_at: Timestamp,
    key: AuditKey,
    /// Whether the expected signing key was given.
    key_was_given: bool,
}

impl Verify {
    fn run(self, output: Output) -> Outcome {
        if self.recursive {
            return chain::verify(&self.file, &self.below, self.key, output);
        }
        let head = self.head.as_deref().map(read_head).transpose()?;
        let Verified { entries, signed_at, key } = self.check(head)?;
        let verdict = Verdict { entries, signed_at, key, key_was_given: self.key.is_some() };
        output.answer(&verdict, || {
            let named =
                if self.key.is_some() { "" } else { "\nCompare the key with the one that you know: nobody else did." };
            format!("All {} entries are intact, signed {} by {key}.{named}", number(entries), when(signed_at))
        });
        Ok(())
    }

    fn check(&self, head: Option<Head>) -> Outcome<Verified> {
        let path = self.file.display();
        let damaged = |finding: Finding| Failure::new(Exit::Damaged, format!("{path}: {finding}"));
        let unreadable = || Failure::because(Exit::Data, format!("cannot read {path}"));
        let mut file = BufReader::new(File::open(&self.file).map_err(unreadable())?);
        let mut verifier = Verifier::new(self.key, head).map_err(damaged)?;
        let mut line = String::new();
        loop {
            line.clear();
            let read = std::io::Read::take(&mut file, LINE_MAX_BYTES).read_line(&mut line).map_err(unreadable())?;
            if read == 0 {
                return verifier.finish().map_err(damaged);
            }
            verifier.line(line.strip_suffix('\n').unwrap_or(&line)).map_err(damaged)?;
        }
    }
}

/// A head in one of the forms in which it can be kept.
fn read_head(path: &Path) -> Outcome<Head> {
    /// Output of `audit head --format json`.
    #[derive(serde::Deserialize)]
    struct Answer {
        data: AuditKeyView,
    }
    let cannot = || Failure::because(Exit::Data, format!("cannot read {}", path.display()));
    let text = std::fs::read_to_string(path).map_err(cannot())?;
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    if let Ok(Line::Head(head)) = serde_json::from_str(last) {
        return Ok(head);
    }
    let answer = serde_json::from_str::<Answer>(last).ok().and_then(|answer| answer.data.head);
    answer
        .or_else(|| serde_json::from_str(&text).ok())
        .ok_or_else(|| Failure::new(Exit::Data, format!("{} is not a signed head of an audit log", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fits_eighty;

    #[test]
    fn a_list_of_entries_fits_eighty_columns() {
        let id = "01934c2e-7d3a-7b1c-9f00-0123456789ab";
        let entry = serde_json::json!({
            "time": "", "position": 1_000_000, "hash": "0".repeat(64), "at": 1_700_000_000_000_i64, "kind": "participant_excused",
            "task": id, "round": 12, "attempt": 1, "actor": { "by": "participant", "participant": id },
        });
        let entries: [EventView; 1] = [serde_json::from_value(entry).unwrap()];
        let (whole, narrow) = (table(&entries, None, ""), table(&entries, Some(80), ""));
        assert!(fits_eighty(&narrow) && !fits_eighty(&whole), "{narrow}");
        let about = format!("\n    task {id}, round 12/1\n");
        assert!(narrow.contains(&about) && narrow.contains("BY shortened"), "{narrow}");
    }
}
