//! Kaplan-Meier curves of groups, and the log-rank test between them, on a grid of time.
//!
//! One round: participants count, for each group and step of time, the rows with an event and those whose observation ended without one.
//! Curves (Kaplan and Meier 1958), their errors (Greenwood 1926) and the test (Mantel 1966) follow from the summed counts exactly.

use serde::{Deserialize, Serialize};

use super::coefficients::NORMAL_BOUND;
use super::newton::Symmetric;
use super::tails::chi_square_above;
use super::variables::{Time, VariableSpec, Variables, check_binary};
use crate::analytics::error::{AnalyticsError, counts, require, sound};
use crate::analytics::private::Part;
use crate::analytics::procedure::{Advanced, Procedure};
use crate::analytics::sum_codec::Field;
use crate::analytics::table::{Table, check_rows};
use crate::metrics::MetricValue;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SurvivalSpec {
    /// Cap on the rows a participant contributes; of more, evenly spaced ones are used.
    pub max_rows: u32,
    /// In the order of the table's columns: a time, and a category if groups are compared. The target is 1 for an event, else 0.
    pub columns: Vec<VariableSpec>,
    /// A curve has a point after this many further events, and a group with fewer is not published. Default 5.
    #[serde(default = "five")]
    pub min_count: u32,
}

pub(super) fn five() -> u32 {
    5
}

/// The curves, after the round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SurvivalState {
    /// Number of completed rounds.
    pub round: u32,
    /// Number of rows in all groups.
    pub rows: u64,
    /// One for each category, or one of all rows.
    pub groups: Vec<SurvivalCurve>,
    /// Between the groups, if there are several.
    pub log_rank: Option<ChiSquareTest>,
    /// Why nothing is published.
    pub problem: Option<String>,
}

/// The curve of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SurvivalCurve {
    pub rows: u64,
    pub events: u64,
    /// First time that half of the group or less survives, also between two points.
    pub median: Option<f64>,
    pub points: Vec<SurvivalPoint>,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SurvivalPoint {
    pub time: f64,
    /// Rows whose event or last observation is not before this time.
    pub at_risk: u64,
    /// Events after the point before, up to this time.
    pub events: u64,
    /// Estimated share that survives this time.
    pub survival: f64,
    /// Of `survival`, by Greenwood's formula.
    pub standard_error: f64,
    /// Lower end of the 95 % confidence interval, by the complementary log-log transformation.
    pub low: f64,
    /// Upper end of the 95 % confidence interval.
    pub high: f64,
}

/// The result of a chi-square test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChiSquareTest {
    pub chi_square: f64,
    pub degrees_of_freedom: u32,
    pub p_value: f64,
}

impl ChiSquareTest {
    pub(super) fn new(chi_square: f64, degrees_of_freedom: u32) -> Self {
        let p_value = chi_square_above(chi_square, degrees_of_freedom);
        Self { chi_square, degrees_of_freedom, p_value }
    }

    pub(super) fn is_sound(&self) -> bool {
        self.chi_square.is_finite() && self.p_value.is_finite()
    }
}

/// The procedure of a validated specification.
#[derive(Clone, Debug)]
pub(in crate::analytics) struct Survival {
    spec: SurvivalSpec,
    time: Time,
    /// Column of the group, and number of groups.
    groups: Option<(usize, usize)>,
}

/// Counts at one step of time.
#[derive(Clone, Copy, Default)]
struct Step {
    events: u64,
    /// Rows with an event or the end of their observation at this step or later.
    at_risk: u64,
}

impl SurvivalSpec {
    /// Rejects rows without a time, a group or an event that is 0 or 1.
    pub(in crate::analytics) fn check_table(&self, table: &Table) -> Result<(), AnalyticsError> {
        Variables::new(&self.columns)?.check_rows(table)?;
        check_binary(table)
    }
}

