//! What a participant does, in words for people and as JSON for programs.

use std::sync::{Mutex, PoisonError};

use client_sdk::participant::Event;
use client_sdk::{LifetimeSpent, PrivacySpent, TaskId, WaitingFor};
use wire::grammar::counted;

use crate::output::{Output, bytes, duration, figure};

/// Prints the privacy spent on a task, from the participant's own ledger.
pub(super) fn tell_spent(output: Output, spent: &PrivacySpent) {
    output.event("privacy_spent", &spent.data());
    let limit = spent.limit.map_or_else(String::new, |limit| format!(" of {}", figure(limit)));
    output.line(format!(
        "privacy spent on {}: epsilon {}{limit} at delta {:e}, in {} updates",
        spent.name,
        figure(spent.epsilon),
        spent.delta,
        spent.releases
    ));
    if let Some(damage) = &spent.damaged {
        output.note(format!(
            "the privacy ledger of {} cannot be trusted, so nothing more is sent to it: {damage}",
            spent.name
        ));
    }
}

/// Prints the privacy spent on all tasks together.
pub(super) fn tell_lifetime(output: Output, spent: &LifetimeSpent) {
    let LifetimeSpent { epsilon, delta, limit, .. } = *spent;
    output.event("privacy_lifetime", &spent.data());
    let epsilon =
        epsilon.map_or_else(|| "nobody knows how much".to_owned(), |epsilon| format!("epsilon {}", figure(epsilon)));
    let limit = limit.map_or_else(String::new, |limit| format!(" of {}", figure(limit)));
    output.line(format!("privacy spent on all tasks together: {epsilon}{limit} at delta {delta:e}"));
}

/// Says what happens as it happens, and what stays as it is only once.
#[derive(Default)]
pub(super) struct Told(Mutex<Last>);

/// What was said last.
#[derive(Default)]
struct Last {
    waiting_for: Vec<WaitingFor>,
    /// What is tried again, and why.
    retry: Option<(&'static str, String)>,
    /// The task that this participant refuses, and why.
    refused: Option<(TaskId, String)>,
    /// Whether it refuses it for the reason that was said before.
    is_repeated: bool,
}

impl Told {
    /// Prints an event, unless it says again what was said.
    pub(super) fn tell(&self, output: Output, event: &Event) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_news(event) {
            last.changed(output, event);
            tell(output, event);
        } else if matches!(event, Event::Refused { .. } | Event::Assigned { .. } | Event::Abandoned { .. }) {
            // Programs count them.
            output.event(event.name(), &event.data());
        }
    }
}

impl Last {
    fn is_news(&mut self, event: &Event) -> bool {
        match event {
            Event::Refused { place, reason } => {
                let refused = Some((place.task, reason.clone()));
                self.is_repeated = self.refused == refused;
                self.refused = refused;
                !self.is_repeated
            }
            Event::Assigned { place, .. } => self.refused.as_ref().is_none_or(|(task, _)| *task != place.task),
            Event::Abandoned { refusal, .. } => refusal.is_none() || !self.is_repeated,
            Event::Retry { what, error, .. } => {
                let is_refusal = self.refused.as_ref().is_some_and(|(_, reason)| reason == error);
                let retry = Some((*what, error.clone()));
                let is_same = self.retry == retry;
                self.retry = retry;
                !is_same && !is_refusal
            }
            Event::CheckedIn { waiting_for, .. } => self.waiting_for != *waiting_for || self.retry.is_some(),
            _ => true,
        }
    }

    /// Says what has changed for the better, and notes what is said now.
    fn changed(&mut self, output: Output, event: &Event) {
        match event {
            Event::CheckedIn { waiting_for, .. } => {
                if self.retry.take().is_some_and(|(what, _)| what == "check in") {
                    output.line("the coordinator answers again");
                }
                self.waiting_for.clone_from(waiting_for);
            }
            Event::Invited { place } | Event::Trained { place, .. } => {
                let was_refused = self.refused.take_if(|(task, _)| *task == place.task).is_some();
                if was_refused {
                    output.line(format!(
                        "round {}: what this participant refused has changed: it takes part",
                        place.round
                    ));
                }
            }
            Event::Assigned { .. } | Event::ToTrain { .. } => {
                self.waiting_for.clear();
                self.retry = None;
            }
            _ => {}
        }
    }
}

