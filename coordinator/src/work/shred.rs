//! Destroys what opens a sum or removes its noise: keys of releases, and the log that may contain deleted rows.
//!
//! Rows are forgotten in the transaction that ends their use; keys are outside the database and go after it. Whoever dies in between leaves
//! keys that the next step of the same round destroys, and the collection of garbage else.

use std::sync::Arc;

use federation::id::Attempt;
use federation::round::RoundState;
use store::{StoreError, Transaction};

use super::sums::blocking;
use super::{Environment, StepError};
use recipe::server::PrivateTask;

/// Destroys the keys of an attempt that is released, or over.
pub(super) async fn destroy_keys(env: &Environment, of: Attempt) -> Result<usize, StepError> {
    let sealer = Arc::clone(&env.sealer);
    blocking(move || Ok(sealer.destroy_keys(of)?)).await
}

/// The same where the step is done already: what remains is garbage, and is collected as such.
pub(super) async fn destroy_keys_of_an_end(env: &Environment, of: Attempt) {
    if let Err(error) = destroy_keys(env, of).await {
        tracing::warn!(round = %of.round_key(), attempt = of.attempt, %error, "keys of a release are left until garbage is collected");
    }
}

/// Before a version is published: nothing that opens its sum, or takes the coordinator's noise off, is left to be found.
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

/// Destroys keys that nothing needs, such as those of a process that died; says how many.
pub(super) async fn collect_keys(env: &Environment) -> Result<usize, StepError> {
    let sealer = Arc::clone(&env.sealer);
    let uses = blocking(move || Ok::<_, StepError>(sealer.uses()?)).await?;
    if uses.is_empty() {
        return Ok(0);
    }
    let garbage = env
        .store
        .read("keys of releases that are needed", |tx| {
            let uses = uses.clone();
            Box::pin(async move {
                let mut garbage = Vec::new();
                for of in uses {
                    if !is_needed(tx, of).await? {
                        garbage.push(of);
                    }
                }
                Ok::<_, StoreError>(garbage)
            })
        })
        .await?;
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

/// A key may come before the rows that are sealed with it, so it is needed for as long as there may be such rows.
async fn is_needed(tx: &mut Transaction<'_>, attempt: Attempt) -> Result<bool, StoreError> {
    if attempt.round == 0 {
        return Ok(tx.task(attempt.task).await?.is_some_and(|task| !task.status.is_terminal()));
    }
    let Some(row) = tx.round_attempt(attempt).await? else { return Ok(false) };
    let may_open = matches!(row.round.state, RoundState::Unmasking | RoundState::Aggregating);
    Ok(may_open && tx.noised_sum(attempt).await?.is_none())
}
