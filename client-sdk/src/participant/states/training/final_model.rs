//! Fetches the last version of a finished task for the app. It is verified like a round's base and measured by the
//! app's trainer, without training.
//!
//! The task is over in any case. If the coordinator lacks a version or a valid record of it, or sends it too slowly,
//! the participant ends without it.

use std::sync::Arc;
use std::time::Duration;

use learning::{Layout, MetricValue};
use recipe::{AssignmentTerms, Tensors};
use wire::TaskId;
use wire::participant::FinalModel;
use zeroize::Zeroizing;

use crate::clock::Now;
use crate::conditions::Readiness;
use crate::journal::JournalError;
use crate::participant::api::event::{Event, Outcome};
use crate::participant::api::plan_error::{PlanError, WorkError};
use crate::participant::checks::size::MaxModelBytes;
use crate::participant::journal::snapshot::{self, ModelRecord};
use crate::participant::model::kept_models::KeptModel;
use crate::participant::model::last_version::LastVersion;
use crate::participant::model::model_file::ModelFile;
use crate::participant::states::action::Action;
use crate::participant::states::attempts::Attempts;
use crate::participant::states::core::Core;
use crate::participant::states::state::{FetchFinal, FinalStep, State};
use crate::participant::task::plan::check_file;
use crate::seed::RoundSeeds;
use crate::transport::TransportError;
use crate::transport::retry::{Verdict, judge};

/// Failed attempts after which the participant ends without the version. Where the journal has room for partial files,
/// the next process resumes the download.
const MOST_FAILURES: u32 = 4;
/// Longest time for the transfer, once the app's conditions hold: a model of the usual limit at 70 kB/s.
const LONGEST: Duration = Duration::from_secs(3600);

/// Why the last version is not fetched.
#[derive(Debug, thiserror::Error)]
enum Unwanted {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("the task is not the one that this app takes part in")]
    OtherTask,
    #[error("it is the state of an analysis")]
    Analysis,
    #[error("the journal has version {0}, which is later")]
    Older(u32),
}

impl Core {
    /// Ends since the task is over; if it has a last version that the app keeps, fetches that first.
    pub(in crate::participant) fn over(&mut self, task: TaskId, model: Option<Box<FinalModel>>) -> State {
        let then = match model.filter(|_| self.settings.keep_models) {
            Some(model) => self.last_version(task, model),
            None => ended(task),
        };
        let then = self.forget_keys(then);
        let then = self.task_over(task, then);
        self.without_checkpoint(None, then)
    }

    fn last_version(&mut self, task: TaskId, model: Box<FinalModel>) -> State {
        let proof = self.prove_final(task, &model);
        let wanted = match &proof.verdict {
            Ok(()) => self.wanted(task, &model).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let then = match wanted {
            Ok(layout) => {
                let is_it =
                    |kept: &KeptModel| (kept.version, kept.sha256) == (model.version.version, model.version.sha256);
                let is_listed = self.models.of(task).is_some_and(is_it);
                let step = if is_listed { FinalStep::Look } else { FinalStep::fetch() };
                State::FetchFinal(FetchFinal { task, model, layout, step })
            }
            Err(reason) => self.without_version(task, &model, reason),
        };
        proof.before(then)
    }

    /// Checks a version before any byte of it is fetched, and returns its layout.
    fn wanted(&self, task: TaskId, model: &FinalModel) -> Result<Arc<Layout>, Unwanted> {
        if self.settings.task.as_ref().is_some_and(|name| *name != model.task_name) {
            return Err(Unwanted::OtherTask);
        }
        match self.models.of(task) {
            Some(kept) if kept.version > model.version.version => return Err(Unwanted::Older(kept.version)),
            Some(_) | None => {}
        }
        if model.encoding.analytics.is_some() {
            return Err(Unwanted::Analysis);
        }
        Ok(layout(model, self.max_model_bytes())?)
    }

    /// Keeps the last version, then continues with `then`.
    fn keep_last(&mut self, task: TaskId, model: &FinalModel, file: &ModelFile, then: State) -> State {
        let version = &model.version;
        self.events.push(Event::FinalModel { task, version: version.version, bytes: version.bytes });
        self.keep_final(task, model, file, then)
    }

    /// Ends without the last version, and reports the reason to the app.
    fn without_version(&mut self, task: TaskId, model: &FinalModel, reason: String) -> State {
        self.events.push(Event::NoFinalModel { task, version: model.version.version, reason });
        ended(task)
    }
}

fn ended(task: TaskId) -> State {
    State::Finished(Ok(Outcome::TaskOver { task }))
}

/// The layout of the published file. Its sizes are checked first.
fn layout(model: &FinalModel, most_bytes: MaxModelBytes) -> Result<Arc<Layout>, PlanError> {
    most_bytes.check_model(&model.model, model.version.bytes)?;
    let tensors = Tensors::new(&AssignmentTerms::from(model))?;
    most_bytes.check_values("what is sent of the model", tensors.published.len() as u64)?;
    check_file(&tensors, model.version.bytes)?;
    Ok(tensors.published)
}

impl FinalStep {
    fn fetch() -> Self {
        Self::Fetch { deadline: None, have: Vec::new(), attempts: Attempts::default() }
    }
}

impl FetchFinal {
    pub(in crate::participant) fn action(&mut self, now: Now) -> Action {
        match &mut self.step {
            FinalStep::Look => Action::Load(snapshot::model(self.task)),
            FinalStep::Fetch { deadline, attempts, .. } if now.elapsed < attempts.ready_at => {
                Action::WaitUntil(deadline.map_or(attempts.ready_at, |deadline| attempts.ready_at.min(deadline)))
            }
            FinalStep::Fetch { have, .. } => Action::Fetch {
                task: self.task,
                model: self.model.version.clone(),
                have: std::mem::take(have),
                layout: Some(Arc::clone(&self.layout)),
            },
            FinalStep::Evaluate(last) => Action::Evaluate(Arc::clone(last)),
        }
    }

