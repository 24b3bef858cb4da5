//! Training on candle: the ready models, and an app's own modules, on every device candle knows.
//!
//! In 16-bit modes the parameters stay in 32 bits and are converted for each pass, so that small steps add up
//! (Micikevicius et al. 2018, "Mixed precision training"). [`Precision::F16`](task_spec::Precision::F16) has a small range: the loss is
//! scaled up before the gradients are computed. The scale halves after a step whose gradients overflow, which is skipped, and
//! doubles after many steps without overflow.

mod builder;
mod forward;
mod gradients;
mod module;
mod ready;
mod scale;
mod variables;
mod verify;

pub(super) use self::gradients::{flat, in_chunks};
pub(crate) use self::module::{Module, evaluate_module, train_module, train_module_adapters};
pub(super) use self::ready::CandleLearner;
#[cfg(test)]
pub(super) use self::scale::LossScale;
pub(super) use self::variables::{Variables, element};
