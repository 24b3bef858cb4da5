//! Tables of two categories, with the chi-square test and, for two by two, the odds ratio.

use serde::{Deserialize, Serialize};

use super::coefficients::NORMAL_BOUND;
use super::survival::{ChiSquareTest, five};
use super::variables::{VariableSpec, Variables};
use crate::analytics::error::{AnalyticsError, counts, require, sound};
use crate::analytics::private::{Part, floor};
use crate::analytics::procedure::{Advanced, Procedure};
use crate::analytics::sum_codec::Field;
use crate::analytics::table::{Table, check_rows};
use crate::metrics::MetricValue;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContingencySpec {
    /// Cap on the rows a participant contributes; of more, evenly spaced ones are used.
    pub max_rows: u32,
    /// Two categories: the first is that of the table's rows.
    pub columns: Vec<VariableSpec>,
    /// A table with a cell of fewer people than this, but not 0, is not published. Default 5.
    #[serde(default = "five")]
    pub min_count: u32,
}

/// The table, after the round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContingencyState {
    /// Number of completed rounds.
    pub round: u32,
    /// Number of rows in each pair of categories, by the first.
    pub counts: Vec<Vec<u64>>,
    /// In a private task: standard deviation of the noise in each count. There are no tests then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_noise: Option<f64>,
    /// Pearson's test of independence.
    pub test: Option<ChiSquareTest>,
    /// The same with Yates' correction, of two by two categories.
    pub corrected_test: Option<ChiSquareTest>,
    /// Of two by two categories.
    pub odds_ratio: Option<Ratio>,
    /// Why nothing is published, or what to doubt about the test.
    pub problem: Option<String>,
}

/// A ratio with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
}

/// The procedure of a validated specification.
#[derive(Clone, Debug)]
pub(in crate::analytics) struct Contingency {
    spec: ContingencySpec,
    variables: Variables,
    /// Numbers of categories of the first and of the second column.
    size: [usize; 2],
}

impl ContingencySpec {
    /// Rejects rows without two categories.
    pub(in crate::analytics) fn check_table(&self, table: &Table) -> Result<(), AnalyticsError> {
        Variables::new(&self.columns)?.check_rows(table)
    }
}

impl Contingency {
    pub(in crate::analytics) fn new(spec: ContingencySpec) -> Result<Self, AnalyticsError> {
        check_rows(spec.max_rows)?;
        let variables = Variables::new(&spec.columns)?;
        variables.allow(&["category"], "a contingency table")?;
        require(spec.min_count > 0, "min_count", || "is 0; it must be at least 1".to_owned())?;
        let size = |column: &VariableSpec| match column {
            VariableSpec::Category { categories, .. } => *categories as usize,
            VariableSpec::Real { .. } | VariableSpec::Exposure { .. } | VariableSpec::Time { .. } => 0,
        };
        match &*spec.columns {
            [first, second] => Ok(Self { size: [size(first), size(second)], variables, spec }),
            columns => Err(AnalyticsError::Spec {
                field: "columns".to_owned(),
                problem: format!("are {}; a contingency table has 2", columns.len()),
            }),
        }
    }
}

/// The test of independence; `correction` is what Yates takes off each difference.
fn test(counts: &[Vec<u64>], correction: f64) -> Option<ChiSquareTest> {
    let columns = counts.first()?.len();
    let of_row: Vec<f64> = counts.iter().map(|row| row.iter().sum::<u64>() as f64).collect();
    let of_column: Vec<f64> =
        (0..columns).map(|column| counts.iter().map(|row| row[column]).sum::<u64>() as f64).collect();
    let all: f64 = of_row.iter().sum();
    if of_row.iter().chain(&of_column).any(|&sum| sum == 0.0) {
        return None;
    }
    let mut chi_square = 0.0;
    for (row, row_sum) in counts.iter().zip(&of_row) {
        for (&count, column_sum) in row.iter().zip(&of_column) {
            let expected = row_sum * column_sum / all;
            let difference = (count as f64 - expected).abs();
            let difference = difference - correction.min(difference);
            chi_square += difference * difference / expected;
        }
    }
    let freedom = (counts.len() - 1) * (columns - 1);
    Some(ChiSquareTest::new(chi_square, u32::try_from(freedom).ok()?))
}

