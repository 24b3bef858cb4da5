//! The simulation in words: a row for each round, and a summary.

use std::time::Duration;

use simulation::{PrivacySpending, RegionReport, Report, RoundReport};
use wire::RoundState;

use crate::output::{Cells, GrowingTable, LOSS, bytes, duration, figure, number};

const COLUMNS: [(&str, usize, Cells); 11] = [
    ("ROUND", 5, Cells::Number),
    ("STATE", 9, Cells::Text),
    ("AT", 12, Cells::Number),
    ("TOOK", 12, Cells::Number),
    ("COHORT", 6, Cells::Number),
    ("REPORTED", 8, Cells::Number),
    ("DROPPED", 7, Cells::Number),
    ("UP", 8, Cells::Number),
    ("DOWN", 8, Cells::Number),
    (LOSS, 10, Cells::Number),
    ("ACCURACY", 8, Cells::Number),
];

/// Columns that are left out first on a terminal that is narrower than a row.
const DISPENSABLE: [&str; 5] = ["DOWN", "UP", "COHORT", LOSS, "TOOK"];

/// The table of rounds, for a terminal with so many columns.
pub(super) fn table(terminal: Option<usize>) -> GrowingTable {
    GrowingTable::new(&COLUMNS, &DISPENSABLE, terminal)
}

/// The headings of that table.
pub(super) fn headings(is_private: bool) -> [String; COLUMNS.len()] {
    crate::output::headings(&COLUMNS, is_private)
}

/// The cells of a round.
pub(super) fn row(round: &RoundReport) -> [String; COLUMNS.len()] {
    let state = round.failure.map_or_else(|| round.state.to_string(), |why| format!("{}: {why}", round.state));
    [
        round.number.to_string(),
        state,
        seconds(round.ended_at),
        seconds(round.seconds),
        round.cohort.to_string(),
        round.reported.to_string(),
        round.dropped.to_string(),
        bytes(round.bytes_up),
        bytes(round.bytes_down),
        match &round.epsilon {
            Some(spent) => figure(spent.published),
            None => round.metrics.get("train_loss").map_or_else(String::new, |loss| figure(*loss)),
        },
        round.accuracy.map_or_else(String::new, |accuracy| format!("{:.2} %", 100.0 * accuracy)),
    ]
}

/// The summary, in a few lines.
pub(super) fn summary(report: &Report) -> String {
    let mut lines = vec![String::new()];
    let mut say = |what: &str, words: String| lines.push(format!("{what:<13}{words}"));
    let failed = match report.rounds_failed {
        0 => String::new(),
        failed => format!(", {failed} attempts failed"),
    };
    say(
        "Rounds",
        format!(
            "{} in {} of virtual time, {:.1} an hour{failed}",
            number(report.rounds_completed.into()),
            seconds(report.seconds),
            report.rounds_per_hour
        ),
    );
    if let Some(last) = report.curve.last() {
        say(
            "Model",
            format!("accuracy {:.2} %, loss {:.4} on data nobody trained on", 100.0 * last.accuracy, last.loss),
        );
    }
    if let Some(reached) = report.reached {
        let when = seconds(reached.seconds);
        let accuracy = 100.0 * reached.accuracy;
        say(
            "Reached",
            format!("{accuracy:.2} % in round {}, after {when} and {}", reached.round, bytes(reached.bytes)),
        );
    }
    if report.regions.is_empty() {
        say("Bytes", format!("{} from devices, {} to devices", bytes(report.bytes_up), bytes(report.bytes_down)));
        say("Work", work([report.trainings, report.updates, report.vanished]));
    } else {
        regions(report, &mut say);
    }
    waiting_and_fairness(report, &mut say);
    if let Some(spent) = &report.privacy {
        say("Privacy", privacy(spent));
    }
    if let Some(sha256) = report.model_sha256 {
        say("Digest", format!("sha256 {sha256}"));
    }
    if let Some(why) = &report.stopped {
        say("Stopped", why.clone());
    }
    lines.join("\n")
}

