//! Low-rank adapters (LoRA, Hu et al. 2021) of linear layers: local adapters of the received model, or shared adapters
//! of a frozen base that is not sent.
//!
//! Local: the update is FedAvg's, bit for bit, and adapters in the journal personalize the received model. Shared: only
//! the adapters are trained, sent, summed and published; the base is drawn from the task's seed, or provided by the
//! app.

use std::sync::Arc;

use learning::{Adapters, InitError, Layout, Parameters, checkpoint, initialize};
use task_spec::TensorDeclaration;
use wire::Digest;

use super::round::Turn;
use super::{LocalError, LocalResult, LocalRound, Method, PersonalTensors};
use crate::trainer::TrainerError;
use recipe::digest::sha256;

/// Adapters that stay at home.
pub(super) struct PersonalLora {
    pub(super) adapters: Adapters,
    pub(super) epochs: Option<u32>,
    /// Seed of the initial adapters.
    pub(super) seed: u64,
}

impl Method for PersonalLora {
    fn run(&self, round: &mut LocalRound<'_>) -> Result<LocalResult, LocalError> {
        let base = round.received;
        let evaluated = round.evaluate(base)?;
        let update = round.train(base)?;
        let mut plan = round.job.plan.clone();
        if let Some(epochs) = self.epochs {
            (plan.epochs, plan.steps) = (epochs, None);
        }
        // The received adapter that a proximal term would need is absent.
        plan.proximal_mu = 0.0;
        let first;
        let start = match round.kept {
            Some(kept) => &kept.0,
            None => {
                first = self.adapters.initial(self.seed).map_err(TrainerError::refused)?;
                &first
            }
        };
        let trained = round.train_adapters(base, start, plan, Turn::Own(1), &self.adapters)?;
        let own = round.own(&self.adapters.merge(base, &trained.parameters)?)?.said(trained.metrics);
        Ok(LocalResult { update, personal: Some(PersonalTensors::new(trained.parameters)), evaluated, own })
    }
}

/// Adapters that are the shared model.
pub(super) struct SharedLora {
    pub(super) adapters: Adapters,
    pub(super) base: AdapterBase,
}

/// The base model of shared adapters.
pub(super) enum AdapterBase {
    /// The task's first values.
    Drawn { inits: Vec<TensorDeclaration>, seed: u64 },
    /// The app's, with this digest.
    Brought(Digest),
}

impl AdapterBase {
    fn model(&self, whole: &Arc<Layout>, round: &mut LocalRound<'_>) -> Result<Parameters, LocalError> {
        match self {
            Self::Drawn { inits, seed } => {
                let drawn: Result<_, InitError> = initialize(Arc::clone(whole), inits, *seed);
                Ok(drawn.map_err(TrainerError::refused)?)
            }
            Self::Brought(digest) => {
                let model = round.trainer.base_model(round.job)?;
                let file = checkpoint::write(&model).map_err(TrainerError::refused)?;
                if model.layout() != whole || sha256(&file) != *digest {
                    let problem =
                        format!("the app's base model is another than the task's adapters are for ({digest})");
                    return Err(TrainerError::refused(problem).into());
                }
                Ok(model)
            }
        }
    }
}

impl Method for SharedLora {
    fn run(&self, round: &mut LocalRound<'_>) -> Result<LocalResult, LocalError> {
        let base = self.base.model(self.adapters.whole(), round)?;
        let received = round.received;
        let evaluated = round.evaluate(&self.adapters.merge(&base, received)?)?;
        let plan = round.job.plan.clone();
        let update = round.train_adapters(&base, received, plan, Turn::Shared, &self.adapters)?;
        let own = round.own(&self.adapters.merge(&base, &update.parameters)?)?;
        Ok(LocalResult { update, personal: None, evaluated, own })
    }
}
