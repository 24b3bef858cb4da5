//! Rounds as rows of a table.

use std::collections::BTreeSet;

use task_spec::is_name;
use wire::Timestamp;
use wire::inspect::figures::{FIGURES, figures, reveals_cohort};
use wire::inspect::{RoundView, TaskSummary, TaskView};

/// A task with all attempts at its rounds, in the order of their opening.
pub(super) struct TaskRounds {
    pub(super) task: TaskView,
    pub(super) rounds: Vec<RoundView>,
}

impl TaskRounds {
    /// A name for a folder of the task's own: the task's, unless the coordinator's word would lead elsewhere.
    pub(super) fn folder(&self) -> String {
        let TaskSummary { id, name, .. } = &self.task.summary;
        if is_name(name) && !name.starts_with('.') { name.clone() } else { id.to_string() }
    }

    /// The numbers of a round. Without the size of its cohort where a smaller published ε rests on that being secret.
    pub(super) fn figures(&self, round: &RoundView) -> Vec<(String, f64)> {
        let mut figures = figures(round);
        figures.retain(|(name, _)| self.may_show(name));
        figures
    }

    fn may_show(&self, name: &str) -> bool {
        !(self.task.spec.sampling_amplifies() && reveals_cohort(name))
    }
}

/// Type of a column's cells. Every cell may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Integer,
    Float,
    Time,
}

/// One value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Empty,
    Text(String),
    Integer(i64),
    Float(f64),
    Time(Timestamp),
}

/// A table with a row for each attempt at a round.
pub(super) struct Records {
    /// Names, with the unit where there is one, and kinds.
    pub(super) columns: Vec<(String, Kind)>,
    /// Rows of as many cells as there are columns, each of its column's kind or empty.
    pub(super) rows: Vec<Vec<Cell>>,
}

/// A cell about a round.
type Fact = (&'static str, Kind, fn(&TaskRounds, &RoundView) -> Cell);

fn integer(number: u32) -> Cell {
    Cell::Integer(number.into())
}

const FACTS: [Fact; 11] = [
    ("task", Kind::Text, |task, _| Cell::Text(task.task.summary.id.to_string())),
    ("task_name", Kind::Text, |task, _| Cell::Text(task.task.summary.name.clone())),
    ("number", Kind::Integer, |_, round| integer(round.number)),
    ("attempt", Kind::Integer, |_, round| integer(round.attempt)),
    ("state", Kind::Text, |_, round| Cell::Text(round.state.to_string())),
    ("failure", Kind::Text, |_, round| round.failure.map_or(Cell::Empty, |why| Cell::Text(why.to_string()))),
    ("opened_at", Kind::Time, |_, round| Cell::Time(round.opened_at)),
    ("ended_at", Kind::Time, |_, round| round.ended_at.map_or(Cell::Empty, Cell::Time)),
    ("base_version", Kind::Integer, |_, round| integer(round.base.version)),
    ("model_version", Kind::Integer, |_, round| round.model.as_ref().map_or(Cell::Empty, |made| integer(made.version))),
    ("model_sha256", Kind::Text, |_, round| {
        round.model.as_ref().map_or(Cell::Empty, |made| Cell::Text(made.sha256.to_string()))
    }),
];

impl Records {
    /// A row for each attempt. Columns of numbers are those that some round has.
    pub(super) fn of(tasks: &[TaskRounds]) -> Self {
        let all = || tasks.iter().flat_map(|task| task.rounds.iter().map(move |round| (task, round)));
        let numbered: Vec<_> = all().map(|(task, round)| task.figures(round)).collect();
        let is_shown = |name: &&str| tasks.iter().any(|task| task.may_show(name));
        let fixed: Vec<_> = FIGURES.iter().map(|(name, _)| *name).filter(is_shown).map(str::to_owned).collect();
        let others: BTreeSet<_> =
            numbered.iter().flatten().map(|(name, _)| name.clone()).filter(|name| !fixed.contains(name)).collect();
        let names: Vec<_> = fixed.into_iter().chain(others).collect();
        let rows = all().zip(&numbered).map(|((task, round), figures)| {
            let facts = FACTS.iter().map(|(_, _, of)| of(task, round));
            let find = |name: &String| figures.iter().find(|(known, _)| known == name);
            facts
                .chain(names.iter().map(|name| find(name).map_or(Cell::Empty, |(_, value)| Cell::Float(*value))))
                .collect()
        });
        let rows = rows.collect();
        let facts = FACTS.iter().map(|(name, kind, _)| ((*name).to_owned(), *kind));
        Self { rows, columns: facts.chain(names.iter().map(|name| (name.clone(), Kind::Float))).collect() }
    }
}
