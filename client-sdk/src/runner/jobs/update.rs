//! Validation of an update, or of rows for an analysis, from another language.

use learning::parameters::{WrongLength, first_not_finite};
use learning::{AnalyticsError, AnalyticsSpec, Layout, MetricValue, Table};

/// Why an update or rows for an analysis are invalid. They stay on the device, and the job still accepts an answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum UpdateError {
    #[error(transparent)]
    Length(#[from] WrongLength),
    #[error("tensor {tensor:?} has {value} at position {position}")]
    NotFinite {
        tensor: String,
        /// Within the tensor, row-major.
        position: usize,
        value: f32,
    },
    #[error("examples is 0; an update is of at least one example")]
    NoExamples,
    #[error("metric {name:?} is {value}; leave out what was not measured")]
    Metric { name: String, value: f64 },
    /// Rows for a ready model.
    #[error("{numbers} numbers and {rows} classes are no {rows} rows of {width} numbers, at least one")]
    Rows {
        numbers: usize,
        /// Number of classes.
        rows: usize,
        /// Numbers in a row.
        width: usize,
    },
    /// A model was returned for an analysis.
    #[error("this task is an analysis: it takes rows, and no model")]
    Analysis,
    /// Rows were returned for a training job.
    #[error("this task trains a model: it takes that, and no rows for an analysis")]
    NoAnalysis,
    /// The rows do not fit the analysis.
    #[error(transparent)]
    Table(#[from] AnalyticsError),
}

/// Checks an update against the layout of its job's parameters, which an analysis does not have.
///
/// # Errors
/// [`UpdateError`]: the first thing that is wrong.
pub fn check_update(
    layout: &Layout,
    values: &[f32],
    examples: u64,
    metrics: &[(String, MetricValue)],
) -> Result<(), UpdateError> {
    if layout.is_empty() {
        return Err(UpdateError::Analysis);
    }
    if values.len() != layout.len() {
        return Err(WrongLength { expected: layout.len(), got: values.len() }.into());
    }
    if let Some(index) = first_not_finite(values) {
        let mut tensors = layout.tensors().iter().enumerate().map(|(number, tensor)| (tensor, layout.range(number)));
        let place = tensors.find(|(_, range)| range.contains(&index));
        let (tensor, position) =
            place.map(|(tensor, range)| (tensor.name.clone(), index - range.start)).unwrap_or_default();
        return Err(UpdateError::NotFinite { tensor, position, value: values[index] });
    }
    if examples == 0 {
        return Err(UpdateError::NoExamples);
    }
    match metrics.iter().find(|(_, metric)| !metric.value.is_finite()) {
        Some((name, metric)) => Err(UpdateError::Metric { name: name.clone(), value: metric.value }),
        None => Ok(()),
    }
}

/// Rows of `width` numbers, row by row, NaN for empty cells, with the value to predict if the analysis predicts one, as a table that
/// fits the analysis.
///
/// # Errors
/// [`UpdateError::NoAnalysis`] if the job is a training; [`UpdateError::Table`].
pub fn checked_rows(
    analysis: Option<&AnalyticsSpec>,
    width: usize,
    values: Vec<f64>,
    targets: Option<Vec<f64>>,
) -> Result<Table, UpdateError> {
    let analysis = analysis.ok_or(UpdateError::NoAnalysis)?;
    let rows = Table::with_holes(width, values)?;
    let table = match targets {
        Some(targets) => rows.with_targets(targets)?,
        None => rows,
    };
    analysis.check(&table)?;
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use learning::parameters::TensorSpec;

    #[test]
    fn rows_that_do_not_fit_their_analysis_are_told_and_a_model_is_no_answer_to_one() {
        let spec = r#"{ "kind": "trees", "method": "boosting", "max_rows": 10, "trees": 1, "depth": 1,
                        "columns": [{ "name": "x", "low": 0, "high": 1, "repeat": 2 }], "target": { "type": "class", "classes": 2 } }"#;
        let spec: AnalyticsSpec = serde_json::from_str(spec).unwrap();
        let made = |width, values: &[f64], targets: Option<&[f64]>| {
            let table = checked_rows(Some(&spec), width, values.to_vec(), targets.map(<[f64]>::to_vec));
            table.map_err(|error| error.to_string())
        };
        let table = made(2, &[0.0, 0.5, 1.0, 2.0], Some(&[0.0, 1.0])).unwrap();
        assert_eq!((table.rows(), table.row(1), table.targets()), (2, &[1.0, 2.0][..], &[0.0, 1.0][..]));
        for (width, values, targets, why) in [
            (1, &[0.0, 0.5][..], Some(&[0.0, 1.0][..]), "columns: got 1 where 2 are needed"),
            (2, &[0.0, 0.5, 1.0], Some(&[0.0]), "values in the last row: got 1"),
            (2, &[0.0, f64::NAN], Some(&[0.0]), "row 0, column 1 is NaN"),
            (2, &[0.0, 0.5], None, "targets: got 0 where 1 are needed"),
            (2, &[0.0, 0.5], Some(&[0.0, 1.0]), "targets: got 2 where 1 are needed"),
            (2, &[0.0, 0.5], Some(&[2.0]), "the target of row 0 is 2"),
            (2, &[], Some(&[]), "the table has no rows"),
        ] {
            let error = made(width, values, targets).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert_eq!(checked_rows(None, 1, vec![0.0], None), Err(UpdateError::NoAnalysis));
        assert_eq!(check_update(&Layout::none(), &[], 1, &[]), Err(UpdateError::Analysis));
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_place() {
        let tensor = |name: &str, shape: &[u64]| TensorSpec { name: name.to_owned(), shape: shape.to_vec() };
        let layout = Layout::new(vec![tensor("w", &[2, 2]), tensor("b", &[2])]).unwrap();
        let said = |values: &[f32], examples, metric: f64| {
            let metrics = [("loss".to_owned(), MetricValue { value: metric, count: 1 })];
            check_update(&layout, values, examples, &metrics).map_err(|error| error.to_string())
        };
        assert_eq!(said(&[0.0; 6], 1, 0.0), Ok(()));
        for (values, examples, metric, why) in [
            (&[0.0; 5][..], 1, 0.0, "got 5 parameters where the layout has 6"),
            (&[0.0, 0.0, 0.0, 0.0, 0.0, f32::NAN], 1, 0.0, "tensor \"b\" has NaN at position 1"),
            (&[0.0, f32::INFINITY, 0.0, 0.0, 0.0, 0.0], 1, 0.0, "tensor \"w\" has inf at position 1"),
            (&[0.0; 6], 0, 0.0, "examples is 0"),
            (&[0.0; 6], 1, f64::NAN, "metric \"loss\" is NaN"),
        ] {
            let error = said(values, examples, metric).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
