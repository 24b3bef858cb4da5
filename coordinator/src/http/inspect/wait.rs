//! Long polls for a change of a view.

use std::pin::Pin;
use std::time::Duration;

use store::{WakeEvent, WakeSubscription};
use tokio::time::Sleep;

use crate::http::app::App;

/// A request waiting for a change, for its requested time within the configured limit.
pub(super) struct Wait<'a> {
    app: &'a App,
    events: WakeSubscription,
    end: Pin<Box<Sleep>>,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// The view may have changed.
    Changed,
    TimeIsUp,
    ShuttingDown,
}

impl<'a> Wait<'a> {
    /// Starts the wait. Call it before the first read, to notice changes in between.
    pub(super) fn begin(app: &'a App, wait_ms: u64) -> Self {
        let wait = Duration::from_millis(wait_ms).min(app.config.http.poll_max());
        Self { app, events: app.store.wake().subscribe(), end: Box::pin(tokio::time::sleep(wait)) }
    }

    /// Waits for a matching event.
    pub(super) async fn next(&mut self, is_one: impl Fn(&WakeEvent) -> bool) -> Woken {
        let events = &mut self.events;
        let changed = async {
            while let Some(event) = events.next().await {
                if is_one(&event) || event == WakeEvent::Lost {
                    return;
                }
            }
        };
        tokio::select! {
            () = changed => Woken::Changed,
            () = &mut self.end => Woken::TimeIsUp,
            () = self.app.shutdown.cancelled() => Woken::ShuttingDown,
        }
    }
}
