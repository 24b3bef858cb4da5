//! What people and programs see: tables and progress on a terminal, plain lines in a file, one JSON envelope with
//! `--format json`.
//!
//! Everything a command says goes through [`Output`]; nothing else writes to stdout. A reader that went away (`| head`)
//! is no error.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use crate::failure::Failure;

pub(crate) mod svg;
mod table;

pub(crate) use table::{Align, Table, bytes, duration, figure, number, when};

/// The version of the envelope and of what is in it; fields are added, never renamed.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// How a command answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Text for people.
    Text,
    /// For programs: one envelope, or one event a line where a command runs on.
    Json,
}

/// Where a command's words go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    format: Format,
    terminal: bool,
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    schema_version: u32,
    status: &'static str,
    data: &'a T,
}

#[derive(Serialize)]
struct Event<'a, T> {
    event: &'a str,
    #[serde(flatten)]
    data: &'a T,
}

impl Output {
    /// Writes to the process's stdout and stderr.
    pub(crate) fn new(format: Format) -> Self {
        Self { format, terminal: io::stdout().is_terminal() }
    }

    /// Whether a person looks at a terminal, so that lines may be drawn anew.
    pub(crate) fn is_live(self) -> bool {
        self.terminal && self.format == Format::Text
    }

    /// The command's answer: an envelope, or the words for people.
    pub(crate) fn answer<T: Serialize>(self, data: &T, words: impl FnOnce() -> String) {
        match self.format {
            Format::Json => print(&json(&Envelope { schema_version: SCHEMA_VERSION, status: "ok", data })),
            Format::Text => print(words().trim_end_matches('\n')),
        }
    }

    /// One of several lines for people; programs do not see it.
    pub(crate) fn line(self, words: impl AsRef<str>) {
        if self.format == Format::Text {
            print(words.as_ref());
        }
    }

    /// One event of a command that runs on, for programs; people do not see it.
    pub(crate) fn event<T: Serialize>(self, event: &str, data: &T) {
        if self.format == Format::Json {
            print(&json(&Event { event, data }));
        }
    }

    /// An event for programs, a line for people, that must not get lost: says so if it cannot be written.
    pub(crate) fn must_tell<T: Serialize>(self, event: &str, data: &T, words: impl AsRef<str>) -> io::Result<()> {
        let line = match self.format {
            Format::Json => json(&Event { event, data }),
            Format::Text => words.as_ref().to_owned(),
        };
        Self::must_print(&line)
    }

    /// The command's answer, like [`Self::answer`], that must not get lost: says so if it cannot be written.
    pub(crate) fn must_answer<T: Serialize>(self, data: &T, words: impl FnOnce() -> String) -> io::Result<()> {
        let answer = match self.format {
            Format::Json => json(&Envelope { schema_version: SCHEMA_VERSION, status: "ok", data }),
            Format::Text => words(),
        };
        Self::must_print(answer.trim_end_matches('\n'))
    }

    fn must_print(line: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()
    }

    /// Something a person should know that is no part of the answer.
    pub(crate) fn note(self, words: impl AsRef<str>) {
        let _ = writeln!(io::stderr().lock(), "{}", words.as_ref());
    }

    /// Why the command ends badly: always to stderr, and for programs also as an envelope (or an event, in a stream).
    pub(crate) fn failure(self, failure: &Failure, stream: bool) {
        let mut words = format!("error: {}", failure.title);
        if !failure.detail.is_empty() {
            words.push_str(&format!("\n  {}", failure.detail.replace('\n', "\n  ")));
        }
        for error in &failure.more.errors {
            words.push_str(&format!("\n  {}: {}", error.field, error.detail));
        }
        if let Some(instance) = &failure.more.instance {
            words.push_str(&format!("\n  in the coordinator's log: {instance}"));
        }
        words.push_str(&format!("\n  (exit code {}, see docs/EXIT_CODES.md)", failure.exit as u8));
        self.note(words);
        self.failure_for_programs(failure, stream);
    }

    /// The same for programs only.
    pub(crate) fn failure_for_programs(self, failure: &Failure, stream: bool) {
        if stream {
            self.event("failed", failure);
        } else if self.format == Format::Json {
            print(&json(&Envelope { schema_version: SCHEMA_VERSION, status: "error", data: failure }));
        }
    }
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| format!(r#"{{"status":"error","data":"{error}"}}"#))
}

fn print(line: &str) {
    // A closed pipe means that nobody wants to read on.
    let _ = writeln!(io::stdout().lock(), "{line}");
}
