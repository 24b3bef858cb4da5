//! Examples that a trainer owns.

use crate::models::GraphModel;
use crate::train::{Column, Examples, TargetColumn, TrainError, in_order};

/// Examples owned by the trainer.
#[derive(Clone, Debug, PartialEq)]
pub enum Dataset {
    /// Rows of numbers, each with a class.
    Labelled {
        /// `labels.len() * width` numbers, row after row.
        features: Vec<f32>,
        /// Class of each row.
        labels: Vec<u32>,
        /// Length of a row.
        width: usize,
    },
    /// Sequences of characters, with the next character at each position.
    Text {
        /// Concatenated sequences.
        inputs: Vec<u32>,
        /// The character after each of `inputs`.
        targets: Vec<u32>,
        /// Length of a sequence, in characters.
        length: usize,
    },
    /// Inputs of a graph, in its order, with targets.
    Tensors {
        /// For each input of the graph, the elements of all examples, one example after the other.
        inputs: Vec<Elements>,
        /// The targets of all examples.
        targets: Targets,
        /// Number of examples.
        count: usize,
        /// Length of the sequences; 1 for a graph without.
        length: usize,
    },
}

/// Elements of an input of all examples, one example after the other.
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    /// Floats.
    F32(Vec<f32>),
    /// Integers.
    I64(Vec<i64>),
    /// Truth values, for an input such as a mask.
    Bool(Vec<bool>),
}

impl Elements {
    /// The elements of the column, borrowed.
    #[must_use]
    pub fn column(&self) -> Column<'_> {
        match self {
            Self::F32(values) => Column::F32(values),
            Self::I64(values) => Column::I64(values),
            Self::Bool(values) => Column::Bool(values),
        }
    }
}

impl From<Column<'_>> for Elements {
    /// A copy of the elements.
    fn from(column: Column<'_>) -> Self {
        match column {
            Column::F32(values) => Self::F32(values.to_vec()),
            Column::I64(values) => Self::I64(values.to_vec()),
            Column::Bool(values) => Self::Bool(values.to_vec()),
            Column::U32(values) => Self::I64(values.iter().copied().map(i64::from).collect()),
        }
    }
}

/// Targets of all examples, one example after the other.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// A class or token for each prediction.
    Classes(Vec<u32>),
    /// A number for each output.
    Numbers(Vec<f32>),
}

impl Targets {
    /// The targets of the examples, borrowed.
    #[must_use]
    pub fn column(&self) -> TargetColumn<'_> {
        match self {
            Self::Classes(classes) => TargetColumn::Classes(classes),
            Self::Numbers(numbers) => TargetColumn::Numbers(numbers),
        }
    }
}

/// Examples of a graph: its inputs by name, in any order, with targets.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedExamples {
    /// Each input's name, and the elements of all examples, one example after the other.
    pub inputs: Vec<(String, Elements)>,
    /// The targets of all examples.
    pub targets: Targets,
    /// Number of examples, at least 1.
    pub count: usize,
    /// Length of the sequences; 1 for a graph without.
    pub length: usize,
}

impl NamedExamples {
    /// The examples with their inputs in the graph's order. Training checks numbers and types of the elements.
    ///
    /// # Errors
    /// [`TrainError::Inputs`] names an input that is unknown, missing or given twice, and lists the graph's inputs.
    pub fn dataset(self, model: &GraphModel) -> Result<Dataset, TrainError> {
        let Self { inputs, targets, count, length } = self;
        let (names, elements): (Vec<_>, Vec<_>) = inputs.into_iter().unzip();
        let inputs = in_order(model.graph(), names.iter().map(String::as_str).zip(elements))?;
        Ok(Dataset::Tensors { inputs, targets, count, length })
    }
}

impl Dataset {
    /// A dataset without examples.
    #[must_use]
    pub fn none() -> Self {
        Self::Labelled { features: Vec::new(), labels: Vec::new(), width: 1 }
    }

