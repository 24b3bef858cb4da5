//! pFedMe (Dinh et al. 2020, algorithm 1): the shared model w takes R steps against the gradient λ (w - θ) of the
//! Moreau envelope of the participant's loss, where θ, the personalized model, approximately minimises loss + λ/2 |θ -
//! w|².
//!
//! Each θ takes K steps over fresh batches from where the last one ended; the paper's takes them over one batch.

use super::round::{Turn, narrow};
use super::{LocalError, LocalResult, LocalRound, Method, PersonalTensors};
use crate::trainer::Constraints;
use crate::trainer::TrainerError;

/// The settings of `[personalization]`.
pub(super) struct PFedMe {
    pub(super) lambda: f64,
    pub(super) local_rounds: u32,
    pub(super) steps: u32,
    pub(super) rate: f64,
}

impl Method for PFedMe {
    fn run(&self, round: &mut LocalRound<'_>) -> Result<LocalResult, LocalError> {
        let evaluated = round.evaluate(round.received)?;
        let mut plan = round.job.plan.clone();
        (plan.steps, plan.proximal_mu) = (Some(self.steps), self.lambda);
        let mut shared = round.received.clone();
        let mut own = round.kept.map_or_else(|| shared.clone(), |kept| kept.0.clone());
        let step = narrow(self.rate * self.lambda);
        let mut last = None;
        for number in 0..u64::from(self.local_rounds) {
            let pull = Constraints { anchor: Some(&shared), ..Constraints::default() };
            let trained = round.train_within(&own, plan.clone(), Turn::Own(number), pull)?;
            own.values_mut().copy_from_slice(trained.parameters.values());
            for (shared, own) in shared.values_mut().iter_mut().zip(own.values()) {
                *shared -= step * (*shared - own);
            }
            last = Some(trained);
        }
        let mut update = last.ok_or_else(|| TrainerError::refused("pfedme needs at least one local round"))?;
        update.parameters = shared;
        let model = round.own(&own)?;
        Ok(LocalResult { update, personal: Some(PersonalTensors::new(own)), evaluated, own: model })
    }
}
