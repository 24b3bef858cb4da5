//! Figures of a model of classes.

use serde::{Deserialize, Serialize};

use super::bins::{BinnedQuantile, SITE_BINS, area, bin, groups, quantiles};
use crate::analytics::error::{AnalyticsError, counts, require};
use crate::analytics::private::Part;
use crate::analytics::sum_codec::Field;
use crate::analytics::table::{Table, power, round};
use crate::analytics::trees::{MAX_CLASSES, TargetSpec};
use crate::metrics::MetricValue;

/// Resolution, in bits, of the grid for losses and probabilities.
const GRID: u32 = 16;
/// Largest loss of a row, in nats.
const MAX_LOSS: f64 = 16.0;
/// Largest squared distance of probabilities from a class.
const MAX_BRIER: f64 = 2.0;
/// How far the probabilities of a row may sum off 1.
const TOLERANCE: f64 = 1e-3;
/// Quantiles of the probability of the true class.
const SHARES: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];

/// Figures over all rows, and of each class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassesFigures {
    /// Share of rows whose class has the highest probability.
    pub accuracy: f64,
    /// Mean negative logarithm of the probability of the true class, in nats; of a row at most 16.
    pub loss: f64,
    /// Mean squared distance of the probabilities from the true class (Brier 1950), from 0 to 2.
    pub brier: f64,
    /// Number of rows by true class, then by predicted class; empty where `min_count` keeps it back.
    pub confusion: Vec<Vec<u64>>,
    /// In the order of the classes; empty where `min_count` keeps them back.
    pub classes: Vec<ClassFigures>,
}

/// Figures of one class against all others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassFigures {
    /// Number of rows of the class.
    pub rows: u64,
    /// Share of these rows that are predicted as the class: sensitivity. `None` without rows.
    pub recall: Option<f64>,
    /// Share of the rows of other classes that are not predicted as the class.
    pub specificity: Option<f64>,
    /// Share of the rows predicted as the class that are of it.
    pub precision: Option<f64>,
    /// Area under the receiver operating characteristic, by the probability of the class.
    pub auc: Option<f64>,
    /// The most that `auc` can be off, since pairs in one bin count as half. `None` in a private task.
    pub auc_error: Option<f64>,
    /// Mean distance of predicted and observed share over `calibration`, weighted by rows (expected calibration error).
    pub calibration_error: f64,
    /// Rows by their predicted probability of the class; groups below `min_count` are left out.
    pub calibration: Vec<CalibrationGroup>,
    /// Quantiles, over the rows of the class, of the probability that the model gives to it.
    pub probability: Vec<BinnedQuantile>,
}

/// Rows whose predictions lie in one range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibrationGroup {
    /// Least prediction, in the unit of the target.
    pub low: f64,
    /// Predictions are below this; those of the last group may equal it.
    pub high: f64,
    pub rows: u64,
    /// Mean of the predictions.
    pub predicted: f64,
    /// Share of rows of the class, or mean target.
    pub observed: f64,
}

impl CalibrationGroup {
    pub(super) fn is_sound(&self) -> bool {
        [self.low, self.high, self.predicted, self.observed].iter().all(|value| value.is_finite())
    }
}

/// The contribution of a model of classes: losses, squared distances, confused rows, then for each class rows of it and of
/// others by bin, and then the sums of probabilities by bin.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    classes: usize,
    bins: usize,
}

impl Classes {
    pub(super) fn new(classes: u32, bins: u32) -> Result<Self, AnalyticsError> {
        require((2..=MAX_CLASSES).contains(&classes), "target.classes", || {
            format!("are {classes}; 2 to {MAX_CLASSES} are possible")
        })?;
        Ok(Self { classes: classes as usize, bins: bins as usize })
    }

    fn cells(&self) -> usize {
        self.classes * self.classes
    }

    fn binned(&self) -> usize {
        self.classes * self.bins
    }

    pub(super) fn fields(&self, rows: u64) -> [Field; 4] {
        [
            Field { len: 1, bound: (rows * 16) << GRID },
            Field { len: 1, bound: (rows * 2) << GRID },
            Field { len: self.cells() + 2 * self.binned(), bound: rows },
            Field { len: self.binned(), bound: rows << GRID },
        ]
    }

