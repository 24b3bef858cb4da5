//! Shared parts of releasing a sum: unmasking, and storing the release.

use std::time::Duration;

use aggregation::{Accumulator, Effort, FallbackEvent, Finished, Work};
use federation::device_reason::DeviceReason;
use federation::id::Attempt;
use federation::round::{Round, RoundState};
use learning::ExactSum;
use learning::privacy::LedgerError;
use secure_agg::Index;
use secure_agg::mask::{MaskPlan, Plane};
use secure_agg::rejection::Abort;
use secure_agg::server::Phase;
use store::Transaction;
use store::entity::admitted::Admitted;
use store::entity::noised_sum::{NoisedSumRow, SumWork};
use store::entity::session_message::SessionMessage;

use super::lease::Lease;
use super::robust::{Combined, Compared};
use super::shred::destroy_keys_of_an_end;
use super::traced::trace_sum;
use super::{Environment, StepError};
use crate::ledger::{self, Charge};
use crate::seal::Sealer;
use crate::session::{CloseError, Session, forget, open_masks};
use recipe::server::RobustAggregation;

/// Reasons a sum is not released.
pub(super) enum ReleaseError {
    /// The masks cannot be reconstructed.
    Aborted(Abort),
    /// The release exceeds the privacy budget.
    OverBudget(LedgerError),
    /// Honest participants cannot have sent it.
    ImplausibleSum(String),
    /// The step failed before that.
    Step(StepError),
}

impl<E: Into<StepError>> From<E> for ReleaseError {
    fn from(error: E) -> Self {
        Self::Step(error.into())
    }
}

impl From<CloseError> for ReleaseError {
    fn from(error: CloseError) -> Self {
        match error {
            CloseError::Aborted(abort) => Self::Aborted(abort),
            CloseError::Step(error) => Self::Step(error),
        }
    }
}

/// The masks to remove from a session's sum, from its members' answers.
pub(super) fn mask_plan(
    session: Session,
    answers: &[SessionMessage],
    sealer: &Sealer,
    attempt: Attempt,
) -> Result<MaskPlan, CloseError> {
    let members = session.members().to_vec();
    let name = |index: Index| {
        let member = usize::from(index).checked_sub(1).and_then(|at| members.get(at));
        member.map_or_else(|| index.to_string(), ToString::to_string)
    };
    let Phase::CollectUnmasking(phase) = session.into_parts().0 else {
        let round = attempt.round_key();
        return Err(StepError::unworkable(format!("the session of {round} is in another phase than its round")).into());
    };
    let unmasked = open_masks(phase, answers, sealer)?;
    for fault in unmasked.faults() {
        let (dealer, holder) = (name(fault.dealer), name(fault.holder));
        tracing::warn!(round = %attempt.round_key(), attempt = attempt.attempt, dealer, holder, "a share was wrong and was corrected; one of the two is at fault");
    }
    Ok(unmasked.plan(Plane::Model).map_err(StepError::unworkable)?)
}

/// A slice of a sum without its masks.
pub(super) struct OpenedSlice {
    pub(super) exact: ExactSum,
    pub(super) measured: Measured,
}

/// The work on a sum.
pub(super) struct Measured {
    work: Work,
    /// The first device that failed at it, if one did: another took over.
    failed: Option<FallbackEvent>,
}

impl Measured {
    pub(super) fn device_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// The work on both, where the other is on the next slice of the same sum.
    pub(super) fn and(self, next: Self) -> Self {
        Self { work: self.work.and(next.work), failed: self.failed.or(next.failed) }
    }
}

/// Takes the masks off the slice of a sum that begins at word `offset`.
pub(super) fn open(
    sum: Box<dyn Accumulator>,
    plan: &MaskPlan,
    offset: u64,
    participants: u32,
) -> Result<OpenedSlice, StepError> {
    let bits = sum.shape().modulus().bits();
    let (Finished { words, fallback }, work) = sum.finish_slice(plan, offset)?;
    if let Some(FallbackEvent { device, reason, taken_over_by }) = &fallback {
        tracing::warn!(
            device,
            reason,
            taken_over_by,
            "a device failed while unmasking; another one finished with the same bits"
        );
        metrics::counter!("tributary_device_fallbacks_total").increment(1);
    }
    let exact = match participants {
        0 => ExactSum::of_nobody(words.len(), bits),
        _ => ExactSum::new(words, bits, participants),
    };
    Ok(OpenedSlice { exact: exact.map_err(StepError::unworkable)?, measured: Measured { work, failed: fallback } })
}

/// Longest text of a device's failure that is kept, in characters: what a driver says may be long.
const FAILURE_MAX: usize = 500;

/// Why a part of the work was done by `device`, where `chosen` is to do it because of `because`; `failed`: it failed at that part.
fn why(device: &str, chosen: &str, because: DeviceReason, failed: bool) -> DeviceReason {
    match (device == chosen, failed) {
        (true, _) => because,
        (false, true) => DeviceReason::ChosenFailed,
        (false, false) => DeviceReason::TransferCostsMore,
    }
}

