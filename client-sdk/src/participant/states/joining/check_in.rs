//! Checks in for work and accepts an assignment only if it is consistent.

use std::sync::Arc;
use std::time::Duration;

use secure_agg::rejection::Refusal;
use wire::participant::{
    AbandonReason, Assignment, CheckInReply, CheckInRequest, MAX_WAITING_FOR, RefusalCode, TaskRefusal,
};
use wire::problem::ProblemType;
use wire::{TaskId, round_trip};

use super::join::{accept, accept_task};
use crate::clock::Now;
use crate::participant::api::error::{ParticipantError, problem_of};
use crate::participant::api::event::Event;
use crate::participant::api::plan_error::PlanError;
use crate::participant::journal::ahead::UpdateMismatch;
use crate::participant::journal::round_end::RoundEnd;
use crate::participant::journal::session::{Session, SessionError};
use crate::participant::model::base::RoundBase;
use crate::participant::states::action::Action;
use crate::participant::states::attempts::Attempts;
use crate::participant::states::core::Core;
use crate::participant::states::state::{CheckIn, Fetch, LoadLocal, Share, State};
use crate::participant::task::plan::Plan;
use crate::transport::retry::{Verdict, judge};
use crate::transport::{Request, TransportError};

/// Longest pause that a coordinator can impose.
const LONGEST_AWAY: Duration = Duration::from_secs(24 * 3600);
/// Longest wait after a start until the coordinator answers with a turn or the reason for waiting.
const FIRST_WAIT: Duration = Duration::from_millis(1500);

impl CheckIn {
    pub(in crate::participant) fn action(&self, core: &Core, now: Now) -> Action {
        self.attempts.wait(now).unwrap_or_else(|| {
            let wait = if core.is_told { core.settings.wait } else { core.settings.wait.min(FIRST_WAIT) };
            // The wait ends with the first refusal, so that the next check-in omits it.
            let wait = core.refused_tasks.first_end(now.elapsed).map_or(wait, |end| end.min(wait));
            let refusals = core.refused_tasks.report(now.elapsed);
            let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            let (task, examples) = (core.settings.task.clone(), core.reported_examples());
            let keys = core.session.as_ref().and_then(Session::keys);
            let (loss, findings, training) = (core.loss, core.findings(), core.ahead.report());
            let batch = core.batch.report();
            let (declined, round_trip_ms) = (core.behind, round_trip::reported(core.round_trip));
            Action::Send(Request::CheckIn(CheckInRequest {
                task,
                examples,
                wait_ms,
                keys,
                loss,
                findings,
                training,
                declined,
                batch,
                round_trip_ms,
                refusals,
            }))
        })
    }

    pub(in crate::participant) fn checked_in(
        self,
        core: &mut Core,
        result: Result<CheckInReply, TransportError>,
        now: Now,
    ) -> State {
        // After an invitation or a question the participant checks in again, and only then gets its turn or the reason for waiting.
        let tells = |reply: &CheckInReply| match reply {
            CheckInReply::Assigned(_)
            | CheckInReply::Train(_)
            | CheckInReply::ComeBack { .. }
            | CheckInReply::TaskOver { .. } => true,
            CheckInReply::Invited(_)
            | CheckInReply::Asked { .. }
            | CheckInReply::Batch(_)
            | CheckInReply::Discard { .. } => false,
        };
        core.is_told |= result.as_ref().is_ok_and(tells);
        let error = match result {
            Ok(CheckInReply::Assigned(assignment)) => return self.assigned(core, assignment, now),
            Ok(CheckInReply::Train(assignment)) => return self.train_ahead(core, assignment, now),
            Ok(CheckInReply::Discard { task, serial, reason }) => return self.discard(core, task, serial, reason, now),
            Ok(CheckInReply::Invited(invitation)) => return self.invited(core, *invitation, now),
            Ok(CheckInReply::Batch(step)) => return self.batch_step(core, *step, now),
            Ok(CheckInReply::Asked { questions }) => return self.asked(core, questions, now),
            Ok(CheckInReply::ComeBack { after_ms, mut waiting_for }) => {
                waiting_for.truncate(MAX_WAITING_FOR);
                core.forget_questions_when_full();
                let come_back = Duration::from_millis(after_ms).min(LONGEST_AWAY);
                core.retry_most = core.settings.retry.most_of_many(core.settings.wait, come_back);
                core.events.push(Event::CheckedIn { come_back, waiting_for });
                let attempts = Attempts::not_before(now.elapsed.saturating_add(come_back));
                // The round that a training was for does not wait any more.
                return core.without_checkpoint(None, State::CheckIn(Self { attempts }));
            }
            Ok(CheckInReply::TaskOver { task, model }) => return core.over(task, model),
            Err(error) => error,
        };
        let verdict = judge(&error);
        if let Some(end) = core.fatal(&error, verdict) {
            return State::Finished(Err(end));
        }
        match verdict {
            Verdict::Refused if is_rejected(&error) && core.session.is_some() => {
                let attempts = self.attempts.in_vain(core, now, "join the round", &error);
                core.forget_keys(State::CheckIn(Self { attempts }))
            }
            Verdict::Refused if is_rejected(&error) && core.batch.is_offering() => {
                self.offer_rejected(core, &error, now)
            }
            Verdict::Refused => {
                State::Finished(Err(ParticipantError::Refused { what: "check in", problem: problem_of(error) }))
            }
            Verdict::Again(after) => {
                State::CheckIn(Self { attempts: self.attempts.check_in_again(core, now, &error, after) })
            }
            // The task may be created later: participants often start first.
            Verdict::RoundOver | Verdict::Revoked | Verdict::Expired => {
                State::CheckIn(Self { attempts: self.attempts.in_vain(core, now, "check in", &error) })
            }
        }
    }