    pub(super) fn private_parts(&self, rows: f64) -> [Part; 5] {
        let by_class = (self.classes as f64).sqrt();
        [
            Part::new(1, rows * MAX_LOSS * power(GRID), 1.0),
            Part::new(1, rows * MAX_BRIER * power(GRID), 1.0),
            Part::new(self.cells(), rows, 1.0),
            Part::new(2 * self.binned(), rows * by_class, 1.0),
            // The squares of probabilities that sum to 1 sum to 1 at most.
            Part::new(self.binned(), rows * (1.0 + TOLERANCE) * power(GRID), 1.0),
        ]
    }

    pub(super) fn check_table(&self, table: &Table) -> Result<(), AnalyticsError> {
        table.check(self.classes, |_| false)?;
        let targets = table.required_targets()?;
        let target = TargetSpec::Class { classes: u32::try_from(self.classes).unwrap_or(u32::MAX) };
        for (row, &class) in targets.iter().enumerate() {
            target.check(row, class)?;
            let wrong = |column: usize, value: f64, expected: &str| {
                Err(AnalyticsError::Value { row, column, value: value.to_string(), expected: expected.to_owned() })
            };
            let probabilities = table.row(row);
            if let Some(column) = probabilities.iter().position(|value| !(0.0..=1.0).contains(value)) {
                return wrong(column, probabilities[column], "a probability from 0 to 1");
            }
            let sum: f64 = probabilities.iter().sum();
            if (sum - 1.0).abs() > TOLERANCE {
                return wrong(0, sum, "1 as the sum of the probabilities of all classes");
            }
        }
        Ok(())
    }

    /// Counts the chosen rows; returns the bin of the site's accuracy.
    pub(super) fn count(&self, table: &Table, chosen: &[usize], out: &mut [i64]) -> usize {
        let (sums, rest) = out.split_at_mut(2);
        let (confusion, rest) = rest.split_at_mut(self.cells());
        let (binned, probabilities) = rest.split_at_mut(2 * self.binned());
        let mut right = 0_usize;
        for &row in chosen {
            let predicted = table.row(row);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a checked class")]
            let class = table.targets()[row] as usize;
            let highest = predicted.iter().copied().fold(0.0, f64::max);
            let best = predicted.iter().position(|&value| value >= highest).unwrap_or_default();
            right += usize::from(best == class);
            confusion[class * self.classes + best] += 1;
            let loss = (-libm::log(predicted[class])).min(MAX_LOSS);
            let all: f64 = predicted.iter().map(|value| value * value).sum();
            let brier = (all - 2.0 * predicted[class] + 1.0).clamp(0.0, MAX_BRIER);
            sums[0] += round(loss * power(GRID));
            sums[1] += round(brier * power(GRID));
            for (of, &value) in predicted.iter().enumerate() {
                let at = of * self.bins + bin(value, self.bins);
                binned[2 * at + usize::from(of != class)] += 1;
                probabilities[at] += round(value * power(GRID));
            }
        }
        bin(right as f64 / chosen.len().max(1) as f64, SITE_BINS)
    }

    /// The figures of at least one row, and what is kept back.
    pub(super) fn figures(
        &self,
        rows: u64,
        sum: &[i64],
        least: u64,
    ) -> Result<(ClassesFigures, Option<String>), AnalyticsError> {
        let sum = counts(&sum[1..])?;
        let (sums, rest) = sum.split_at(2);
        let (cells, rest) = rest.split_at(self.cells());
        let (binned, probabilities) = rest.split_at(2 * self.binned());
        let confusion: Vec<Vec<u64>> = cells.chunks_exact(self.classes).map(<[u64]>::to_vec).collect();
        let right: u64 = confusion.iter().enumerate().map(|(class, row)| row[class]).sum();
        let all = rows as f64;
        let mut figures = ClassesFigures {
            // Estimates with noise need not add up to the number of rows.
            accuracy: right as f64 / confusion.iter().flatten().sum::<u64>().max(1) as f64,
            loss: sums[0] as f64 / power(GRID) / all,
            brier: sums[1] as f64 / power(GRID) / all,
            confusion: Vec::new(),
            classes: Vec::new(),
        };
        let of_class: Vec<u64> = confusion.iter().map(|row| row.iter().sum()).collect();
        if of_class.iter().any(|count| (1..least).contains(count)) {
            let problem =
                format!("a class has fewer than {least} rows (min_count): figures of classes are not published");
            return Ok((figures, Some(problem)));
        }
        figures.classes = (0..self.classes)
            .map(|class| {
                let places = class * self.bins..(class + 1) * self.bins;
                let binned = &binned[2 * places.start..2 * places.end];
                self.class(class, &confusion, binned, &probabilities[places], least)
            })
            .collect();
        figures.confusion = confusion;
        Ok((figures, None))
    }

