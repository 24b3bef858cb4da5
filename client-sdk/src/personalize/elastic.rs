//! Elastic averaging (EASGD, Zhang et al. 2015, algorithm 1): a participant trains its own model x, tied by an elastic
//! force to the centre, the shared model x̃. In each round each of them moves e = α (x - x̃) towards the other: x is
//! reduced by e, and e is the update, whose mean moves the centre.
//!
//! The paper's centre moves by the sum of all e; a mean of n with server learning rate n is the same.

use super::round::{Turn, narrow};
use super::{LocalError, LocalResult, LocalRound, Method, PersonalTensors};
use crate::trainer::Constraints;

/// α of the task.
pub(super) struct Elastic {
    pub(super) alpha: f64,
}

impl Method for Elastic {
    fn run(&self, round: &mut LocalRound<'_>) -> Result<LocalResult, LocalError> {
        let evaluated = round.evaluate(round.received)?;
        let start = round.kept.map_or(round.received, |kept| &kept.0);
        let plan = round.job.plan.clone();
        let mut update = round.train_within(start, plan, Turn::Own(0), Constraints::default())?;
        let alpha = narrow(self.alpha);
        let mut own = update.parameters;
        let mut centre = round.received.clone();
        for (own, centre) in own.values_mut().iter_mut().zip(centre.values_mut()) {
            let pull = alpha * (*own - *centre);
            *own -= pull;
            *centre += pull;
        }
        let model = round.own(&own)?;
        update.parameters = centre;
        Ok(LocalResult { update, personal: Some(PersonalTensors::new(own)), evaluated, own: model })
    }
}
