//! `tributary task table`: the columns of a task, proposed from the statistics of its participants.

use learning::AnalyticsSpec;
use learning::analytics::{AnalyticsState, ColumnStatistics, StatisticSpec, StatisticsSpec, StatisticsState};
use serde::Serialize;
use task_spec::{Missing, TableColumn, TableSpec};
use wire::inspect::TaskView;

use super::result;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, number};
use crate::server::ServerArgs;

/// Arguments of `tributary task table`.
#[derive(clap::Args)]
pub(crate) struct ProposeTable {
    /// Id or name of a task of statistics, whose last version has the figures
    #[arg(long, value_name = "TASK")]
    from: String,
    /// Column that the model is to predict [default: the last]
    #[arg(long, value_name = "COLUMN")]
    label: Option<String>,
    /// Words in fewer rows than this are not listed; they share one input (`other`)
    #[arg(long, value_name = "ROWS", default_value_t = 10)]
    rare: u64,
    #[command(flatten)]
    server: ServerArgs,
}

/// The table of a task, and the same as a part of a task file.
#[derive(Serialize)]
struct Proposal {
    table: TableSpec,
    toml: String,
}

impl ProposeTable {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let server = self.server.client()?;
        let id = server.task(&self.from).await?;
        let task: TaskView = server.task_view(id).await?;
        let wrong = |why: &str| Failure::new(Exit::Refused, format!("task `{}` {why}", self.from));
        let analytics =
            task.spec.analytics.as_ref().ok_or_else(|| wrong("is no analysis; give a task of statistics"))?;
        let spec = AnalyticsSpec::read(analytics).map_err(Failure::because(Exit::Refused, "its analysis"))?;
        let AnalyticsSpec::Statistics(spec) = spec else { return Err(wrong("is another analysis than statistics")) };
        let (_, state) = result::published(&server, id, None).await?;
        let AnalyticsState::Statistics(state) = state else { return Err(wrong("has another result than statistics")) };
        if state.rows == 0 {
            return Err(wrong("has no figures yet: none of its rounds has completed"));
        }
        let columns = columns(&spec, &state, task.spec.model.table.as_ref(), self.rare)?;
        let proposal = proposal(columns, self.label.as_deref(), &self.from, &state)?;
        output.document(&proposal, || proposal.toml.clone());
        if task.summary.rounds_completed < task.summary.rounds_total {
            output.note("not all rounds of the statistics have completed: quantiles become more precise");
        }
        Ok(())
    }
}

/// A proposed column, and a remark for the operator.
struct Proposed {
    column: TableColumn,
    remark: Vec<String>,
}

/// The proposed columns, in the order of the statistics.
fn columns(
    spec: &StatisticsSpec,
    state: &StatisticsState,
    table: Option<&TableSpec>,
    rare: u64,
) -> Outcome<Vec<Proposed>> {
    // Statistics of inputs for each word do not say whose they are.
    let given = table.filter(|table| table.features.len() == spec.columns.len());
    let described = spec.columns.iter().zip(&state.columns).enumerate();
    described
        .map(|(at, (spec, found))| {
            let given = given.map(|table| &table.features[at]);
            match (spec, found) {
                (
                    StatisticSpec::Real { name, low, high, edges, .. },
                    ColumnStatistics::Real { mean, below, above, histogram, quantiles, missing, .. },
                ) => {
                    let (low, high) = tightened((*low, *high), edges, histogram);
                    let within = |figure: f64| rounded(figure).clamp(low, high);
                    let median = quantiles.iter().find(|quantile| quantile.of == 0.5);
                    let (mean, median) = (mean.map(within), median.map(|median| within(median.value)));
                    let rule = if median.is_some() { "median" } else { "mean" };
                    let has_holes = *missing > 0 && (mean.is_some() || median.is_some());
                    let column = TableColumn {
                        column: given.map_or(name, |given| &given.column).clone(),
                        low: Some(low),
                        high: Some(high),
                        missing: has_holes.then(|| Missing::Word(rule.to_owned())),
                        mean: mean.filter(|_| has_holes),
                        median: median.filter(|_| has_holes),
                        ..TableColumn::default()
                    };
                    let outside = below + above;
                    let outside = (outside > 0).then(|| format!("{} are outside of this range", number(outside)));
                    Ok(Proposed { column, remark: empty(*missing).into_iter().chain(outside).collect() })
                }
                (StatisticSpec::Category { name, .. }, ColumnStatistics::Category { counts, other, missing, .. }) => {
                    Ok(words(name, (counts, *other, *missing), given, rare))
                }
                (StatisticSpec::Real { name, .. }, ColumnStatistics::Category { .. })
                | (StatisticSpec::Category { name, .. }, ColumnStatistics::Real { .. }) => Err(Failure::new(
                    Exit::Data,
                    format!("the figures of `{name}` are not those that the task asks for"),
                )),
            }
        })
        .collect()
}