    fn class(
        &self,
        class: usize,
        confusion: &[Vec<u64>],
        binned: &[u64],
        probabilities: &[u64],
        least: u64,
    ) -> ClassFigures {
        let (own, others): (Vec<u64>, Vec<u64>) = binned.chunks_exact(2).map(|pair| (pair[0], pair[1])).unzip();
        let rows: u64 = confusion[class].iter().sum();
        let all: u64 = confusion.iter().flatten().sum();
        let right = confusion[class][class];
        let predicted: u64 = confusion.iter().map(|row| row[class]).sum();
        let share = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        let negatives = all - rows;
        let (auc, auc_error) = area(&own, &others).unzip();
        let calibration = self.calibration(&own, &others, probabilities);
        let seen: u64 = calibration.iter().map(|group| group.rows).sum();
        let error = |group: &CalibrationGroup| group.rows as f64 * (group.predicted - group.observed).abs();
        ClassFigures {
            rows,
            recall: share(right, rows),
            specificity: share(negatives - (predicted - right), negatives),
            precision: share(right, predicted),
            auc,
            auc_error,
            calibration_error: calibration.iter().map(error).sum::<f64>() / seen.max(1) as f64,
            calibration: calibration.into_iter().filter(|group| group.rows >= least).collect(),
            probability: quantiles(&own, &SHARES, |edge| edge),
        }
    }

    /// The groups that have rows.
    fn calibration(&self, own: &[u64], others: &[u64], probabilities: &[u64]) -> Vec<CalibrationGroup> {
        let mut found = Vec::new();
        for range in groups(self.bins) {
            let own: u64 = own[range.clone()].iter().sum();
            let rows = own + others[range.clone()].iter().sum::<u64>();
            if rows == 0 {
                continue;
            }
            let sum = probabilities[range.clone()].iter().sum::<u64>() as f64 / power(GRID);
            found.push(CalibrationGroup {
                low: range.start as f64 / self.bins as f64,
                high: range.end as f64 / self.bins as f64,
                rows,
                predicted: sum / rows as f64,
                observed: own as f64 / rows as f64,
            });
        }
        found
    }

    /// Whether figures read from a state are of this number of classes, and finite.
    pub(super) fn is_sound(&self, figures: &ClassesFigures) -> bool {
        let ClassesFigures { accuracy, loss, brier, confusion, classes } = figures;
        let is_square = confusion.len() == self.classes && confusion.iter().all(|row| row.len() == self.classes);
        [accuracy, loss, brier].iter().all(|value| value.is_finite())
            && (confusion.is_empty() || is_square)
            && (classes.is_empty() || classes.len() == self.classes)
            && classes.iter().all(ClassFigures::is_sound)
    }
}

impl ClassFigures {
    fn is_sound(&self) -> bool {
        let Self { recall, specificity, precision, auc, auc_error, calibration_error, .. } = self;
        let shares = [recall, specificity, precision, auc, auc_error];
        shares.iter().all(|share| share.is_none_or(f64::is_finite))
            && calibration_error.is_finite()
            && self.calibration.iter().all(CalibrationGroup::is_sound)
            && self.probability.iter().all(BinnedQuantile::is_sound)
    }
}

impl ClassesFigures {
    /// The figures of the round. AUC is that of the second of two classes, or the mean over classes.
    pub(super) fn metrics(&self, rows: u64) -> Vec<(String, MetricValue)> {
        let of = match &*self.classes {
            [_, second] => std::slice::from_ref(second),
            classes => classes,
        };
        let areas: Vec<f64> = of.iter().filter_map(|class| class.auc).collect();
        let auc = (!areas.is_empty()).then(|| areas.iter().sum::<f64>() / areas.len() as f64);
        let named =
            [("accuracy", Some(self.accuracy)), ("loss", Some(self.loss)), ("brier", Some(self.brier)), ("auc", auc)];
        let metric =
            |(name, value): (&str, Option<f64>)| Some((name.to_owned(), MetricValue { value: value?, count: rows }));
        named.into_iter().filter_map(metric).collect()
    }
}