    /// Calls `work` with the borrowed examples, for training or evaluation; returns its result.
    pub fn with_examples<T>(&self, work: impl FnOnce(Examples<'_>) -> T) -> T {
        match self {
            Self::Labelled { features, labels, width } => work(Examples::Labelled { features, labels, width: *width }),
            Self::Text { inputs, targets, length } => work(Examples::Text { inputs, targets, length: *length }),
            Self::Tensors { inputs, targets, count, length } => {
                let inputs: Vec<_> = inputs.iter().map(Elements::column).collect();
                work(Examples::Tensors { inputs: &inputs, targets: targets.column(), count: *count, length: *length })
            }
        }
    }

    /// Number of rows, sequences or examples.
    #[must_use]
    pub fn count(&self) -> usize {
        self.with_examples(|examples| examples.count())
    }

    /// Whether there are no examples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use graph_import::{Imported, Options, import};
    use learning::Parameters;
    use task_spec::TrainingPlan;

    use super::*;
    use crate::model_trainer::ModelTrainer;
    use crate::models::{Architecture, GraphModel, Loss};
    use crate::train::Device;
    use crate::trainer::{Trainer as _, TrainingJob};

    /// Four numbers and a category of five for each example; the target depends on both.
    fn cases(count: u8) -> Dataset {
        let numbers: Vec<f32> = (0..4 * count).map(|number| f32::from(number % 7) / 7.0).collect();
        let kind: Vec<i64> = (0..count).map(|number| i64::from(number % 5)).collect();
        let targets = (0..count).map(|number| f32::from(number * 4 % 7) / 7.0 - f32::from(number % 5));
        let targets = Targets::Numbers(targets.collect());
        Dataset::Tensors {
            inputs: vec![Elements::F32(numbers), Elements::I64(kind)],
            targets,
            count: count.into(),
            length: 1,
        }
    }

    /// The regression over four numbers and a category of five, with its parameters.
    fn table() -> (Arc<GraphModel>, Vec<f32>) {
        let onnx = include_bytes!("../train/graph/imported/table.onnx");
        let Imported { graph, parameters, .. } = import(onnx, &Options::default()).unwrap();
        let values = parameters.iter().flat_map(|tensor| &tensor.values).copied().collect();
        (Arc::new(GraphModel::new(graph, Loss::Mse).unwrap()), values)
    }

    #[test]
    fn named_examples_are_put_in_the_graphs_order() {
        let Dataset::Tensors { inputs, targets, count, length } = cases(4) else { panic!("they are tensors") };
        let inputs: Vec<_> = ["numbers".to_owned(), "kind".to_owned()].into_iter().zip(inputs).rev().collect();
        let (kind, both) = (inputs[..1].to_vec(), inputs);
        let named = |inputs| NamedExamples { inputs, targets: targets.clone(), count, length }.dataset(&table().0);
        assert_eq!(named(both).unwrap(), cases(4));
        let error = named(kind).unwrap_err().to_string();
        assert!(error.contains("the input `numbers`, which is missing; its inputs are"), "{error}");
    }

    #[test]
    fn regression_on_two_inputs_reports_its_errors() {
        let (graph, values) = table();
        let model = Architecture::Graph(graph);
        let start = Parameters::new(Arc::new(model.layout().unwrap()), values).unwrap();
        let job = TrainingJob {
            plan: TrainingPlan { epochs: 20, batch_size: 5, learning_rate: 0.05, ..TrainingPlan::default() },
            architecture: Some(serde_json::to_value(&model).unwrap()),
            ..TrainingJob::of_test()
        };
        let mut trainer = ModelTrainer::new(cases(40), cases(15), Device::Cpu);
        assert_eq!((trainer.examples(), Dataset::none().is_empty()), (40, true));
        let trained = trainer.train(&start, &job).unwrap();
        let mut loss = |model: &Parameters| {
            let metrics = trainer.evaluate(model, &job).unwrap();
            let names: Vec<_> = metrics.iter().map(|(name, metric)| (&name[..], metric.count)).collect();
            assert_eq!(names, [("loss", 15), ("rmse", 15), ("mae", 15), ("r2", 15)]);
            metrics[0].1.value
        };
        let (before, after) = (loss(&start), loss(&trained.parameters));
        assert!(after < 0.5 * before, "{before} to {after}");
    }
}
