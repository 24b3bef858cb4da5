//! Plain fine-tuning: each participant's personalized model is the received one, trained further locally.

use super::round::Turn;
use super::{LocalError, LocalResult, LocalRound, Method, PersonalTensors};
use crate::trainer::{Constraints, Trained};

/// How the copy is trained; by default, by the update's own training.
pub(super) struct FineTune {
    pub(super) epochs: Option<u32>,
    pub(super) learning_rate: Option<f64>,
}

impl Method for FineTune {
    fn run(&self, round: &mut LocalRound<'_>) -> Result<LocalResult, LocalError> {
        let received = round.received;
        let evaluated = round.evaluate(received)?;
        let update = round.train(received)?;
        let (tuned, said) = if self.epochs.is_none() && self.learning_rate.is_none() {
            (update.parameters.clone(), Vec::new())
        } else {
            let mut plan = round.job.plan.clone();
            if let Some(epochs) = self.epochs {
                (plan.epochs, plan.steps) = (epochs, None);
            }
            plan.learning_rate = self.learning_rate.unwrap_or(plan.learning_rate);
            plan.proximal_mu = 0.0;
            let Trained { parameters, metrics, .. } =
                round.train_within(received, plan, Turn::Own(1), Constraints::default())?;
            (parameters, metrics)
        };
        let own = round.own(&tuned)?.said(said);
        Ok(LocalResult { update, personal: Some(PersonalTensors::new(tuned)), evaluated, own })
    }
}
