//! What exporters do to models without a word.

use std::collections::{BTreeMap, HashMap};

use crate::build::Initializer;
use crate::error::Warning;

/// Whether an exporter invented this name; such names change with versions of PyTorch.
pub(crate) fn is_invented(name: &str) -> bool {
    let digits = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    name.starts_with("onnx::")
        || name.starts_with('/')
        || digits(name)
        || name.strip_prefix("val_").is_some_and(digits)
        || name.strip_prefix("_val_").is_some_and(digits)
}

/// Whether a name is that of running statistics in PyTorch.
pub(crate) fn is_running_statistic(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    matches!(last, "running_mean" | "running_var" | "num_batches_tracked")
}

/// Pairs of parameters with the same elements that are not all one number, one the other or its transpose.
pub(crate) fn equal_parameters(parameters: &[Initializer]) -> Vec<Warning> {
    let mut seen: HashMap<(u64, usize), &Initializer> = HashMap::new();
    let mut warnings = Vec::new();
    for parameter in parameters {
        let first = parameter.values.first().map(|value| value.to_bits());
        if parameter.values.iter().all(|value| Some(value.to_bits()) == first) {
            continue;
        }
        // The sum does not depend on the order, so it is the same for a transpose.
        let sum = parameter.values.iter().fold(0_u64, |sum, value| sum.wrapping_add(u64::from(value.to_bits())));
        match seen.insert((sum, parameter.values.len()), parameter) {
            Some(other) if is_equal(other, parameter) => {
                warnings.push(Warning::Equal(other.name.clone(), parameter.name.clone()));
            }
            Some(_) | None => {}
        }
    }
    warnings
}

fn is_equal(a: &Initializer, b: &Initializer) -> bool {
    if a.shape == b.shape {
        return a.values.iter().zip(b.values.iter()).all(|(a, b)| a.to_bits() == b.to_bits());
    }
    let (&[rows, columns], &[other_rows, other_columns]) = (a.shape.as_slice(), b.shape.as_slice()) else {
        return false;
    };
    let (Ok(height), Ok(width)) = (usize::try_from(rows), usize::try_from(columns)) else { return false };
    rows == other_columns
        && columns == other_rows
        && (0..height * width).all(|at| a.values[at].to_bits() == b.values[at % width * height + at / width].to_bits())
}

/// The first name that occurs twice.
pub(crate) fn duplicate<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen: BTreeMap<&str, ()> = BTreeMap::new();
    names.into_iter().find(|name| seen.insert(name, ()).is_some())
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn invented_names_are_recognized() {
        for name in ["onnx::MatMul_258", "val_12", "133", "/model/Constant_output_0"] {
            assert!(is_invented(name), "{name}");
        }
        for name in ["val_scale", "layer.0.weight", "x1"] {
            assert!(!is_invented(name), "{name}");
        }
    }

    #[test]
    fn transposed_parameter_is_equal() {
        let parameter = |name: &str, shape: [i64; 2], values: [f32; 6]| Initializer {
            name: name.to_owned(),
            shape: shape.to_vec(),
            values: Rc::new(values.to_vec()),
        };
        let a = parameter("a", [2, 3], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let b = parameter("b", [3, 2], [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        let c = parameter("c", [3, 2], [4.0, 1.0, 2.0, 5.0, 3.0, 6.0]);
        assert_eq!(equal_parameters(&[a.clone(), b]).len(), 1);
        assert_eq!(equal_parameters(&[a, c]).len(), 0);
    }
}
