//! Notifications that rows may have changed, which save waiting tasks the time until their next poll.
//!
//! An event is a hint, not a fact. It may be lost or repeated, so waiting tasks also poll, and read the rows when
//! woken. Publishing does not block. Where several processes use the same rows, a [`bus`] carries the events of each to
//! the others.

pub(crate) mod bus;
mod message;

use std::sync::Arc;

use federation::id::{ParticipantId, RoundKey, TaskId};
use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, mpsc};

/// Number of events kept for a slow subscriber before it loses the oldest.
const CAPACITY: usize = 1024;

/// Rows that may have changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakeEvent {
    /// Background work may be due.
    Work,
    /// These participants may have an assignment.
    #[serde(with = "message::ids")]
    Assigned(Arc<[ParticipantId]>),
    Round(RoundKey),
    Task(TaskId),
    /// A round of this task opened that only takes participants with keys for it.
    Opened(TaskId),
    /// Events were written that lack a position in the log.
    Recorded,
    /// Events got their positions: the log is longer.
    Numbered,
    /// Events were lost, by a subscriber that was too slow or on their way between processes: anything may have changed.
    Lost,
}

/// The publisher of events. Clones share their subscribers.
#[derive(Clone, Debug)]
pub struct Wake {
    here: broadcast::Sender<WakeEvent>,
    /// To the other processes that use the same rows, if there may be any.
    elsewhere: Option<mpsc::UnboundedSender<WakeEvent>>,
}

#[derive(Debug)]
pub struct WakeSubscription(broadcast::Receiver<WakeEvent>);

impl Wake {
    pub(crate) fn new() -> Self {
        Self { here: broadcast::Sender::new(CAPACITY), elsewhere: None }
    }

    /// Notifies every subscriber. Call it after the commit, or they read too early.
    pub fn publish(&self, event: WakeEvent) {
        if let Some(elsewhere) = &self.elsewhere {
            // Fails only while the process ends.
            let _ = elsewhere.send(event.clone());
        }
        // Fails only without subscribers.
        let _ = self.here.send(event);
    }

    /// Receives events published from now on.
    #[must_use]
    pub fn subscribe(&self) -> WakeSubscription {
        WakeSubscription(self.here.subscribe())
    }
}

impl WakeSubscription {
    /// The next event; `None` once the store is gone. Cancel safe.
    pub async fn next(&mut self) -> Option<WakeEvent> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(WakeEvent::Lost),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// Waits until such an event comes, or may have been lost; for ever once the store is gone. Cancel safe.
    pub async fn until(&mut self, is_wanted: impl Fn(&WakeEvent) -> bool) {
        loop {
            match self.next().await {
                Some(event) if event == WakeEvent::Lost || is_wanted(&event) => return,
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_subscriber_learns_that_it_lost_events_and_goes_on() {
        let wake = Wake::new();
        wake.publish(WakeEvent::Work);
        let mut subscription = wake.subscribe();
        for _ in 0..=CAPACITY {
            wake.publish(WakeEvent::Work);
        }
        assert_eq!(subscription.next().await, Some(WakeEvent::Lost));
        assert_eq!(subscription.next().await, Some(WakeEvent::Work));
        drop(wake);
        for _ in 1..CAPACITY {
            assert_eq!(subscription.next().await, Some(WakeEvent::Work));
        }
        assert_eq!(subscription.next().await, None);
    }
}
