//! `[personalization]` of a task: how each participant obtains a personalized model in addition to the shared one.
//!
//! The client SDK implements the methods. This module has their names and parameters, and their requirements on the rest of the task.

use serde::{Deserialize, Serialize};

use crate::Digest;
use crate::problem::Checks;

/// Prefix of metrics of the personalized model, measured on the device at the end of the round.
pub const PERSONAL_PREFIX: &str = "personal_";
/// `NAME.below.P` is the share of participants whose metric `NAME` is below P hundredths.
pub const BELOW: &str = ".below.";

/// The method that gives a participant a personalized model. Default: `fed_per` if `model.personal` is set, otherwise
/// none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Personalization {
    /// Arivazhagan et al. 2019: the tensors of `model.personal` stay at home, all are trained together.
    #[serde(alias = "fedper")]
    FedPer {},
    /// Collins et al. 2021: first the tensors of `model.personal` are trained, then the others, as `[training]` says.
    #[serde(alias = "fedrep")]
    FedRep {
        /// Passes over the data that train only the personal tensors, 1 to 10000.
        #[serde(default = "one")]
        head_epochs: u32,
    },
    /// Li et al. 2021: normalisation stays at home. `model.personal` names its tensors, which have one dimension.
    #[serde(alias = "fedbn")]
    FedBn {},
    /// A copy of each received model, trained further at home.
    #[serde(alias = "finetune")]
    FineTune {
        /// Passes over the data, 1 to 10000. Without this and `learning_rate`, the training of the update is the
        /// fine-tuning.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epochs: Option<u32>,
        /// Overrides `training.learning_rate`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        learning_rate: Option<f64>,
    },
    /// Li et al. 2021: the personalized model minimises the local loss plus λ/2 times the squared distance to the
    /// received model.
    Ditto {
        /// λ, above 0: a larger value keeps models more alike.
        lambda: f64,
        /// Passes over the data for the personalized model, 1 to 10000. Default: as in `[training]`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epochs: Option<u32>,
    },
    /// Dinh et al. 2020: the shared model follows the Moreau envelopes of the participants' losses.
    #[serde(rename = "pfedme", alias = "p_fed_me")]
    PFedMe {
        /// λ, above 0: how strongly the personalized model is pulled to the shared one.
        lambda: f64,
        /// R: steps of the shared model per round, 1 to 10000.
        #[serde(default = "twenty")]
        local_rounds: u32,
        /// K: steps of the personalized model in each of them, 1 to 10000, at `training.learning_rate`.
        #[serde(default = "five")]
        steps: u32,
        /// η, the rate of the shared model; η λ is at most 1.
        rate: f64,
    },
    /// Deng et al. 2020: the personalized model is α times a local one plus 1 - α times the shared one.
    Apfl {
        /// α in the first round, 0.05 to 0.95.
        #[serde(default = "half")]
        alpha: f64,
        /// Adaptation rate of α, at least 0; 0 keeps α fixed.
        #[serde(default = "tenth")]
        alpha_rate: f64,
    },
    /// Zhang et al. 2015, elastic averaging: the personalized model and the shared one each move α of their distance
    /// towards the other.
    Elastic {
        /// α, above 0, at most 1: a smaller value lets the personalized model move farther away.
        alpha: f64,
    },
    /// Hu et al. 2021: trains low-rank adapters of linear layers instead of their weights.
    Lora {
        /// Patterns (`fc*.weight`) of the matrices with an adapter.
        layers: Vec<String>,
        /// r: 1 to the shorter side of each of these matrices.
        rank: u32,
        /// α: adapters are scaled by α / r. Default: r.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        alpha: Option<f64>,
        /// Whether adapters stay local or are aggregated.
        #[serde(default)]
        adapters: AdapterScope,
        /// Passes over the data for local adapters, 1 to 10000. Default: as in `[training]`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epochs: Option<u32>,
        /// SHA-256 of the safetensors file of the base model of shared adapters, which apps provide. Default: the model
        /// drawn from `model.seed`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base_sha256: Option<Digest>,
    },
}

/// Whether adapters are local or shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum AdapterScope {
    /// Adapters stay in each participant's journal; the received model is trained as without them.
    #[default]
    Personal,
    /// Adapters are sent, summed and published; the base model never changes and is never sent.
    Shared,
}

fn one() -> u32 {
    1
}

fn five() -> u32 {
    5
}

fn twenty() -> u32 {
    20
}

fn half() -> f64 {
    0.5
}

fn tenth() -> f64 {
    0.1
}

