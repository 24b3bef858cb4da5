//! Training ahead of rounds: a participant is told to train now, keeps the finished update in its journal, and says with its
//! check-ins that it holds one. A round that wants it aggregates it without training; until a masked input was made of it, it
//! is kept, and after that it is gone.

use std::sync::Arc;
use std::time::Duration;

use learning::{Parameters, Update, checkpoint};
use wire::TaskId;
use wire::participant::{Assignment, DiscardReason, TrainingReport};
use zeroize::Zeroizing;

use super::action::Record;
use super::check_in::CheckIn;
use super::core::{Core, persist};
use super::event::Event;
use super::fetch::Fetch;
use super::given;
use super::machine::State;
use super::session;
use super::settle::Settle;
use super::snapshot::{self, AtHome, Held, HeldRecord};
use super::work::{Plan, told};
use crate::clock::Now;
use crate::journal::JournalError;
use crate::transport::Place;

/// What a participant knows of trainings ahead of rounds.
#[derive(Default)]
pub(super) struct Ahead {
    /// The update that waits in the journal, and what stays at home of the same training.
    held: Option<(Held, AtHome)>,
    /// The last training of which there is no update: it failed, was given up, or its update was sent or thrown away.
    gone: Option<(TaskId, u32)>,
    /// The training that is under way.
    under_way: Option<Place>,
}

/// Why a round does not get an update that was trained ahead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotGiven {
    #[error("the round wants an update that this device does not hold")]
    NotHeld,
    #[error("the update was not trained as the round says")]
    OtherTraining,
    #[error(
        "the update was trained from other bytes of version {version} than the round's members agree on; with such bytes a \
         coordinator can make all other updates small and read this one in the sum"
    )]
    OtherBase { version: u32 },
}

impl Ahead {
    /// As the journal has it.
    pub(super) fn restore(record: Option<&[u8]>) -> Result<Self, JournalError> {
        let record = record.map(HeldRecord::decode).transpose()?.flatten();
        Ok(Self { held: record.map(|record| (record.held, record.at_home)), ..Self::default() })
    }

    /// What to check in with.
    pub(super) fn report(&self) -> Option<TrainingReport> {
        let held = self.held.as_ref().map(|(held, _)| *held);
        let held = held.map(|Held { task, serial, .. }| TrainingReport { task, serial, ready: true });
        held.or_else(|| self.gone.map(|(task, serial)| TrainingReport { task, serial, ready: false }))
    }

    /// Why the update that a round wants is not given to it; nothing if it waits, and was trained as the round's members agree.
    pub(super) fn refusal(&self, wanted: Held) -> Option<NotGiven> {
        match &self.held {
            Some((held, _)) if *held == wanted => None,
            Some((held, _)) if (Held { base: wanted.base, ..*held }) == wanted => {
                Some(NotGiven::OtherBase { version: held.version })
            }
            Some((held, _))
                if (held.task, held.serial, held.version) == (wanted.task, wanted.serial, wanted.version) =>
            {
                Some(NotGiven::OtherTraining)
            }
            _ => Some(NotGiven::NotHeld),
        }
    }

    /// Whether this was a training, not a round: it is over then, without an update.
    pub(super) fn end(&mut self, place: Place) -> bool {
        let is_training = self.under_way.take_if(|under_way| *under_way == place).is_some();
        if is_training {
            self.gone = Some((place.task, place.attempt));
        }
        is_training
    }

    /// What takes effect at home whatever becomes of the update, to be written before it is forgotten.
    pub(super) fn at_home_copies(&self) -> Vec<Record> {
        self.held.as_ref().map(|(held, at_home)| at_home.copies(held.task)).unwrap_or_default()
    }

    /// Forgets the update: what has to be written before anything is done with it that cannot be done twice, and what stays at
    /// home.
    pub(super) fn let_go(&mut self) -> Result<(Option<Record>, AtHome), JournalError> {
        let Some((held, at_home)) = self.held.take() else { return Ok((None, AtHome::NOTHING)) };
        self.gone = Some((held.task, held.serial));
        let bytes = snapshot::encode_nothing_held()?;
        Ok((Some(Record::new(snapshot::UPDATE.to_owned(), bytes)), at_home))
    }
}

impl CheckIn {
    /// Told to train now.
    pub(super) fn train_ahead(self, core: &mut Core, assignment: Box<Assignment>, now: Now) -> State {
        let place = Place { task: assignment.task, round: assignment.round, attempt: assignment.attempt };
        let remaining = Duration::from_millis(assignment.remaining_ms);
        let (version, is_secure) = (assignment.base.version, assignment.secure_aggregation.is_some());
        core.events.push(Event::ToTrain { place, version, remaining, is_secure });
        let then = match plan(core, assignment) {
            Ok(plan) => match given(core, &plan) {
                Some(given) => State::Settle(Settle::new(place, given, self)),
                None => {
                    core.ahead.under_way = Some(place);
                    let deadline = core.deadline(remaining, now);
                    State::Fetch(Fetch::new(Arc::new(plan), deadline, None))
                }
            },
            Err(reason) => {
                core.events.push(Event::Refused { place, reason: reason.clone() });
                let attempts = self.attempts.in_vain(core, now, "train ahead of a round", &reason);
                State::CheckIn(Self { attempts })
            }
        };
        // There is room for one update, and the coordinator was told of this one: it does not count on it. Kept any longer, it
        // would hide what becomes of the training.
        let then = core.throw_away(DiscardReason::Unknown, then);
        core.ahead.gone = core.ahead.under_way.is_none().then_some((place.task, place.attempt));
        then
    }

