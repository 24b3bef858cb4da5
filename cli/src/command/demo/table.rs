//! The demo's display: a row for each round, and on a terminal a live line while a round runs.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use wire::inspect::RoundView;

use super::events::RoundEvent;
use crate::output::{Output, bytes, figure};

/// Columns and how wide they are; rows appear one by one, so widths are fixed.
const COLUMNS: [(&str, usize); 16] = [
    ("ROUND", 5),
    ("STATE", 9),
    ("COHORT", 6),
    ("REPORTED", 8),
    ("DROPPED", 7),
    ("UP", 8),
    ("DOWN", 8),
    ("SELECT", 6),
    ("SHARE", 6),
    ("COLLECT", 7),
    ("UNMASK", 6),
    ("PUBLISH", 7),
    (TRAIN_LOSS, 10),
    ("ACCURACY", 8),
    ("SUM OPENED", 15),
    ("DROPPED IN", 0),
];

const TRAIN_LOSS: &str = "TRAIN LOSS";
const EPSILON: &str = "EPSILON";

/// The table as it grows.
pub(super) struct LiveTable {
    output: Output,
    live: ProgressBar,
    is_private: bool,
}

impl LiveTable {
    /// Prints nothing yet. In private tasks participants report no loss; epsilon replaces it.
    pub(super) fn new(output: Output, is_private: bool) -> Self {
        let live = if output.is_live() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            live.set_style(style);
        }
        live.enable_steady_tick(Duration::from_millis(120));
        Self { output, live, is_private }
    }

    /// Prints the headings.
    pub(super) fn headings(&self) {
        let private = |heading| if self.is_private && heading == TRAIN_LOSS { EPSILON } else { heading };
        let headings = line(COLUMNS.map(|(heading, _)| private(heading).to_owned()));
        self.live.suspend(|| self.output.line(headings));
    }

    /// Shows the progress of the current round.
    pub(super) fn progress(&self, round: &RoundView) {
        self.live.set_message(format!(
            "round {}{}  {}  cohort {}  reported {}  dropped {}  up {}  down {}  {:.1} s",
            round.number,
            if round.attempt > 1 { format!(" (attempt {})", round.attempt) } else { String::new() },
            round.state,
            round.cohort,
            round.reported,
            round.dropped,
            bytes(round.bytes_up),
            bytes(round.bytes_down),
            round.seconds
        ));
    }

    /// Shows a message between rounds.
    pub(super) fn message(&self, words: &str) {
        self.live.set_message(words.to_owned());
    }

    /// Shows a finished round.
    pub(super) fn row(&self, round: &RoundEvent) {
        let phase = |name| round.phases.get(name).map_or_else(String::new, |seconds| format!("{seconds:.2}s"));
        let metric = |name| round.cohort_metrics.get(name).map_or_else(String::new, |value| format!("{value:.4}"));
        let state =
            round.failure.map_or_else(|| round.state.to_string(), |reason| format!("{}: {reason}", round.state));
        let row = line([
            round.number.to_string(),
            state,
            round.cohort.to_string(),
            round.reported.to_string(),
            round.dropped.to_string(),
            bytes(round.bytes_up),
            bytes(round.bytes_down),
            phase("selecting"),
            phase("sharing"),
            phase("collecting"),
            unmasking(round),
            phase("aggregating"),
            round.epsilon.as_ref().map_or_else(|| metric("train_loss"), |spent| figure(spent.published)),
            round.metrics.map_or_else(String::new, |score| format!("{:.2} %", 100.0 * score.accuracy)),
            opened(round),
            dropped_in(round),
        ]);
        self.live.suspend(|| self.output.line(row));
    }

    /// Removes the live line.
    pub(super) fn finish(&self) {
        self.live.finish_and_clear();
    }
}

/// Seconds from the last update to the masks that open the sum.
fn unmasking(round: &RoundEvent) -> String {
    let phase = |name| round.phases.get(name).copied();
    match (phase("confirming"), phase("unmasking")) {
        (None, None) => String::new(),
        (confirming, unmasking) => {
            format!("{:.2}s", confirming.unwrap_or_default() + unmasking.unwrap_or_default())
        }
    }
}

/// Number of included participants, and of those who opened their sum.
fn opened(round: &RoundEvent) -> String {
    match (&round.secure_aggregation, &round.work) {
        (Some(session), Some(_)) => format!("of {} by {}", session.included, session.unmasked),
        (Some(_), None) => "no".to_owned(),
        // Nobody was drawn.
        (None, _) if round.cohort == 0 => String::new(),
        (None, _) => "always open".to_owned(),
    }
}

fn dropped_in(round: &RoundEvent) -> String {
    let words: Vec<_> = round
        .dropped_in
        .iter()
        .map(|(phase, count)| format!("{count} {}", phase.as_str().to_ascii_lowercase()))
        .collect();
    words.join(", ")
}

fn line(cells: [String; COLUMNS.len()]) -> String {
    let mut line = String::new();
    for (cell, (heading, width)) in cells.iter().zip(COLUMNS) {
        if matches!(heading, "STATE" | "DROPPED IN") {
            line.push_str(&format!("{cell:<width$}  "));
        } else {
            line.push_str(&format!("{cell:>width$}  "));
        }
    }
    line.trim_end().to_owned()
}
