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

use super::robust::{Combined, Compared};
use crate::privacy::ledger::{self, Charge};
use crate::privacy::seal::Sealer;
use crate::rounds::session::{CloseError, Session, forget, open_masks};
use crate::work::engine::lease::Lease;
use crate::work::shred::destroy_keys_of_an_end;
use crate::work::traced::trace_sum;
use crate::work::{Environment, StepError};
use recipe::server::RobustAggregation;

/// Reasons why a sum is not released.
pub(super) enum ReleaseError {
    /// The masks cannot be reconstructed.
    Aborted(Abort),
    /// The release exceeds the privacy budget.
    OverBudget(LedgerError),
    /// Honest participants cannot produce this sum.
    ImplausibleSum(String),
    /// The step failed earlier.
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
    /// The first failed device, if any; another took over.
    failed: Option<FallbackEvent>,
}

impl Measured {
    pub(super) fn device_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Combines the work with that on the next slice of the same sum.
    pub(super) fn and(self, next: Self) -> Self {
        Self { work: self.work.and(next.work), failed: self.failed.or(next.failed) }
    }
}

/// Unmasks the slice of a sum starting at word `offset`.
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

/// Maximum stored characters of a device failure: a driver's message may be long.
const FAILURE_MAX: usize = 500;

/// Why `device` did a part of the work if `chosen` was selected because of `because`. `failed`: `chosen` failed at this part.
fn why(device: &str, chosen: &str, because: Option<DeviceReason>, failed: bool) -> Option<DeviceReason> {
    match (device == chosen, failed) {
        (true, _) => because,
        (false, true) => Some(DeviceReason::ChosenFailed),
        (false, false) => Some(DeviceReason::TransferCostsMore),
    }
}

/// The stored text of a device failure.
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

/// Counts the work on a sum, and converts it for storage.
pub(super) fn told(env: &Environment, Measured { work, failed }: Measured) -> SumWork {
    count("sum", &work.summing);
    count("unmask", &work.unmasking);
    let why = |device: &str, failed| why(device, env.aggregator.name(), env.aggregator_because, failed);
    // An adding device finishes before another device takes over.
    let sum_because = why(&work.summing.device, false);
    let unmask_because = why(&work.unmasking.device, failed.is_some());
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

/// Converts the work of a robust rule on unmasked inputs: comparison takes the place of addition. Without masks, the processor does the
/// unmasking, as for any unmasked sum.
pub(super) fn told_of_comparison(env: &Environment, Compared { effort, failed }: Compared) -> Option<SumWork> {
    let effort = effort?;
    count("compare", &effort);
    let spare = env.aggregator.spare();
    let unmask_device = spare.as_deref().unwrap_or(&*env.aggregator).name().to_owned();
    let why = |device: &str, failed| why(device, env.aggregator.name(), env.aggregator_because, failed);
    Some(SumWork {
        coordinator: env.name.clone(),
        sum_because: why(&effort.device, failed.is_some()),
        sum_device: effort.device,
        unmask_because: why(&unmask_device, false),
        unmask_device,
        device_failure: failed.map(failure),
        sum_ms: millis(effort.took),
        unmask_ms: 0,
        keystream_bytes: 0,
    })
}

/// Stores a released sum; false if the attempt already has one, or has ended. `left_out` inputs belong to excluded groups.
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
    // The charge is stored with the release, before anything is published.
    if let Some(charge) = charge {
        ledger::store(tx, charge).await?;
    }
    let participants: Vec<_> = inputs.iter().map(|input| input.participant).collect();
    tx.mark_folded(attempt, &participants).await?;
    tx.delete_partial_sum(attempt).await?;
    // Also deletes the data that could unmask the sum again.
    forget(tx, attempt).await?;
    // Every admitted input is included once: the set was frozen when collection closed.
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

/// Stores the result of a robust rule over these inputs; `left_out` other inputs of the round were excluded.
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
        let (gpu, cpu, chosen) = ("cuda:0", "cpu", Some(DeviceReason::BestPresent));
        assert_eq!(why(gpu, gpu, chosen, false), chosen);
        assert_eq!(why(cpu, gpu, chosen, false), Some(DeviceReason::TransferCostsMore));
        assert_eq!(why(cpu, gpu, chosen, true), Some(DeviceReason::ChosenFailed));
        assert_eq!(why(cpu, cpu, Some(DeviceReason::NoGpu), false), Some(DeviceReason::NoGpu));
        assert_eq!(why(cpu, cpu, None, false), None);
    }
}
