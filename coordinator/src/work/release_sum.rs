//! Takes the masks off the finished sum and releases it: the one place where an exact sum exists, in memory.
//!
//! Without secure aggregation the mask plan is empty, and without a privacy mechanism nothing is added: same road. The row
//! of the noised sum is unique in its attempt and decides which sum was released; a worker that comes second discards its
//! own. Inputs that no partial sum holds yet are folded here, in memory: their blobs are still there if this must be
//! repeated.

use aggregation::{FallbackEvent, Finished};
use federation::id::RoundKey;
use federation::round::{FailureReason, Round, RoundState};
use learning::{ExactSum, NoisedSum};
use secure_agg::mask::{MaskPlan, Plane};
use store::Transaction;
use store::entity::admitted::Admitted;
use store::entity::noised_sum::NoisedSumRow;

use super::close_phase::fail_round;
use super::lease::Lease;
use super::plan::chunk;
use super::situation::Situation;
use super::sum_chunk::read_inputs;
use super::sums::{SumCache, blocking, sum_up};
use super::{Environment, StepError};
use crate::model::TaskModel;

/// Releases the sum of every admitted input.
pub(super) async fn release_sum(
    env: &Environment,
    lease: &mut Lease,
    cache: &SumCache,
    model: &TaskModel,
    situation: &Situation,
) -> Result<(), StepError> {
    lease.hold(env).await?;
    match lease.keep_during(env, release(env, lease, cache, model, situation)).await {
        Err(error) if error.is_loss() => {
            tracing::error!(task = %situation.task.id, %error, "an accepted input, or the sum that holds it, cannot be read any more");
            fail_round(env, lease, situation, FailureReason::InputLost).await
        }
        released => released,
    }
}

async fn release(
    env: &Environment,
    lease: &Lease,
    cache: &SumCache,
    model: &TaskModel,
    situation: &Situation,
) -> Result<(), StepError> {
    let Some(round) = situation.open_round() else { return Ok(()) };
    let limit = chunk(model.packed_len(), &env.config);
    let (partial, inputs) = read_inputs(env, situation, limit).await?;
    let folded = u32::try_from(inputs.len()).unwrap_or(u32::MAX);
    let participants = partial.map_or(0, |sum| sum.inputs).saturating_add(folded);
    let sum = sum_up(env, cache, model, partial.as_ref(), &inputs).await?;

    let noised = blocking(move || unmask(sum, participants)).await?;
    env.fail_point.reached("release_sum: before the blob")?;
    let blob = env.blobs.put_bytes(noised.to_bytes().into()).await?;
    env.fail_point.reached("release_sum: after the blob")?;

    let now = env.clock.now();
    let row = NoisedSumRow { round: round.key, attempt: round.attempt, blob, participants, created_at: now };
    let inputs = &inputs;
    let stored = env
        .store
        .transact("store noised sum", |tx| {
            Box::pin(async move {
                lease.confirm(tx, now).await?;
                store_row(tx, round, &row, inputs).await
            })
        })
        .await?;
    env.fail_point.reached("release_sum: after the rows")?;
    if stored {
        metrics::counter!("tributary_inputs_folded_total").increment(folded.into());
        let RoundKey { task, number } = round.key;
        tracing::info!(%task, round = number, attempt = round.attempt, participants, "sum released without noise");
    }
    Ok(())
}

fn unmask(sum: Box<dyn aggregation::Accumulator>, participants: u32) -> Result<NoisedSum, StepError> {
    let shape = sum.shape();
    let unworkable = |error: &dyn std::fmt::Display| StepError::Unworkable(error.to_string());
    let plan =
        MaskPlan::new(Plane::Model, shape.words() as u64, shape.modulus()).map_err(|error| unworkable(&error))?;
    let Finished { words, fallback } = sum.finish(&plan)?;
    if let Some(FallbackEvent { device, reason, taken_over_by }) = fallback {
        tracing::warn!(
            device,
            reason,
            taken_over_by,
            "a device failed while unmasking; another one finished with the same bits"
        );
        metrics::counter!("tributary_device_fallbacks_total").increment(1);
    }
    let exact = ExactSum::new(words, shape.modulus().bits(), participants).map_err(|error| unworkable(&error))?;
    Ok(exact.release_without_noise())
}

/// False if the attempt has a released sum, or has ended.
async fn store_row(
    tx: &mut dyn Transaction,
    round: &Round,
    row: &NoisedSumRow,
    inputs: &[Admitted],
) -> Result<bool, StepError> {
    let (key, attempt) = (row.round, row.attempt);
    let Some(present) = tx.round_attempt(key, attempt).await? else { return Ok(false) };
    if present.round.state != RoundState::Aggregating || !tx.insert_noised_sum(row).await? {
        return Ok(false);
    }
    let participants: Vec<_> = inputs.iter().map(|input| input.participant).collect();
    tx.mark_folded(key, attempt, &participants).await?;
    tx.delete_partial_sum(key, attempt).await?;
    // Every admitted input counts, once: the set was frozen when collection closed.
    if tx.unfolded_count(key, attempt).await? > 0 || present.reported != row.participants {
        return Err(StepError::Unworkable(format!(
            "round {} attempt {} admitted {} inputs, but its sum holds {}",
            round.key, round.attempt, present.reported, row.participants
        )));
    }
    Ok(true)
}
