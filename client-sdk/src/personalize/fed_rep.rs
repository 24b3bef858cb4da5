//! FedRep (Collins et al. 2021, algorithm 1): a participant first fits its own head to the received body, then trains
//! the body with the head frozen.

use super::round::Turn;
use super::{FedPer, LocalError, LocalResult, LocalRound, Method};
use crate::trainer::Constraints;

/// A model split into a shared body and a local head.
pub(super) struct FedRep {
    parts: FedPer,
    head_epochs: u32,
    /// One entry per tensor of the whole model.
    is_head: Vec<bool>,
    is_body: Vec<bool>,
}

impl FedRep {
    pub(super) fn new(parts: FedPer, head_epochs: u32) -> Self {
        let is_head = parts.is_personal();
        let is_body = is_head.iter().map(|is_head| !is_head).collect();
        Self { parts, head_epochs, is_head, is_body }
    }
}

impl Method for FedRep {
    fn run(&self, round: &mut LocalRound<'_>) -> Result<LocalResult, LocalError> {
        let model = self.parts.whole(round)?;
        let evaluated = round.evaluate(&model)?;
        let mut head_plan = round.job.plan.clone();
        (head_plan.epochs, head_plan.steps, head_plan.proximal_mu) = (self.head_epochs, None, 0.0);
        let head = Constraints { frozen: &self.is_body, ..Constraints::default() };
        let fitted = round.train_within(&model, head_plan, Turn::Own(1), head)?.parameters;
        let body = Constraints { frozen: &self.is_head, ..Constraints::default() };
        let plan = round.job.plan.clone();
        let mut update = round.train_within(&fitted, plan, Turn::Shared, body)?;
        let own = round.own(&update.parameters)?;
        let (shared, personal) = self.parts.split(&update.parameters)?;
        update.parameters = shared;
        Ok(LocalResult { update, personal: Some(personal), evaluated, own })
    }
}