    /// When the transfer is given up; `None` until the app's conditions hold.
    pub(in crate::participant) fn deadline(&self) -> Option<Duration> {
        match &self.step {
            FinalStep::Look | FinalStep::Evaluate(_) => None,
            FinalStep::Fetch { deadline, .. } => *deadline,
        }
    }

    /// Gives up a transfer whose time is over. The time begins whenever the app's conditions come to hold.
    pub(in crate::participant) fn settle(mut self, core: &mut Core, now: Now) -> State {
        if let FinalStep::Fetch { deadline, .. } = &mut self.step {
            match (core.readiness, *deadline) {
                (Readiness::NotReady { .. }, _) => *deadline = None,
                (Readiness::Ready, None) => *deadline = Some(now.elapsed.saturating_add(LONGEST)),
                (Readiness::Ready, Some(deadline)) if now.elapsed >= deadline => {
                    let reason = format!("it did not come within {} minutes", LONGEST.as_secs() / 60);
                    return core.without_version(self.task, &self.model, reason);
                }
                (Readiness::Ready, Some(_)) => {}
            }
        }
        State::FetchFinal(self)
    }

    /// Ends since the app shuts down; the next process begins again.
    pub(in crate::participant) fn stop(self) -> State {
        if let FinalStep::Evaluate(last) = &self.step {
            last.cancel();
        }
        State::Finished(Ok(Outcome::Stopped))
    }

    /// Ends if the journal has the version. The list of kept models is not enough, since it is written before the file.
    pub(in crate::participant) fn loaded(self, result: Result<Option<Zeroizing<Vec<u8>>>, JournalError>) -> State {
        let FinalStep::Look = self.step else { return State::FetchFinal(self) };
        let record = result.ok().flatten();
        // A damaged file is fetched and written again.
        let kept = record.and_then(|record| ModelRecord::decode(&record).ok().flatten());
        let version = &self.model.version;
        if kept.is_some_and(|kept| (kept.version, kept.sha256) == (version.version, version.sha256)) {
            return ended(self.task);
        }
        State::FetchFinal(Self { step: FinalStep::fetch(), ..self })
    }

    pub(in crate::participant) fn fetched(
        self,
        core: &mut Core,
        have: Vec<u8>,
        result: Result<(), TransportError>,
        now: Now,
    ) -> State {
        let error = match result {
            Ok(()) => return self.came(core, Arc::new(ModelFile::new(have.into())), now),
            Err(error) => error,
        };
        match judge(&error) {
            Verdict::Again(after) => self.again(core, have, &error, after, now),
            Verdict::RoundOver | Verdict::Revoked | Verdict::Expired | Verdict::Refused => {
                core.without_version(self.task, &self.model, error.to_string())
            }
        }
    }

    /// Keeps a complete file if its digest is the one in the record; then the app's trainer measures it. In this order, so that a trainer that
    /// ends the process does not take the model from the app, now and at each later start.
    pub(in crate::participant) fn came(self, core: &mut Core, file: Arc<ModelFile>, now: Now) -> State {
        let version = &self.model.version;
        if (file.length(), file.sha256()) != (version.bytes, version.sha256) {
            let error = TransportError::protocol("the model's bytes do not match its digest");
            return self.again(core, Vec::new(), &error, None, now);
        }
        let parameters = match file.parameters(&self.layout) {
            Ok(parameters) => parameters,
            Err(error) => return core.without_version(self.task, &self.model, error.to_string()),
        };
        let seed = core.settings.seed.unwrap_or_else(|| RoundSeeds::fresh(&mut core.rng).training);
        let (task, model) = (self.task, self.model.clone());
        let then = match LastVersion::of(&model, parameters, seed) {
            Some(last) => State::FetchFinal(Self { step: FinalStep::Evaluate(last.into()), ..self }),
            None => ended(task),
        };
        core.keep_last(task, &model, &file, then)
    }

    /// Writes the metrics, if the trainer could measure them, and ends.
    pub(in crate::participant) fn evaluated(
        self,
        core: &mut Core,
        result: Result<Vec<(String, MetricValue)>, WorkError>,
    ) -> State {
        match self.step {
            FinalStep::Evaluate(_) => {
                core.score_final(self.task, &self.model, result.unwrap_or_default(), ended(self.task))
            }
            step => State::FetchFinal(Self { step, ..self }),
        }
    }

    /// Goes on after a failure, a limited number of times.
    fn again(self, core: &mut Core, have: Vec<u8>, error: &TransportError, after: Option<Duration>, now: Now) -> State {
        let FinalStep::Fetch { deadline, attempts, .. } = self.step else { return State::FetchFinal(self) };
        if attempts.failures.saturating_add(1) >= MOST_FAILURES {
            return core.without_version(self.task, &self.model, error.to_string());
        }
        let attempts = attempts.again(core, now, "fetch the last model", error, after);
        State::FetchFinal(Self { step: FinalStep::Fetch { deadline, have, attempts }, ..self })
    }
}
