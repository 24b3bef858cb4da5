//! Wakes requests waiting for a change of their round, through a single subscription to wake-ups.

use std::collections::HashMap;
use std::sync::Arc;

use federation::id::RoundKey;
use listener::PoisonFreeMutex;
use store::{Store, WakeEvent};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The waiting requests, by round. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct RoundWakeups(Arc<PoisonFreeMutex<HashMap<RoundKey, Arc<Notify>>>>);

/// A request waiting for a change of its round.
pub(crate) struct Listener {
    wakeups: RoundWakeups,
    round: RoundKey,
    notify: Arc<Notify>,
}

impl RoundWakeups {
    /// Starts the task that receives wake-ups of rounds.
    #[must_use]
    pub(crate) fn start(store: &Store, shutdown: CancellationToken, tasks: &TaskTracker) -> Self {
        let wakeups = Self::default();
        let mut events = store.wake().subscribe();
        let waker = wakeups.clone();
        tasks.spawn(async move {
            loop {
                tokio::select! {
                    event = events.next() => match event {
                        Some(event) => waker.hear(&event),
                        None => return,
                    },
                    () = shutdown.cancelled() => return,
                }
            }
        });
        wakeups
    }

    fn hear(&self, event: &WakeEvent) {
        match event {
            WakeEvent::Round(round) => self.0.with(|waiting| {
                if let Some(notify) = waiting.get(round) {
                    notify.notify_waiters();
                }
            }),
            // Any round may have changed.
            WakeEvent::Lost => self.0.with(|waiting| waiting.values().for_each(|notify| notify.notify_waiters())),
            WakeEvent::Work
            | WakeEvent::Assigned(_)
            | WakeEvent::Task(_)
            | WakeEvent::Opened(_)
            | WakeEvent::Recorded
            | WakeEvent::Numbered => {}
        }
    }

    /// Waits for a round. Create [`Listener::changed`] before reading the round, or a wake-up may be missed.
    #[must_use]
    pub(crate) fn listen(&self, round: RoundKey) -> Listener {
        let notify = self.0.with(|waiting| Arc::clone(waiting.entry(round).or_default()));
        Listener { wakeups: self.clone(), round, notify }
    }
}

impl Listener {
    /// Resolves when the round may have changed after this was created.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.wakeups.0.with(|waiting| {
            // The two owners are the map and this value.
            if Arc::strong_count(&self.notify) == 2 {
                waiting.remove(&self.round);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use federation::id::TaskId;

    use super::*;

    #[tokio::test]
    async fn only_those_are_called_whose_round_changed_and_nothing_is_left_behind() {
        let wakeups = RoundWakeups::default();
        let round = |number| RoundKey { task: TaskId(uuid::Uuid::from_u128(1)), number };
        let (first, second) = (wakeups.listen(round(1)), wakeups.listen(round(2)));
        {
            let (one, two) = (first.changed(), second.changed());
            tokio::pin!(one, two);
            one.as_mut().enable();
            two.as_mut().enable();
            wakeups.hear(&WakeEvent::Round(round(2)));
            two.await;
            assert!(!one.as_mut().enable());
            wakeups.hear(&WakeEvent::Lost);
            one.await;
        }
        drop((first, second));
        assert_eq!(wakeups.0.with(|waiting| waiting.len()), 0);
    }
}
