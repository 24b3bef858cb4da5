//! The demo's display: a row for each round, and on a terminal a live line while a round runs.

use wire::inspect::RoundView;

use super::events::RoundEvent;
use crate::output::{Cells, GrowingTable, LOSS, LiveTable, Output, bytes, figure};

/// Columns and how wide they are; rows appear one by one, so widths are fixed.
const COLUMNS: [(&str, usize, Cells); 16] = [
    ("ROUND", 5, Cells::Number),
    ("STATE", 9, Cells::Text),
    ("COHORT", 6, Cells::Number),
    ("REPORTED", 8, Cells::Number),
    ("DROPPED", 7, Cells::Number),
    ("UP", 8, Cells::Number),
    ("DOWN", 8, Cells::Number),
    ("SELECT", 6, Cells::Number),
    ("SHARE", 6, Cells::Number),
    ("COLLECT", 7, Cells::Number),
    ("UNMASK", 6, Cells::Number),
    ("PUBLISH", 7, Cells::Number),
    (LOSS, 10, Cells::Number),
    ("TEST ACC", 8, Cells::Number),
    ("INCLUDED/UNMASKED", 17, Cells::Number),
    ("DROPPED DURING", 14, Cells::Text),
];

/// Columns to omit on narrow terminals, first one first. `round show` and JSON have them all.
const DISPENSABLE: [&str; 8] =
    ["SELECT", "SHARE", "COLLECT", "UNMASK", "PUBLISH", "DROPPED DURING", "INCLUDED/UNMASKED", "DOWN"];

/// The table without rows.
pub(super) fn live(output: Output) -> LiveTable {
    LiveTable::new(output, GrowingTable::new(&COLUMNS, &DISPENSABLE, output.width()))
}

/// The headings of a task's table.
pub(super) fn headings(is_private: bool) -> [String; COLUMNS.len()] {
    crate::output::headings(&COLUMNS, is_private)
}

/// The progress of the current round.
pub(super) fn progress(round: &RoundView) -> String {
    format!(
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
    )
}

/// The cells of a finished round.
pub(super) fn row(round: &RoundEvent) -> [String; COLUMNS.len()] {
    let phase = |name| round.phases.get(name).map_or_else(String::new, |seconds| format!("{seconds:.2}s"));
    let metric = |name| round.cohort_metrics.get(name).map_or_else(String::new, |value| figure(*value));
    let state = round.failure.map_or_else(|| round.state.to_string(), |reason| format!("{}: {reason}", round.state));
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
    ]
}

/// Seconds from the last update to the unmasked sum.
fn unmasking(round: &RoundEvent) -> String {
    let phase = |name| round.phases.get(name).copied();
    match (phase("confirming"), phase("unmasking")) {
        (None, None) => String::new(),
        (confirming, unmasking) => {
            format!("{:.2}s", confirming.unwrap_or_default() + unmasking.unwrap_or_default())
        }
    }
}

/// Number of included participants, and of those that unmasked their sum.
fn opened(round: &RoundEvent) -> String {
    match (&round.secure_aggregation, &round.work) {
        (Some(session), Some(_)) => format!("{} / {}", session.included, session.unmasked),
        (Some(_), None) => "no".to_owned(),
        // An empty cohort.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_fits_eighty_columns_and_is_whole_where_it_can_be() {
        let headings = |terminal| GrowingTable::new(&COLUMNS, &DISPENSABLE, terminal).headings();
        let whole = headings(None);
        assert!(COLUMNS.iter().all(|(heading, ..)| whole.contains(heading)), "a file has no width: {whole}");
        for width in [80, 100, 120] {
            let row = headings(Some(width));
            assert!(row.len() <= width, "{width}: {row}");
            assert!(row.contains("TEST ACC") && row.contains("DROPPED"), "{row}");
        }
        assert_eq!((headings(Some(200)), headings(Some(162))), (whole.clone(), whole.clone()));
        assert_eq!(headings(Some(156)), whole.replacen("SELECT  ", "", 1), "what can be spared first");
    }
}
