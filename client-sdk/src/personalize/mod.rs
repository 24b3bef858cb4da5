//! Personalization: how a participant obtains a personalized model, and which tensors stay local. One method per file.
//!
//! [`PersonalTensors`] can only be joined to a model for training and written to the journal. They cannot reach an
//! update, whose layout lacks room for them as well. A method gets the received model and the stored tensors, and
//! returns two things: parameters for the pipeline, and tensors for the journal.
//!
//! A method decides the objective of each training; the [`Trainer`](crate::Trainer), which need not know the method,
//! trains.

mod apfl;
mod ditto;
mod elastic;
pub mod fed_per;
mod fed_rep;
mod fine_tune;
mod lora;
mod method;
mod pfedme;
mod round;
mod tensors;
#[cfg(test)]
#[cfg(feature = "models")]
mod tests;

use std::sync::Arc;

use learning::{Adapters, InitError, Layout};
use recipe::Tensors;
use task_spec::{AdapterScope, ModelSpec, Personalization};
use wire::Digest;

pub use fed_per::FedPer;
pub(crate) use method::Method;
pub use method::MethodError;
pub(crate) use round::{LocalError, LocalResult, LocalRound};
pub use tensors::PersonalTensors;

/// A task's method for its model.
pub(crate) struct Personalizer {
    /// Layout of the journal's tensors.
    kept: Arc<Layout>,
    /// The split, if some tensors stay local.
    parts: Option<FedPer>,
    method: Box<dyn Method>,
}

impl Personalizer {
    /// `None` if every tensor is shared and the task does not personalize.
    ///
    /// # Errors
    /// [`MethodError`] if the method and the patterns do not fit each other or the model.
    pub(crate) fn new(
        tensors: &Tensors,
        model: &ModelSpec,
        method: Option<&Personalization>,
    ) -> Result<Option<Self>, MethodError> {
        let parts = tensors.partition.clone().map(FedPer::new);
        let Some(method) = method.cloned().or(parts.is_some().then_some(Personalization::FedPer {})) else {
            return Ok(None);
        };
        match (parts, method, tensors.adapters.as_deref()) {
            (Some(parts), method, _) => Self::parted(parts, &method),
            (None, Personalization::Lora { adapters, epochs, base_sha256, .. }, Some(made)) => Ok(match adapters {
                AdapterScope::Personal => Self::with_adapters(made.clone(), epochs, model),
                AdapterScope::Shared => Self::of_adapters(made.clone(), base_sha256, model),
            }),
            (None, method, _) => Self::adapted(&tensors.whole, &method),
        }
        .map(Some)
    }

    /// Some tensors stay local.
    fn parted(parts: FedPer, how: &Personalization) -> Result<Self, MethodError> {
        let method: Box<dyn Method> = match *how {
            // FedBN is FedPer of tensors of normalization alone, which [`Tensors`] sees to.
            Personalization::FedPer {} | Personalization::FedBn {} => Box::new(parts.clone()),
            Personalization::FedRep { head_epochs } => Box::new(fed_rep::FedRep::new(parts.clone(), head_epochs)),
            Personalization::FineTune { .. }
            | Personalization::Ditto { .. }
            | Personalization::PFedMe { .. }
            | Personalization::Apfl { .. }
            | Personalization::Elastic { .. }
            | Personalization::Lora { .. } => return Err(MethodError::Parts(how.as_str())),
        };
        let kept = Arc::clone(parts.partition().personal());
        Ok(Self { kept, parts: Some(parts), method })
    }

    /// A complete personalized model in addition to the shared one.
    fn adapted(whole: &Arc<Layout>, how: &Personalization) -> Result<Self, MethodError> {
        let mut kept = Arc::clone(whole);
        let method: Box<dyn Method> = match *how {
            Personalization::FineTune { epochs, learning_rate } => {
                Box::new(fine_tune::FineTune { epochs, learning_rate })
            }
            Personalization::Ditto { lambda, epochs } => Box::new(ditto::Ditto { lambda, epochs }),
            Personalization::PFedMe { lambda, local_rounds, steps, rate } => {
                Box::new(pfedme::PFedMe { lambda, local_rounds, steps, rate })
            }
            Personalization::Apfl { alpha, alpha_rate } => {
                let apfl = apfl::Apfl::new(whole, alpha, alpha_rate)?;
                kept = Arc::clone(apfl.stored_layout());
                Box::new(apfl)
            }
            Personalization::Elastic { alpha } => Box::new(elastic::Elastic { alpha }),
            Personalization::FedPer {}
            | Personalization::FedRep { .. }
            | Personalization::FedBn {}
            | Personalization::Lora { .. } => return Err(MethodError::Parts(how.as_str())),
        };
        Ok(Self { kept, parts: None, method })
    }

    /// Local adapters of the shared model.
    fn with_adapters(adapters: Adapters, epochs: Option<u32>, model: &ModelSpec) -> Self {
        let kept = Arc::clone(adapters.layout());
        Self { kept, parts: None, method: Box::new(lora::PersonalLora { adapters, epochs, seed: model.seed }) }
    }

    /// Shared adapters.
    fn of_adapters(adapters: Adapters, base_sha256: Option<Digest>, model: &ModelSpec) -> Self {
        let base = match base_sha256 {
            Some(digest) => lora::AdapterBase::Brought(digest),
            None => lora::AdapterBase::Drawn { inits: model.tensors.clone(), seed: model.seed },
        };
        let kept = Arc::clone(adapters.layout());
        Self { kept, parts: None, method: Box::new(lora::SharedLora { adapters, base }) }
    }

    /// The layout of the journal's tensors.
    pub(crate) fn stored_layout(&self) -> &Arc<Layout> {
        &self.kept
    }

    /// The initial local tensors, before this device has ever trained; `None` if the first received model determines
    /// them.
    ///
    /// # Errors
    /// [`InitError`] for invalid bounds.
    pub(crate) fn initial(&self, model: &ModelSpec) -> Result<Option<PersonalTensors>, InitError> {
        self.parts.as_ref().map(|parts| parts.initial(model)).transpose()
    }

    /// Runs this device's part of a round.
    ///
    /// # Errors
    /// [`LocalError`]; the participant then sends nothing and keeps its stored tensors.
    pub(crate) fn run(&self, round: &mut LocalRound<'_>) -> Result<LocalResult, LocalError> {
        self.method.run(round)
    }
}
