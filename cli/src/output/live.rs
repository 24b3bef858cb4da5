//! A table whose rows appear one by one, above a live line on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::Output;
use super::growing::{Column, GrowingTable};

/// Heading of the training loss.
pub(crate) const LOSS: &str = "TRAIN LOSS";

/// The headings of a table of rounds. In private tasks epsilon replaces the loss, which stays on the devices.
pub(crate) fn headings<const N: usize>(columns: &[Column; N], is_private: bool) -> [String; N] {
    columns.map(|(heading, ..)| if is_private && heading == LOSS { "EPSILON" } else { heading }.to_owned())
}

/// A growing table and its live line.
pub(crate) struct LiveTable {
    output: Output,
    live: ProgressBar,
    table: GrowingTable,
}

impl LiveTable {
    /// A table without rows.
    pub(crate) fn new(output: Output, table: GrowingTable) -> Self {
        let live = if output.is_live() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            live.set_style(style);
        }
        live.enable_steady_tick(Duration::from_millis(120));
        Self { output, live, table }
    }

    /// Shows a message in the live line.
    pub(crate) fn message(&self, words: impl Into<String>) {
        self.live.set_message(words.into());
    }

    /// Prints a row, or the headings.
    pub(crate) fn row(&self, cells: &[String]) {
        let row = self.table.line(cells);
        self.live.suspend(|| self.output.line(row));
    }

    /// Removes the live line.
    pub(crate) fn finish(&self) {
        self.live.finish_and_clear();
    }
}
