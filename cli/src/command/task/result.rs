//! `tributary task result`: what an analysis has found, as tables.

use learning::AnalyticsSpec;
use learning::analytics::{
    AnalyticsState, ChiSquareTest, Coefficient, ColumnStatistics, ContingencyState, CoxState, KMeansState, OutcomeSpec,
    RegressionState, StatisticSpec, StatisticsSpec, StatisticsState, SurvivalCurve, SurvivalState, TreesState,
    VariableSpec,
};
use task_spec::{TableColumn, TaskSpec};
use wire::TaskId;
use wire::grammar::counted;
use wire::inspect::{ModelView, TaskView};
use wire::route;

use super::evaluation;
use crate::command::model;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cells, Output, Table, figure, number};
use crate::server::{Server, ServerArgs};

/// Arguments of `tributary task result`.
#[derive(clap::Args)]
pub(crate) struct AnalysisResult {
    /// Id or name of a task that is an analysis
    task: String,
    /// Version number [default: the newest]
    #[arg(long = "model-version", value_name = "VERSION")]
    version: Option<u32>,
    #[command(flatten)]
    server: ServerArgs,
}

/// The published state of an analysis, and its version.
///
/// # Errors
/// The coordinator cannot be reached, or the task has no such version.
pub(super) async fn published(server: &Server, task: TaskId, version: Option<u32>) -> Outcome<(u32, AnalyticsState)> {
    let found: ModelView = model::find(server, task, version).await?;
    let path = route::model_parameters(found.task, found.version);
    let bytes = server.download(&path, 0, None).await?.bytes().await;
    let bytes =
        bytes.map_err(|error| Failure::caused(Exit::Connection, "cannot fetch the result", &error.without_url()))?;
    let state = serde_json::from_slice(&bytes).map_err(Failure::because(Exit::Server, "the result cannot be read"))?;
    Ok((found.version, state))
}

impl AnalysisResult {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let server = self.server.client()?;
        let id = server.task(&self.task).await?;
        let task: TaskView = server.task_view(id).await?;
        let Some(analytics) = &task.spec.analytics else {
            return Err(Failure::new(
                Exit::Refused,
                format!("task `{}` trains a model: `tributary model fetch {0}` downloads it", self.task),
            ));
        };
        let spec = AnalyticsSpec::read(analytics).map_err(Failure::because(Exit::Refused, "its analysis"))?;
        let (version, state) = published(&server, id, self.version).await?;
        output.answer(&state, || Words { columns: Columns::of(&task.spec), width: output.width() }.of(&spec, &state));
        if version < task.spec.rounds.count {
            output.note(format!("this is the state after {version} of {} rounds", task.spec.rounds.count));
        }
        Ok(())
    }
}

/// The whole result in words.
pub(super) fn words(task: &TaskSpec, state: &AnalyticsState) -> String {
    let spec = task.analytics.as_ref().and_then(|analytics| AnalyticsSpec::read(analytics).ok());
    spec.map_or_else(String::new, |spec| Words { columns: Columns::of(task), width: None }.of(&spec, state))
}

/// Names of the groups of an analysis of survival, in the order of its curves.
pub(super) fn groups(task: &TaskSpec) -> Vec<String> {
    let spec = task.analytics.as_ref().and_then(|analytics| AnalyticsSpec::read(analytics).ok());
    match spec {
        Some(AnalyticsSpec::Survival(spec)) => Columns::of(task).groups(&spec.columns),
        Some(_) | None => Vec::new(),
    }
}

/// The columns of a task's table, which know the words of categories.
#[derive(Clone, Copy)]
struct Columns<'a> {
    features: &'a [TableColumn],
    label: Option<&'a TableColumn>,
}

impl<'a> Columns<'a> {
    fn of(task: &'a TaskSpec) -> Self {
        let table = task.model.table.as_ref();
        let features = table.map_or(&[][..], |table| &table.features);
        Self { features, label: table.and_then(|table| table.label.as_ref()) }
    }

    /// The word of a category, or its number.
    fn word(self, column: usize, category: usize) -> String {
        let word = self.features.get(column).and_then(|feature| feature.one_of.get(category));
        word.cloned().unwrap_or_else(|| category.to_string())
    }

    /// Names of a column's categories from `first` on.
    fn categories(self, column: usize, name: &str, categories: u32, first: u32) -> impl Iterator<Item = String> {
        (first..categories).map(move |at| format!("{name} = {}", self.word(column, at as usize)))
    }