impl Personalization {
    /// Stable name, as in a task file.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::FedPer {} => "fed_per",
            Self::FedRep { .. } => "fed_rep",
            Self::FedBn {} => "fed_bn",
            Self::FineTune { .. } => "fine_tune",
            Self::Ditto { .. } => "ditto",
            Self::PFedMe { .. } => "pfedme",
            Self::Apfl { .. } => "apfl",
            Self::Elastic { .. } => "elastic",
            Self::Lora { .. } => "lora",
        }
    }

    /// Checks its parameters. `learning_rate` is that of `[training]`.
    pub(crate) fn check(&self, learning_rate: f64, checks: &mut Checks) {
        match *self {
            Self::FedPer {} | Self::FedBn {} => {}
            Self::FedRep { head_epochs } => count("head_epochs", Some(head_epochs), checks),
            Self::FineTune { epochs, learning_rate } => {
                count("epochs", epochs, checks);
                positive("learning_rate", learning_rate, checks);
            }
            Self::Ditto { lambda, epochs } => {
                count("epochs", epochs, checks);
                check_pull(lambda, learning_rate, checks);
            }
            Self::PFedMe { lambda, local_rounds, steps, rate } => {
                count("local_rounds", Some(local_rounds), checks);
                count("steps", Some(steps), checks);
                check_pull(lambda, learning_rate, checks);
                check_envelope(lambda, rate, checks);
            }
            Self::Apfl { alpha, alpha_rate } => check_mixture(alpha, alpha_rate, checks),
            Self::Elastic { alpha } => check_spring(alpha, checks),
            Self::Lora { ref layers, rank, alpha, adapters, epochs, base_sha256 } => {
                check_adapters(layers, rank, alpha, checks);
                count("epochs", epochs, checks);
                check_home(adapters, epochs.is_some(), base_sha256.is_some(), checks);
            }
        }
    }

    /// Whether the model is split into local and shared tensors; otherwise the personalized model is complete and
    /// separate from the shared one.
    #[must_use]
    pub fn parts_the_model(&self) -> bool {
        matches!(self, Self::FedPer {} | Self::FedRep { .. } | Self::FedBn {})
    }

    /// Whether adapters are aggregated instead of the model's tensors.
    #[must_use]
    pub fn shares_adapters(&self) -> bool {
        matches!(self, Self::Lora { adapters: AdapterScope::Shared, .. })
    }

    /// Whether the update, and so the shared model, is bit for bit the same as without the method.
    #[must_use]
    pub fn leaves_the_update_alone(&self) -> bool {
        matches!(
            self,
            Self::FineTune { .. }
                | Self::Ditto { .. }
                | Self::Apfl { .. }
                | Self::Lora { adapters: AdapterScope::Personal, .. }
        )
    }

    /// Fills in missing tensor names: the tensors of `model.personal` that stay local, and the layers with adapters. `last_layer` and
    /// `linear_layers` are patterns of the model's tensors.
    pub fn complete(&mut self, personal: &mut Vec<String>, last_layer: &str, linear_layers: &[String]) {
        let usual = match self {
            Self::FedPer {} | Self::FedRep { .. } => last_layer,
            // In a model without normalisation layers, tensors of one dimension take their place.
            Self::FedBn {} => "*bias*",
            Self::Lora { layers, .. } => {
                if layers.is_empty() {
                    layers.extend_from_slice(linear_layers);
                }
                return;
            }
            Self::FineTune { .. }
            | Self::Ditto { .. }
            | Self::PFedMe { .. }
            | Self::Apfl { .. }
            | Self::Elastic { .. } => return,
        };
        if personal.is_empty() {
            personal.push(usual.to_owned());
        }
    }

    /// The agreed encoding: the name, a zero, and the numbers in the order above as 64-bit floats, largest byte first; -1 for omitted
    /// numbers. With adapters, the patterns of layers and the base's digest follow, each with its length as u32.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let numbers = match *self {
            Self::FedPer {} | Self::FedBn {} => vec![],
            Self::FedRep { head_epochs } => vec![f64::from(head_epochs)],
            Self::FineTune { epochs, learning_rate } => {
                vec![epochs.map_or(-1.0, f64::from), learning_rate.unwrap_or(-1.0)]
            }
            Self::Ditto { lambda, epochs } => vec![lambda, epochs.map_or(-1.0, f64::from)],
            Self::PFedMe { lambda, local_rounds, steps, rate } => {
                vec![lambda, f64::from(local_rounds), f64::from(steps), rate]
            }
            Self::Apfl { alpha, alpha_rate } => vec![alpha, alpha_rate],
            Self::Elastic { alpha } => vec![alpha],
            Self::Lora { rank, alpha, adapters, epochs, .. } => vec![
                f64::from(rank),
                // The default.
                alpha.unwrap_or(f64::from(rank)),
                if adapters == AdapterScope::Shared { 1.0 } else { 0.0 },
                epochs.map_or(-1.0, f64::from),
            ],
        };
        let mut bytes = self.as_str().as_bytes().to_vec();
        bytes.push(0);
        bytes.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        if let Self::Lora { layers, base_sha256, .. } = self {
            let base = base_sha256.as_ref().map(|digest| &digest.0[..]).unwrap_or_default();
            for part in layers.iter().map(String::as_bytes).chain([base]) {
                bytes.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
                bytes.extend(part);
            }
        }
        bytes
    }

    /// Checks that a tensor may stay local.
    ///
    /// # Errors
    /// The problem, with a valid alternative.
    pub fn check_tensor(&self, name: &str, shape: &[u64]) -> Result<(), String> {
        if matches!(self, Self::FedBn {}) && shape.len() > 1 {
            return Err(format!(
                "matches {name:?} of {} dimensions, which is no normalisation: scales, shifts, means and variances have one; \
                 name only these, or take method \"fed_per\"",
                shape.len()
            ));
        }
        Ok(())
    }
}