    fn assigned(self, core: &mut Core, assignment: Box<Assignment>, now: Now) -> State {
        let place = assignment.attempt_key();
        match core.round_end {
            Some((ended, RoundEnd::GivenUp(why))) if ended == place => return core.give_up(place, why, None),
            Some((ended, RoundEnd::Answered)) if ended == place => {
                // One answer per attempt: the coordinator has not processed the first one yet.
                let attempts = self.attempts.in_vain(core, now, "check in", &"the same place was given again");
                return State::CheckIn(Self { attempts });
            }
            _ => {}
        }
        let (remaining, cohort) = (Duration::from_millis(assignment.remaining_ms), assignment.cohort);
        let is_secure = assignment.secure_aggregation.is_some();
        core.events.push(Event::Assigned { place, cohort, remaining, is_secure });
        let deadline = core.deadline(remaining, now);
        let proof = core.prove(place, &assignment);
        let then = match &proof.verdict {
            Ok(()) => Self::accepted(core, assignment, deadline, now),
            Err(error) => core.refuse(place, &error.clone().into(), None),
        };
        proof.before(then)
    }

    /// Begins with an assignment, if all else about it is as it must be.
    fn accepted(core: &mut Core, assignment: Box<Assignment>, deadline: Duration, now: Now) -> State {
        let place = assignment.attempt_key();
        let session = core.session.take().filter(|session| session.place == place);
        let session = of_session(core, &assignment, session);
        let session = match session.and_then(|session| accept_task(core, &assignment).map(|()| session)) {
            Ok(session) => session,
            Err(error) => return core.refuse(place, &error, None),
        };
        if core.is_ineligible(place.task) {
            return core.give_up(place, AbandonReason::Conditions, None);
        }
        let plan = match Plan::new(assignment, core.max_model_bytes()) {
            Ok(plan) => plan,
            Err(PlanError::TooLarge(error)) => return core.refuse(place, &error.into(), None),
            Err(error) => {
                core.events.push(Event::TrainingFailed { place, error: error.to_string() });
                return core.give_up(place, RefusalCode::Assignment, None);
            }
        };
        match plan.wanted().and_then(|wanted| core.ahead.refusal(wanted)) {
            None => {}
            Some(why @ UpdateMismatch::NotHeld) => {
                core.events.push(Event::TrainingFailed { place, error: why.to_string() });
                return core.give_up(place, AbandonReason::TrainingFailed, None);
            }
            Some(why @ (UpdateMismatch::OtherTraining | UpdateMismatch::OtherBase { .. })) => {
                return core.refuse(place, &why.into(), None);
            }
        }
        if let Err(refusal) = core.account.check(place, plan.private()) {
            return core.refuse(place, &refusal.into(), None);
        }
        #[cfg(feature = "deliberate-faults")]
        let plan = plan.with_fault(core.settings.fault);
        let plan = Arc::new(plan);
        match session {
            Some(session) => Share::enter(core, plan, deadline, session),
            None if plan.wanted().is_some() => LoadLocal::enter(core, plan, deadline, (RoundBase::Held, None), now),
            None => State::Fetch(Fetch::new(plan, deadline, None)),
        }
    }
}

/// The session of the assigned attempt; `None` for a task without secure aggregation.
fn of_session(core: &Core, assignment: &Assignment, session: Option<Session>) -> Result<Option<Session>, SessionError> {
    match (&assignment.secure_aggregation, session) {
        (Some(terms), Some(session)) if session.terms == *terms => Ok(Some(session)),
        (Some(_), Some(_)) => Err(Refusal::Different { what: "configuration" }.into()),
        (Some(_), None) => Err(SessionError::NoKeys),
        (None, Some(_)) => Err(SessionError::Downgraded),
        (None, None) => accept(core, None).map(|()| None),
    }
}

/// Whether the coordinator rejected the keys of the check-in.
fn is_rejected(error: &TransportError) -> bool {
    matches!(error, TransportError::Problem { problem, .. }
        if problem.problem_type() == Some(ProblemType::SessionRejected))
}

impl Core {
    /// Has check-ins report that this participant refuses the task. Returns false if they do already: the coordinator has ignored the
    /// report, so the caller must pause.
    pub(in crate::participant) fn report_refusal(&mut self, task: TaskId, reason: RefusalCode, now: Now) -> bool {
        if self.refused_tasks.has(task, now.elapsed) {
            return false;
        }
        let (retry, rng) = (&self.settings.retry, &mut self.rng);
        let pause = |times| retry.delay(times, retry.most_in_vain, None, rng);
        self.refused_tasks.note(TaskRefusal { task, reason }, now.elapsed, pause);
        true
    }
}
