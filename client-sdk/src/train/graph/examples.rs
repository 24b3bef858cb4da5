//! Examples as a graph takes them.

use graph::{Graph, GraphModel, Loss, Operation, Point, Size, wrapped};

use super::loss::Targets;
use super::named::{KIND, described, misfit};
use super::tensor::Tensor;
use crate::train::error::TrainError;
use crate::train::examples::{Column, Examples, TargetColumn};

/// Examples for a graph, without targets.
#[derive(Clone, Copy, Debug)]
pub struct GraphInputs<'a> {
    /// For each input of the graph, the elements of all examples, one example after the other.
    pub columns: &'a [Column<'a>],
    /// Number of examples, at least 1.
    pub count: usize,
    /// Length of the sequences; 1 for a graph without.
    pub length: usize,
}

impl<'a> GraphInputs<'a> {
    /// As examples; nothing reads their targets.
    pub(super) fn examples(self) -> Examples<'a> {
        let Self { columns, count, length } = self;
        Examples::Tensors { inputs: columns, targets: TargetColumn::Classes(&[]), count, length }
    }

    /// Batch and length of all examples.
    pub(super) fn point(self) -> Point {
        point(&self.examples(), self.count)
    }
}

/// Batch and length of a chunk of examples.
pub(super) fn point(examples: &Examples<'_>, batch: usize) -> Point {
    let length = match examples {
        Examples::Labelled { .. } => 1,
        Examples::Text { length, .. } | Examples::Tensors { length, .. } => *length,
    };
    let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Point { batch: narrow(batch), length: narrow(length) }
}

/// Checks that the examples fit the graph's inputs and its loss.
pub(in crate::train) fn check(model: &GraphModel, examples: &Examples<'_>) -> Result<(), TrainError> {
    check_inputs(model, examples)?;
    check_targets(model, examples)
}

/// Checks that the examples fit the graph's inputs.
pub(super) fn check_inputs(model: &GraphModel, examples: &Examples<'_>) -> Result<(), TrainError> {
    if examples.is_empty() {
        return Err(TrainError::NoExamples);
    }
    let graph = model.graph();
    let count = examples.count();
    let one = point(examples, 1);
    if let Some(lengths) = graph.lengths
        && !(lengths.least..=lengths.most).contains(&one.length)
    {
        let what = format!("sequences of {} to {} positions, not {}", lengths.least, lengths.most, one.length);
        return Err(TrainError::Inputs { kind: KIND, what });
    }
    let columns = columns(examples);
    if columns.len() != graph.inputs.len() {
        return Err(misfit(graph, &format!("{} inputs, not {}", graph.inputs.len(), columns.len())));
    }
    for (position, (input, column)) in graph.inputs.iter().zip(&columns).enumerate() {
        let width: i64 = input.shape.iter().map(|size: &Size| size.at(one).unwrap_or(0)).product();
        let width = usize::try_from(width).unwrap_or(0);
        let (element, got) = column.size();
        if element != input.element || got != count.saturating_mul(width) {
            let (name, kind) = (&input.name, described(input.element));
            let what = format!(
                "{width} {kind} an example as its input `{name}`; {count} examples with {got} {} were given",
                described(element)
            );
            return Err(misfit(graph, &what));
        }
        check_ids(graph, position, column, width)?;
    }
    Ok(())
}

/// The number of rows of the smallest parameter whose rows an input selects, such as a table of embeddings.
pub(super) fn table_size(graph: &Graph, position: usize) -> Option<usize> {
    let id = graph.input(position);
    let sizes = graph.nodes.iter().filter_map(|node| {
        let (Operation::Gather { axis }, [table, ids]) = (&node.operation, &node.inputs[..]) else { return None };
        let parameter = (0..graph.parameters.len()).find(|&number| graph.parameter(number) == *table)?;
        let size = graph.parameters[parameter].shape.get(*axis as usize).filter(|_| *ids == id)?;
        usize::try_from(*size).ok()
    });
    sizes.min()
}

/// Checks the integers of an input that selects rows of a parameter. `width` is the number of elements of an example.
fn check_ids(graph: &Graph, position: usize, column: &Column<'_>, width: usize) -> Result<(), TrainError> {
    let name = &graph.inputs[position].name;
    let Some(size) = table_size(graph, position) else { return Ok(()) };
    let is_outside = |id: &(usize, i64)| wrapped(id.1, size).is_none();
    let outside = match column {
        Column::F32(_) | Column::Bool(_) => None,
        Column::I64(ids) => ids.iter().copied().enumerate().find(is_outside),
        Column::U32(ids) => ids.iter().map(|&id| i64::from(id)).enumerate().find(is_outside),
    };
    let Some((at, id)) = outside else { return Ok(()) };
    let (most, example) = (size - 1, at.checked_div(width).unwrap_or_default());
    Err(misfit(graph, &format!("integers from 0 to {most} as its input `{name}`, not {id} (example {example})")))
}