/// What is kept of a device's failure.
pub(super) fn failure(FallbackEvent { device, reason, .. }: FallbackEvent) -> String {
    format!("{device}: {reason}").chars().take(FAILURE_MAX).collect()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn count(operation: &'static str, effort: &Effort) {
    metrics::histogram!("tributary_device_seconds", "device" => effort.device.clone(), "operation" => operation)
        .record(effort.took);
}

/// The work on a sum, counted, and as it is stored.
pub(super) fn told(env: &Environment, Measured { work, failed }: Measured) -> SumWork {
    count("sum", &work.summing);
    count("unmask", &work.unmasking);
    let why = |device: &str, failed| why(device, env.aggregator.name(), env.aggregator_because, failed);
    // Whatever adds does so before anything is asked of another device.
    let sum_because = Some(why(&work.summing.device, false));
    let unmask_because = Some(why(&work.unmasking.device, failed.is_some()));
    SumWork {
        coordinator: env.name.clone(),
        sum_device: work.summing.device,
        sum_because,
        unmask_device: work.unmasking.device,
        unmask_because,
        device_failure: failed.map(failure),
        sum_ms: millis(work.summing.took),
        unmask_ms: millis(work.unmasking.took),
        keystream_bytes: work.keystream_bytes,
    }
}

/// The work of a robust rule on inputs in the clear, likewise: comparing them stands for adding. There are no masks, and as at a sum
/// without any it is the processor that takes them off.
pub(super) fn told_of_comparison(env: &Environment, Compared { effort, failed }: Compared) -> Option<SumWork> {
    let effort = effort?;
    count("compare", &effort);
    let spare = env.aggregator.spare();
    let unmask_device = spare.as_deref().unwrap_or(&*env.aggregator).name().to_owned();
    let why = |device: &str, failed| why(device, env.aggregator.name(), env.aggregator_because, failed);
    Some(SumWork {
        coordinator: env.name.clone(),
        sum_because: Some(why(&effort.device, failed.is_some())),
        sum_device: effort.device,
        unmask_because: Some(why(&unmask_device, false)),
        unmask_device,
        device_failure: failed.map(failure),
        sum_ms: millis(effort.took),
        unmask_ms: 0,
        keystream_bytes: 0,
    })
}

/// False if the attempt has a released sum, or has ended. `left_out` inputs are of groups that were left out.
pub(super) async fn store_row(
    tx: &mut Transaction<'_>,
    row: &NoisedSumRow,
    charge: Option<&Charge>,
    inputs: &[Admitted],
    left_out: u32,
) -> Result<bool, StepError> {
    let attempt = row.attempt;
    let Some(present) = tx.round_attempt(attempt).await? else { return Ok(false) };
    if present.round.state != RoundState::Aggregating || !tx.insert_noised_sum(row).await? {
        return Ok(false);
    }
    // Charged before anything of it is released, and only if it is.
    if let Some(charge) = charge {
        ledger::store(tx, charge).await?;
    }
    let participants: Vec<_> = inputs.iter().map(|input| input.participant).collect();
    tx.mark_folded(attempt, &participants).await?;
    tx.delete_partial_sum(attempt).await?;
    // Also deletes what could open the sum again.
    forget(tx, attempt).await?;
    // Every admitted input counts, once: the set was frozen when collection closed.
    let unfolded = tx.unfolded_count(attempt).await?;
    if unfolded != left_out || present.reported != row.participants.saturating_add(left_out) {
        return Err(StepError::unworkable(format!(
            "round {} attempt {} admitted {} inputs, but its sum holds {}",
            attempt.round_key(),
            attempt.attempt,
            present.reported,
            row.participants
        )));
    }
    Ok(true)
}

/// Stores the result of a robust rule over these inputs; `left_out` others of the round were left out.
pub(super) async fn store_combined(
    env: &Environment,
    lease: &Lease,
    round: &Round,
    robust: RobustAggregation,
    Combined { sum, scores, work }: Combined,
    inputs: &[Admitted],
    left_out: u32,
) -> Result<(), StepError> {
    env.fail_point.reached("release_sum: before the blob")?;
    let blob = env.blobs.put_bytes(sum.to_bytes().into()).await?;
    env.fail_point.reached("release_sum: after the blob")?;
    let now = env.clock.now();
    let participants = u32::try_from(inputs.len()).unwrap_or(u32::MAX);
    let attempt = round.key;
    let row = &NoisedSumRow { attempt, blob, participants, created_at: now, work };
    let scores = &scores;
    let stored = env
        .store
        .transact("store robust sum", |tx| {
            Box::pin(async move {
                lease.confirm(tx, &*env.clock).await?;
                let stored = store_row(tx, row, None, inputs, left_out).await?;
                if stored {
                    tx.set_anomaly_scores(attempt, scores).await?;
                }
                Ok::<_, StepError>(stored)
            })
        })
        .await?;
    env.fail_point.reached("release_sum: after the rows")?;
    destroy_keys_of_an_end(env, attempt).await;
    if stored {
        trace_sum(env, attempt, "release", now).await;
        let Attempt { task, round, attempt } = attempt;
        let rule = robust.spec.rule.as_str();
        tracing::info!(%task, round, attempt, participants, left_out, rule, "inputs combined and released");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_the_chosen_one_says_why_it_stands_in() {
        let (gpu, cpu, chosen) = ("cuda:0", "cpu", DeviceReason::BestPresent);
        assert_eq!(why(gpu, gpu, chosen, false), chosen);
        assert_eq!(why(cpu, gpu, chosen, false), DeviceReason::TransferCostsMore);
        assert_eq!(why(cpu, gpu, chosen, true), DeviceReason::ChosenFailed);
        assert_eq!(why(cpu, cpu, DeviceReason::NoGpu, false), DeviceReason::NoGpu);
    }
}
