//! Next-character prediction: an embedding, one or two layers of gated recurrent units (Cho et al. 2014, in PyTorch's
//! form with two biases), and scores over the vocabulary at every position.

use learning::Layout;
use serde::{Deserialize, Serialize};
use task_spec::{Initial, TensorDeclaration};

use super::layers::{ArchitectureError, InputKind, MAX_SIZE, ModelDefaults, check, drawn, patterns, shape, uniform};

/// Maximum number of recurrent layers.
pub const MAX_LAYERS: u32 = 2;

/// Sizes of the character model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gru {
    /// Number of different characters, 1 to [`MAX_SIZE`].
    pub vocabulary: u32,
    /// Length of a character's embedding, 1 to [`MAX_SIZE`]; default 8.
    #[serde(default = "default_embedding")]
    pub embedding: u32,
    /// Units of each recurrent layer, 1 to [`MAX_SIZE`]; default 128.
    #[serde(default = "default_hidden")]
    pub hidden: u32,
    /// Number of recurrent layers, 1 to [`MAX_LAYERS`]; default 1.
    #[serde(default = "default_layers")]
    pub layers: u32,
}

fn default_embedding() -> u32 {
    8
}

fn default_hidden() -> u32 {
    128
}

fn default_layers() -> u32 {
    1
}

impl Gru {
    /// Default sizes for this many characters.
    #[must_use]
    pub fn with_vocabulary(vocabulary: u32) -> Self {
        Self { vocabulary, embedding: default_embedding(), hidden: default_hidden(), layers: default_layers() }
    }

    pub(super) fn fitting(input: InputKind, classes: u32) -> Result<Self, ArchitectureError> {
        match input {
            InputKind::Characters => Ok(Self::with_vocabulary(classes)),
            InputKind::Features(_) | InputKind::Tensors => {
                let why = "predicts characters, and these data are no text";
                Err(ArchitectureError::Misfit { kind: "gru", why })
            }
        }
    }

    /// The model that may have tensors of these request_ids and shapes.
    pub(super) fn of_tensors(layout: &Layout) -> Option<Self> {
        let [vocabulary, embedding] = shape(layout, "embedding.weight")?[..] else { return None };
        let [_, hidden] = shape(layout, "fc.weight")?[..] else { return None };
        let layers = if layout.find("gru.weight_ih_l1").is_some() { 2 } else { 1 };
        Some(Self { vocabulary, embedding, hidden, layers })
    }

    pub(super) fn defaults() -> ModelDefaults {
        ModelDefaults {
            epochs: 1,
            batch_size: 10,
            learning_rate: 2.0,
            last_layer: "fc.*".to_owned(),
            linear_layers: patterns(&["gru.weight*", "fc.weight"]),
        }
    }

    pub(super) fn tensors(&self) -> Result<Vec<TensorDeclaration>, ArchitectureError> {
        check("gru", "vocabulary", self.vocabulary, MAX_SIZE)?;
        check("gru", "embedding", self.embedding, MAX_SIZE)?;
        check("gru", "hidden", self.hidden, MAX_SIZE)?;
        check("gru", "layers", self.layers, MAX_LAYERS)?;
        let (hidden, gates) = (self.hidden, 3 * self.hidden);
        // PyTorch draws embeddings from N(0, 1); this has the same variance.
        let embedding = Initial::Uniform { bound: 1.732_050_8 };
        let mut tensors = vec![drawn("embedding.weight", &[self.vocabulary, self.embedding], embedding)];
        for layer in 0..self.layers {
            let inputs = if layer == 0 { self.embedding } else { hidden };
            tensors.push(uniform(format!("gru.weight_ih_l{layer}"), &[gates, inputs], hidden));
            tensors.push(uniform(format!("gru.weight_hh_l{layer}"), &[gates, hidden], hidden));
            tensors.push(uniform(format!("gru.bias_ih_l{layer}"), &[gates], hidden));
            tensors.push(uniform(format!("gru.bias_hh_l{layer}"), &[gates], hidden));
        }
        tensors.push(uniform("fc.weight", &[self.vocabulary, hidden], hidden));
        tensors.push(uniform("fc.bias", &[self.vocabulary], hidden));
        Ok(tensors)
    }
}