/// Checks number and range of the targets.
fn check_targets(model: &GraphModel, examples: &Examples<'_>) -> Result<(), TrainError> {
    let predictions = model.predictions(point(examples, 1)) * examples.count();
    let needs = |needs: &str| {
        let what = format!("{needs} as targets: its loss is {}", model.loss().name());
        TrainError::Inputs { kind: KIND, what }
    };
    let lengths = |got: usize| {
        if got == predictions {
            Ok(())
        } else {
            Err(TrainError::Lengths { what: "targets", expected: predictions, got })
        }
    };
    match (model.classes(), targets(examples)) {
        (Some(classes), Targets::Classes(labels)) => {
            lengths(labels.len())?;
            let ignored = match model.loss() {
                Loss::NextToken { ignore } => *ignore,
                Loss::CrossEntropy { .. }
                | Loss::BceWithLogits { .. }
                | Loss::Mse
                | Loss::Huber { .. }
                | Loss::Poisson => None,
            };
            let is_wrong = |label: u32| label as usize >= classes && Some(label) != ignored;
            match labels.iter().enumerate().find(|(_, label)| is_wrong(**label)) {
                None => Ok(()),
                Some((example, &label)) => {
                    let most = u32::try_from(classes - 1).unwrap_or(u32::MAX);
                    Err(TrainError::Label { example, label, most })
                }
            }
        }
        (None, Targets::Numbers(numbers)) => {
            lengths(numbers.len())?;
            let is_share = matches!(model.loss(), Loss::BceWithLogits { .. });
            let is_count = matches!(model.loss(), Loss::Poisson);
            let is_wrong = |number: f32| {
                !number.is_finite() || (is_share && !(0.0..=1.0).contains(&number)) || (is_count && number < 0.0)
            };
            match numbers.iter().position(|number| is_wrong(*number)) {
                None => Ok(()),
                Some(at) => Err(needs(&format!(
                    "{}, not {} (number {at})",
                    if is_share {
                        "numbers from 0 to 1"
                    } else if is_count {
                        "counts"
                    } else {
                        "finite numbers"
                    },
                    numbers[at]
                ))),
            }
        }
        (Some(classes), Targets::Numbers(_)) => Err(needs(&format!("classes from 0 to {}", classes - 1))),
        (None, Targets::Classes(_)) => Err(needs("numbers")),
    }
}

/// The inputs in the graph's order.
fn columns<'a>(examples: &Examples<'a>) -> Vec<Column<'a>> {
    match *examples {
        Examples::Labelled { features, .. } => vec![Column::F32(features)],
        Examples::Text { inputs, .. } => vec![Column::U32(inputs)],
        Examples::Tensors { inputs, .. } => inputs.to_vec(),
    }
}

fn targets<'a>(examples: &Examples<'a>) -> Targets<'a> {
    match *examples {
        Examples::Labelled { labels, .. } => Targets::Classes(labels),
        Examples::Text { targets, .. } | Examples::Tensors { targets: TargetColumn::Classes(targets), .. } => {
            Targets::Classes(targets)
        }
        Examples::Tensors { targets: TargetColumn::Numbers(targets), .. } => Targets::Numbers(targets),
    }
}

/// The targets of a chunk.
#[derive(Default)]
pub(super) struct ChosenTargets {
    classes: Vec<u32>,
    numbers: Vec<f32>,
}

impl ChosenTargets {
    /// Copies the targets of the chosen examples.
    pub(super) fn take(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Targets<'_> {
        let count = examples.count();
        match targets(examples) {
            Targets::Classes(all) => {
                gather(all, chosen, all.len() / count, &mut self.classes);
                Targets::Classes(&self.classes)
            }
            Targets::Numbers(all) => {
                gather(all, chosen, all.len() / count, &mut self.numbers);
                Targets::Numbers(&self.numbers)
            }
        }
    }
}

fn gather<T: Copy>(all: &[T], chosen: &[usize], width: usize, into: &mut Vec<T>) {
    into.clear();
    chosen.iter().for_each(|&example| into.extend_from_slice(&all[example * width..][..width]));
}

/// Copies the inputs of the chosen examples to the tensors of a graph's inputs, in its order.
pub(super) fn feed(inputs: &mut [Tensor], examples: &Examples<'_>, chosen: &[usize]) {
    let count = examples.count();
    for (column, into) in columns(examples).into_iter().zip(inputs) {
        match (column, into) {
            (Column::F32(all), Tensor::F32(into)) => gather(all, chosen, all.len() / count, into),
            (Column::I64(all), Tensor::I64(into)) => gather(all, chosen, all.len() / count, into),
            (Column::U32(all), Tensor::I64(into)) => {
                let width = all.len() / count;
                into.clear();
                for &example in chosen {
                    into.extend(all[example * width..][..width].iter().map(|&value| i64::from(value)));
                }
            }
            (Column::Bool(all), Tensor::Bool(into)) => gather(all, chosen, all.len() / count, into),
            // The examples were checked against the graph.
            (Column::F32(_) | Column::I64(_) | Column::U32(_) | Column::Bool(_), _) => {}
        }
    }
}