/// Prints an event.
fn tell(output: Output, event: &Event) {
    let json = || output.event(event.name(), &event.data());
    let metrics = |metrics: &[(String, learning::MetricValue)]| {
        let words: Vec<_> = metrics.iter().map(|(name, metric)| format!("{name} {:.4}", metric.value)).collect();
        words.join(", ")
    };
    match event {
        Event::Lowered { floor } => {
            json();
            output.note(format!("this participant {floor}"));
        }
        Event::Enrolled { participant, name } => {
            json();
            output.line(format!("enrolled as {name} ({participant})"));
        }
        Event::AuthorityReplaced { before, left } => {
            json();
            let left = left.map(|place| format!("; round {} was left", place.round)).unwrap_or_default();
            output.line(format!(
                "enrols again under another authority, with the journal of {before}, which keeps what was learnt, sent and spent{left}"
            ));
        }
        Event::Renewed => {
            json();
            output.line("the certificate was renewed");
        }
        Event::CheckedIn { waiting_for, .. } => {
            json();
            waiting_for.iter().for_each(|reason| output.line(format!("waiting: {reason}")));
        }
        Event::Asked { task, eligible } => {
            json();
            let word = if *eligible { "is" } else { "is not" };
            output.line(format!("task {task} asked: this {word} a device for it"));
        }
        Event::Assigned { place, cohort, remaining, is_secure } => {
            json();
            let readable = if *is_secure { "" } else { "; the coordinator can read the update" };
            let within = duration(*remaining);
            output.line(format!(
                "round {}: drawn into a cohort of {cohort}, whose updates are taken for {within} from now on{readable}",
                place.round
            ));
        }
        Event::Shared { place, participants } => {
            json();
            let round = place.round;
            output.line(format!("round {round}: dealt shares to a cohort of {participants}, and waits for theirs"));
        }
        Event::Delivered { place, dealers } => {
            json();
            output.line(format!(
                "round {}: has the shares of {}",
                place.round,
                counted(*dealers, "participant", "participants")
            ));
        }
        Event::Confirmed { place, survivors } => {
            json();
            let (round, updates) = (place.round, counted(*survivors, "update", "updates"));
            output.line(format!("round {round}: the sum will be of {updates}, this one among them"));
        }
        Event::Unmasked { place, signers } => {
            json();
            output.line(format!("round {}: helped to open the sum, with {signers} who signed for it", place.round));
        }
        Event::KeyPinned { key } => {
            json();
            output.note(format!(
                "models are taken from now on if {key} has signed them; compare it with the coordinator's key"
            ));
        }
        // The refusal that follows says it to people.
        Event::Unproven { .. } => json(),
        Event::Equivocation { taken, refused, .. } => {
            json();
            let (taken, refused) = (&taken.record, &refused.record);
            output.note(format!(
                "the coordinator has signed two models under one number; keep both records: {taken} and {refused}"
            ));
        }
        Event::Rebased { place, version } => {
            json();
            let task = place.task;
            output
                .note(format!("task {task} has gone back to version {version}, and goes on from another model of it"));
        }
        Event::Refused { place, reason } => {
            json();
            output.note(format!(
                "round {}: this participant takes no part: {reason}; it asks again, ever less often, and says when that changes",
                place.round
            ));
        }
        Event::Abandoned { place, reason, refusal } => {
            json();
            let what = refusal.map(|code| format!(" ({}: {code})", code.as_str())).unwrap_or_default();
            output.line(format!("round {}: gave up its place: {}{what}", place.round, reason.as_str()));
        }
        Event::Evaluated { place, metrics: found } => {
            json();
            output.line(format!("round {}: received model: {}", place.round, metrics(found)));
        }
        Event::Trained { place, metrics: found, examples } => {
            json();
            output.line(format!(
                "round {}: trained on {}: {}",
                place.round,
                counted(*examples, "example", "examples"),
                metrics(found)
            ));
        }
        Event::Clipped { place, clipping } => {
            json();
            output.note(format!("round {}: the update was clipped: {clipping}", place.round));
        }
        Event::Paused { place } => {
            json();
            output.line(format!("round {}: training is paused", place.round));
        }
        Event::Resumed { place } => {
            json();
            output.line(format!("round {}: training goes on from its last checkpoint", place.round));
        }
        Event::HeldUp { unmet } => {
            json();
            output.note(format!("this participant waits: {unmet}"));
        }
        Event::TrainingFailed { place, error } => {
            json();
            output.note(format!("round {}: {error}", place.round));
        }
        Event::Uploaded { place, bytes: size, .. } => {
            json();
            let (round, size) = (place.round, bytes(*size));
            output.line(format!("round {round}: sent {size}; the round ends once enough others have sent theirs"));
        }
        Event::RoundOver { place, reason } => {
            json();
            output.line(format!("round {}: over without this participant: {reason}", place.round));
        }
        Event::FinalModel { version, .. } => {
            json();
            output.line(format!("the task is over; the journal keeps its last version, {version}"));
        }
        Event::NoFinalModel { version, reason, .. } => {
            json();
            output.note(format!("the task is over; its last version, {version}, is not kept here: {reason}"));
        }
        Event::Retry { what, error, after } => {
            output.note(format!("cannot {what} now: {error}; again in {}, then ever less often", duration(*after)));
        }
        _ => {}
    }
}
