//! Ditto (Li et al. 2021, algorithm 1): in addition to its update of the global model, a participant minimises its own
//! loss plus λ/2 times the squared distance of the personalized model to the received one. The update is that of
//! FedAvg, bit for bit.

use super::round::Turn;
use super::{LocalError, LocalResult, LocalRound, Method, PersonalTensors};
use crate::trainer::Constraints;

/// λ, and how long the personalized model is trained.
pub(super) struct Ditto {
    pub(super) lambda: f64,
    pub(super) epochs: Option<u32>,
}

impl Method for Ditto {
    fn run(&self, round: &mut LocalRound<'_>) -> Result<LocalResult, LocalError> {
        let received = round.received;
        let evaluated = round.evaluate(received)?;
        let update = round.train(received)?;
        let mut plan = round.job.plan.clone();
        if let Some(epochs) = self.epochs {
            (plan.epochs, plan.steps) = (epochs, None);
        }
        plan.proximal_mu = self.lambda;
        let start = round.kept.map_or(received, |kept| &kept.0);
        let pull = Constraints { anchor: Some(received), ..Constraints::default() };
        let solved = round.train_within(start, plan, Turn::Own(1), pull)?;
        let own = round.own(&solved.parameters)?.said(solved.metrics);
        Ok(LocalResult { update, personal: Some(PersonalTensors::new(solved.parameters)), evaluated, own })
    }
}
