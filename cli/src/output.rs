//! Output for people and programs: tables and progress on a terminal, plain lines in a file, one JSON envelope with
//! `--format json`.
//!
//! All output goes through [`Output`], the only writer to stdout. Texts are escaped here, once ([`escape`]). A command
//! goes on when stdout cannot be written, but then fails: see [`written`].

use std::fs::OpenOptions;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use operator_client::Transfers;
use serde::Serialize;
use wire::inspect::Page;

use crate::failure::{Exit, Failure, Outcome};

mod escape;
mod figures;
mod growing;
mod live;
pub(crate) mod svg;
mod table;
mod width;
mod wrap;

pub(crate) use escape::markup;
pub(crate) use figures::{bytes, day, duration, figure, number, when};
pub(crate) use growing::GrowingTable;
pub(crate) use live::{LOSS, LiveTable, headings};
#[cfg(test)]
pub(crate) use table::fits_eighty;
pub(crate) use table::{Cells, Table};

/// The version of the envelope and of its content; changes only add fields.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Text for people.
    Text,
    /// For programs: one envelope, or one event per line for streaming commands.
    Json,
}

/// How a command reports to programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reporting {
    /// One envelope at the end.
    Envelope,
    /// An event per line.
    Events,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    format: Format,
    terminal: bool,
    /// Columns of text that does not go to a terminal, if `COLUMNS` gives them.
    columns: Option<usize>,
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    schema_version: u32,
    status: &'static str,
    data: &'a T,
    /// Of a part of a list: where the next part begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<&'a str>,
    /// Of a view: its entity tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<&'a str>,
}

impl<'a, T> Envelope<'a, T> {
    fn new(status: &'static str, data: &'a T) -> Self {
        Self { schema_version: SCHEMA_VERSION, status, data, next_cursor: None, etag: None }
    }
}

#[derive(Serialize)]
struct Event<'a, T> {
    event: &'a str,
    #[serde(flatten)]
    data: &'a T,
}

