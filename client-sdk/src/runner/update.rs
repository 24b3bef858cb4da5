//! An update of a program in another language, looked at before it is handed in.

use learning::parameters::{WrongLength, first_not_finite};
use learning::{Layout, MetricValue};

/// Why an update cannot be handed in. Nothing was sent, and the job still takes an answer.
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
    /// Of examples for a ready model.
    #[error("{numbers} numbers and {rows} classes are no {rows} rows of {width} numbers, at least one")]
    Rows {
        numbers: usize,
        /// Number of classes.
        rows: usize,
        /// Numbers in a row.
        width: usize,
    },
}

/// Checks an update against the layout of its job's parameters.
///
/// # Errors
/// [`UpdateError`]: the first thing that is wrong.
pub fn check_update(
    layout: &Layout,
    values: &[f32],
    examples: u64,
    metrics: &[(String, MetricValue)],
) -> Result<(), UpdateError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use learning::parameters::TensorSpec;

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
