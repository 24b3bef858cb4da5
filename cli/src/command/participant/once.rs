//! `--once`: one participation of a batch job, and when there is nothing to do.

use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client_sdk::Event;
use tokio::sync::watch;
use wire::participant::{AbandonReason, WaitingFor};

use crate::failure::{Exit, Failure, Outcome};

/// Watches for the end of one participation.
#[derive(Clone)]
pub(super) struct Once {
    within: Duration,
    progress: watch::Sender<Progress>,
    /// Why the participant waits.
    reason: Arc<Mutex<Reason>>,
}

/// How far the participation has come.
#[derive(Clone, PartialEq)]
enum Progress {
    Waiting,
    InRound,
    TookPart,
    Ended(Exit, String),
}

/// The last reason for a wait.
enum Reason {
    None,
    /// A request that fails.
    Unreachable(String),
    /// As the coordinator stated it.
    Stated(String),
}

impl Once {
    /// Waits for a round for this time at most.
    pub(super) fn new(within: Duration) -> Self {
        Self { within, progress: watch::Sender::new(Progress::Waiting), reason: Arc::new(Mutex::new(Reason::None)) }
    }

    pub(super) fn notice(&self, event: &Event) {
        match event {
            Event::Invited { .. } | Event::Assigned { .. } | Event::ToTrain { .. } => self.advance(Progress::InRound),
            Event::TookPart { .. } => self.advance(Progress::TookPart),
            Event::RoundOver { reason, .. } => {
                self.give(Reason::Stated(format!("the last round ended without this participant's update: {reason}")));
                self.advance(Progress::Waiting);
            }
            Event::CheckedIn { waiting_for, .. } => {
                let reasons: Vec<_> = waiting_for.iter().map(ToString::to_string).collect();
                let hopeless = !reasons.is_empty() && !waiting_for.iter().any(may_end);
                let reasons = reasons.join("; ");
                self.advance(if hopeless { Progress::Ended(Exit::Idle, reasons.clone()) } else { Progress::Waiting });
                self.give(if reasons.is_empty() { Reason::None } else { Reason::Stated(reasons) });
            }
            Event::Abandoned { reason: AbandonReason::TrainingFailed, .. } => {
                let text = "training failed: the line above has the reason".to_owned();
                self.advance(Progress::Ended(Exit::Training, text));
            }
            Event::Abandoned { reason, refusal, .. } => {
                let code = refusal.map(|code| format!(" ({})", code.as_str())).unwrap_or_default();
                let text = format!("this participant left the round: {}{code}", reason.as_str());
                self.advance(Progress::Ended(Exit::Idle, text));
            }
            Event::Retry { what, error, .. } => self.give(Reason::Unreachable(format!("cannot {what}: {error}"))),
            _ => {}
        }
    }

    fn give(&self, reason: Reason) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Ends do not change any more.
    fn advance(&self, to: Progress) {
        self.progress.send_if_modified(|progress| {
            let is_over = matches!(progress, Progress::TookPart | Progress::Ended(..));
            let changes = !is_over && *progress != to;
            if changes {
                *progress = to;
            }
            changes
        });
    }

    async fn over(&self) {
        let mut progress = self.progress.subscribe();
        loop {
            let now = progress.borrow_and_update().clone();
            match now {
                Progress::TookPart | Progress::Ended(..) => return,
                Progress::InRound => {
                    let _ = progress.changed().await;
                }
                Progress::Waiting => {
                    if tokio::time::timeout(self.within, progress.changed()).await.is_err() {
                        self.advance(self.too_long());
                    }
                }
            }
        }
    }

    fn too_long(&self) -> Progress {
        let within = format!("no round took this participant within {} s", self.within.as_secs());
        match &*self.reason.lock().unwrap_or_else(PoisonError::into_inner) {
            Reason::None => Progress::Ended(Exit::Idle, within),
            Reason::Stated(reason) => Progress::Ended(Exit::Idle, format!("{within}: {reason}")),
            Reason::Unreachable(error) => Progress::Ended(Exit::Connection, error.clone()),
        }
    }

    /// The result of the process; `otherwise`: why the participant has ended, if nothing else was the reason.
    pub(super) fn result(&self, otherwise: &str) -> Outcome {
        match &*self.progress.borrow() {
            Progress::TookPart => Ok(()),
            Progress::Ended(exit, why) => Err(Failure::new(*exit, why)),
            Progress::Waiting | Progress::InRound => Err(Failure::new(Exit::Idle, otherwise)),
        }
    }
}

/// Whether the wait may end without an operator.
fn may_end(reason: &WaitingFor) -> bool {
    match reason {
        WaitingFor::Participants { .. } | WaitingFor::Round { .. } | WaitingFor::Other => true,
        WaitingFor::Task { .. }
        | WaitingFor::AnyTask
        | WaitingFor::Operator { .. }
        | WaitingFor::Label { .. }
        | WaitingFor::Device { .. }
        | WaitingFor::Refused { .. } => false,
    }
}

/// Completes when the participation of `--once` is over.
pub(super) async fn ended(once: Option<&Once>) {
    match once {
        Some(once) => once.over().await,
        None => pending().await,
    }
}
