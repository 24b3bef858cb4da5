//! Carries events between the processes that use the same rows.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{broadcast, mpsc};
use uuid::Uuid;

use super::{Wake, WakeEvent, message};
use crate::error::Result;

/// Events that follow each other within this time go out together.
const LINGER: Duration = Duration::from_millis(5);
/// Events that go out together.
const TOGETHER_MAX: usize = 1024;
/// Pause before the bus is used again after it failed. All waiters check the rows once after each pause.
const AWAY: Duration = Duration::from_secs(1);

/// A way to all processes that use the same rows.
#[async_trait]
pub(crate) trait Bus: Send + Sync + 'static {
    /// Sends messages of at most [`message::MESSAGE_MAX`] bytes to every process, this one included.
    async fn send(&self, messages: Vec<String>) -> Result<()>;

    /// Hears messages until the connection fails; `heard` is called with each, and with `None` once it is sure that it
    /// will hear every later one.
    async fn listen(&self, heard: &mut (dyn for<'m> FnMut(Option<&'m str>) + Send)) -> Result<()>;
}

impl Wake {
    /// One whose events reach every process on the bus, as `process`, and the other way round. Ends with its last clone.
    pub(crate) fn over(bus: Arc<dyn Bus>, process: Uuid) -> Self {
        let (elsewhere, events) = mpsc::unbounded_channel();
        let wake = Self { elsewhere: Some(elsewhere), ..Self::new() };
        let listening = tokio::spawn(listen(Arc::clone(&bus), wake.here.downgrade(), process));
        tokio::spawn(async move {
            send(bus, events, process).await;
            listening.abort();
        });
        wake
    }
}

async fn send(bus: Arc<dyn Bus>, mut events: mpsc::UnboundedReceiver<WakeEvent>, process: Uuid) {
    let (mut waiting, mut is_away) = (Vec::new(), false);
    while !waiting.is_empty() || events.recv_many(&mut waiting, TOGETHER_MAX).await > 0 {
        tokio::time::sleep(LINGER).await;
        while waiting.len() < TOGETHER_MAX
            && let Ok(event) = events.try_recv()
        {
            waiting.push(event);
        }
        let messages = message::encode(process, distinct(std::mem::take(&mut waiting)));
        let sent = bus.send(messages).await;
        let was_away = std::mem::replace(&mut is_away, sent.is_err());
        if let Err(error) = sent {
            if !was_away {
                tracing::warn!(%error, "could not tell other coordinators what has changed; telling them to look when it can");
            }
            if events.is_closed() {
                return;
            }
            tokio::time::sleep(AWAY).await;
            waiting.push(WakeEvent::Lost);
        }
    }
}

/// Without events that were sent a moment before.
fn distinct(events: Vec<WakeEvent>) -> Vec<WakeEvent> {
    let mut distinct = Vec::new();
    for event in events {
        if !distinct.contains(&event) {
            distinct.push(event);
        }
    }
    distinct
}

