//! Trains ahead of rounds, keeps the finished update, and loads it for the round that requests it
//! ([`Ahead`](crate::participant::journal::ahead::Ahead)).

use std::sync::Arc;
use std::time::Duration;

use learning::{Parameters, Update, checkpoint};
use recipe::AssignmentTerms;
use wire::participant::{Assignment, DiscardReason};
use wire::{Attempt, Digest, TaskId};
use zeroize::Zeroizing;

use crate::clock::Now;
use crate::journal::JournalError;
use crate::participant::api::event::Event;
use crate::participant::journal::ahead::HeldUpdate;
use crate::participant::journal::record::Record;
use crate::participant::journal::snapshot::{self, HeldRecord, HeldUpdateId, LocalState};
use crate::participant::states::core::{Core, persist};
use crate::participant::states::joining::join::{accept, accept_task};
use crate::participant::states::state::{CheckIn, Fetch, State};
use crate::participant::task::plan::Plan;

impl CheckIn {
    /// Starts a training ahead of rounds.
    pub(in crate::participant) fn train_ahead(self, core: &mut Core, assignment: Box<Assignment>, now: Now) -> State {
        let place = assignment.attempt_key();
        let remaining = Duration::from_millis(assignment.remaining_ms);
        let (version, is_secure) = (assignment.base.version, assignment.secure_aggregation.is_some());
        core.events.push(Event::ToTrain { place, version, remaining, is_secure });
        let proof = core.prove(place, &assignment);
        let planned = match &proof.verdict {
            Ok(()) => plan(core, assignment),
            Err(error) => Err(error.to_string()),
        };
        let then = match planned {
            Ok(plan) => {
                core.ahead.under_way = Some(place);
                let deadline = core.deadline(remaining, now);
                State::Fetch(Fetch::new(Arc::new(plan), deadline, None))
            }
            Err(reason) => {
                core.events.push(Event::Refused { place, reason: reason.clone() });
                let attempts = self.attempts.in_vain(core, now, "train ahead of a round", &reason);
                State::CheckIn(Self { attempts })
            }
        };
        // There is room for one update. The coordinator knows of this one and does not count on it; kept any longer,
        // it would hide the result of the new training.
        let then = core.throw_away(DiscardReason::Unknown, then);
        core.ahead.gone = core.ahead.under_way.is_none().then_some((place.task, place.attempt));
        proof.before(then)
    }

    /// Discards the update on the coordinator's request.
    pub(in crate::participant) fn discard(
        self,
        core: &mut Core,
        task: TaskId,
        serial: u32,
        reason: DiscardReason,
        now: Now,
    ) -> State {
        if core.ahead.held.as_ref().is_none_or(|held| (held.id.task, held.id.serial) != (task, serial)) {
            let attempts = self.attempts.in_vain(core, now, "check in", &"another update was to be thrown away");
            return State::CheckIn(Self { attempts });
        }
        core.throw_away(reason, State::CheckIn(Self::default()))
    }
}

impl Core {
    /// Discards the finished update, if any, then continues.
    pub(in crate::participant) fn throw_away(&mut self, reason: DiscardReason, then: State) -> State {
        match self.ahead.let_go() {
            Ok(None) => then,
            // The local state of the training is kept. After a crash in between, all of this is repeated.
            Ok(Some((record, HeldUpdate { id: HeldUpdateId { task, serial, .. }, local_state, .. }))) => {
                self.events.push(Event::Discarded { task, serial, reason });
                persist(Ok(local_state.records(task).chain([record]).collect()), then)
            }
            Err(error) => State::Finished(Err(error.into())),
        }
    }

    /// Discards the finished update of a task that is over.
    pub(super) fn task_over(&mut self, task: TaskId, then: State) -> State {
        match &self.ahead.held {
            Some(held) if held.id.task == task => self.throw_away(DiscardReason::Unknown, then),
            _ => then,
        }
    }
}

/// Checks a training by the rules of a round.
fn plan(core: &Core, assignment: Box<Assignment>) -> Result<Plan, String> {
    let accepted = accept_task(core, &assignment);
    let accepted = accepted.and_then(|()| accept(core, assignment.secure_aggregation.as_ref()));
    accepted.map_err(|error| error.to_string())?;
    if core.is_ineligible(assignment.task) {
        return Err("what the task asks of devices does not hold any more".to_owned());
    }
    let plan = Plan::ahead(assignment, core.max_model_bytes()).map_err(|error| error.to_string())?;
    // Attempt 0: the training's serial number may equal an attempt that was charged.
    let place = Attempt { attempt: 0, ..plan.place };
    core.account.check(place, plan.private()).map_err(|refusal| refusal.to_string())?;
    Ok(plan)
}

/// Keeps a finished update with the local state and the scores of the same training.
pub(in crate::participant) fn keep(
    core: &mut Core,
    plan: &Plan,
    update: Update,
    local_state: LocalState,
    below: Option<Digest>,
    [scores, no_checkpoint]: [Option<Record>; 2],
) -> State {
    let place = plan.place;
    let trained = AssignmentTerms::from(&*plan.assignment).training();
    let base = &plan.assignment.base;
    let id =
        HeldUpdateId { task: place.task, serial: place.attempt, version: base.version, trained, base: base.sha256 };
    core.ahead.under_way = None;
    match record(plan, update, HeldUpdate { id, local_state, below }) {
        Ok((record, held)) => {
            core.ahead.held = Some(held);
            let records = scores.into_iter().chain([record]).chain(no_checkpoint);
            persist(Ok(records.collect()), State::CheckIn(CheckIn::default()))
        }
        Err(error) => State::Finished(Err(error.into())),
    }
}

fn record(plan: &Plan, update: Update, held: HeldUpdate) -> Result<(Record, HeldUpdate), JournalError> {
    let corrupt = |error: &dyn std::fmt::Display| JournalError::corrupt(snapshot::UPDATE, error);
    let Update { delta, examples, metrics } = update;
    let delta = Parameters::new(Arc::clone(plan.shared()), delta).map_err(|error| corrupt(&error))?;
    let file = Zeroizing::new(checkpoint::write(&delta).map_err(|error| corrupt(&error))?);
    drop(delta);
    let HeldUpdate { id, local_state, below } = held;
    let record = HeldRecord { held: id, examples, metrics, delta: file, local_state, below };
    let bytes = record.encode()?;
    Ok((Record::new(snapshot::UPDATE.to_owned(), bytes), HeldUpdate { id, local_state: record.local_state, below }))
}

/// The requested update, from its record.
pub(super) fn recall(plan: &Plan, record: Option<&[u8]>) -> Result<Update, JournalError> {
    let corrupt = |error: &dyn std::fmt::Display| JournalError::corrupt(snapshot::UPDATE, error);
    let found = record.map(HeldRecord::decode).transpose()?.flatten();
    let found = found.filter(|found| Some(found.held) == plan.wanted());
    let found = found.ok_or_else(|| corrupt(&"the update that was held is not in it"))?;
    let delta = checkpoint::read(&found.delta, plan.shared()).map_err(|error| corrupt(&error))?;
    Ok(Update { delta: delta.into_values(), examples: found.examples, metrics: found.metrics })
}
