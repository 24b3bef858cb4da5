//! Destroys data that can unmask a sum or remove its noise: release keys, and the log that may contain deleted rows.
//!
//! Rows are deleted in the transaction that ends their use; keys are outside the database and are destroyed afterwards. After a crash in
//! between, the next step of the same round or garbage collection destroys the keys. Garbage collection spares keys unknown to this
//! database: they may belong to another database, of which this is a copy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use federation::id::Attempt;
use federation::round::RoundState;
use federation::time::Timestamp;
use listener::PoisonFreeMutex;
use store::{StoreError, Transaction};

use super::summing::sums::blocking;
use super::{Environment, StepError};
use recipe::server::PrivateTask;

/// How long unknown keys are kept, so that an operator notices a restored copy.
const UNKNOWN_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// The state of a use's keys according to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Rows may be sealed with them.
    Present,
    /// Their sealed rows are obsolete.
    Over,
    /// This database can have no rows sealed with them: the attempt is missing, or at an earlier stage.
    Unknown,
}

/// The uses of keys unknown to the database, with the time of their first detection.
#[derive(Default)]
pub(super) struct UnknownUses(PoisonFreeMutex<BTreeMap<Attempt, Timestamp>>);

impl UnknownUses {
    /// Replaces the set of unknown uses as of `now`. Returns those unknown for [`UNKNOWN_KEPT`], and the number of new ones.
    fn note(&self, unknown: &BTreeSet<Attempt>, now: Timestamp) -> (Vec<Attempt>, usize) {
        self.0.with(|found| {
            found.retain(|of, _| unknown.contains(of));
            let before = found.len();
            for &of in unknown {
                found.entry(of).or_insert(now);
            }
            let waited = found.iter().filter(|(_, since)| now.since(**since) >= UNKNOWN_KEPT);
            (waited.map(|(of, _)| *of).collect(), found.len() - before)
        })
    }
}

/// Destroys the keys of a released or finished attempt.
pub(super) async fn destroy_keys(env: &Environment, of: Attempt) -> Result<usize, StepError> {
    let sealer = Arc::clone(&env.sealer);
    blocking(move || Ok(sealer.destroy_keys(of)?)).await
}

/// The same after a completed step: on failure, garbage collection removes the keys.
pub(super) async fn destroy_keys_of_an_end(env: &Environment, of: Attempt) {
    if let Err(error) = destroy_keys(env, of).await {
        tracing::warn!(round = %of.round_key(), attempt = of.attempt, %error, "keys of a release are left until garbage is collected");
    }
}

/// Before publication of a version: destroys all data that can unmask its sum or remove the coordinator's noise.
pub(super) async fn before_publishing(
    env: &Environment,
    of: Attempt,
    private: Option<&PrivateTask>,
) -> Result<(), StepError> {
    destroy_keys(env, of).await?;
    if private.is_some_and(PrivateTask::adds_noise_here) {
        env.fail_point.reached("publish_version: after the keys")?;
        env.store.empty_log().await?;
        env.fail_point.reached("publish_version: after the log")?;
    }
    Ok(())
}

/// Destroys unused keys, such as those of a dead process; returns their number. Checks again that the store really deletes.
pub(super) async fn collect_keys(env: &Environment, unknown: &UnknownUses) -> Result<usize, StepError> {
    let sealer = Arc::clone(&env.sealer);
    let uses = blocking(move || Ok::<_, StepError>(sealer.uses()?)).await?;
    let uses = env
        .store
        .read("uses of keys", |tx| {
            let uses = uses.clone();
            Box::pin(async move {
                let mut known = Vec::with_capacity(uses.len());
                for of in uses {
                    known.push((of, use_of(tx, of).await?));
                }
                Ok::<_, StoreError>(known)
            })
        })
        .await?;
    let all = |wanted| uses.iter().filter(move |(_, found)| *found == wanted).map(|(of, _)| *of);
    let (waited, news) = unknown.note(&all(Use::Unknown).collect(), env.clock.now());
    if news > 0 {
        tracing::warn!(
            attempts = news,
            "there are keys of releases for {news} attempts that this database does not know: it was put back to an earlier state, or \
             another database uses the same keys (seal.releases, identity.seal_url); they are destroyed in 24 hours"
        );
    }
    let garbage: Vec<_> = all(Use::Over).chain(waited).collect();
    let mut destroyed = 0;
    for of in garbage {
        env.fail_point.reached("collect_garbage: before a key")?;
        destroyed += destroy_keys(env, of).await?;
    }
    if destroyed > 0 {
        env.store.empty_log().await?;
    }
    Ok(destroyed)
}

/// The state of a use. A key may precede its sealed rows, so it is in use while such rows may appear.
async fn use_of(tx: &mut Transaction<'_>, attempt: Attempt) -> Result<Use, StoreError> {
    if attempt.round == 0 {
        return Ok(match tx.task(attempt.task).await? {
            None => Use::Unknown,
            Some(task) if task.status.is_terminal() => Use::Over,
            Some(_) => Use::Present,
        });
    }
    let Some(row) = tx.round_attempt(attempt).await? else { return Ok(Use::Unknown) };
    Ok(match row.round.state {
        RoundState::Selecting | RoundState::Sharing | RoundState::Collecting | RoundState::Confirming => Use::Unknown,
        RoundState::Unmasking | RoundState::Aggregating if tx.noised_sum(attempt).await?.is_none() => Use::Present,
        RoundState::Unmasking
        | RoundState::Aggregating
        | RoundState::Completed
        | RoundState::Failed
        | RoundState::Cancelled => Use::Over,
    })
}

#[cfg(test)]
mod tests {
    use federation::id::TaskId;

    use super::*;

    fn of(round: u32) -> Attempt {
        Attempt { task: TaskId(uuid::Uuid::from_u128(1)), round, attempt: 1 }
    }

    #[test]
    fn what_is_unknown_waits_a_day_from_when_it_was_found_and_anew_once_it_was_known() {
        let (uses, start) = (UnknownUses::default(), Timestamp(1_000));
        let at = |hours: u64| start.plus(Duration::from_secs(hours * 3600));
        let note = |rounds: &[u32], hours| uses.note(&rounds.iter().map(|round| of(*round)).collect(), at(hours));
        assert_eq!(note(&[1, 2], 0), (vec![], 2));
        assert_eq!(note(&[1, 2, 3], 12), (vec![], 1));
        assert_eq!(note(&[1, 3], 23), (vec![], 0), "the database has come to know 2");
        assert_eq!(note(&[1, 2, 3], 24), (vec![of(1)], 1));
        assert_eq!(note(&[2, 3], 36), (vec![of(3)], 0));
        assert_eq!(note(&[2], 1), (vec![], 0), "the clock was set back");
        assert_eq!(note(&[2], 48), (vec![of(2)], 0));
        assert_eq!(note(&[2], 49), (vec![of(2)], 0), "it could not be destroyed");
    }
}
