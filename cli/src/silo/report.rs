//! Progress of a site's programs: speed, utilisation, and the gain from more processes.

use std::collections::BTreeMap;

use client_sdk::process_trainer::Progress;
use serde::{Deserialize, Serialize};

/// The event that a participant prints for each line of progress.
pub(crate) const PROGRESS: &str = "program_progress";

/// A line from `participant run --format json`, or from a `progress.jsonl`.
#[derive(Deserialize)]
struct Line {
    event: Option<String>,
    #[serde(flatten)]
    said: Progress,
}

/// Statistics of reported numbers, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) count: usize,
    pub(crate) mean: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// The standard deviation of these numbers.
    pub(crate) deviation: f64,
}

/// Progress with one number of processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Group {
    pub(crate) samples_per_s: Option<Spread>,
    pub(crate) step_s: Option<Spread>,
    /// The part of a step that was spent on communication, where both were reported.
    pub(crate) communication: Option<Spread>,
    pub(crate) utilisation: Option<Spread>,
    /// (One process's step / step) / processes, of the same work; `None` without progress of one process.
    pub(crate) efficiency: Option<f64>,
}

/// By the number of processes; 0 is those lines that do not say it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Report {
    /// Lines of progress that were read.
    pub(crate) lines: usize,
    pub(crate) by_processes: BTreeMap<u32, Group>,
}

/// Reads lines; lines that are not progress are left out.
pub(crate) fn report(text: &str) -> Report {
    let mut told: BTreeMap<u32, Vec<Progress>> = BTreeMap::new();
    let mut lines = 0;
    for line in text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok()) {
        if line.event.as_deref().is_none_or(|event| event == PROGRESS) {
            lines += 1;
            told.entry(line.said.processes.unwrap_or(0)).or_default().push(line.said);
        }
    }
    let mut by_processes: BTreeMap<u32, Group> =
        told.into_iter().map(|(processes, lines)| (processes, Group::of(&lines))).collect();
    let alone = by_processes.get(&1).and_then(|group| group.step_s);
    for (processes, group) in by_processes.iter_mut().filter(|(processes, _)| **processes > 0) {
        group.efficiency = alone.zip(group.step_s).map(|(alone, step)| efficiency(alone.mean, step.mean, *processes));
    }
    Report { lines, by_processes }
}

/// The efficiency of several processes relative to one, by the seconds of a step of the same work.
pub(crate) fn efficiency(alone: f64, step: f64, processes: u32) -> f64 {
    alone / step / f64::from(processes)
}

impl Group {
    fn of(lines: &[Progress]) -> Self {
        let communication = |line: &Progress| Some(line.communication_s? / line.step_s?);
        Self {
            samples_per_s: Spread::of(lines.iter().filter_map(|line| line.samples_per_s)),
            step_s: Spread::of(lines.iter().filter_map(|line| line.step_s)),
            communication: Spread::of(lines.iter().filter_map(communication)),
            utilisation: Spread::of(lines.iter().filter_map(|line| line.utilisation)),
            efficiency: None,
        }
    }

    /// Its figures by name.
    pub(crate) fn figures(&self) -> [(&'static str, Option<Spread>); 4] {
        [
            ("samples per second", self.samples_per_s),
            ("seconds of a step", self.step_s),
            ("part in communication", self.communication),
            ("utilisation", self.utilisation),
        ]
    }
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        if values.is_empty() {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "fewer lines than 2^53")]
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { count: values.len(), mean, min, max, deviation: variance.sqrt() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_summed_up_by_the_number_of_processes() {
        let text = r#"{"event":"enrolled","name":"silo"}
no JSON
{"event":"program_progress","step":1,"samples_per_s":100,"step_s":0.4,"processes":1}
{"event":"program_progress","step":2,"samples_per_s":300,"step_s":0.4,"processes":1}
{"event":"program_progress","step":1,"step_s":0.25,"communication_s":0.05,"utilisation":0.9,"processes":2}
{"event":"program_progress","step":2,"loss":1.5}
"#;
        let found = report(text);
        assert_eq!((found.lines, found.by_processes.len()), (4, 3));
        let alone = &found.by_processes[&1];
        let expected = Spread { count: 2, mean: 200.0, min: 100.0, max: 300.0, deviation: 100.0 };
        assert_eq!(alone.samples_per_s, Some(expected));
        assert_eq!((alone.efficiency, alone.communication), (Some(1.0), None));
        let two = &found.by_processes[&2];
        assert!((two.efficiency.unwrap() - 0.8).abs() < 1e-12, "{two:?}");
        assert!((two.communication.unwrap().mean - 0.2).abs() < 1e-12, "{two:?}");
        assert_eq!(found.by_processes[&0], Group::default(), "nothing but a loss");
        // Lines of a program's own file lack the event.
        assert_eq!(report(r#"{"step":1,"step_s":2}"#).by_processes[&0].step_s.map(|spread| spread.count), Some(1));
        assert_eq!(report("").lines, 0);
    }
}
