//! Folds inputs into the partial sum, also while others still arrive.
//!
//! The blob of the new partial sum comes first. Then one transaction makes it the attempt's partial sum, if its predecessor is still
//! current, and marks the inputs as folded: an input is included once or not yet. That commit makes the previous blobs garbage.

use federation::round::FailureReason;
use secure_agg::packing::packed_len;
use store::StoreError;
use store::entity::admitted::Admitted;
use store::entity::partial_sum::PartialSum;

use super::streams::{Buffering, making};
use super::sums::{Slices, SumCache, sum_up};
use crate::observe::During;
use crate::work::close_phase::fail_round;
use crate::work::engine::lease::Lease;
use crate::work::engine::plan::{InputSize, chunk};
use crate::work::engine::situation::Situation;
use crate::work::{Environment, StepError};
use recipe::TaskModel;

/// Folds up to a chunk.
pub(in crate::work) async fn sum_chunk(
    env: &Environment,
    lease: &mut Lease,
    cache: &SumCache,
    model: &TaskModel,
    situation: &Situation,
) -> Result<(), StepError> {
    lease.hold(env).await?;
    match lease.keep_during(env, fold(env, lease, cache, model, situation)).await {
        Err(error) if error.is_loss() => {
            tracing::error!(task = %situation.task.id, %error, "an accepted input, or the sum that holds it, cannot be read any more");
            fail_round(env, lease, situation, FailureReason::InputLost).await
        }
        folded => folded,
    }
}

async fn fold(
    env: &Environment,
    lease: &Lease,
    cache: &SumCache,
    model: &TaskModel,
    situation: &Situation,
) -> Result<(), StepError> {
    let Some(round) = situation.open_round() else { return Ok(()) };
    let (attempt, began) = (round.key, env.clock.now());
    let limit = chunk(InputSize::of(model, &env.config), &env.config);
    let (before, inputs) = read_inputs(env, situation, limit).await?;
    if inputs.is_empty() {
        return Ok(());
    }
    let slices = Slices::of(model, &env.config);
    let mut sum = sum_up(env, cache, model, slices, before.as_ref(), &inputs).await?;
    let held = Buffering::of(slices, packed_len(slices.words(), model.modulus));
    let (only, [blob]) = making(&env.blobs, [held], move |[out]| {
        let mut only = None;
        while let Some((_, mut slice)) = sum.next()? {
            slice.write_partial(out)?;
            only = slices.is_one().then_some(slice);
        }
        sum.end()?;
        Ok::<_, StepError>(only)
    })
    .await?;
    env.fail_point.reached("sum_chunk: before the blob")?;
    let (blob, _) = blob.store(&env.blobs).await?;
    env.fail_point.reached("sum_chunk: after the blob")?;

    let folded = u32::try_from(inputs.len()).unwrap_or(u32::MAX);
    let after = PartialSum { attempt, blob, inputs: before.map_or(0, |sum| sum.inputs).saturating_add(folded) };
    let participants: Vec<_> = inputs.iter().map(|input| input.participant).collect();
    let participants = &participants;
    let stored = env
        .store
        .transact("store partial sum", |tx| {
            Box::pin(async move {
                lease.confirm(tx, &*env.clock).await?;
                // A finished attempt is done; its deleted partial sum must not come back.
                let open = tx.round_attempt(attempt).await?.is_some_and(|row| !row.round.state.is_terminal());
                if !open || !tx.put_partial_sum(&after, before.map(|sum| sum.blob)).await? {
                    return Ok::<_, StepError>(false);
                }
                #[cfg(feature = "deliberate-faults")]
                if crate::faults::present() == Some(crate::faults::Fault::DoubleCount) {
                    return Ok(true);
                }
                tx.mark_folded(attempt, participants).await?;
                Ok(true)
            })
        })
        .await?;
    env.fail_point.reached("sum_chunk: after the rows")?;
    if stored {
        if let Some(sum) = only {
            cache.keep(&after, sum);
        }
        metrics::counter!("tributary_inputs_folded_total").increment(folded.into());
        let during = During { began, ended: env.clock.now() };
        env.traces.updates(attempt, participants.iter().copied(), "fold", during);
        tracing::debug!(task = %attempt.task, round = attempt.round, attempt = attempt.attempt, folded, inputs = after.inputs, "inputs folded");
    }
    Ok(())
}

/// The partial sum and at most `limit` inputs missing from it, from one transaction.
pub(in crate::work) async fn read_inputs(
    env: &Environment,
    situation: &Situation,
    limit: u32,
) -> Result<(Option<PartialSum>, Vec<Admitted>), StepError> {
    let Some(round) = situation.open_round() else { return Ok((None, Vec::new())) };
    let attempt = round.key;
    let read = env.store.read("inputs to fold", |tx| {
        Box::pin(async move {
            let partial = tx.partial_sum(attempt).await?;
            Ok::<_, StoreError>((partial, tx.unfolded(attempt, limit).await?))
        })
    });
    Ok(read.await?)
}
