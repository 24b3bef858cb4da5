//! The pause after failed attempts at a round. Background work waits for its end; operators and participants see the time.

use std::time::Duration;

use federation::id::RoundKey;
use federation::round::RoundState;
use federation::time::Timestamp;
use store::entity::round::RoundRow;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};

/// The bounds of the pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retries {
    /// After the first failed attempt; doubles with each further one.
    pub(crate) initial: Duration,
    /// The longest pause.
    pub(crate) max: Duration,
}

impl Retries {
    /// Exponential and bounded. It depends only on stored facts, so it survives a restart.
    fn pause(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.initial.saturating_mul(1 << doublings).min(self.max)
    }
}

/// Consecutive failed attempts, across round numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failures {
    pub(crate) count: u32,
    /// When the last of them ended.
    pub(crate) last_at: Timestamp,
}

impl Failures {
    /// The end of the pause; `None` if it has passed.
    pub(crate) fn pause_until(&self, retries: Retries, now: Timestamp) -> Option<Timestamp> {
        let until = self.last_at.plus(retries.pause(self.count));
        // An end in the future means the clock was set back since, so waiting is unnecessary.
        (self.last_at <= now && now < until).then_some(until)
    }
}

/// Maximum number of earlier rounds to search: after 32 failed attempts the pause stays constant.
const LOOK_BACK: u32 = 64;

/// The latest consecutive failed attempts, including `latest`, the latest one at the next round. They may have several round numbers, since
/// the number of a spent round is not reused.
///
/// # Errors
/// [`StoreError`]: the store cannot be read.
pub(crate) async fn failures(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    latest: Option<&RoundRow>,
) -> Result<Option<Failures>, StoreError> {
    let mut found: Option<Failures> = None;
    let next = task.next_round().number;
    for number in (next.saturating_sub(LOOK_BACK).max(1)..=next).rev() {
        let round = match number == next {
            true => latest.map(|row| row.round.clone()),
            false => tx.round(RoundKey { task: task.id, number }).await?.map(|row| row.round),
        };
        match round {
            Some(round) if round.state == RoundState::Failed => {
                let failures = found.get_or_insert(Failures { count: 0, last_at: round.state_since });
                failures.count = failures.count.saturating_add(round.key.attempt);
            }
            // An open attempt follows as many failed ones.
            Some(round) if !round.state.is_terminal() => {}
            None if number == next => {}
            _ => break,
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRIES: Retries = Retries { initial: Duration::from_secs(1), max: Duration::from_secs(300) };

    #[test]
    fn retries_wait_twice_as_long_each_time_up_to_a_bound() {
        let seconds = |attempt| RETRIES.pause(attempt).as_secs();
        let delays: Vec<_> = (1..=10).map(seconds).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert_eq!(seconds(u32::MAX), 300);
    }

    #[test]
    fn a_pause_ends_and_there_is_none_where_the_clock_was_set_back() {
        let until = |now| Failures { count: 3, last_at: Timestamp(1000) }.pause_until(RETRIES, Timestamp(now));
        for now in [1000, 4999] {
            assert_eq!(until(now), Some(Timestamp(5000)));
        }
        for now in [999, 5000] {
            assert_eq!(until(now), None);
        }
    }
}
