//! Compares a task's criteria with the device attributes given by the app, and reports whether they hold. The attributes stay
//! on the device.

use graph::Graph;
use task_spec::TableSpec;
use wire::participant::{Finding, MAX_FINDINGS, Question};
use wire::{Attributes, EXAMPLES, GRAPH_VERSION, TABLE_VERSION, TaskId};

use crate::clock::Now;
use crate::participant::api::event::Event;
use crate::participant::states::core::Core;
use crate::participant::states::state::{CheckIn, State};

impl CheckIn {
    pub(in crate::participant) fn asked(self, core: &mut Core, questions: Vec<Question>, now: Now) -> State {
        let mut is_new = false;
        for question in questions {
            if core.questions.iter().any(|known| known.task == question.task) || core.questions.len() >= MAX_FINDINGS {
                continue;
            }
            is_new = true;
            let (task, eligible) = (question.task, core.holds_for(&question));
            core.questions.push(question);
            core.events.push(Event::Asked { task, eligible });
        }
        let attempts = if is_new {
            self.attempts
        } else {
            // Already answered: the coordinator has not processed the answer.
            self.attempts.in_vain(core, now, "check in", &"the same was asked again")
        };
        State::CheckIn(Self { attempts })
    }
}

impl Core {
    /// One finding for each task with criteria, from the current attributes.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let found = |question: &Question| Finding { task: question.task, eligible: self.holds_for(question) };
        self.questions.iter().map(found).collect()
    }

    /// The number of examples behind a reported loss; 0 without one. Always 0 for participants in private tasks: all
    /// tasks of the coordinator read a check-in.
    pub(super) fn reported_examples(&self) -> u64 {
        let is_private = self.settings.privacy.required || self.account.charges() > 0;
        if self.loss.is_some() && !is_private { self.examples } else { 0 }
    }

    /// Whether the task's criteria do not hold now.
    pub(in crate::participant) fn is_ineligible(&self, task: TaskId) -> bool {
        self.questions.iter().any(|question| question.task == task && !self.holds_for(question))
    }

    /// Clears the criteria when a check-in cannot answer more, so that other tasks get their turn; active tasks ask
    /// again.
    pub(super) fn forget_questions_when_full(&mut self) {
        if self.questions.len() >= MAX_FINDINGS {
            self.questions.clear();
        }
    }

    fn holds_for(&self, question: &Question) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "compared with a limit")]
        let examples = self.examples as f64;
        // Without the ready models, the SDK has no executor for graphs.
        let graphs = if cfg!(feature = "models") { Graph::LATEST } else { 0 };
        let built_in =
            [(EXAMPLES, examples), (GRAPH_VERSION, f64::from(graphs)), (TABLE_VERSION, f64::from(TableSpec::LATEST))];
        question.criteria.iter().all(|criterion| {
            let built_in = built_in.iter().find(|(name, _)| *name == criterion.attribute);
            match built_in.filter(|(name, _)| !self.attributes.contains_key(*name)) {
                Some(&(name, number)) => criterion.holds(&Attributes::from([(name.to_owned(), number.into())])),
                None => criterion.holds(&self.attributes),
            }
        })
    }
}