/// A proposed column of words, from the counts of each, of other words and of empty cells. If all words are rare, all are listed.
fn words(
    name: &String,
    (counts, other, missing): (&[u64], u64, u64),
    given: Option<&TableColumn>,
    rare: u64,
) -> Proposed {
    let rare = if counts.iter().any(|count| *count >= rare) { rare } else { 0 };
    let word = |at: usize| given.and_then(|given| given.one_of.get(at)).cloned().unwrap_or_else(|| at.to_string());
    let is_common = |(_, count): &(usize, &u64)| **count >= rare;
    let one_of: Vec<_> = counts.iter().enumerate().filter(is_common).map(|(at, _)| word(at)).collect();
    let unlisted = other + counts.iter().filter(|count| **count < rare).sum::<u64>();
    let column = TableColumn {
        column: given.map_or(name, |given| &given.column).clone(),
        other: !one_of.is_empty() && unlisted > 0,
        missing: (missing > 0).then(|| Missing::Word("indicator".to_owned())),
        one_of,
        ..TableColumn::default()
    };
    let rest = (unlisted > 0).then(|| format!("{} have other words", number(unlisted)));
    Proposed { column, remark: empty(missing).into_iter().chain(rest).collect() }
}

fn empty(missing: u64) -> Option<String> {
    (missing > 0).then(|| format!("{} cells are empty", number(missing)))
}

/// The range without the first and the last cells of the histogram that have no rows.
fn tightened((low, high): (f64, f64), edges: &[f64], histogram: &[u64]) -> (f64, f64) {
    if histogram.len() != edges.len() + 1 || edges.is_empty() {
        return (low, high);
    }
    let first = histogram.iter().take_while(|count| **count == 0).count();
    let last = histogram.iter().rev().take_while(|count| **count == 0).count();
    let from = first.checked_sub(1).and_then(|at| edges.get(at)).map_or(low, |edge| edge.max(low));
    let to = last.checked_sub(1).and_then(|at| edges.iter().rev().nth(at)).map_or(high, |edge| edge.min(high));
    if from < to { (from, to) } else { (low, high) }
}

/// A number, rounded to six significant digits.
fn rounded(figure: f64) -> f64 {
    format!("{figure:.5e}").parse().unwrap_or(figure)
}

/// The table of these columns, and its text.
fn proposal(mut columns: Vec<Proposed>, label: Option<&str>, task: &str, state: &StatisticsState) -> Outcome<Proposal> {
    let at = match label {
        None => columns.len().checked_sub(1),
        Some(label) => columns.iter().position(|proposed| proposed.column.column == label),
    };
    let at = at.ok_or_else(|| {
        let names: Vec<_> = columns.iter().map(|proposed| format!("`{}`", proposed.column.column)).collect();
        let label = label.unwrap_or_default();
        Failure::new(Exit::Usage, format!("--label {label}: the statistics are of {}", names.join(", ")))
    })?;
    let mut label = columns.remove(at);
    // A label is not made up.
    label.column =
        TableColumn { missing: None, mean: None, median: None, other: false, ..std::mem::take(&mut label.column) };
    let (rows, participants) = (number(state.rows), state.participants);
    let mut toml =
        format!("# From the task `{task}`: {rows} rows of {participants} participants.\n[model.table]\nfeatures = [\n");
    for proposed in &columns {
        toml += &format!("    {},{}\n", inline(&proposed.column), remark(proposed));
    }
    toml += &format!("]\nlabel = {}{}\n", inline(&label.column), remark(&label));
    let features = columns.into_iter().map(|proposed| proposed.column).collect();
    Ok(Proposal { table: TableSpec { features, label: Some(label.column), skip_rows_up_to: None }, toml })
}

