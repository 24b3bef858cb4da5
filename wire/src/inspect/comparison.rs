//! Tasks or rounds side by side: what sets them apart, and what came of it.

use std::collections::{BTreeMap, BTreeSet};

use federation::id::TaskId;
use federation::round::RoundState;
use serde::{Deserialize, Serialize};

use super::RoundView;
use super::figures::figures;

/// What is summed over the rounds of a task.
const SUMMED: [&str; 3] = ["seconds", "bytes_up", "bytes_down"];

/// One line of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ComparedLine<T> {
    /// A key of the task file, or a number as exports call it.
    pub name: String,
    /// One for each column; null where a column has no such thing.
    pub values: Vec<Option<T>>,
}

/// A column for each of the tasks or rounds that were named, in that order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Comparison {
    pub tasks: Vec<TaskId>,
    /// The task's name; for a round `NAME/NUMBER/ATTEMPT`.
    pub names: Vec<String>,
    /// Keys of the task files that are not the same.
    pub keys: Vec<ComparedLine<String>>,
    /// Numbers of the round, for a task those of its last completed round.
    pub last: Vec<ComparedLine<f64>>,
    /// Of tasks: sums over the latest attempts of all rounds.
    pub total: Vec<ComparedLine<f64>>,
}

/// What is compared of a task or a round.
#[derive(Clone, Debug, Default)]
pub struct Column {
    pub name: String,
    /// The keys of its task with their values.
    pub keys: BTreeMap<String, String>,
    last_completed: u32,
    last: BTreeMap<String, f64>,
    total: BTreeMap<String, f64>,
}

impl Column {
    /// Of a task of which no round was added yet.
    #[must_use]
    pub fn of_task(name: String, keys: BTreeMap<String, String>) -> Self {
        let total = ["completed rounds", "failed attempts"].map(|name| (name.to_owned(), 0.0)).into();
        Self { name, keys, total, ..Self::default() }
    }

    /// Of one attempt at a round.
    #[must_use]
    pub fn of_round(name: String, keys: BTreeMap<String, String>, round: &RoundView) -> Self {
        Self { name, keys, last: figures(round).into_iter().collect(), ..Self::default() }
    }

    /// Adds a round of the task, in any order.
    pub fn add(&mut self, round: &RoundView) {
        let all = figures(round);
        let mut add = |name: &str, value| *self.total.entry(name.to_owned()).or_default() += value;
        match round.state {
            RoundState::Completed => add("completed rounds", 1.0),
            RoundState::Failed => add("failed attempts", 1.0),
            RoundState::Cancelled
            | RoundState::Selecting
            | RoundState::Sharing
            | RoundState::Collecting
            | RoundState::Confirming
            | RoundState::Unmasking
            | RoundState::Aggregating => {}
        }
        all.iter().filter(|(name, _)| SUMMED.contains(&name.as_str())).for_each(|(name, value)| add(name, *value));
        if round.state == RoundState::Completed && round.number > self.last_completed {
            self.last_completed = round.number;
            self.last = all.into_iter().collect();
        }
    }
}

impl Comparison {
    /// Puts columns side by side, each with its task.
    #[must_use]
    pub fn of(columns: &[(TaskId, Column)]) -> Self {
        let mut keys = lines(columns, |column| &column.keys);
        keys.retain(|line| line.values.iter().any(|value| *value != line.values[0]));
        Self {
            tasks: columns.iter().map(|(task, _)| *task).collect(),
            names: columns.iter().map(|(_, column)| column.name.clone()).collect(),
            keys,
            last: lines(columns, |column| &column.last),
            total: lines(columns, |column| &column.total),
        }
    }
}

/// A line for each name that some column has.
fn lines<T: Clone>(columns: &[(TaskId, Column)], of: impl Fn(&Column) -> &BTreeMap<String, T>) -> Vec<ComparedLine<T>> {
    let names: BTreeSet<_> = columns.iter().flat_map(|(_, column)| of(column).keys()).collect();
    let values = |name: &String| columns.iter().map(|(_, column)| of(column).get(name).cloned()).collect();
    names.into_iter().map(|name| ComparedLine { name: name.clone(), values: values(name) }).collect()
}
