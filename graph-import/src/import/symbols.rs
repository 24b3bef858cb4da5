//! Which sizes of inputs are the batch, and which the length.

use std::collections::BTreeSet;

use graph::{Input, Size};

use super::file::Stored;
use crate::data::element_of;
use crate::error::{ImportError, Warning};
use crate::options::Options;
use crate::proto::{self, ValueInfo};

/// Inputs of the graph; those with a fixed value have none.
pub(super) struct Sizes {
    pub(super) inputs: Vec<Input>,
    pub(super) has_length: bool,
}

/// A size in the file.
enum Dim {
    Fixed(i64),
    Symbol(String),
}

/// Finds the inputs and their sizes.
pub(super) fn resolve(
    values: &[ValueInfo],
    stored: &[Stored],
    options: &Options,
    warnings: &mut Vec<Warning>,
) -> Result<Sizes, ImportError> {
    let initialized: BTreeSet<&str> = stored.iter().map(|stored| stored.name.as_str()).collect();
    let mut found = Vec::new();
    for value in values {
        let name = value.name.as_str();
        if !initialized.contains(name) && !options.values.contains_key(name) {
            found.push((value, dims(value, options)?));
        }
    }
    let mut batch: BTreeSet<&str> = options.batch.iter().map(String::as_str).collect();
    for (_, dims) in &found {
        if let Some(Dim::Symbol(symbol)) = dims.first() {
            batch.insert(symbol);
        }
    }
    let others: BTreeSet<&str> = found
        .iter()
        .flat_map(|(_, dims)| dims)
        .filter_map(|dim| if let Dim::Symbol(symbol) = dim { Some(symbol.as_str()) } else { None })
        .filter(|symbol| !batch.contains(symbol) && !options.length.iter().any(|length| length == symbol))
        .collect();
    if others.len() > 1 || (!others.is_empty() && !options.length.is_empty()) {
        return Err(ImportError::Model(format!(
            "the inputs have several symbolic sizes besides the batch ({}); name those of the length of sequences with `length`, \
             and fix the others with `size`",
            others.into_iter().collect::<Vec<_>>().join(", ")
        )));
    }
    let mut inputs = Vec::new();
    for (value, dims) in &found {
        inputs.push(input(value, dims, &batch, options, warnings)?);
    }
    if inputs.is_empty() {
        return Err(ImportError::Model("the file has no inputs".to_owned()));
    }
    let has_length = inputs.iter().flat_map(|input| &input.shape).any(|size| *size == Size::LENGTH);
    Ok(Sizes { inputs, has_length })
}

fn tensor_type(value: &ValueInfo) -> Result<&proto::TensorType, ImportError> {
    let tensor = value.kind.as_ref().and_then(|kind| kind.tensor.as_ref());
    tensor.ok_or_else(|| wrong(value, "it is no tensor; sequences, maps and optional values are not supported"))
}

fn wrong(value: &ValueInfo, why: impl Into<String>) -> ImportError {
    ImportError::Input { name: value.name.clone(), why: why.into() }
}

fn dims(value: &ValueInfo, options: &Options) -> Result<Vec<Dim>, ImportError> {
    let Some(shape) = &tensor_type(value)?.shape else {
        return Err(wrong(value, "its shape is not in the file; export it with one"));
    };
    let mut dims = Vec::new();
    for (axis, dim) in shape.dims.iter().enumerate() {
        let anonymous = || format!("{}.{axis}", value.name);
        let symbol = match &dim.size {
            Some(proto::Size::Fixed(size)) if *size > 0 && *size < 1 << 28 => {
                dims.push(Dim::Fixed(*size));
                continue;
            }
            Some(proto::Size::Named(symbol)) if !symbol.is_empty() => symbol.clone(),
            Some(proto::Size::Fixed(size)) if *size > 0 => {
                return Err(wrong(value, format!("axis {axis} has {size} elements, which is too many")));
            }
            Some(proto::Size::Named(_) | proto::Size::Fixed(_)) | None => anonymous(),
        };
        dims.push(match options.sizes.get(&symbol) {
            Some(size) => Dim::Fixed(i64::from(*size)),
            None => Dim::Symbol(symbol),
        });
    }
    Ok(dims)
}

fn input(
    value: &ValueInfo,
    dims: &[Dim],
    batch: &BTreeSet<&str>,
    options: &Options,
    warnings: &mut Vec<Warning>,
) -> Result<Input, ImportError> {
    let element = element_of(tensor_type(value)?.element).map_err(|why| wrong(value, why))?;
    let mut shape = Vec::new();
    for (axis, dim) in dims.iter().enumerate() {
        shape.push(match (axis, dim) {
            (0, Dim::Fixed(1)) => {
                warnings.push(Warning::FixedBatch(value.name.clone()));
                Size::BATCH
            }
            (0, Dim::Fixed(size)) => {
                return Err(wrong(
                    value,
                    format!("its first axis is fixed at {size}; it must be the batch: export it as dynamic"),
                ));
            }
            (_, Dim::Fixed(size)) => Size::fixed(*size),
            (_, Dim::Symbol(symbol)) if batch.contains(symbol.as_str()) => Size::BATCH,
            (_, Dim::Symbol(_)) => Size::LENGTH,
        });
    }
    if shape.is_empty() {
        return Err(wrong(value, "it is a single number without a batch; give its value with `value`"));
    }
    let name = options.names.get(&value.name).unwrap_or(&value.name).clone();
    Ok(Input { name, element, shape })
}
