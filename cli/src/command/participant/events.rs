//! Events of a participant, in words for people and as JSON for programs.

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
        epsilon.map_or_else(|| "an unknown amount".to_owned(), |epsilon| format!("epsilon {}", figure(epsilon)));
    let limit = limit.map_or_else(String::new, |limit| format!(" of {}", figure(limit)));
    output.line(format!("privacy spent on all tasks together: {epsilon}{limit} at delta {delta:e}"));
}

/// Prints events, and lasting conditions only once.
#[derive(Default)]
pub(super) struct EventPrinter(Mutex<Last>);

/// The last printed state.
#[derive(Default)]
struct Last {
    waiting_for: Vec<WaitingFor>,
    /// The retried action, and the reason.
    retry: Option<(&'static str, String)>,
    /// The task that this participant refuses, and why.
    refused: Option<(TaskId, String)>,
    /// Whether it refuses it for the reason that was said before.
    is_repeated: bool,
}

impl EventPrinter {
    /// Prints an event, unless it repeats the previous state.
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

    /// Prints that a condition has ended, and records the current one.
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
                "the coordinator's CA was replaced: enrols again and keeps the journal of {before}, with its models and ledger{left}"
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
            let word = if *eligible { "meets" } else { "does not meet" };
            output.line(format!("task {task}: this device {word} its criteria"));
        }
        Event::InBatch { batch, size } => {
            json();
            output.line(format!("in batch {batch} of {size} participants, whose updates are only opened together"));
        }
        Event::Assigned { place, cohort, remaining, is_secure } => {
            json();
            let readable = if *is_secure { "" } else { "; the coordinator can read the update" };
            let within = duration(*remaining);
            output.line(format!(
                "round {}: drawn into a cohort of {cohort}; updates are accepted for {within}{readable}",
                place.round
            ));
        }
        Event::Shared { place, participants } => {
            json();
            let round = place.round;
            output.line(format!("round {round}: sent key shares to a cohort of {participants}; waiting for theirs"));
        }
        Event::Delivered { place, dealers } => {
            json();
            output.line(format!(
                "round {}: received the key shares of {}",
                place.round,
                counted(*dealers, "participant", "participants")
            ));
        }
        Event::Confirmed { place, survivors } => {
            json();
            let (round, updates) = (place.round, counted(*survivors, "update", "updates"));
            output.line(format!("round {round}: the sum will include {updates}, with this one"));
        }
        Event::Unmasked { place, signers } => {
            json();
            output.line(format!(
                "round {}: sent unmasking shares; {signers} participants had signed the included set",
                place.round
            ));
        }
        Event::KeyPinned { key } => {
            json();
            output.note(format!("pinned the coordinator's signing key {key}; compare it with the coordinator's key"));
        }
        // The refusal that follows explains it.
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
            output.note(format!("task {task} was rebased to version {version}, which is now another model"));
        }
        Event::Refused { place, reason } => {
            json();
            output.note(format!(
                "round {}: this participant takes no part: {reason}; it retries with increasing delays and reports a change",
                place.round
            ));
        }
        Event::Abandoned { place, reason, refusal } => {
            json();
            let what = refusal.map(|code| format!(" ({}: {code})", code.as_str())).unwrap_or_default();
            output.line(format!("round {}: left the round: {}{what}", place.round, reason.as_str()));
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
            output.line(format!("round {}: training resumed from its last checkpoint", place.round));
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
            output.line(format!("round {round}: sent {size}; waiting for enough other updates"));
        }
        Event::RoundOver { place, reason } => {
            json();
            output.line(format!("round {}: ended without this participant's update: {reason}", place.round));
        }
        Event::FinalModel { version, .. } => {
            json();
            output.line(format!("the task has ended; the journal keeps its last version, {version}"));
        }
        Event::NoFinalModel { version, reason, .. } => {
            json();
            output.note(format!("the task has ended; its last version, {version}, is not stored here: {reason}"));
        }
        Event::Retry { what, error, after } => {
            output.note(format!(
                "cannot {what} now: {error}; retrying in {}, then with increasing delays",
                duration(*after)
            ));
        }
        _ => {}
    }
}
