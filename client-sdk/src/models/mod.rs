//! Built-in models that a task can name: their tensors and initial values.
//!
//! An [`Architecture`] is what a task stores: a kind and its sizes. It determines the tensors (named and shaped as in
//! PyTorch, so that checkpoints convert by name), the bounds of initial values (PyTorch's: `1 / sqrt(fan_in)`, biases
//! too) and the arithmetic. [`crate::train`] trains and scores; nothing here depends on data, optimizers or rounds.

use std::sync::Arc;

use learning::checkpoint::CheckpointError;
use learning::contribution::scaffold;
use learning::{Layout, Parameters, TensorSpec};
use serde::{Deserialize, Serialize};
use task_spec::TensorDeclaration;

pub mod cnn;
mod complete;
mod graph;
pub mod gru;
mod layers;
pub mod linear;
pub mod mlp;
mod of_table;
mod sizes;

pub use ::graph::{GraphModel, Loss};
pub use cnn::Cnn;
pub use complete::{Incomplete, complete, complete_task, declarations};
pub use gru::Gru;
pub use layers::{ArchitectureError, InputKind, MAX_SIZE, ModelDefaults};
pub use linear::Linear;
pub use mlp::Mlp;
pub use sizes::sized;

/// A model by kind and sizes, for example `{"kind": "mlp", "inputs": 784, "hidden": [200], "classes": 10}`. Omitted
/// sizes take their defaults; unknown keys are rejected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Architecture {
    /// Softmax regression.
    Linear(Linear),
    /// Fully connected layers with ReLU between them.
    Mlp(Mlp),
    /// Two convolutions with pooling, then two fully connected layers.
    Cnn(Cnn),
    /// Next-character prediction with a gated recurrent unit.
    Gru(Gru),
    /// A model as data: a graph of operations, with its loss.
    #[serde(with = "graph")]
    Graph(Arc<GraphModel>),
}