impl Survival {
    pub(in crate::analytics) fn new(spec: SurvivalSpec) -> Result<Self, AnalyticsError> {
        check_rows(spec.max_rows)?;
        let variables = Variables::new(&spec.columns)?;
        variables.allow(&["time", "category"], "an analysis of survival")?;
        let time = variables.required_time()?;
        require(spec.columns.len() <= 2, "columns", || "must be a time and at most one category".to_owned())?;
        require(spec.min_count > 0, "min_count", || "is 0; it must be at least 1".to_owned())?;
        let groups = variables.groups();
        Ok(Self { spec, time, groups })
    }

    fn groups(&self) -> usize {
        self.groups.map_or(1, |(_, groups)| groups)
    }

    /// Steps of a group: 0, and those of the grid.
    fn steps(&self) -> usize {
        self.time.steps + 1
    }

    /// Number of counts of events; as many follow of observations that ended without one.
    fn cells(&self) -> usize {
        self.groups() * self.steps()
    }

    /// The steps of a group.
    fn history(&self, counts: &[u64], group: usize) -> Vec<Step> {
        let (events, others) = counts.split_at(self.cells());
        let of = |counts: &[u64]| counts[group * self.steps()..][..self.steps()].to_vec();
        let (events, others) = (of(events), of(others));
        let mut history: Vec<Step> =
            events.iter().zip(&others).map(|(&events, &others)| Step { events, at_risk: events + others }).collect();
        for step in (1..history.len()).rev() {
            history[step - 1].at_risk += history[step].at_risk;
        }
        history
    }

    fn curve(&self, history: &[Step]) -> SurvivalCurve {
        let (mut survival, mut spread, mut since) = (1.0, 0.0, 0);
        let (mut points, mut median) = (Vec::new(), None);
        for (index, step) in history.iter().enumerate().filter(|(_, step)| step.events > 0) {
            let (events, at_risk) = (step.events as f64, step.at_risk as f64);
            let left = at_risk - events;
            survival *= left / at_risk;
            spread += if left > 0.0 { events / (at_risk * left) } else { 0.0 };
            since += step.events;
            if survival <= 0.5 && median.is_none() {
                median = Some(self.time.at(index));
            }
            if since < u64::from(self.spec.min_count) {
                continue;
            }
            let (low, high) = interval(survival, spread);
            let time = self.time.at(index);
            let standard_error = survival * spread.sqrt();
            points.push(SurvivalPoint {
                time,
                at_risk: step.at_risk,
                events: since,
                survival,
                standard_error,
                low,
                high,
            });
            since = 0;
        }
        let events = history.iter().map(|step| step.events).sum();
        SurvivalCurve { rows: history.first().map_or(0, |step| step.at_risk), events, median, points }
    }
}

/// The 95 % confidence interval of a share, given the variance of its logarithm.
fn interval(survival: f64, spread: f64) -> (f64, f64) {
    if survival <= 0.0 || survival >= 1.0 {
        return (survival, survival);
    }
    let log = libm::log(survival);
    let width = NORMAL_BOUND * spread.sqrt() / log.abs();
    let at = |shift: f64| libm::exp(log * libm::exp(shift));
    (at(width), at(-width))
}

/// The log-rank test between groups; `None` if no two groups can be compared.
fn log_rank(histories: &[Vec<Step>]) -> Option<ChiSquareTest> {
    let compared = histories.len() - 1;
    let (mut excess, mut variance) = (vec![0.0; compared], Vec::new());
    let mut square = vec![0.0; compared * compared];
    for step in 0..histories[0].len() {
        let events = histories.iter().map(|history| history[step].events).sum::<u64>() as f64;
        let at_risk = histories.iter().map(|history| history[step].at_risk).sum::<u64>() as f64;
        if events == 0.0 {
            continue;
        }
        let share = |group: usize| histories[group][step].at_risk as f64 / at_risk;
        let factor = if at_risk > 1.0 { events * (at_risk - events) / (at_risk - 1.0) } else { 0.0 };
        for row in 0..compared {
            excess[row] += histories[row][step].events as f64 - events * share(row);
            for column in 0..=row {
                let same = f64::from(u8::from(row == column));
                square[row * compared + column] += factor * share(row) * (same - share(column));
            }
        }
    }
    for row in 0..compared {
        variance.extend_from_slice(&square[row * compared..=row * compared + row]);
    }
    let solved = Symmetric::of_triangle(compared, &variance).solve(&excess).ok()?;
    let chi_square = solved.iter().zip(&excess).fold(0.0, |sum, (a, b)| sum + a * b);
    Some(ChiSquareTest::new(chi_square, u32::try_from(compared).ok()?))
}

