//! Asks for work, and takes it only if it makes sense.

use std::sync::Arc;
use std::time::Duration;

use wire::participant::{AbandonReason, Assignment, CheckInReply, CheckInRequest};

use super::error::{ParticipantError, problem_of};
use super::event::{Event, Outcome};
use super::fetch::Fetch;
use super::machine::{Action, Attempts, Core, Ended, Request, State};
use super::work::Plan;
use crate::clock::Now;
use crate::transport::retry::{Verdict, judge};
use crate::transport::{Place, TransportError};

/// Longest that a coordinator can send us away.
const LONGEST_AWAY: Duration = Duration::from_secs(24 * 3600);

/// Idle.
#[derive(Clone, Copy, Default)]
pub(super) struct CheckIn {
    attempts: Attempts,
}

impl CheckIn {
    pub(super) fn action(&self, core: &Core, now: Now) -> Action {
        self.attempts.wait(now).unwrap_or_else(|| {
            let wait_ms = u64::try_from(core.settings.wait.as_millis()).unwrap_or(u64::MAX);
            let (task, examples) = (core.settings.task.clone(), core.examples);
            Action::Send(Request::CheckIn(CheckInRequest { task, examples, wait_ms, keys: None }))
        })
    }

    pub(super) fn checked_in(self, core: &mut Core, result: Result<CheckInReply, TransportError>, now: Now) -> State {
        let error = match result {
            Ok(CheckInReply::Assigned(assignment)) => return self.assigned(core, assignment, now),
            Ok(CheckInReply::Invited(_)) => {
                TransportError::Protocol("secure aggregation is not spoken here".to_owned())
            }
            Ok(CheckInReply::ComeBack { after_ms }) => {
                let come_back = Duration::from_millis(after_ms).min(LONGEST_AWAY);
                core.events.push(Event::CheckedIn { come_back });
                let attempts = Attempts::not_before(now.elapsed.saturating_add(come_back));
                return State::CheckIn(Self { attempts });
            }
            Ok(CheckInReply::TaskOver { task }) => return State::Finished(Ok(Outcome::TaskOver { task })),
            Err(error) => error,
        };
        let verdict = judge(&error);
        if let Some(end) = core.fatal(&error, verdict) {
            return State::Finished(Err(end));
        }
        match verdict {
            Verdict::Refused => {
                State::Finished(Err(ParticipantError::Refused { what: "check in", problem: problem_of(error) }))
            }
            Verdict::Again(after) => {
                State::CheckIn(Self { attempts: self.attempts.again(core, now, "check in", &error, after) })
            }
            // A task that is not there may come yet: participants often start before it.
            _ => State::CheckIn(Self { attempts: self.attempts.again(core, now, "check in", &error, None) }),
        }
    }

    fn assigned(self, core: &mut Core, assignment: Box<Assignment>, now: Now) -> State {
        let place = Place { task: assignment.task, round: assignment.round, attempt: assignment.attempt };
        match core.ended {
            Some((ended, Ended::GivenUp(reason))) if ended == place => return core.give_up(place, reason),
            Some((ended, Ended::Answered)) if ended == place => {
                // One answer per place: the coordinator has not caught up yet.
                let attempts = self.attempts.again(core, now, "check in", &"the same place was given again", None);
                return State::CheckIn(Self { attempts });
            }
            _ => {}
        }
        let remaining = Duration::from_millis(assignment.remaining_ms);
        core.events.push(Event::Assigned { place, cohort: assignment.cohort, remaining });
        match Plan::new(assignment) {
            Ok(plan) => State::Fetch(Fetch::new(Arc::new(plan), now.elapsed.saturating_add(remaining))),
            Err(error) => {
                core.events.push(Event::TrainingFailed { place, error: error.to_string() });
                core.give_up(place, AbandonReason::Refused)
            }
        }
    }
}
