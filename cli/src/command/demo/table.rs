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
    ("TEST ACC", 8),
    ("SUM OPENED", 15),
    ("DROPPED IN", 10),
];

/// What is left out first where the terminal is narrower than a row; the rest of a round is in `round show` and in JSON.
const DISPENSABLE: [&str; 8] = ["SELECT", "SHARE", "COLLECT", "UNMASK", "PUBLISH", "DROPPED IN", "SUM OPENED", "DOWN"];

const TRAIN_LOSS: &str = "TRAIN LOSS";
const EPSILON: &str = "EPSILON";

/// The table as it grows.
pub(super) struct LiveTable {
    output: Output,
    live: ProgressBar,
    is_private: bool,
    left_out: &'static [&'static str],
}

impl LiveTable {
    /// Prints nothing yet. In private tasks participants report no loss; epsilon replaces it.
    pub(super) fn new(output: Output, is_private: bool) -> Self {
        let live = if output.is_live() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            live.set_style(style);
        }
        live.enable_steady_tick(Duration::from_millis(120));
        Self { output, live, is_private, left_out: left_out(output.width()) }
    }

    /// Prints the headings.
    pub(super) fn headings(&self) {
        let private = |heading| if self.is_private && heading == TRAIN_LOSS { EPSILON } else { heading };
        let headings = line(COLUMNS.map(|(heading, _)| private(heading).to_owned()), self.left_out);
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
        let row = line(
            [
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
            ],
            self.left_out,
        );
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

/// The columns that do not fit a terminal of this width.
fn left_out(terminal: Option<usize>) -> &'static [&'static str] {
    let all = COLUMNS.iter().map(|(_, width)| width + 2).sum::<usize>() - 2;
    let width = |heading: &str| COLUMNS.iter().find(|(own, _)| *own == heading).map_or(0, |(_, width)| width + 2);
    let missing = terminal.map_or(0, |columns| all.saturating_sub(columns));
    let mut freed = 0;
    let count = DISPENSABLE.iter().take_while(|heading| {
        let is_needed = freed < missing;
        freed += width(heading);
        is_needed
    });
    &DISPENSABLE[..count.count()]
}

fn line(cells: [String; COLUMNS.len()], left_out: &[&str]) -> String {
    let mut line = String::new();
    for (cell, (heading, width)) in cells.iter().zip(COLUMNS).filter(|(_, (heading, _))| !left_out.contains(heading)) {
        if matches!(heading, "STATE" | "DROPPED IN") {
            line.push_str(&format!("{cell:<width$}  "));
        } else {
            line.push_str(&format!("{cell:>width$}  "));
        }
    }
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_fits_eighty_columns_and_is_whole_where_it_can_be() {
        let headings = || COLUMNS.map(|(heading, _)| heading.to_owned());
        assert_eq!(left_out(None), [""; 0], "a file has no width");
        assert_eq!(left_out(Some(200)), [""; 0]);
        for width in [80, 100, 120] {
            let row = line(headings(), left_out(Some(width)));
            assert!(row.len() <= width, "{width}: {row}");
            assert!(row.contains("TEST ACC") && row.contains("DROPPED"), "{row}");
        }
        assert_eq!(left_out(Some(156)), [""; 0]);
        assert_eq!(left_out(Some(150)), ["SELECT"]);
    }
}
