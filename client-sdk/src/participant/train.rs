//! Has the trainer evaluate and train, and keeps the result safe before anything is sent.

use std::sync::Arc;
use std::time::Duration;

use wire::participant::AbandonReason;

use super::event::Event;
use super::machine::{Action, Core, Record, State};
use super::persist::Persist;
use super::snapshot::{self, Pending};
use super::upload::Sending;
use super::work::{Contribution, Plan, Work, WorkError};
use crate::journal::JournalError;
use crate::trainer::TrainerError;
use crate::transport::Place;

/// The trainer is at work.
pub(super) struct Train {
    pub(super) plan: Arc<Plan>,
    pub(super) deadline: Duration,
    pub(super) work: Arc<Work>,
}

impl Train {
    pub(super) fn action(&self) -> Action {
        Action::Train(Arc::clone(&self.work))
    }

    pub(super) fn trained(self, core: &mut Core, result: Result<Contribution, WorkError>) -> State {
        let place = self.plan.place;
        let contribution = match result {
            Ok(contribution) => contribution,
            Err(error) => {
                core.events.push(Event::TrainingFailed { place, error: error.to_string() });
                let reason = match error {
                    WorkError::Trainer(TrainerError::Refused(_)) => AbandonReason::Refused,
                    _ => AbandonReason::TrainingFailed,
                };
                return core.give_up(place, reason);
            }
        };
        match pending(place, &contribution).and_then(|pending| Ok((pending.encode()?, pending))) {
            Ok((bytes, pending)) => {
                let Contribution { evaluated, trained, examples, .. } = contribution;
                core.events.push(Event::Evaluated { place, metrics: evaluated });
                core.events.push(Event::Trained { place, metrics: trained, examples });
                let record = Record { name: snapshot::ROUND.to_owned(), bytes };
                State::Persist(Persist::new(vec![record], State::Upload(Sending::new(pending))))
            }
            Err(error) => State::Finished(Err(error.into())),
        }
    }
}

fn pending(place: Place, contribution: &Contribution) -> Result<Pending, JournalError> {
    let personal = contribution.personal.as_ref().map(|personal| personal.to_record()).transpose();
    let personal = personal.map_err(|error| JournalError::corrupt(&snapshot::personal(place.task), error))?;
    let input = &contribution.input;
    Ok(Pending { place, sha256: input.sha256, body: input.body.clone(), personal })
}