async fn listen(bus: Arc<dyn Bus>, here: broadcast::WeakSender<WakeEvent>, process: Uuid) {
    let publish = |event| {
        if let Some(here) = here.upgrade() {
            // Fails only without subscribers.
            let _ = here.send(event);
        }
    };
    let mut is_away = false;
    loop {
        let mut heard = |text: Option<&str>| match text {
            // Earlier signals may have been missed.
            None => publish(WakeEvent::Lost),
            Some(text) => message::decode(process, text).into_iter().for_each(publish),
        };
        let ended = bus.listen(&mut heard).await;
        if let Err(error) = ended
            && !std::mem::replace(&mut is_away, true)
        {
            tracing::warn!(%error, "cannot hear from other coordinators; looking at the rows once a second meanwhile");
        }
        publish(WakeEvent::Lost);
        tokio::time::sleep(AWAY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use federation::id::TaskId;
    use tokio::sync::watch;

    use super::*;

    /// A bus in memory, which can be cut.
    struct Line {
        messages: broadcast::Sender<String>,
        is_cut: watch::Sender<bool>,
        /// Number of further sends that fail.
        refusals: AtomicU32,
    }

    impl Line {
        fn refusing(times: u32) -> Arc<Self> {
            let (messages, is_cut) = (broadcast::Sender::new(16), watch::Sender::new(false));
            Arc::new(Self { messages, is_cut, refusals: AtomicU32::new(times) })
        }
    }

    #[async_trait]
    impl Bus for Line {
        async fn send(&self, messages: Vec<String>) -> Result<()> {
            if self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
                return Err(crate::StoreError::Busy);
            }
            messages.into_iter().for_each(|message| drop(self.messages.send(message)));
            Ok(())
        }

        async fn listen(&self, heard: &mut (dyn for<'m> FnMut(Option<&'m str>) + Send)) -> Result<()> {
            let (mut messages, mut is_cut) = (self.messages.subscribe(), self.is_cut.subscribe());
            if *is_cut.borrow() {
                return Err(crate::StoreError::Busy);
            }
            heard(None);
            loop {
                tokio::select! {
                    message = messages.recv() => heard(message.ok().as_deref()),
                    _ = is_cut.wait_for(|cut| *cut) => return Err(crate::StoreError::Busy),
                }
            }
        }
    }

    fn task(n: u128) -> WakeEvent {
        WakeEvent::Task(TaskId(Uuid::from_u128(n)))
    }

    #[tokio::test(start_paused = true)]
    async fn each_process_hears_the_others_and_looks_for_itself_when_it_cannot() {
        let line = Line::refusing(0);
        let wakes = [1, 2].map(|n| Wake::over(Arc::clone(&line) as _, Uuid::from_u128(n)));
        let [mut first, mut second] = wakes.each_ref().map(Wake::subscribe);
        assert_eq!(first.next().await, Some(WakeEvent::Lost), "whatever was before");
        assert_eq!(second.next().await, Some(WakeEvent::Lost));
        for _ in 0..3 {
            wakes[0].publish(task(1));
        }
        wakes[1].publish(task(2));
        assert_eq!(
            [second.next().await, second.next().await],
            [Some(task(2)), Some(task(1))],
            "once what was said thrice"
        );
        let heard = [first.next().await, first.next().await, first.next().await, first.next().await];
        assert_eq!(heard, [Some(task(1)), Some(task(1)), Some(task(1)), Some(task(2))], "its own at once");

        line.is_cut.send_replace(true);
        let began = tokio::time::Instant::now();
        for _ in 0..5 {
            assert_eq!(second.next().await, Some(WakeEvent::Lost));
        }
        assert!(began.elapsed() >= AWAY * 4, "once a second");
        line.is_cut.send_replace(false);
        assert_eq!(second.next().await, Some(WakeEvent::Lost));
        wakes[0].publish(task(3));
        assert_eq!(second.next().await, Some(task(3)));

        let [left, right] = wakes;
        drop((left, right, first));
        tokio::time::sleep(AWAY * 2).await;
        assert_eq!(second.next().await, None, "nothing is left behind");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_could_not_tell_what_has_changed_tells_the_others_to_look() {
        let line = Line::refusing(3);
        let wakes = [1, 2].map(|n| Wake::over(Arc::clone(&line) as _, Uuid::from_u128(n)));
        let mut second = wakes[1].subscribe();
        assert_eq!(second.next().await, Some(WakeEvent::Lost), "whatever was before");
        wakes[0].publish(task(1));
        // The bus must retry by its own timer: all other activity has stopped.
        let heard = tokio::time::timeout(AWAY * 10, second.next()).await;
        assert_eq!(heard, Ok(Some(WakeEvent::Lost)));
        wakes[0].publish(task(2));
        assert_eq!(second.next().await, Some(task(2)), "told once");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_tries_to_tell_the_others_after_the_end() {
        let line = Line::refusing(u32::MAX);
        let wake = Wake::over(Arc::clone(&line) as _, Uuid::from_u128(1));
        wake.publish(task(1));
        tokio::time::sleep(AWAY * 3).await;
        drop(wake);
        tokio::time::sleep(AWAY * 3).await;
        assert_eq!(Arc::strong_count(&line), 1);
    }
}
