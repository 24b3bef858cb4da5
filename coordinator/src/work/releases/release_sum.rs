//! Unmasks the finished sum and releases it: the only place with an exact sum, in memory.
//!
//! The unmasking data is combined here, from the sealed answers of the cohort, and deleted with the transaction that records the result.
//! Without secure aggregation the mask plan is empty, and without a privacy mechanism no noise is added: the path is the same. The noise
//! was charged to the privacy ledger, whose row goes into the same transaction. The row of the noised sum is unique in its attempt and
//! decides which sum was released; a second worker discards its own. Inputs not yet in a partial sum are folded here, in memory: their
//! blobs remain for a repetition. All of it proceeds slice by slice, from the source blobs to the blob of the noised sum, committed after
//! the last slice.

use std::io::Write as _;
use std::sync::Arc;

use federation::id::Attempt;
use federation::round::{FailureReason, Round};
use learning::{NoisedSum, SumHeader};
use secure_agg::mask::{MaskPlan, Plane};
use store::StoreError;
use store::entity::noised_sum::NoisedSumRow;
use store::entity::session_message::MessageKind;

use super::draw::keep_draw;
use super::noise::{Noise, prepare};
use super::release::{
    Measured, OpenedSlice, ReleaseError, mask_plan, open, store_combined, store_row, told, told_of_comparison,
};
use super::release_groups::release_groups;
use super::robust::{Combined, Ruled, combine};
use crate::rounds::session::{CloseError, Session};
use crate::work::close_phase::fail_round;
use crate::work::engine::lease::Lease;
use crate::work::engine::plan::{InputSize, chunk};
use crate::work::engine::situation::Situation;
use crate::work::shred::destroy_keys_of_an_end;
use crate::work::summing::streams::{Buffering, NewBlob, making};
use crate::work::summing::sum_chunk::read_inputs;
use crate::work::summing::sums::{SlicedSum, Slices, SumCache, blocking, sum_up};
use crate::work::traced::trace_sum;
use crate::work::{Environment, StepError};
use recipe::TaskModel;
use recipe::server::RobustAggregation;

/// Releases the sum of every admitted input.
pub(in crate::work) async fn release_sum(
    env: &Environment,
    lease: &mut Lease,
    cache: &SumCache,
    model: &TaskModel,
    situation: &Situation,
) -> Result<(), StepError> {
    #[cfg(feature = "deliberate-faults")]
    if crate::faults::present() == Some(crate::faults::Fault::UnfencedWrite)
        && let Some(round) = situation.open_round()
    {
        crate::work::shred::destroy_keys(env, round.key).await?;
    }
    lease.hold(env).await?;
    match lease.keep_during(env, release(env, lease, cache, model, situation)).await {
        Ok(()) => Ok(()),
        Err(ReleaseError::Step(error)) if error.is_loss() => {
            tracing::error!(task = %situation.task.id, %error, "an accepted input, or what opens their sum, cannot be read any more");
            fail_round(env, lease, situation, FailureReason::InputLost).await
        }
        Err(ReleaseError::Aborted(abort)) => {
            tracing::error!(task = %situation.task.id, code = abort.code(), "the masks cannot be restored: {abort}");
            fail_round(env, lease, situation, FailureReason::UnmaskingFailed).await
        }
        Err(ReleaseError::ImplausibleSum(problem)) => {
            tracing::error!(task = %situation.task.id, problem, "too few of the groups' sums can be used");
            fail_round(env, lease, situation, FailureReason::GarbageSum).await
        }
        Err(ReleaseError::OverBudget(error)) => {
            tracing::error!(task = %situation.task.id, "the sum is not released: {error}");
            fail_round(env, lease, situation, FailureReason::BudgetExceeded).await
        }
        Err(ReleaseError::Step(error)) => Err(error),
    }
}

