//! Fetches the model version to start from, resumes interrupted transfers, and accepts only the file with the expected
//! digest.

use std::sync::Arc;
use std::time::Duration;

use wire::participant::RefusalCode;
use wire::problem::ProblemType;

use crate::clock::Now;
use crate::participant::api::event::Event;
use crate::participant::journal::session::Session;
use crate::participant::model::model_file::ModelFile;
use crate::participant::states::action::Action;
use crate::participant::states::attempts::Attempts;
use crate::participant::states::core::Core;
use crate::participant::states::state::{AwaitDelivery, Fetch, LoadLocal, State};
use crate::participant::task::plan::Plan;
use crate::transport::TransportError;
use crate::transport::retry::{Verdict, judge};

/// Number of complete files with a wrong digest after which the round is abandoned.
const MOST_WRONG_FILES: u32 = 3;

impl Fetch {
    pub(in crate::participant) fn new(plan: Arc<Plan>, deadline: Duration, session: Option<Session>) -> Self {
        Self { plan, deadline, session, have: Vec::new(), wrong_files: 0, attempts: Attempts::default() }
    }

    /// Whether shares were dealt.
    pub(in crate::participant) fn has_session(&self) -> bool {
        self.session.is_some()
    }

    pub(in crate::participant) fn action(&mut self, now: Now) -> Action {
        self.attempts.wait(now).unwrap_or_else(|| self.plan.fetch(std::mem::take(&mut self.have)))
    }

    pub(in crate::participant) fn fetched(
        self,
        core: &mut Core,
        have: Vec<u8>,
        result: Result<(), TransportError>,
        now: Now,
    ) -> State {
        match result {
            Ok(()) => self.came(core, &ModelFile::new(have.into()), now),
            Err(error) => self.failed(core, have, &error, now),
        }
    }

    /// Takes a complete file, if its digest is right.
    pub(in crate::participant) fn came(self, core: &mut Core, file: &ModelFile, now: Now) -> State {
        let base = &self.plan.assignment.base;
        let got = file.length();
        if got != base.bytes {
            let expected = base.bytes;
            let error = TransportError::protocol(format!("the model has {got} bytes instead of {expected}"));
            return self.wrong(core, &error, now);
        }
        if file.sha256() != base.sha256 {
            let error = TransportError::protocol("the model's bytes do not match its digest");
            return self.wrong(core, &error, now);
        }
        let place = self.plan.place;
        match self.plan.read_model(file) {
            Ok(received) => {
                core.events.push(Event::Fetched { place, version: base.version, bytes: base.bytes });
                let plan = Arc::clone(&self.plan);
                let then = match self.session {
                    Some(session) => {
                        State::AwaitDelivery(AwaitDelivery::new(self.plan, self.deadline, received, session))
                    }
                    None => LoadLocal::enter(core, self.plan, self.deadline, (received, None), now),
                };
                core.keep_model(&plan, file, then)
            }
            Err(error) => {
                core.events.push(Event::TrainingFailed { place, error: error.to_string() });
                core.give_up(place, RefusalCode::Model, None)
            }
        }
    }

    /// Restarts the transfer after a wrong file, a limited number of times.
    fn wrong(mut self, core: &mut Core, error: &TransportError, now: Now) -> State {
        self.wrong_files += 1;
        if self.wrong_files >= MOST_WRONG_FILES {
            core.events.push(Event::TrainingFailed { place: self.plan.place, error: error.to_string() });
            return core.give_up(self.plan.place, RefusalCode::Model, None);
        }
        let attempts = self.attempts.again(core, now, "fetch the model", error, None);
        State::Fetch(Self { have: Vec::new(), attempts, ..self })
    }

    fn failed(self, core: &mut Core, have: Vec<u8>, error: &TransportError, now: Now) -> State {
        let verdict = judge(error);
        if let Some(end) = core.fatal(error, verdict) {
            return State::Finished(Err(end));
        }
        match verdict {
            Verdict::RoundOver => core.round_over(self.plan.place, &error.to_string(), None),
            Verdict::Again(after) => {
                let attempts = self.attempts.again(core, now, "fetch the model", error, after);
                State::Fetch(Self { have, attempts, ..self })
            }
            // The received bytes do not match the file: start over.
            _ if is_bad_range(error) => self.wrong(core, error, now),
            Verdict::Revoked | Verdict::Expired | Verdict::Refused => {
                core.events.push(Event::Refused { place: self.plan.place, reason: error.to_string() });
                core.give_up(self.plan.place, RefusalCode::Model, None)
            }
        }
    }
}

fn is_bad_range(error: &TransportError) -> bool {
    matches!(error, TransportError::Problem { problem, .. }
        if problem.problem_type() == Some(ProblemType::RangeNotSatisfiable))
}

impl Plan {
    /// Fetches the rest of the version to start from, after the bytes in `have`.
    pub(in crate::participant) fn fetch(&self, have: Vec<u8>) -> Action {
        let tensors = &self.recipe.tensors;
        let layout = tensors.analysis.is_none().then(|| Arc::clone(&tensors.published));
        Action::Fetch { task: self.assignment.task, model: self.assignment.base.clone(), have, layout }
    }
}