    /// Told that the update is of no use any more.
    pub(super) fn discard(self, core: &mut Core, task: TaskId, serial: u32, reason: DiscardReason, now: Now) -> State {
        if core.ahead.held.as_ref().is_none_or(|(held, _)| (held.task, held.serial) != (task, serial)) {
            let attempts = self.attempts.in_vain(core, now, "check in", &"another update was to be thrown away");
            return State::CheckIn(Self { attempts });
        }
        core.throw_away(reason, State::CheckIn(Self::default()))
    }
}

impl Core {
    /// Throws the finished update away, if there is one, before it goes on.
    fn throw_away(&mut self, reason: DiscardReason, then: State) -> State {
        let Some((Held { task, serial, .. }, _)) = self.ahead.held else { return then };
        self.events.push(Event::Discarded { task, serial, reason });
        match self.ahead.let_go() {
            // What was trained at home holds all the same. If it dies in between, all of this is repeated.
            Ok((record, at_home)) => persist(Ok(at_home.records(task).chain(record).collect()), then),
            Err(error) => State::Finished(Err(error.into())),
        }
    }

    /// Throws the finished update away if this task, which is over, has one.
    pub(super) fn task_over(&mut self, task: TaskId, then: State) -> State {
        match self.ahead.held {
            Some((held, _)) if held.task == task => self.throw_away(DiscardReason::Unknown, then),
            _ => then,
        }
    }
}

/// What is refused in a round is not trained for.
fn plan(core: &Core, assignment: Box<Assignment>) -> Result<Plan, String> {
    let accepted = session::accept_staleness(core, &assignment);
    let accepted = accepted.and_then(|()| session::accept(core, assignment.secure_aggregation.as_ref()));
    accepted.map_err(|error| error.to_string())?;
    if core.is_ineligible(assignment.task) {
        return Err("what the task asks of devices does not hold any more".to_owned());
    }
    let plan = Plan::ahead(assignment, core.max_model_bytes()).map_err(|error| error.to_string())?;
    // At no attempt yet: the serial of the training may be the number of one that was charged.
    let place = Place { attempt: 0, ..plan.place };
    core.account.check(place, plan.private()).map_err(|refusal| refusal.to_string())?;
    if let (Some(base), None) = (plan.base().map(given::Base::from), given(core, &plan)) {
        core.given.check(base, place).map_err(|error| error.to_string())?;
    }
    Ok(plan)
}

/// The input that was given from the version which the training would start from, if it may yet prove to be in no sum.
fn given(core: &Core, plan: &Plan) -> Option<given::Input> {
    plan.base().and_then(|base| core.given.latest(base.into()))
}

/// Keeps a finished update, and what stays at home of the same training.
pub(super) fn keep(core: &mut Core, plan: &Plan, update: &Update, at_home: AtHome) -> State {
    let place = plan.place;
    let trained = told(&plan.assignment);
    let base = &plan.assignment.base;
    let held = Held { task: place.task, serial: place.attempt, version: base.version, trained, base: base.sha256 };
    core.ahead.under_way = None;
    match record(plan, held, update, at_home) {
        Ok((record, at_home)) => {
            core.ahead.held = Some((held, at_home));
            persist(Ok(vec![record]), State::CheckIn(CheckIn::default()))
        }
        Err(error) => State::Finished(Err(error.into())),
    }
}

fn record(plan: &Plan, held: Held, update: &Update, at_home: AtHome) -> Result<(Record, AtHome), JournalError> {
    let corrupt = |error: &dyn std::fmt::Display| JournalError::corrupt(snapshot::UPDATE, error);
    let delta = Parameters::new(Arc::clone(plan.shared()), update.delta.clone()).map_err(|error| corrupt(&error))?;
    let delta = Zeroizing::new(checkpoint::write(&delta).map_err(|error| corrupt(&error))?);
    let record = HeldRecord { held, examples: update.examples, metrics: update.metrics.clone(), delta, at_home };
    let bytes = record.encode()?;
    Ok((Record::new(snapshot::UPDATE.to_owned(), bytes), record.at_home))
}

/// The update that a round wants, from its record.
pub(super) fn recall(plan: &Plan, record: Option<&[u8]>) -> Result<Update, JournalError> {
    let corrupt = |error: &dyn std::fmt::Display| JournalError::corrupt(snapshot::UPDATE, error);
    let found = record.map(HeldRecord::decode).transpose()?.flatten();
    let found = found.filter(|found| Some(found.held) == plan.wanted());
    let found = found.ok_or_else(|| corrupt(&"the update that was held is not in it"))?;
    let delta = checkpoint::read(&found.delta, plan.shared()).map_err(|error| corrupt(&error))?;
    Ok(Update { delta: delta.values().to_vec(), examples: found.examples, metrics: found.metrics })
}
