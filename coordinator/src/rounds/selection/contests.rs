//! Chooses one of several selecting rounds for a participant's keys.
//!
//! A participant holds keys for one round. If several rounds shared the participants they all need, none could draw before its deadline.
//! The coordinator therefore invites a participant to the earliest opened round that the present participants can fill, and again when the
//! choice changes. Presence is independent of the keys, so the choice is stable, and the same in every process.

use std::collections::HashMap;
use std::time::Duration;

use federation::id::Attempt;
use federation::round::RoundState;
use federation::time::Timestamp;
use listener::PoisonFreeMutex;
use store::entity::open_task::SelectingRound;
use store::{Store, StoreError, Transaction};

use crate::rounds::selection::eligible::count_drawable;

/// Time for which one count is reused for all participants.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// Cache of whether each round can be filled, for [`KNOWN_FOR`] after the count.
#[derive(Default)]
pub(crate) struct Contests {
    known: PoisonFreeMutex<HashMap<Attempt, (Timestamp, bool)>>,
    /// Held during a count, so that concurrent callers share it.
    counting: tokio::sync::Mutex<()>,
}

/// Sorts rounds into their filling order: by opening time, then by task.
pub(crate) fn sort(rounds: &mut [SelectingRound]) {
    rounds.sort_by_key(|round| (round.opened_at, round.attempt.task));
}

impl Contests {
    /// Returns the round to provide keys for, from `rounds` in the order of [`sort`]: the first fillable one, otherwise the round of the
    /// `held` keys, otherwise the first. `None` without rounds.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn choose(
        &self,
        store: &Store,
        rounds: &[SelectingRound],
        held: Option<Attempt>,
        now: Timestamp,
    ) -> Result<Option<Attempt>, StoreError> {
        let [first, _, ..] = rounds else { return Ok(rounds.first().map(|round| round.attempt)) };
        for round in rounds {
            let attempt = round.attempt;
            let count = || store.read("can_fill", move |tx| Box::pin(async move { can_fill(tx, attempt, now).await }));
            if self.known_or(attempt, now, count).await? {
                return Ok(Some(attempt));
            }
        }
        let held = held.filter(|held| rounds.iter().any(|round| round.attempt == *held));
        Ok(Some(held.unwrap_or(first.attempt)))
    }

    /// Returns the cached result for the attempt, or the result of `count`. Counts run one at a time.
    async fn known_or<E>(
        &self,
        attempt: Attempt,
        now: Timestamp,
        count: impl AsyncFnOnce() -> Result<bool, E>,
    ) -> Result<bool, E> {
        if let Some(known) = self.known(attempt, now) {
            return Ok(known);
        }
        let _counting = self.counting.lock().await;
        // Another participant may have counted in the meantime.
        if let Some(known) = self.known(attempt, now) {
            return Ok(known);
        }
        let counted = count().await?;
        let mut known = self.known.lock();
        known.retain(|_, (at, _)| is_recent(*at, now));
        known.insert(attempt, (now, counted));
        Ok(counted)
    }

    fn known(&self, attempt: Attempt, now: Timestamp) -> Option<bool> {
        self.known.lock().get(&attempt).filter(|(at, _)| is_recent(*at, now)).map(|(_, known)| *known)
    }
}

/// Whether a count from `at` can be reused at `now`; `now` is earlier if the caller waited for the count.
fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    now < at.plus(KNOWN_FOR) && at < now.plus(KNOWN_FOR)
}

/// Whether enough eligible participants, in whole batches, are present for this round's draw, regardless of their keys.
async fn can_fill(tx: &mut Transaction<'_>, attempt: Attempt, now: Timestamp) -> Result<bool, StoreError> {
    let Some(row) = tx.round_attempt(attempt).await? else { return Ok(false) };
    let Some(task) = tx.task(attempt.task).await? else { return Ok(false) };
    let round = row.round;
    let wanted = round.limits.wanted();
    Ok(round.state == RoundState::Selecting && count_drawable(tx, &task, &round, now).await? >= wanted)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use federation::id::TaskId;
    use uuid::Uuid;

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn attempt(task: u128) -> Attempt {
        Attempt { task: TaskId(Uuid::from_u128(task)), round: 1, attempt: 1 }
    }

    #[tokio::test]
    async fn waiters_share_one_count_per_round() {
        let (contests, counts) = (Contests::default(), Cell::new(0));
        let count = async || {
            counts.set(counts.get() + 1);
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(true)
        };
        let ask = |task, later| contests.known_or(attempt(task), NOW.plus(Duration::from_millis(later)), count);
        // The waiter's clock may be read before or after the counter's.
        let answers = tokio::join!(ask(1, 5), ask(1, 0), ask(1, 9), ask(2, 5));
        assert_eq!(answers, (Ok(true), Ok(true), Ok(true), Ok(true)));
        assert_eq!(counts.get(), 2);
        ask(1, 1004).await.unwrap();
        assert_eq!(counts.get(), 2);
        ask(1, 1005).await.unwrap();
        assert_eq!(counts.get(), 3);
    }

    #[tokio::test]
    async fn failed_count_is_repeated() {
        let contests = Contests::default();
        let failed = contests.known_or(attempt(1), NOW, async || Err("no database")).await;
        assert_eq!(failed, Err("no database"));
        assert_eq!(contests.known_or(attempt(1), NOW, async || Ok::<_, &str>(false)).await, Ok(false));
        assert_eq!(contests.known_or(attempt(1), NOW, async || Ok::<_, &str>(true)).await, Ok(false));
    }
}
