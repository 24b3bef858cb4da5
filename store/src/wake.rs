//! "There is something to look at": spares waiting tasks the time until their next poll.
//!
//! An event is a hint and never a fact. It may be lost, it may come twice, and nothing may depend on it: whoever waits
//! also polls, and whoever wakes reads the rows. Publishing never blocks.

use std::sync::Arc;

use federation::id::{ParticipantId, RoundKey, TaskId};
use tokio::sync::broadcast;

/// Events kept for a slow subscriber before it loses the oldest.
const CAPACITY: usize = 1024;

/// What may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WakeEvent {
    /// Background work may be due.
    Work,
    /// These participants may have an assignment.
    Assigned(Arc<[ParticipantId]>),
    /// This round changed.
    Round(RoundKey),
    /// This task changed.
    Task(TaskId),
    /// A round of this task opened that takes only participants who made keys for it.
    Opened(TaskId),
    /// The subscriber was too slow and lost events: anything may have changed.
    Lost,
}

/// Where events are published. Clones share their subscribers.
#[derive(Clone, Debug)]
pub struct Wake(broadcast::Sender<WakeEvent>);

/// One subscriber's end.
#[derive(Debug)]
pub struct WakeSubscription(broadcast::Receiver<WakeEvent>);

impl Wake {
    pub(crate) fn new() -> Self {
        Self(broadcast::Sender::new(CAPACITY))
    }

    /// Tells every subscriber. Call it after the commit, or they look too early.
    pub fn publish(&self, event: WakeEvent) {
        // Without a subscriber there is nobody to tell.
        let _ = self.0.send(event);
    }

    /// Receives what is published from now on.
    #[must_use]
    pub fn subscribe(&self) -> WakeSubscription {
        WakeSubscription(self.0.subscribe())
    }
}

impl WakeSubscription {
    /// The next event; none once the store is gone. Safe to cancel.
    pub async fn next(&mut self) -> Option<WakeEvent> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(WakeEvent::Lost),
            Err(broadcast::error::RecvError::Closed) => None,
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