    /// Names of the terms of a predictor, in the order of the coefficients.
    fn terms(self, columns: &[VariableSpec]) -> Vec<String> {
        let mut names = Vec::new();
        for (column, variable) in columns.iter().enumerate() {
            match variable {
                VariableSpec::Real { name, .. } => names.push(name.clone()),
                VariableSpec::Category { name, categories } => {
                    names.extend(self.categories(column, name, *categories, 1));
                }
                VariableSpec::Exposure { .. } | VariableSpec::Time { .. } => {}
            }
        }
        names
    }

    /// Names of the groups that are compared; one without a name if there are none.
    fn groups(self, columns: &[VariableSpec]) -> Vec<String> {
        let group = columns.iter().enumerate().find_map(|(column, variable)| match variable {
            VariableSpec::Category { name, categories } => Some((column, name, *categories)),
            VariableSpec::Real { .. } | VariableSpec::Exposure { .. } | VariableSpec::Time { .. } => None,
        });
        group.map_or_else(
            || vec![String::new()],
            |(column, name, categories)| self.categories(column, name, categories, 0).collect(),
        )
    }
}

/// How results become words.
struct Words<'a> {
    columns: Columns<'a>,
    /// Width of the terminal.
    width: Option<usize>,
}

const INTERVAL: [(&str, Cells); 2] = [("95 % FROM", Cells::Number), ("TO", Cells::Number)];

