//! Side-by-side comparison of tasks or rounds: their settings and results.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use federation::id::TaskId;
use federation::time::seconds;
use serde::{Deserialize, Serialize};

use super::RoundView;
use super::figures::{exact, figures};

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

/// Sums over the latest attempts at all rounds of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTotals {
    /// Number of rounds, in any state.
    pub rounds: u64,
    pub completed: u64,
    pub failed: u64,
    /// Time from opening to end, or until now if the round is open.
    pub took: Duration,
    pub bytes_up: u64,
    pub bytes_down: u64,
}

/// The compared values of a task or round.
#[derive(Clone, Debug, Default)]
pub struct Column {
    pub name: String,
    /// The keys of its task with their values.
    pub keys: BTreeMap<String, String>,
    last: BTreeMap<String, f64>,
    total: BTreeMap<String, f64>,
}

impl Column {
    /// The column of a task, with the numbers of its last completed round.
    #[must_use]
    pub fn of_task(
        name: String,
        keys: BTreeMap<String, String>,
        totals: &RoundTotals,
        last_completed: Option<&RoundView>,
    ) -> Self {
        let RoundTotals { rounds, completed, failed, took, bytes_up, bytes_down } = *totals;
        let mut total = vec![("completed rounds", exact(completed)), ("failed attempts", exact(failed))];
        if rounds > 0 {
            let names = ["seconds", "bytes_up", "bytes_down"];
            total.extend(names.into_iter().zip([seconds(took), exact(bytes_up), exact(bytes_down)]));
        }
        let total = total.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let last = last_completed.into_iter().flat_map(figures).collect();
        Self { name, keys, last, total }
    }

    /// The column of one attempt at a round.
    #[must_use]
    pub fn of_round(name: String, keys: BTreeMap<String, String>, round: &RoundView) -> Self {
        Self { name, keys, last: figures(round).into_iter().collect(), total: BTreeMap::new() }
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

/// One line for each name in any column.
fn lines<T: Clone>(columns: &[(TaskId, Column)], of: impl Fn(&Column) -> &BTreeMap<String, T>) -> Vec<ComparedLine<T>> {
    let names: BTreeSet<_> = columns.iter().flat_map(|(_, column)| of(column).keys()).collect();
    let values = |name: &String| columns.iter().map(|(_, column)| of(column).get(name).cloned()).collect();
    names.into_iter().map(|name| ComparedLine { name: name.clone(), values: values(name) }).collect()
}
