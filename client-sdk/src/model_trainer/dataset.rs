//! Examples that a trainer owns.

use crate::train::{Column, Examples, TargetColumn};

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
}

impl Elements {
    /// The elements of the column, borrowed.
    #[must_use]
    pub fn column(&self) -> Column<'_> {
        match self {
            Self::F32(values) => Column::F32(values),
            Self::I64(values) => Column::I64(values),
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

    #[test]
    fn regression_on_two_inputs_reports_its_errors() {
        let onnx = include_bytes!("../train/graph/imported/table.onnx");
        let Imported { graph, parameters, .. } = import(onnx, &Options::default()).unwrap();
        let model = Architecture::Graph(Arc::new(GraphModel::new(graph, Loss::Mse).unwrap()));
        let values = parameters.iter().flat_map(|tensor| &tensor.values).copied().collect();
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
            assert_eq!(names, [("loss", 15), ("rmse", 15), ("mae", 15)]);
            metrics[0].1.value
        };
        let (before, after) = (loss(&start), loss(&trained.parameters));
        assert!(after < 0.5 * before, "{before} to {after}");
    }
}
