//! Polls at a fixed rate, whether or not those before were answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use wire::participant::CheckInReply;

use crate::Outcome;
use crate::server::{Device, Input};

/// A participant that polls, and takes part when it is assigned.
pub(crate) struct Polling {
    device: Device,
    /// Whether it is at work already: its next poll returns the same assignment again.
    is_working: AtomicBool,
}

impl From<Device> for Polling {
    fn from(device: Device) -> Self {
        Self { device, is_working: AtomicBool::new(false) }
    }
}

/// How long a poll took.
pub(crate) struct Taken {
    /// Its intended start, since the first poll's.
    pub(crate) intended: Duration,
    /// From then to its answer.
    pub(crate) latency: Duration,
}

/// Outcomes of polls.
#[derive(Default)]
pub(crate) struct Offered {
    /// One for each poll.
    pub(crate) polls: Vec<Taken>,
    /// Polls and updates that were not accepted.
    pub(crate) failed: usize,
    pub(crate) first_error: Option<String>,
}

impl Offered {
    fn note(&mut self, taken: Taken, outcome: Outcome) {
        self.polls.push(taken);
        if let Err(error) = outcome {
            self.failed += 1;
            self.first_error.get_or_insert_with(|| error.to_string());
        }
    }
}

/// Starts `polls` polls of all in turn, `rate` a second, and waits for the last.
pub(crate) async fn offer(rate: u32, polls: u32, all: &Arc<[Polling]>, parameters: usize) -> Outcome<Offered> {
    let input = Input::zeros(parameters)?;
    let (mut offered, mut running, start) = (Offered::default(), JoinSet::new(), Instant::now());
    for turn in 0..polls {
        let intended = Duration::from_secs(1) * turn / rate;
        tokio::time::sleep_until((start + intended).into()).await;
        let (all, input) = (Arc::clone(all), input.clone());
        running.spawn(async move {
            let (latency, outcome) = poll(&all[turn as usize % all.len()], start + intended, &input).await;
            (Taken { intended, latency }, outcome)
        });
        while let Some(done) = running.try_join_next() {
            let (taken, outcome) = done?;
            offered.note(taken, outcome);
        }
    }
    while let Some(done) = running.join_next().await {
        let (taken, outcome) = done?;
        offered.note(taken, outcome);
    }
    Ok(offered)
}

async fn poll(polling: &Polling, intended: Instant, input: &Input) -> (Duration, Outcome) {
    let reply = polling.device.check_in(0).await;
    let latency = intended.elapsed();
    let outcome = match reply {
        Ok(CheckInReply::Assigned(work)) if !polling.is_working.swap(true, Ordering::SeqCst) => {
            let outcome = polling.device.report(&work, input).await;
            polling.is_working.store(false, Ordering::SeqCst);
            outcome
        }
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    (latency, outcome)
}
