//! Graphs whose inputs have names: an app passes columns by name, and the library trains and computes the task's graph.

use client_sdk::runner::named;
use client_sdk::train::{Column as Borrowed, GraphOutput};
use client_sdk::{Elements, NamedExamples, Targets};

use crate::error::TributaryError;
use crate::job::{Job, floats};
use crate::model::Model;

/// An input of a graph, for all examples.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Record))]
pub struct Column {
    /// Its name in the graph of `model.architecture`.
    pub name: String,
    /// The elements of all examples, one example after the other, each row-major.
    pub elements: ColumnElements,
}

/// The elements of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Enum))]
pub enum ColumnElements {
    /// For an input of floats.
    Floats {
        /// 32-bit floats, little-endian.
        bytes: Vec<u8>,
    },
    /// For an input of integers, such as ids from 0 on.
    Integers {
        /// 64-bit integers, little-endian.
        bytes: Vec<u8>,
    },
    /// For an input of truth values, such as a mask.
    Truths {
        /// One byte each: 0 is false, 1 is true.
        bytes: Vec<u8>,
    },
}

/// The targets of all examples, one example after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Enum))]
pub enum GraphTargets {
    /// For `cross_entropy` and `next_token`.
    Classes {
        /// A class for each example, or a token for each position.
        classes: Vec<u32>,
    },
    /// For the other losses: a number for each output.
    Numbers {
        /// 32-bit floats, little-endian.
        bytes: Vec<u8>,
    },
}

/// Examples of a graph, with targets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Record))]
pub struct GraphExamples {
    /// One for each input of the graph, in any order.
    pub columns: Vec<Column>,
    /// As the graph's loss takes them.
    pub targets: GraphTargets,
    /// Number of examples, at least 1.
    pub count: u64,
    /// Length of their sequences; 1 for a graph without.
    pub length: u64,
}

impl Job {
    /// Trains the task's graph, and submits the result, with the received model's metrics on the held-out examples.
    pub(crate) fn train_named(
        &self,
        examples: NamedExamples,
        held_out: Option<NamedExamples>,
    ) -> Result<(), TributaryError> {
        let dataset = |examples: NamedExamples| {
            named(examples, self.training()).map_err(|error| TributaryError::Update(error.to_string()))
        };
        self.train_on(dataset(examples)?, held_out.map(dataset).transpose()?)
    }
}

#[cfg_attr(feature = "uniffi", uniffi::export)]
impl Job {
    /// Trains the task's graph (`model.architecture`) by the plan and the job's constraints, and submits the result. Waits
    /// until it is trained. With held-out examples, a job of the shared model also submits the initial model's `loss` on
    /// them, and its `accuracy` unless the model predicts numbers.
    ///
    /// # Errors
    /// [`TributaryError::Update`] if a column is unknown, missing, given twice, of another type or length, or has an id
    /// outside its table: the text lists the graph's inputs; or if the targets do not fit, or the task's model is no
    /// graph. The job still takes an answer. Otherwise as for [`Job::train`].
    pub fn train_graph(&self, examples: GraphExamples, held_out: Option<GraphExamples>) -> Result<(), TributaryError> {
        self.train_named(given(examples)?, held_out.map(given).transpose()?)
    }
}

impl Model {
    /// The first output of a graph for its inputs by name.
    pub(crate) fn output(
        &self,
        columns: &[(&str, Borrowed<'_>)],
        count: usize,
        length: usize,
    ) -> Result<GraphOutput, TributaryError> {
        self.kept().output(columns, count, length).map_err(|error| TributaryError::Argument(error.to_string()))
    }
}

#[cfg_attr(feature = "uniffi", uniffi::export)]
impl Model {
    /// The first output of a graph (`model.architecture`) for `count` examples, one example after the other: 32-bit floats,
    /// little-endian. `length` is that of the sequences, 1 for a graph without.
    ///
    /// # Errors
    /// [`TributaryError::Argument`] if the model is no graph, or a column is unknown, missing, given twice, of another type
    /// or length, or has an id outside its table: the text lists the graph's inputs.
    pub fn predict(&self, columns: Vec<Column>, count: u64, length: u64) -> Result<Vec<u8>, TributaryError> {
        let columns = columns.into_iter().map(named_elements).collect::<Result<Vec<_>, _>>();
        let columns = columns.map_err(|error| TributaryError::Argument(error.to_string()))?;
        let borrowed: Vec<_> = columns.iter().map(|(name, elements)| (&name[..], elements.column())).collect();
        let output = self.output(&borrowed, whole(count), whole(length))?;
        Ok(output.values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }
}

/// Examples as Kotlin and Swift hand them over.
fn given(examples: GraphExamples) -> Result<NamedExamples, TributaryError> {
    let GraphExamples { columns, targets, count, length } = examples;
    let targets = match targets {
        GraphTargets::Classes { classes } => Targets::Classes(classes),
        GraphTargets::Numbers { bytes } => Targets::Numbers(floats(&bytes)?),
    };
    let inputs = columns.into_iter().map(named_elements).collect::<Result<_, _>>()?;
    Ok(NamedExamples { inputs, targets, count: whole(count), length: whole(length) })
}

/// A column as Kotlin and Swift hand it over.
fn named_elements(Column { name, elements }: Column) -> Result<(String, Elements), TributaryError> {
    let elements = match elements {
        ColumnElements::Floats { bytes } => Elements::F32(floats(&bytes)?),
        ColumnElements::Integers { bytes } => Elements::I64(integers(&bytes)?),
        ColumnElements::Truths { bytes } => {
            Elements::Bool(truths(&bytes).map_err(|why| TributaryError::Update(format!("column `{name}`: {why}")))?)
        }
    };
    Ok((name, elements))
}

fn integers(bytes: &[u8]) -> Result<Vec<i64>, TributaryError> {
    let (integers, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(TributaryError::Update(format!("{} bytes are no integers, of 8 bytes each", bytes.len())));
    }
    Ok(integers.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect())
}

/// Truth values, one byte each.
///
/// # Errors
/// The first byte that is neither.
pub(crate) fn truths(bytes: &[u8]) -> Result<Vec<bool>, String> {
    let truth = |(position, byte): (usize, &u8)| match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(format!("byte {position} of its truth values is {other}; 0 is false, and 1 is true")),
    };
    bytes.iter().enumerate().map(truth).collect()
}

/// A number that memory cannot have fits no column, and is refused with the columns.
fn whole(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
pub(crate) mod tests;