/// Checks a number of passes, rounds or steps.
fn count(name: &str, value: Option<u32>, checks: &mut Checks) {
    checks.within(value, 1..=10_000, &format!("personalization.{name}"));
}

fn positive(name: &str, value: Option<f64>, checks: &mut Checks) {
    checks.positive(value, &format!("personalization.{name}"));
}

/// A step moves the personalized model learning_rate λ of the distance to the shared one: beyond twice the distance it
/// diverges.
fn check_pull(lambda: f64, learning_rate: f64, checks: &mut Checks) {
    positive("lambda", Some(lambda), checks);
    let step = lambda * learning_rate;
    checks.require_with(step < 2.0 || !step.is_finite(), "personalization.lambda", || {
        format!(
            "is {lambda}; times training.learning_rate = {learning_rate} it must be below 2, or the personalized model diverges"
        )
    });
}

/// A step moves the shared model η λ of the distance to the personalized one.
fn check_envelope(lambda: f64, rate: f64, checks: &mut Checks) {
    positive("rate", Some(rate), checks);
    let step = lambda * rate;
    checks.require_with(step <= 1.0 || !step.is_finite(), "personalization.rate", || {
        format!("is {rate}; times lambda = {lambda} it must be at most 1, or the shared model overshoots")
    });
}

fn check_mixture(alpha: f64, alpha_rate: f64, checks: &mut Checks) {
    checks.require(
        (0.05..=0.95).contains(&alpha),
        "personalization.alpha",
        "must be between 0.05 and 0.95: at 0 the personalized model never learns, at 1 nothing is shared",
    );
    let holds = alpha_rate.is_finite() && alpha_rate >= 0.0;
    checks.require(holds, "personalization.alpha_rate", "must be finite and at least 0");
}

fn check_spring(alpha: f64, checks: &mut Checks) {
    checks.require(
        alpha > 0.0 && alpha <= 1.0,
        "personalization.alpha",
        "must be above 0 and at most 1: at 0 nothing would be shared, above 1 the models swing past each other",
    );
}

/// `learning` checks whether the model has such layers of sufficient size.
fn check_adapters(layers: &[String], rank: u32, alpha: Option<f64>, checks: &mut Checks) {
    let named = (1..=256).contains(&layers.len());
    checks.require(named, "personalization.layers", "must be 1 to 256 patterns of the layers with adapters");
    checks.within(rank, 1..=4096, "personalization.rank");
    positive("alpha", alpha, checks);
}

/// Rejects settings of local adapters for shared ones, and the reverse.
fn check_home(adapters: AdapterScope, has_epochs: bool, has_base: bool, checks: &mut Checks) {
    let shared = adapters == AdapterScope::Shared;
    checks.require(
        !(shared && has_epochs),
        "personalization.epochs",
        "is of adapters that stay local; shared ones are trained as [training] says",
    );
    checks.require(
        shared || !has_base,
        "personalization.base_sha256",
        "is of shared adapters; local ones are added to the received model",
    );
}

/// The metric of a count of participants below a bound, and the bound in hundredths; `None` if `name` is not such a count.
#[must_use]
pub fn below(name: &str) -> Option<(&str, Option<u8>)> {
    let (metric, bound) = name.rsplit_once(BELOW)?;
    Some((metric, bound.parse().ok().filter(|bound| (1..=100).contains(bound))))
}

#[cfg(test)]
mod tests;