impl Words<'_> {
    fn of(&self, spec: &AnalyticsSpec, state: &AnalyticsState) -> String {
        match (spec, state) {
            (AnalyticsSpec::Regression(spec), AnalyticsState::Regression(state)) => {
                let ratio = match spec.target {
                    OutcomeSpec::Real { .. } => None,
                    OutcomeSpec::Binary => Some("ODDS RATIO"),
                    OutcomeSpec::Count { .. } => Some("RATE RATIO"),
                };
                self.regression(&self.columns.terms(&spec.columns), ratio, state)
            }
            (AnalyticsSpec::Cox(spec), AnalyticsState::Cox(state)) => {
                self.cox(&self.columns.terms(&spec.columns), state)
            }
            (AnalyticsSpec::Survival(spec), AnalyticsState::Survival(state)) => self.survival(&spec.columns, state),
            (AnalyticsSpec::Contingency(spec), AnalyticsState::Contingency(state)) => {
                self.contingency(&spec.columns, state)
            }
            (AnalyticsSpec::Statistics(spec), AnalyticsState::Statistics(state)) => self.statistics(spec, state),
            (_, AnalyticsState::KMeans(state)) => self.clusters(state),
            (_, AnalyticsState::Trees(state)) => trees(state),
            (_, AnalyticsState::Evaluation(state)) => evaluation::words(self.columns.label, state, self.width),
            _ => "This program does not know this kind of result; --format json prints it.".to_owned(),
        }
    }

    /// Sentences, each on its line, and tables between them.
    fn parts(parts: impl IntoIterator<Item = Option<String>>) -> String {
        parts.into_iter().flatten().map(|part| part.trim_end_matches('\n').to_owned()).collect::<Vec<_>>().join("\n")
    }

    fn coefficients(&self, terms: &[String], ratio: Option<&str>, found: &[Coefficient]) -> String {
        let mut headings = vec![("TERM", Cells::Text)];
        headings.extend(["COEFFICIENT", "STD. ERROR", "STATISTIC", "P"].map(|heading| (heading, Cells::Number)));
        match ratio {
            Some(ratio) => headings.extend([(ratio, Cells::Number), INTERVAL[0], INTERVAL[1]]),
            None => headings.extend(INTERVAL),
        }
        let mut table = Table::new(&headings).dispensable(&["STATISTIC", "STD. ERROR"]);
        let has_intercept = found.len() > terms.len();
        for (index, one) in found.iter().enumerate() {
            let term = index.checked_sub(usize::from(has_intercept)).and_then(|index| terms.get(index));
            let mut row = vec![term.unwrap_or(&one.name).clone()];
            row.extend([one.estimate, one.standard_error, one.statistic, one.p_value].map(figure));
            let interval = [one.low, one.high];
            match ratio {
                Some(_) if term.is_some() => row.extend([one.estimate, one.low, one.high].map(|log| figure(log.exp()))),
                Some(_) => row.extend(std::iter::repeat_n(String::new(), 3)),
                None => row.extend(interval.map(figure)),
            }
            table.row(row);
        }
        table.render(self.width, "There are no coefficients yet.")
    }

    fn regression(&self, terms: &[String], ratio: Option<&str>, state: &RegressionState) -> String {
        let likelihood = state.log_likelihood.map_or(String::new(), |value| format!("; log-likelihood {value:.4}"));
        let explained = state
            .r_squared
            .zip(state.residual_variance)
            .map(|(r_squared, variance)| format!("R² {r_squared:.4}; variance of the residuals {}.", figure(variance)));
        Self::parts([
            Some(format!("{} rows{likelihood}.", number(state.rows))),
            explained,
            state.problem.as_ref().map(|problem| format!("Problem: {problem}.")),
            Some(self.coefficients(terms, ratio, &state.coefficients)),
        ])
    }

    fn cox(&self, terms: &[String], state: &CoxState) -> String {
        let likelihood = state.log_likelihood.zip(state.null_log_likelihood);
        let likelihood = likelihood.map_or(String::new(), |(value, null)| {
            format!("; partial log-likelihood {value:.4}, without covariates {null:.4}")
        });
        Self::parts([
            Some(format!("{} rows, {} events{likelihood}.", number(state.rows), number(state.events))),
            state.problem.as_ref().map(|problem| format!("Problem: {problem}.")),
            Some(self.coefficients(terms, Some("HAZARD RATIO"), &state.coefficients)),
        ])
    }

    fn survival(&self, columns: &[VariableSpec], state: &SurvivalState) -> String {
        let mut parts = vec![state.problem.as_ref().map(|problem| format!("Problem: {problem}."))];
        for (name, curve) in self.columns.groups(columns).iter().zip(&state.groups) {
            parts.push(Some(self.curve(name, curve)));
        }
        parts.push(state.log_rank.map(|test| sentence("Log-rank test", test)));
        Self::parts(parts)
    }

    fn curve(&self, name: &str, curve: &SurvivalCurve) -> String {
        let columns = ["TIME", "AT RISK", "EVENTS", "SURVIVAL", "STD. ERROR"].map(|heading| (heading, Cells::Number));
        let mut table = Table::new(&[&columns[..], &INTERVAL].concat());
        for point in &curve.points {
            let mut row = vec![figure(point.time), number(point.at_risk), number(point.events)];
            row.extend(
                [point.survival, point.standard_error, point.low, point.high].map(|share| format!("{share:.4}")),
            );
            table.row(row);
        }
        let median = curve.median.map_or_else(|| "not reached".to_owned(), figure);
        let (rows, events) = (number(curve.rows), number(curve.events));
        let table = table.render(self.width, "");
        let name = if name.is_empty() { String::new() } else { format!("{name}: ") };
        format!("{name}{rows} rows, {events} events; median {median}.\n{table}")
    }

    fn contingency(&self, columns: &[VariableSpec], state: &ContingencyState) -> String {
        let name = |at: usize| match columns.get(at) {
            Some(VariableSpec::Category { name, .. }) => name.as_str(),
            Some(VariableSpec::Real { .. } | VariableSpec::Exposure { .. } | VariableSpec::Time { .. }) | None => "",
        };
        let categories = state.counts.first().map_or(0, Vec::len);
        let headings: Vec<_> =
            (0..categories).map(|at| format!("{} = {}", name(1), self.columns.word(1, at))).collect();
        let headings = headings.iter().map(|heading| (heading.as_str(), Cells::Number));
        let mut table = Table::new(&std::iter::once((name(0), Cells::Text)).chain(headings).collect::<Vec<_>>());
        for (at, counts) in state.counts.iter().enumerate() {
            table.row(
                std::iter::once(self.columns.word(0, at)).chain(counts.iter().map(|&count| number(count))).collect(),
            );
        }
        let ratio = state.odds_ratio.map(|ratio| {
            let [estimate, low, high] = [ratio.estimate, ratio.low, ratio.high].map(figure);
            format!("Odds ratio {estimate}, 95 % from {low} to {high}.")
        });
        Self::parts([
            state.problem.as_ref().map(|problem| format!("Problem: {problem}.")),
            Some(table.render(self.width, "")).filter(|text| !text.is_empty()),
            state.count_noise.map(noise),
            state.test.map(|test| sentence("Pearson's test", test)),
            state.corrected_test.map(|test| sentence("With Yates' correction", test)),
            ratio,
        ])
    }

    fn statistics(&self, spec: &StatisticsSpec, state: &StatisticsState) -> String {
        let numbers = ["MEAN", "STD. DEVIATION", "EMPTY"].map(|heading| (heading, Cells::Number));
        let columns = [&[("COLUMN", Cells::Text)][..], &numbers, &[("QUANTILES AND COUNTS", Cells::Words)]].concat();
        let mut table = Table::new(&columns);
        for (at, column) in state.columns.iter().enumerate() {
            match column {
                ColumnStatistics::Real { name, mean, variance, quantiles, missing, histogram, .. } => {
                    let quantiles =
                        quantiles.iter().map(|quantile| format!("{}: {}", quantile.of, figure(quantile.value)));
                    let quantiles =
                        quantiles.chain(spec.columns.get(at).map_or_else(Vec::new, |column| cells(column, histogram)));
                    table.row(vec![
                        name.clone(),
                        mean.map_or(String::new(), figure),
                        variance.map_or(String::new(), |variance| figure(variance.sqrt())),
                        number(*missing),
                        quantiles.collect::<Vec<_>>().join(", "),
                    ]);
                }
                ColumnStatistics::Category { name, counts, missing, .. } => {
                    let counts = counts.iter().enumerate();
                    let counts = counts
                        .map(|(category, &count)| format!("{}: {}", self.columns.word(at, category), number(count)));
                    let counts = counts.collect::<Vec<_>>().join(", ");
                    table.row(vec![name.clone(), String::new(), String::new(), number(*missing), counts]);
                }
            }
        }
        let (rows, participants) = (number(state.rows), state.participants);
        Self::parts([
            Some(format!("{rows} rows of {participants} participants.")),
            Some(table.render(self.width, "")),
            state.count_noise.map(noise),
        ])
    }

    fn clusters(&self, state: &KMeansState) -> String {
        let mut table = Table::new(&[("CLUSTER", Cells::Number), ("ROWS", Cells::Number), ("CENTRE", Cells::Words)]);
        for (at, centroid) in state.centroids.iter().enumerate() {
            let centre = centroid.iter().map(|&value| figure(value)).collect::<Vec<_>>().join(", ");
            table.row(vec![at.to_string(), state.counts.get(at).map_or(String::new(), |&rows| number(rows)), centre]);
        }
        let inertia = state.inertia.map_or(String::new(), |inertia| format!("; inertia {}", figure(inertia)));
        let table = table.render(self.width, "The clusters are not known yet.");
        Self::parts([Some(format!("{} rows{inertia}.", number(state.rows))), Some(table)])
    }
}