impl Architecture {
    /// Name of the kind, as in `kind = "mlp"`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Linear(_) => "linear",
            Self::Mlp(_) => "mlp",
            Self::Cnn(_) => "cnn",
            Self::Gru(_) => "gru",
            Self::Graph(_) => "graph",
        }
    }

    /// The kinds that are named by their sizes.
    pub const KINDS: [&str; 4] = ["linear", "mlp", "cnn", "gru"];

    /// The model of this kind in its usual size, for examples of this form and so many classes (or different characters).
    ///
    /// # Errors
    /// [`ArchitectureError::Kind`] and [`ArchitectureError::Misfit`].
    pub fn fitting(kind: &str, input: InputKind, classes: u32) -> Result<Self, ArchitectureError> {
        match kind {
            "linear" => Linear::fitting(input, classes).map(Self::Linear),
            "mlp" => Mlp::fitting(input, classes).map(Self::Mlp),
            "cnn" => Cnn::fitting(input, classes).map(Self::Cnn),
            "gru" => Gru::fitting(input, classes).map(Self::Gru),
            _ => Err(ArchitectureError::Kind(kind.to_owned(), Self::KINDS.join(", "))),
        }
    }

    /// The model with these tensors, in any order, recognized by names and shapes; `None` if there is none.
    #[must_use]
    pub fn of_tensors(layout: &Layout) -> Option<Self> {
        let candidates = [
            Linear::of_tensors(layout).map(Self::Linear),
            Mlp::of_tensors(layout).map(Self::Mlp),
            Cnn::of_tensors(layout).map(Self::Cnn),
            Gru::of_tensors(layout).map(Self::Gru),
        ];
        candidates.into_iter().flatten().find(|candidate| candidate.has_tensors(layout))
    }

    fn has_tensors(&self, layout: &Layout) -> bool {
        self.layout().is_ok_and(|own| {
            let is_there = |tensor: &TensorSpec| {
                layout.find(&tensor.name).is_some_and(|index| layout.tensors()[index].shape == tensor.shape)
            };
            own.tensors().len() == layout.tensors().len() && own.tensors().iter().all(is_there)
        })
    }

    /// Its default training settings.
    #[must_use]
    pub fn defaults(&self) -> ModelDefaults {
        match self {
            Self::Linear(_) => Linear::defaults(),
            Self::Mlp(sizes) => sizes.defaults(),
            Self::Cnn(_) => Cnn::defaults(),
            Self::Gru(_) => Gru::defaults(),
            Self::Graph(model) => graph::defaults(model),
        }
    }

    /// The tensors in order, each with how its first values are drawn.
    ///
    /// # Errors
    /// [`ArchitectureError::Size`].
    pub fn tensors(&self) -> Result<Vec<TensorDeclaration>, ArchitectureError> {
        match self {
            Self::Linear(sizes) => sizes.tensors(),
            Self::Mlp(sizes) => sizes.tensors(),
            Self::Cnn(sizes) => sizes.tensors(),
            Self::Gru(sizes) => sizes.tensors(),
            Self::Graph(model) => Ok(graph::tensors(model)),
        }
    }

    /// Names and shapes of the tensors.
    ///
    /// # Errors
    /// Any [`ArchitectureError`].
    pub fn layout(&self) -> Result<Layout, ArchitectureError> {
        let spec = |tensor: TensorDeclaration| TensorSpec { name: tensor.name, shape: tensor.shape };
        Ok(Layout::new(self.tensors()?.into_iter().map(spec).collect())?)
    }

    /// The initial model; the same bits on every device for the same seed.
    ///
    /// # Errors
    /// Any [`ArchitectureError`].
    pub fn initial(&self, seed: u64) -> Result<Parameters, ArchitectureError> {
        let layout = Arc::new(self.layout()?);
        let initial = learning::initialize(layout, &self.tensors()?, seed);
        // These initializers name the layout's tensors and have finite bounds.
        Ok(initial.unwrap_or_else(|error| unreachable!("{error}")))
    }

    /// The parameters in a published file of this model, whose tensors are `layout`, with or without control variates.
    /// Running statistics that a graph's task keeps on devices are absent there, and start as declared.
    ///
    /// # Errors
    /// Any [`CheckpointError`].
    pub fn read_published(&self, file: &[u8], layout: &Arc<Layout>) -> Result<Parameters, CheckpointError> {
        match self {
            Self::Linear(_) | Self::Mlp(_) | Self::Cnn(_) | Self::Gru(_) => scaffold::read_model(file, layout),
            Self::Graph(model) => graph::read_published(model, file, layout),
        }
    }

    #[must_use]
    pub fn input(&self) -> InputKind {
        match self {
            Self::Linear(sizes) => InputKind::Features(sizes.inputs as usize),
            Self::Mlp(sizes) => InputKind::Features(sizes.inputs as usize),
            Self::Cnn(sizes) => InputKind::Features(sizes.inputs()),
            Self::Gru(_) => InputKind::Characters,
            Self::Graph(model) => graph::input(model),
        }
    }

    /// Whether predictions are right or wrong: a class, a token, or a label of yes or no. Numbers have no accuracy.
    #[must_use]
    pub fn has_accuracy(&self) -> bool {
        match self {
            Self::Linear(_) | Self::Mlp(_) | Self::Cnn(_) | Self::Gru(_) => true,
            Self::Graph(model) => graph::has_accuracy(model),
        }
    }

    /// Number of classes (or characters), or of the numbers that a graph without classes predicts for an example.
    #[must_use]
    pub fn classes(&self) -> u32 {
        match self {
            Self::Linear(sizes) => sizes.classes,
            Self::Mlp(sizes) => sizes.classes,
            Self::Cnn(sizes) => sizes.classes,
            Self::Gru(sizes) => sizes.vocabulary,
            Self::Graph(model) => graph::classes(model),
        }
    }
}

#[cfg(test)]
mod tests {
    use learning::LayoutError;

    use super::*;

    fn parse(json: &str) -> Result<Architecture, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn counts_parameters_as_the_literature_does() {
        let count = |architecture: Architecture| architecture.layout().unwrap().len();
        assert_eq!(count(Architecture::Cnn(Cnn::default())), 1_663_370); // McMahan et al. 2017, section 3
        assert_eq!(count(Architecture::Mlp(Mlp::default())), 784 * 200 + 200 + 200 * 10 + 10);
        assert_eq!(count(Architecture::Mlp(Mlp { hidden: vec![200, 200], ..Mlp::default() })), 199_210);
        assert_eq!(count(Architecture::Linear(Linear { inputs: 60, classes: 10 })), 610);
        let gru = 80 * 8 + 3 * 128 * (8 + 128 + 2) + 80 * 128 + 80;
        assert_eq!(count(Architecture::Gru(Gru::with_vocabulary(80))), gru);
    }

    #[test]
    fn a_model_is_made_for_the_data_or_refused() {
        let fitting = |kind, input| Architecture::fitting(kind, input, 10).map_err(|error| error.to_string());
        let rows = InputKind::Features;
        assert_eq!(fitting("linear", rows(60)), Ok(Architecture::Linear(Linear { inputs: 60, classes: 10 })));
        assert_eq!(fitting("mlp", rows(784)), Ok(Architecture::Mlp(Mlp::default())));
        assert_eq!(fitting("cnn", rows(784)), Ok(Architecture::Cnn(Cnn::default())));
        assert_eq!(fitting("gru", InputKind::Characters), Ok(Architecture::Gru(Gru::with_vocabulary(10))));
        for (kind, input, why) in [
            ("cnn", rows(60), "cnn takes square images, and these examples are none"),
            ("gru", rows(60), "gru predicts characters, and these data are no text"),
            ("mlp", InputKind::Characters, "mlp takes rows of numbers, and these data are text"),
            ("resnet", rows(60), "there is no model `resnet`; there are linear, mlp, cnn, gru"),
        ] {
            assert_eq!(fitting(kind, input).unwrap_err(), why);
        }
    }