async fn release(
    env: &Environment,
    lease: &Lease,
    cache: &SumCache,
    model: &TaskModel,
    situation: &Situation,
) -> Result<(), ReleaseError> {
    let Some(round) = situation.open_round() else { return Ok(()) };
    if let Some(robust) = model.robust {
        return match robust.groups {
            Some(groups) => release_groups(env, lease, model, robust, groups, round).await,
            None => Ok(release_robust(env, lease, model, robust, situation, round).await?),
        };
    }
    let began = env.clock.now();
    let masks = masks(env, model, round).await?;
    let limit = chunk(InputSize::of(model, &env.config), &env.config);
    let (partial, inputs) = read_inputs(env, situation, limit).await?;
    let folded = u32::try_from(inputs.len()).unwrap_or(u32::MAX);
    let participants = partial.map_or(0, |sum| sum.inputs).saturating_add(folded);
    let slices = Slices::of(model, &env.config);
    let sum = sum_up(env, cache, model, slices, partial.as_ref(), &inputs).await?;
    #[cfg(not(feature = "deliberate-faults"))]
    let counted = participants;
    #[cfg(feature = "deliberate-faults")]
    let counted = super::spoil::counted(participants, round);
    let (noise, charge) = prepare(env, lease, model.private.as_ref(), &situation.task, round, counted).await?;
    #[cfg(feature = "deliberate-faults")]
    let noise = super::spoil::noise(noise, model.private.as_ref());
    let (measured, blob) = if noise.has_no_seed() {
        let (drawn, measured) = blocking(move || draw(sum, &masks, noise, participants)).await?;
        let kept = keep_draw(env, lease, round, drawn).await?;
        (measured, NewBlob::Whole(kept.to_bytes().into()))
    } else {
        let header = SumHeader::new(slices.words(), slices.modulus_bits(), participants);
        let header = header.map_err(StepError::unworkable)?;
        let held = Buffering::of(slices, header.stored_bytes());
        let (measured, [blob]) = making(&env.blobs, [held], move |[out]| {
            out.write_all(&header.to_bytes()).map_err(StoreError::from)?;
            let write = |noised: NoisedSum| Ok(noised.write_words(out).map_err(StoreError::from)?);
            unmask(sum, &masks, noise, participants, write)
        })
        .await?;
        (measured, blob)
    };
    env.fail_point.reached("release_sum: before the blob")?;
    let (blob, _) = blob.store(&env.blobs).await?;
    env.fail_point.reached("release_sum: after the blob")?;
    let now = env.clock.now();
    let row = NoisedSumRow { attempt: round.key, blob, participants, created_at: now, work: Some(told(env, measured)) };
    let (inputs, row, charge) = (&inputs, &row, charge.as_ref());
    let stored = env
        .store
        .transact("store noised sum", |tx| {
            Box::pin(async move {
                lease.confirm(tx, &*env.clock).await?;
                store_row(tx, row, charge, inputs, 0).await
            })
        })
        .await?;
    env.fail_point.reached("release_sum: after the rows")?;
    destroy_keys_of_an_end(env, round.key).await;
    if stored {
        metrics::counter!("tributary_inputs_folded_total").increment(folded.into());
        trace_sum(env, round.key, "release", began).await;
        let Attempt { task, round, attempt } = round.key;
        tracing::info!(%task, round, attempt, participants, noised = charge.is_some(), "sum released");
    }
    Ok(())
}

/// Releases the robust combination of the inputs, in the form of a sum.
async fn release_robust(
    env: &Environment,
    lease: &Lease,
    model: &TaskModel,
    robust: RobustAggregation,
    situation: &Situation,
    round: &Round,
) -> Result<(), StepError> {
    let (_, inputs) = read_inputs(env, situation, u32::MAX).await?;
    let Ruled { sum, scores, compared } = combine(env, model, robust, &inputs).await?;
    let scores = inputs.iter().map(|input| input.participant).zip(scores).collect();
    let combined = Combined { sum, scores, work: told_of_comparison(env, compared) };
    store_combined(env, lease, round, robust, combined, &inputs, 0).await
}

/// The masks to remove; empty without secure aggregation. They unmask the sum, so they stay in memory.
async fn masks(env: &Environment, model: &TaskModel, round: &Round) -> Result<MaskPlan, CloseError> {
    if round.limits.secure.is_none() {
        let plan = MaskPlan::new(Plane::Model, model.codec.len() as u64, model.modulus);
        return Ok(plan.map_err(StepError::unworkable)?);
    }
    let attempt = round.key;
    let (session, answers) = env
        .store
        .read("answers that open the sum", |tx| {
            Box::pin(async move {
                let session = tx.session(attempt).await?;
                Ok::<_, StoreError>((session, tx.messages(attempt, MessageKind::Unmasking).await?))
            })
        })
        .await?;
    let stored = session.ok_or_else(|| StepError::unworkable("a round that is unmasked has no session"))?;
    let sealer = Arc::clone(&env.sealer);
    blocking(move || mask_plan(Session::restore(&stored)?, &answers, &sealer, attempt)).await
}

/// Unmasks a sum and adds the noise, slice by slice; passes the slices to `take` in order. The slices are verified only when this function
/// returns.
fn unmask(
    mut sum: SlicedSum,
    plan: &MaskPlan,
    mut noise: Noise,
    participants: u32,
    mut take: impl FnMut(NoisedSum) -> Result<(), StepError>,
) -> Result<Measured, StepError> {
    let mut total: Option<Measured> = None;
    while let Some((offset, slice)) = sum.next()? {
        let OpenedSlice { exact, measured } = open(slice, plan, offset, participants)?;
        if measured.device_failed() {
            sum.go_on_with_the_spare();
        }
        total = Some(match total {
            Some(before) => before.and(measured),
            None => measured,
        });
        take(noise.release(exact)?)?;
    }
    sum.end()?;
    total.ok_or_else(|| StepError::unworkable("a sum has no words"))
}

/// The one-slice noised sum for noise drawn at once.
fn draw(sum: SlicedSum, plan: &MaskPlan, noise: Noise, participants: u32) -> Result<(NoisedSum, Measured), StepError> {
    let mut drawn = None;
    let measured = unmask(sum, plan, noise, participants, |noised| {
        drawn = Some(noised);
        Ok(())
    })?;
    Ok((drawn.ok_or_else(|| StepError::unworkable("a sum has no words"))?, measured))
}