/// The counts of a histogram between its edges.
fn cells(column: &StatisticSpec, histogram: &[u64]) -> Vec<String> {
    let StatisticSpec::Real { edges, .. } = column else { return Vec::new() };
    let cell = |(at, &count): (usize, &u64)| {
        let place = match (at.checked_sub(1).and_then(|before| edges.get(before)), edges.get(at)) {
            (None, Some(&high)) => format!("below {}", figure(high)),
            (Some(&low), Some(&high)) => format!("{} to {}", figure(low), figure(high)),
            (Some(&low), None) => format!("from {}", figure(low)),
            (None, None) => "all".to_owned(),
        };
        format!("{place}: {}", number(count))
    };
    histogram.iter().enumerate().map(cell).collect()
}

fn noise(deviation: f64) -> String {
    format!(
        "Noise: of 100 counts, 95 are at most {} off what they would be without it.",
        figure((1.96 * deviation).ceil())
    )
}

fn trees(state: &TreesState) -> String {
    let loss = state.loss.map_or(String::new(), |loss| format!("; loss {}", figure(loss)));
    let accuracy = state.accuracy.map_or(String::new(), |accuracy| format!("; accuracy {:.2} %", 100.0 * accuracy));
    format!("{} trees of {} rows{loss}{accuracy}.", state.ensemble.trees.len(), number(state.rows))
}

fn sentence(name: &str, test: ChiSquareTest) -> String {
    let ChiSquareTest { chi_square, degrees_of_freedom, p_value } = test;
    let freedom = counted(degrees_of_freedom, "degree", "degrees");
    format!("{name}: chi-square {} with {freedom} of freedom, P = {}.", figure(chi_square), figure(p_value))
}