    #[test]
    fn a_model_is_told_by_its_tensors() {
        for architecture in [
            Architecture::Linear(Linear { inputs: 60, classes: 10 }),
            Architecture::Mlp(Mlp::default()),
            Architecture::Mlp(Mlp { inputs: 5, hidden: vec![4, 3], classes: 2 }),
            Architecture::Cnn(Cnn::default()),
            Architecture::Gru(Gru::with_vocabulary(65)),
            Architecture::Gru(Gru { layers: 2, ..Gru::with_vocabulary(65) }),
        ] {
            let layout = architecture.layout().unwrap();
            assert_eq!(Architecture::of_tensors(&layout), Some(architecture));
        }
        let other = TensorSpec { name: "w".into(), shape: vec![3] };
        assert_eq!(Architecture::of_tensors(&Layout::new(vec![other]).unwrap()), None);
    }

    #[test]
    fn what_is_usual_names_tensors_that_are_there_and_not_all_of_them() {
        let models = [
            Architecture::Linear(Linear { inputs: 60, classes: 10 }),
            Architecture::Mlp(Mlp { hidden: vec![30, 20], ..Mlp::default() }),
            Architecture::Cnn(Cnn::default()),
            Architecture::Gru(Gru::with_vocabulary(5)),
        ];
        assert_eq!(models.each_ref().map(Architecture::kind), Architecture::KINDS);
        let patterns = |pattern: &str| learning::Patterns::new(vec![pattern.to_owned()]).unwrap();
        for model in models {
            let (defaults, layout) = (model.defaults(), model.layout().unwrap());
            let parted = layout.partition(&patterns(&defaults.last_layer)).unwrap();
            assert!(
                parted.personal().len() < layout.len() / 2 || parted.personal().tensors().len() == 1,
                "{defaults:?}"
            );
            for pattern in &defaults.linear_layers {
                let is_matrix = |tensor: &learning::TensorSpec| tensor.shape.len() == 2;
                let found: Vec<_> =
                    layout.tensors().iter().filter(|tensor| patterns(pattern).matches(&tensor.name)).collect();
                assert!(
                    !found.is_empty() && found.iter().all(|tensor| is_matrix(tensor)),
                    "{pattern} of {}",
                    model.kind()
                );
            }
        }
    }

    #[test]
    fn reads_kind_and_sizes_and_refuses_the_rest() {
        assert_eq!(parse(r#"{"kind":"mlp"}"#).unwrap(), Architecture::Mlp(Mlp::default()));
        let written = serde_json::to_string(&Architecture::Gru(Gru::with_vocabulary(65))).unwrap();
        assert_eq!(parse(&written).unwrap(), Architecture::Gru(Gru::with_vocabulary(65)));
        assert!(parse(r#"{"kind":"mlp","depth":3}"#).unwrap_err().to_string().contains("depth"));
        assert!(parse(r#"{"kind":"gru"}"#).unwrap_err().to_string().contains("vocabulary"));
        assert!(parse(r#"{"kind":"resnet"}"#).is_err());
    }

    #[test]
    fn refuses_sizes_that_are_zero_or_too_large() {
        for (json, size) in [
            (r#"{"kind":"linear","inputs":0,"classes":10}"#, "inputs"),
            (r#"{"kind":"mlp","hidden":[200,0]}"#, "hidden"),
            (r#"{"kind":"cnn","width":3}"#, "width"),
            (r#"{"kind":"cnn","classes":0}"#, "classes"),
            (r#"{"kind":"gru","vocabulary":65,"layers":9}"#, "layers"),
            (r#"{"kind":"linear","inputs":4294967295,"classes":10}"#, "inputs"),
        ] {
            let error = parse(json).unwrap().layout().unwrap_err().to_string();
            assert!(error.contains(size), "{error}");
        }
        let huge = parse(r#"{"kind":"linear","inputs":1048576,"classes":1048576}"#).unwrap();
        assert_eq!(huge.layout(), Err(ArchitectureError::Layout(LayoutError::TooManyParameters)));
    }

    #[test]
    fn begins_within_the_bounds_and_at_the_seed() {
        let model = Architecture::Mlp(Mlp { inputs: 16, hidden: vec![8], classes: 3 });
        let first = model.initial(1).unwrap();
        assert!(first.tensor(0).iter().all(|value| value.abs() <= 0.25));
        assert!(first.tensor(0).iter().any(|value| value.abs() > 0.2));
        assert_eq!(first, model.initial(1).unwrap());
        assert_ne!(first, model.initial(2).unwrap());
    }
}