/// The odds ratio by Woolf's method (1955); `None` with an empty cell.
fn odds_ratio(counts: &[Vec<u64>]) -> Option<Ratio> {
    let cells: Vec<f64> = counts.iter().flatten().map(|&count| count as f64).collect();
    let [a, b, c, d] = *cells.as_slice() else { return None };
    if [a, b, c, d].contains(&0.0) {
        return None;
    }
    let log = libm::log(a * d / (b * c));
    let width = NORMAL_BOUND * (1.0 / a + 1.0 / b + 1.0 / c + 1.0 / d).sqrt();
    Some(Ratio { estimate: a * d / (b * c), low: libm::exp(log - width), high: libm::exp(log + width) })
}

impl Procedure for Contingency {
    type State = ContingencyState;

    fn fields(&self) -> Vec<Field> {
        vec![Field { len: self.size[0] * self.size[1], bound: u64::from(self.spec.max_rows) }]
    }

    fn rounds(&self) -> u32 {
        1
    }

    fn done(&self, state: &ContingencyState) -> u32 {
        state.round
    }

    fn initial(&self) -> ContingencyState {
        ContingencyState {
            round: 0,
            counts: Vec::new(),
            count_noise: None,
            test: None,
            corrected_test: None,
            odds_ratio: None,
            problem: None,
        }
    }

    fn check(&self, state: &ContingencyState) -> Result<(), AnalyticsError> {
        let [rows, columns] = self.size;
        let fits = state.counts.len() == rows && state.counts.iter().all(|row| row.len() == columns);
        let tests = [state.test, state.corrected_test];
        let is_finite = |ratio: Ratio| [ratio.estimate, ratio.low, ratio.high].iter().all(|value| value.is_finite());
        sound(state.round <= 1, "it is past the last round")?;
        sound(state.counts.is_empty() || fits, "it has other categories")?;
        sound(tests.iter().flatten().all(ChiSquareTest::is_sound), "its test is not finite")?;
        sound(state.odds_ratio.is_none_or(is_finite), "its ratio is not finite")
    }

    fn private_parts(&self, _state: &ContingencyState) -> Option<Vec<Part>> {
        Some(vec![Part::new(self.size[0] * self.size[1], f64::from(self.spec.max_rows), 1.0)])
    }

    fn repair(&self, _state: &ContingencyState, sum: &mut [i64], _noise: &[f64]) {
        floor(sum);
    }

    /// Noise hides people in small cells, and spoils the distributions that tests assume.
    fn advance_noised(
        &self,
        state: &ContingencyState,
        sum: &[i64],
        _participants: u32,
        noise: &[f64],
    ) -> Result<Advanced<ContingencyState>, AnalyticsError> {
        let cells = counts(sum)?;
        let mut next = ContingencyState { round: 1, count_noise: noise.first().copied(), ..state.clone() };
        next.counts = cells.chunks_exact(self.size[1]).map(<[u64]>::to_vec).collect();
        next.problem = Some("the counts have noise: there is no test".to_owned());
        Ok(Advanced { state: next, metrics: Vec::new() })
    }

    fn contribution(&self, _state: &ContingencyState, table: &Table, out: &mut [i64]) -> Result<(), AnalyticsError> {
        self.variables.check_rows(table)?;
        for index in table.counted(self.spec.max_rows) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked categories")]
            let [row, column] = [0, 1].map(|column| table.row(index)[column] as usize);
            out[row * self.size[1] + column] += 1;
        }
        Ok(())
    }

    fn advance(
        &self,
        state: &ContingencyState,
        sum: &[i64],
        _participants: u32,
    ) -> Result<Advanced<ContingencyState>, AnalyticsError> {
        let cells = counts(sum)?;
        let mut next = ContingencyState { round: 1, ..state.clone() };
        let least = u64::from(self.spec.min_count);
        if cells.iter().any(|cell| (1..least).contains(cell)) {
            next.problem = Some(format!("a cell has fewer than {least} people (min_count): nothing is published"));
            return Ok(Advanced { state: next, metrics: Vec::new() });
        }
        let rows: u64 = cells.iter().sum();
        next.counts = cells.chunks_exact(self.size[1]).map(<[u64]>::to_vec).collect();
        next.test = test(&next.counts, 0.0);
        if self.size == [2, 2] {
            next.corrected_test = test(&next.counts, 0.5);
            next.odds_ratio = odds_ratio(&next.counts);
        }
        if next.test.is_none() {
            next.problem = Some("a category has no rows: there is no test".to_owned());
        }
        Ok(Advanced {
            state: next,
            metrics: vec![("rows".to_owned(), MetricValue { value: rows as f64, count: rows })],
        })
    }
}
