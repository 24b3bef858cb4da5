//! Events of a participant, in words for people and as JSON for programs.

use std::sync::{Mutex, PoisonError};

use client_sdk::participant::Event;
use client_sdk::{LifetimeSpent, PrivacySpent, TaskId, WaitingFor};
use wire::Attempt;
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
pub(crate) struct EventPrinter(Mutex<Last>);

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
    pub(crate) fn tell(&self, output: Output, event: &Event) {
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

/// The text of an event.
enum Words {
    /// Lines of the result.
    Lines(Vec<String>),
    /// A note, which is not part of the result.
    Note(String),
}

impl Words {
    fn line(words: impl Into<String>) -> Self {
        Self::Lines(vec![words.into()])
    }
}

/// Prints an event.
fn tell(output: Output, event: &Event) {
    let Some(words) = words_of(event).or_else(|| words_in_round(event)) else { return };
    if !matches!(event, Event::Retry { .. }) {
        output.event(event.name(), &event.data());
    }
    match words {
        Words::Lines(lines) => lines.iter().for_each(|line| output.line(line)),
        Words::Note(note) => output.note(note),
    }
}

/// The text of an event outside rounds; `None` for others.
fn words_of(event: &Event) -> Option<Words> {
    Some(match event {
        Event::Lowered { floor } => Words::Note(format!("this participant {floor}")),
        Event::Enrolled { participant, name } => Words::line(format!("enrolled as {name} ({participant})")),
        Event::AuthorityReplaced { before, left } => {
            let left = left.map(|place| format!("; round {} was left", place.round)).unwrap_or_default();
            Words::line(format!(
                "the coordinator's CA was replaced: enrols again and keeps the journal of {before}, with its models and ledger{left}"
            ))
        }
        Event::Renewed => Words::line("the certificate was renewed"),
        Event::CheckedIn { waiting_for, .. } => {
            Words::Lines(waiting_for.iter().map(|reason| format!("waiting: {reason}")).collect())
        }
        Event::Asked { task, eligible } => {
            let word = if *eligible { "meets" } else { "does not meet" };
            Words::line(format!("task {task}: this device {word} its criteria"))
        }
        Event::InBatch { batch, size } => {
            Words::line(format!("in batch {batch} of {size} participants, whose updates are only opened together"))
        }
        Event::KeyPinned { key } => {
            Words::Note(format!("pinned the coordinator's signing key {key}; compare it with the coordinator's key"))
        }
        // The refusal that follows explains it.
        Event::Unproven { .. } => Words::Lines(Vec::new()),
        Event::Equivocation { taken, refused, .. } => Words::Note(format!(
            "the coordinator has signed two models under one number; keep both records: {} and {}",
            taken.record, refused.record
        )),
        Event::Rebased { place, version } => {
            let task = place.task;
            Words::Note(format!("task {task} was rebased to version {version}, which is now another model"))
        }
        Event::HeldUp { unmet } => Words::Note(format!("this participant waits: {unmet}")),
        Event::FinalModel { version, .. } => {
            Words::line(format!("the task has ended; the journal keeps its last version, {version}"))
        }
        Event::NoFinalModel { version, reason, .. } => {
            Words::Note(format!("the task has ended; its last version, {version}, is not stored here: {reason}"))
        }
        Event::Retry { what, error, after } => Words::Note(format!(
            "cannot {what} now: {error}; retrying in {}, then with increasing delays",
            duration(*after)
        )),
        _ => return None,
    })
}

/// The text of an event of a round; `None` for others.
fn words_in_round(event: &Event) -> Option<Words> {
    let line = |place: &Attempt, words: String| Words::line(format!("round {}: {words}", place.round));
    let note = |place: &Attempt, words: String| Words::Note(format!("round {}: {words}", place.round));
    let metrics = |metrics: &[(String, learning::MetricValue)]| {
        let words: Vec<_> = metrics.iter().map(|(name, metric)| format!("{name} {:.4}", metric.value)).collect();
        words.join(", ")
    };
    Some(match event {
        Event::Assigned { place, cohort, remaining, is_secure } => {
            let readable = if *is_secure { "" } else { "; the coordinator can read the update" };
            let within = duration(*remaining);
            line(place, format!("drawn into a cohort of {cohort}; updates are accepted for {within}{readable}"))
        }
        Event::Shared { place, participants } => {
            line(place, format!("sent key shares to a cohort of {participants}; waiting for theirs"))
        }
        Event::Delivered { place, dealers } => {
            line(place, format!("received the key shares of {}", counted(*dealers, "participant", "participants")))
        }
        Event::Confirmed { place, survivors } => {
            line(place, format!("the sum will include {}, with this one", counted(*survivors, "update", "updates")))
        }
        Event::Unmasked { place, signers } => {
            line(place, format!("sent unmasking shares; {signers} participants had signed the included set"))
        }
        Event::Refused { place, reason } => note(
            place,
            format!("this participant takes no part: {reason}; it retries with increasing delays and reports a change"),
        ),
        Event::Abandoned { place, reason, refusal } => {
            let what = refusal.map(|code| format!(" ({}: {code})", code.as_str())).unwrap_or_default();
            line(place, format!("left the round: {}{what}", reason.as_str()))
        }
        Event::Evaluated { place, metrics: found } => line(place, format!("received model: {}", metrics(found))),
        Event::Trained { place, metrics: found, examples } => {
            let examples = counted(*examples, "example", "examples");
            line(place, format!("trained on {examples}: {}", metrics(found)))
        }
        Event::Clipped { place, clipping } => note(place, format!("the update was clipped: {clipping}")),
        Event::Paused { place } => line(place, "training is paused".to_owned()),
        Event::Resumed { place } => line(place, "training resumed from its last checkpoint".to_owned()),
        Event::TrainingFailed { place, error } => note(place, error.clone()),
        Event::Uploaded { place, bytes: size, .. } => {
            line(place, format!("sent {}; waiting for enough other updates", bytes(*size)))
        }
        Event::TookPart { place } => line(place, "this participant has done its part".to_owned()),
        Event::RoundOver { place, reason } => line(place, format!("ended without this participant's update: {reason}")),
        _ => return None,
    })
}