fn work([trainings, updates, vanished]: [u64; 3]) -> String {
    format!(
        "{} trainings, {} updates accepted; devices vanished {} times",
        number(trainings),
        number(updates),
        number(vanished)
    )
}

/// Traffic of regions and of their devices, and the work of the devices.
fn regions(report: &Report, say: &mut impl FnMut(&str, String)) {
    let sum = |of: fn(&RegionReport) -> u64| report.regions.iter().map(of).sum::<u64>();
    say("Bytes", format!("{} from regions, {} to regions", bytes(report.bytes_up), bytes(report.bytes_down)));
    let (up, down) = (sum(|region| region.bytes_up), sum(|region| region.bytes_down));
    say("", format!("within regions {} from devices, {} to devices", bytes(up), bytes(down)));
    say("Work", work([sum(|region| region.trainings), sum(|region| region.updates), sum(|region| region.vanished)]));
    let longest = report.regions.iter().map(|region| region.longest).fold(0.0, f64::max);
    let failed = match sum(|region| region.rounds_failed.into()) {
        0 => String::new(),
        failed => format!(", {failed} attempts failed"),
    };
    say(
        "Regions",
        format!(
            "{}, with {} rounds{failed}; the longest training took {}",
            report.regions.len(),
            number(sum(|region| region.rounds_completed.into())),
            seconds(longest)
        ),
    );
}

/// The spent epsilon, for each kind of observer.
fn privacy(spent: &PrivacySpending) -> String {
    let PrivacySpending { mechanism, noise_multiplier, delta, budget, epsilon } = spent;
    let of = budget.map_or_else(String::new, |budget| format!(" of {}", figure(budget)));
    let server = match epsilon.server {
        Some(server) => format!("{} to the coordinator itself", figure(server)),
        None => "no figure for the coordinator, which adds the noise and is trusted".to_owned(),
    };
    let noise = noise_multiplier.map_or_else(String::new, |noise| format!(", noise multiplier {}", figure(noise)));
    format!(
        "epsilon {}{of} at delta {delta:e}, published ({}{noise}); {} to those who also know who took part; {server}",
        figure(epsilon.published),
        mechanism.as_str(),
        figure(epsilon.cohort_known)
    )
}

fn waiting_and_fairness(report: &Report, say: &mut impl FnMut(&str, String)) {
    let phase = |state: RoundState| report.waiting.phases.get(state.as_str()).copied().unwrap_or_default();
    let share = |part: f64| 100.0 * part / report.seconds.max(1e-9);
    let [_, median, late] = report.waiting.update_quantiles;
    say(
        "Waiting",
        format!(
            "rounds spent {:.0} % of the time on finding participants, {:.0} % on their updates",
            share(phase(RoundState::Selecting)),
            share(phase(RoundState::Collecting))
        ),
    );
    say(
        "",
        format!(
            "an update lay {} (median; 90 %: {}) until its round ended: {:.0} % of its participant's time",
            seconds(median),
            seconds(late),
            100.0 * report.waiting.idle_share
        ),
    );
    let participation = &report.participation;
    let [least, _, median, high, most] = participation.quantiles;
    say(
        "Fairness",
        format!(
            "Jain index {:.3}; updates of a {}: {least} to {most}, median {median}, 90 % have at most {high}; none of {}",
            participation.jain,
            if report.regions.is_empty() { "device" } else { "region" },
            number(participation.never.into())
        ),
    );
}

fn seconds(seconds: f64) -> String {
    duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_fits_eighty_columns() {
        let (whole, narrow) = (table(None).headings(), table(Some(80)).headings());
        assert!(narrow.len() <= 80 && whole.len() > 80, "{narrow}");
        assert!(["STATE", "AT", "REPORTED", "ACCURACY"].iter().all(|heading| narrow.contains(heading)), "{narrow}");
    }
}
