//! `[model]` of a task: its tensors, and the subset that stays local.

use graph::{GraphModel, Loss};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Criterion, GRAPH_VERSION, InitialModel, TableSpec, named_enum};

/// The model: its tensors, and which of them stay local.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModelSpec {
    /// Describes the model to participants whose SDK provides it, for example `{ kind = "mlp", … }`; the coordinator
    /// ignores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub architecture: Option<serde_json::Value>,
    /// File of a graph that `tributary model import` wrote, relative to the task file. `tributary` reads the file and writes its
    /// content and `loss` into `architecture`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub graph: Option<String>,
    /// Loss of the graph in `graph`, or of a `linear` or `mlp` that learns from a table. Default: cross-entropy, and `mse` for
    /// a label of numbers. `tributary` writes it into `architecture`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub loss: Option<Loss>,
    /// Running statistics of a graph's batch normalizations. Default: `frozen`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_norm: Option<BatchNorm>,
    /// Which columns of their tables participants learn from, if their data are tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<TableSpec>,
    /// All tensors, in the order of the flat vector. May be omitted in a task file if `tributary` knows the
    /// architecture.
    #[serde(default)]
    pub tensors: Vec<TensorDeclaration>,
    /// Patterns (`fc2.*`) of the tensors that stay local to each participant.
    #[serde(default)]
    pub personal: Vec<String>,
    /// Seed of the initial values.
    #[serde(default)]
    pub seed: u64,
    /// The given model that the first version is a copy of. By default the initial values are drawn. Tensors that stay local
    /// are drawn in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub initial: Option<InitialModel>,
}

impl ModelSpec {
    /// The graph of the architecture, if it is one.
    fn graph_architecture(&self) -> Option<&serde_json::Value> {
        self.architecture.as_ref().filter(|architecture| architecture["kind"] == "graph")
    }

    /// The graph of the architecture, if it is one.
    pub(crate) fn read_graph(&self) -> Option<Result<GraphModel, serde_json::Error>> {
        let mut content = self.graph_architecture()?.as_object()?.clone();
        content.remove("kind");
        Some(serde_json::from_value(Value::Object(content)))
    }

    /// Number of classes of the architecture: 2 of one logit; `None` of a model of numbers, and of one that does not state it.
    #[must_use]
    pub fn classes(&self) -> Option<usize> {
        if let Some(graph) = self.read_graph() {
            let graph = graph.ok()?;
            return match graph.loss() {
                Loss::BceWithLogits { .. } => Some(2),
                Loss::CrossEntropy { .. } | Loss::NextToken { .. } | Loss::Mse | Loss::Huber { .. } | Loss::Poisson => {
                    graph.classes()
                }
            };
        }
        let architecture = self.architecture.as_ref()?;
        let stated = architecture.get("classes").or_else(|| architecture.get("vocabulary"));
        usize::try_from(stated?.as_u64()?).ok()
    }

    /// Whether the model is a graph that minimizes another loss than cross-entropy.
    pub(crate) fn has_other_loss(&self) -> bool {
        let graph = self.graph_architecture();
        graph.is_some_and(|architecture| architecture["loss"]["kind"] != Loss::CROSS_ENTROPY.name())
    }

    /// The criterion for devices of a task whose model is a graph: their SDK computes its format. `None` for other models.
    #[must_use]
    pub fn on_device(&self) -> Option<Criterion> {
        let architecture = self.graph_architecture()?;
        let at_least = Some(architecture["graph"]["version"].as_f64().unwrap_or(f64::INFINITY));
        Some(Criterion { attribute: GRAPH_VERSION.to_owned(), at_least, ..Criterion::default() })
    }
}

named_enum! {
    /// What becomes of the running statistics of a graph's batch normalizations.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum BatchNorm {
        /// They are constants of the graph, which training normalizes by.
        Frozen = "frozen",
        /// Training normalizes by the statistics of the batch. The running ones stay on each device, as in FedBN (Li et
        /// al. 2021); `personal` names them.
        Local = "local",
        /// Training normalizes by the statistics of the batch. The running ones travel and are averaged like parameters.
        Averaged = "averaged",
    }
}

/// One tensor and its initial values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TensorDeclaration {
    /// Unique within the model.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<u64>,
    #[serde(default)]
    pub init: Initial,
}

/// Initial values of a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Initial {
    #[default]
    Zeros,
    Ones,
    /// Every value is the same.
    Constant {
        /// Finite.
        value: f32,
    },
    /// Uniform in (-bound, bound).
    Uniform {
        /// Positive and finite.
        bound: f32,
    },
    /// Normal with mean 0.
    Normal {
        /// The standard deviation; positive and finite.
        std: f32,
    },
}