/// Checks that a file can be written, before the work whose result it is for. A file that was not there is not left behind.
///
/// # Errors
/// Why it cannot be written.
pub(crate) fn check_writable(path: &Path) -> Outcome {
    let is_new = !path.exists();
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .map_err(Failure::because(Exit::Io, format!("cannot write {}", path.display())))?;
    if is_new {
        // Ignores the error, since the file can be written again.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// A bar that disappears when dropped.
struct Cleared(ProgressBar);

impl Drop for Cleared {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

impl Output {
    /// Writes to the process's stdout and stderr.
    pub(crate) fn new(format: Format) -> Self {
        let columns = std::env::vars_os().find(|(name, _)| name == "COLUMNS");
        let columns = columns.and_then(|(_, columns)| columns.to_str()?.parse().ok());
        Self { format, terminal: io::stdout().is_terminal(), columns }
    }

    /// Columns of the terminal; where the output goes elsewhere, those of `COLUMNS`, or `None`.
    pub(crate) fn width(self) -> Option<usize> {
        let terminal = self.is_live().then(|| console::Term::stdout().size_checked()).flatten();
        terminal.map(|(_, columns)| columns.into()).or(self.columns)
    }

    /// Escapes words, and wraps them at the width if there is one.
    fn fitted(self, words: &str) -> String {
        let words = escape::lines(words);
        self.width().map_or_else(|| words.clone().into_owned(), |columns| wrap::wrap(&words, columns))
    }

    /// Whether the output is a terminal, so that lines may be redrawn.
    pub(crate) fn is_live(self) -> bool {
        self.terminal && self.format == Format::Text
    }

    /// A spinner with these words, on a terminal; it turns while something is awaited.
    pub(crate) fn spinner(self, words: String) -> ProgressBar {
        let bar = if self.is_live() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        bar.enable_steady_tick(Duration::from_millis(100));
        bar.with_message(escape::line(&words).into_owned())
    }

    /// Shows transfers by bars on a terminal, each until it is complete.
    pub(crate) fn transfers(self) -> Transfers {
        Arc::new(move |total| {
            let bar = Cleared(self.progress(total));
            Box::new(move |received| bar.0.set_position(received))
        })
    }

    /// A bar for a transfer of `total` bytes, on a terminal.
    pub(crate) fn progress(self, total: u64) -> ProgressBar {
        if !self.is_live() {
            return ProgressBar::hidden();
        }
        let style =
            ProgressStyle::with_template("{bar:40} {decimal_bytes} of {decimal_total_bytes}, {decimal_bytes_per_sec}");
        ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    }

    /// Prints the command's result: an envelope, or text for people.
    pub(crate) fn answer<T: Serialize>(self, data: &T, words: impl FnOnce() -> String) {
        match self.format {
            Format::Json => print(&json(&Envelope::new("ok", data))),
            Format::Text => print(self.fitted(&words()).trim_end_matches('\n')),
        }
    }

    /// The same for a document, such as a script or a file, whose lines are not wrapped.
    pub(crate) fn document<T: Serialize>(self, data: &T, text: impl FnOnce() -> String) {
        match self.format {
            Format::Json => print(&json(&Envelope::new("ok", data))),
            Format::Text => print(escape::json(&text()).trim_end_matches('\n')),
        }
    }

    /// Prints a view; its entity tag becomes a field of the envelope.
    pub(crate) fn answer_tagged<T: Serialize>(self, data: &T, etag: Option<&str>, words: impl FnOnce() -> String) {
        match self.format {
            Format::Json => print(&json(&Envelope { etag, ..Envelope::new("ok", data) })),
            Format::Text => print(self.fitted(&words()).trim_end_matches('\n')),
        }
    }

    /// Prints a part of a list: its items, for programs with the cursor of the next part, or a table as wide as the terminal.
    pub(crate) fn answer_list<T: Serialize>(self, part: &Page<T>, table: impl FnOnce(&[T], Option<usize>) -> String) {
        let Page { items, next_cursor } = part;
        match self.format {
            Format::Json => {
                print(&json(&Envelope { next_cursor: next_cursor.as_deref(), ..Envelope::new("ok", items) }));
            }
            Format::Text => {
                print(table(items, self.width()).trim_end_matches('\n'));
                if let Some(cursor) = next_cursor {
                    self.note(format!(
                        "There are more: --limit shows more at once, --cursor {cursor} goes on from here."
                    ));
                }
            }
        }
    }

    /// Prints a line for people only.
    pub(crate) fn line(self, words: impl AsRef<str>) {
        if self.format == Format::Text {
            print(&self.fitted(words.as_ref()));
        }
    }

    /// Prints a command for people to copy, without wrapping it.
    pub(crate) fn command(self, command: impl AsRef<str>) {
        if self.format == Format::Text {
            print(&format!("  {}", escape::line(command.as_ref())));
        }
    }

    /// Prints an event for programs only.
    pub(crate) fn event<T: Serialize>(self, event: &str, data: &T) {
        if self.format == Format::Json {
            print(&json(&Event { event, data }));
        }
    }

    /// Prints an event or a line that must not be lost; fails if it cannot be written.
    pub(crate) fn must_tell<T: Serialize>(self, event: &str, data: &T, words: impl AsRef<str>) -> io::Result<()> {
        let line = match self.format {
            Format::Json => json(&Event { event, data }),
            Format::Text => words.as_ref().to_owned(),
        };
        Self::must_print(&line)
    }

    /// Like [`Self::answer`], for a result that must not be lost; fails if it cannot be written.
    pub(crate) fn must_answer<T: Serialize>(self, data: &T, words: impl FnOnce() -> String) -> io::Result<()> {
        let answer = match self.format {
            Format::Json => json(&Envelope::new("ok", data)),
            Format::Text => words(),
        };
        Self::must_print(answer.trim_end_matches('\n'))
    }

    /// Writes all lines at once, so that a reader that ends after the first one (`head -n 1`) does not make the second one fail.
    fn must_print(lines: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(format!("{}\n", escape::json(lines)).as_bytes())?;
        out.flush()
    }

    /// Prints a note for people that is not part of the result.
    pub(crate) fn note(self, words: impl AsRef<str>) {
        let terminal = io::stderr().is_terminal().then(|| console::Term::stderr().size_checked()).flatten();
        let columns = terminal.map(|(_, columns)| columns.into()).or(self.columns);
        let words = escape::lines(words.as_ref());
        let words = columns.map_or_else(|| words.clone().into_owned(), |columns| wrap::wrap(&words, columns));
        let _ = writeln!(io::stderr().lock(), "{words}");
    }

    /// Prints a failure: always to stderr, and for programs also as an envelope (or an event, in a stream).
    pub(crate) fn failure(self, failure: &Failure, reporting: Reporting) {
        let mut words = format!("error: {}", failure.title);
        if !failure.detail.is_empty() {
            words.push_str(&format!("\n  {}", failure.detail.replace('\n', "\n  ")));
        }
        for error in &failure.more.errors {
            words.push_str(&format!("\n  {}: {}", error.field, error.detail.replace('\n', "\n  ")));
        }
        if let Some(instance) = &failure.more.instance {
            words.push_str(&format!("\n  in the coordinator's log: {instance}"));
        }
        words.push_str(&format!("\n  (exit code {}, see docs/EXIT_CODES.md)", failure.exit as u8));
        self.note(words);
        self.failure_for_programs(failure, reporting);
    }

    /// Prints a failure for programs only.
    pub(crate) fn failure_for_programs(self, failure: &Failure, reporting: Reporting) {
        match reporting {
            Reporting::Events => self.event("failed", failure),
            Reporting::Envelope if self.format == Format::Json => print(&json(&Envelope::new("error", failure))),
            Reporting::Envelope => {}
        }
    }
}

fn json<T: Serialize>(value: &T) -> String {
    let text = serde_json::to_string(value);
    let text = text.unwrap_or_else(|error| format!(r#"{{"status":"error","data":"{error}"}}"#));
    escape::json(&text).into_owned()
}

/// Why stdout could not be written, the first time.
static LOST: OnceLock<(io::ErrorKind, String)> = OnceLock::new();

fn print(line: &str) {
    if let Err(error) = writeln!(io::stdout().lock(), "{line}") {
        note_lost(&error);
    }
}

/// Notes that something could not be written to stdout.
fn note_lost(error: &io::Error) {
    // The first reason is as good as the next.
    let _ = LOST.set((error.kind(), error.to_string()));
}

/// Checks that everything was written to stdout. A command that prints events succeeds even if the reader has closed its pipe.
///
/// # Errors
/// [`Exit::Io`] if output was lost.
pub(crate) fn written(reporting: Reporting) -> Outcome {
    match LOST.get() {
        Some((io::ErrorKind::BrokenPipe, _)) if reporting == Reporting::Events => Ok(()),
        Some((_, why)) => {
            let detail = format!(
                "stdout cannot be written: {why}; what the command did is done, and its output is not complete"
            );
            Err(Failure::new(Exit::Io, detail))
        }
        None => Ok(()),
    }
}