fn remark(proposed: &Proposed) -> String {
    if proposed.remark.is_empty() { String::new() } else { format!("   # {}", proposed.remark.join(", ")) }
}

/// A column in one line of a task file.
fn inline(column: &TableColumn) -> String {
    let TableColumn { column: name, low, high, one_of, other, missing, mean, median } = column;
    let quoted = |text: &str| toml::Value::from(text).to_string();
    // Whole numbers of TOML have 64 bits.
    let number = |number: f64| match number {
        whole if whole.fract() == 0.0 && whole.abs() < 1e15 => whole.to_string(),
        number => toml::Value::from(number).to_string(),
    };
    let mut keys = vec![format!("column = {}", quoted(name))];
    keys.extend(low.map(|low| format!("low = {}", number(low))));
    keys.extend(high.map(|high| format!("high = {}", number(high))));
    if !one_of.is_empty() {
        keys.push(format!("one_of = [{}]", one_of.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(", ")));
    }
    keys.extend(other.then(|| "other = true".to_owned()));
    keys.extend(missing.as_ref().map(|missing| match missing {
        Missing::Number(value) => format!("missing = {}", number(*value)),
        Missing::Word(word) => format!("missing = {}", quoted(word)),
    }));
    keys.extend(mean.map(|mean| format!("mean = {}", number(mean))));
    keys.extend(median.map(|median| format!("median = {}", number(median))));
    format!("{{ {} }}", keys.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn proposed(label: Option<&str>) -> Outcome<Proposal> {
        let real =
            |name| json!({ "type": "real", "name": name, "low": 0, "high": 120, "edges": [20, 100], "missing": true });
        let category = json!({ "type": "category", "name": "c", "categories": 3, "missing": true });
        let spec = json!({ "max_rows": 100, "columns": [real("a"), category, real("b")] });
        let figures = |name, counts, missing| {
            let quantile = json!({ "of": 0.5, "value": 61.23456789, "start": 0, "bits": 0 });
            json!({ "real": { "name": name, "mean": 60.0, "variance": 1.0, "below": 0, "above": missing, "histogram": counts,
                              "quantiles": [quantile], "missing": missing } })
        };
        let words = json!({ "category": { "name": "c", "counts": [50, 3, 40], "other": 2, "missing": 5 } });
        let state = json!({ "round": 1, "rows": 100, "participants": 3,
                            "columns": [figures("a", [0, 80, 0], 7), words, figures("b", [1, 9, 0], 0)] });
        let features =
            json!([{ "column": "age" }, { "column": "ward", "one_of": ["icu", "er", "ent"] }, { "column": "days" }]);
        let (spec, state) = (serde_json::from_value(spec).unwrap(), serde_json::from_value(state).unwrap());
        let table = serde_json::from_value(json!({ "features": features })).unwrap();
        proposal(columns(&spec, &state, Some(&table), 10)?, label, "patients", &state)
    }

    #[test]
    fn ranges_words_and_missing_values_are_proposed() {
        let Proposal { table, toml } = proposed(None).unwrap();
        let expected = "# From the task `patients`: 100 rows of 3 participants.\n\
            [model.table]\n\
            features = [\n    \
            { column = \"age\", low = 20, high = 100, missing = \"median\", mean = 60, median = 61.2346 },   \
            # 7 cells are empty, 7 are outside of this range\n    \
            { column = \"ward\", one_of = [\"icu\", \"ent\"], other = true, missing = \"indicator\" },   \
            # 5 cells are empty, 5 have other words\n\
            ]\n\
            label = { column = \"days\", low = 0, high = 100 }\n";
        assert_eq!(toml, expected);
        let read: toml::Value = toml::from_str(&toml).unwrap();
        let read: TableSpec = read["model"]["table"].clone().try_into().unwrap();
        assert_eq!(read, table);
    }

    #[test]
    fn label_is_chosen_by_name() {
        let table = proposed(Some("ward")).unwrap().table;
        assert_eq!(table.label.unwrap().one_of, ["icu", "ent"]);
        assert_eq!(table.features.len(), 2);
        let error = proposed(Some("sex")).err().unwrap();
        assert!(error.detail.ends_with("the statistics are of `age`, `ward`, `days`"), "{}", error.detail);
    }
}