impl Procedure for Survival {
    type State = SurvivalState;

    fn fields(&self) -> Vec<Field> {
        vec![Field { len: 2 * self.cells(), bound: u64::from(self.spec.max_rows) }]
    }

    fn rounds(&self) -> u32 {
        1
    }

    fn done(&self, state: &SurvivalState) -> u32 {
        state.round
    }

    fn initial(&self) -> SurvivalState {
        SurvivalState { round: 0, rows: 0, groups: Vec::new(), log_rank: None, problem: None }
    }

    fn check(&self, state: &SurvivalState) -> Result<(), AnalyticsError> {
        let is_finite = |point: &SurvivalPoint| {
            [point.time, point.survival, point.standard_error, point.low, point.high].iter().all(|v| v.is_finite())
        };
        let fits = |curve: &SurvivalCurve| {
            curve.points.len() <= self.steps()
                && curve.points.iter().all(is_finite)
                && curve.median.is_none_or(f64::is_finite)
        };
        sound(state.round <= 1, "it is past the last round")?;
        let groups = state.groups.len();
        sound(groups == 0 || groups == self.groups(), "it has another number of groups")?;
        sound(state.groups.iter().all(fits), "a curve is wrong")?;
        sound(state.log_rank.is_none_or(|test| test.is_sound()), "its test is not finite")
    }

    fn private_parts(&self, _state: &SurvivalState) -> Option<Vec<Part>> {
        None
    }

    fn contribution(&self, _state: &SurvivalState, table: &Table, out: &mut [i64]) -> Result<(), AnalyticsError> {
        self.spec.check_table(table)?;
        for index in table.counted(self.spec.max_rows) {
            let row = table.row(index);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a checked category")]
            let group = self.groups.map_or(0, |(column, _)| row[column] as usize);
            let (step, is_within) = self.time.index(row);
            let is_event = table.targets()[index] == 1.0 && is_within;
            let offset = if is_event { 0 } else { self.cells() };
            out[offset + group * self.steps() + step] += 1;
        }
        Ok(())
    }

    fn advance(
        &self,
        state: &SurvivalState,
        sum: &[i64],
        _participants: u32,
    ) -> Result<Advanced<SurvivalState>, AnalyticsError> {
        let counts = counts(sum)?;
        let histories: Vec<_> = (0..self.groups()).map(|group| self.history(&counts, group)).collect();
        let curves: Vec<_> = histories.iter().map(|history| self.curve(history)).collect();
        let mut next = SurvivalState { round: 1, ..state.clone() };
        let least = u64::from(self.spec.min_count);
        if let Some(group) = curves.iter().position(|curve| curve.events < least) {
            next.problem =
                Some(format!("group {group} has fewer than {least} events (min_count): nothing is published"));
            return Ok(Advanced { state: next, metrics: Vec::new() });
        }
        next.rows = curves.iter().map(|curve| curve.rows).sum();
        let events = curves.iter().map(|curve| curve.events).sum::<u64>() as f64;
        next.log_rank = if histories.len() > 1 { log_rank(&histories) } else { None };
        next.groups = curves;
        let share = MetricValue { value: events / next.rows.max(1) as f64, count: next.rows };
        Ok(Advanced { state: next, metrics: vec![("event_rate".to_owned(), share)] })
    }
}
