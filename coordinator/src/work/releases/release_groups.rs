//! Unmasks the sum of each group of a round and releases the robust combination of their means.
//!
//! Every group has its own session, so the shares of one sum open no other. Inputs stay on disk until here: a group's inputs are folded
//! into one accumulator, unmasked in memory, and only the group's mean remains. A group with unrecoverable masks is excluded. A group with
//! an implausible sum is excluded too, and reduces the number of attackers assumed by the rule. The round fails if too few groups remain
//! for the rule, or too few inputs for the task.

use std::sync::Arc;

use federation::round::Round;
use learning::robust::MAX_SCORE;
use learning::{MeanUpdate, NoisedSum};
use secure_agg::rejection::Abort;
use store::entity::admitted::Admitted;
use store::entity::noised_sum::SumWork;
use store::entity::session_message::{MessageKind, SessionMessage};

use super::release::{Measured, OpenedSlice, ReleaseError, failure, mask_plan, open, store_combined, told};
use super::robust::{Combined, Ruled, combine_means};
use crate::rounds::session::{CloseError, Session, messages_of, restore_all, stored};
use crate::work::engine::lease::Lease;
use crate::work::summing::sums::{Slices, SumCache, blocking, sum_up};
use crate::work::{Environment, StepError};
use recipe::TaskModel;
use recipe::server::{GroupedMeans, RobustAggregation};

/// A group not excluded before.
struct Group {
    number: u32,
    session: Session,
    answers: Vec<SessionMessage>,
    inputs: Vec<Admitted>,
}

/// Result of unmasking a group's sum.
enum GroupSum {
    Mean(MeanUpdate, Measured),
    Implausible(String),
    Aborted(Abort),
}

/// Releases the robust combination of the groups' means.
pub(super) async fn release_groups(
    env: &Environment,
    lease: &Lease,
    model: &TaskModel,
    robust: RobustAggregation,
    groups: GroupedMeans,
    round: &Round,
) -> Result<(), ReleaseError> {
    let (groups_left, reported) = read(env, round).await?;
    let (mut means, mut members, mut garbage) = (Vec::new(), Vec::new(), Vec::new());
    let (mut masked, mut problems, mut work) = (None, Vec::new(), None::<SumWork>);
    for Group { number, session, answers, inputs } in groups_left {
        match open_group(env, model, round, session, answers, &inputs).await? {
            GroupSum::Mean(mean, measured) => {
                let of_group = told(env, measured);
                work = Some(match work {
                    Some(before) => add(before, of_group),
                    None => of_group,
                });
                means.push(mean);
                members.push(inputs);
            }
            GroupSum::Implausible(problem) => {
                tracing::warn!(round = %round.key.round_key(), group = number, problem, "honest participants cannot have made the sum of a group");
                problems.push(problem);
                garbage.push(inputs);
            }
            GroupSum::Aborted(abort) => {
                tracing::warn!(round = %round.key.round_key(), group = number, code = abort.code(), "a group is left out: {abort}");
                masked = masked.or(Some(abort));
            }
        }
    }
    let drawn = round.limits.groups.map_or(0, |limits| limits.count.saturating_mul(limits.size));
    // Each hostile participant may have spoiled a group; the detected groups are already excluded.
    let attackers = robust.spec.attackers_among(drawn).saturating_sub(u32::try_from(garbage.len()).unwrap_or(u32::MAX));
    let left = u32::try_from(means.len()).unwrap_or(u32::MAX);
    let inputs = u32::try_from(members.iter().map(Vec::len).sum::<usize>()).unwrap_or(u32::MAX);
    let least = round.limits.collect.min;
    let too_few = match learning::robust::check(robust.spec.rule, left.max(1), attackers) {
        Err(error) => Some(error.to_string()),
        Ok(()) if inputs < least => Some(format!("{inputs} inputs are left where {least} are wanted")),
        Ok(()) => None,
    };
    if let Some(too_few) = too_few {
        return Err(match (masked, problems.pop()) {
            (Some(abort), _) => ReleaseError::Aborted(abort),
            (None, problem) => ReleaseError::ImplausibleSum(problem.unwrap_or(too_few)),
        });
    }
    if means.is_empty() {
        return Err(ReleaseError::ImplausibleSum("no group is left".to_owned()));
    }
    let Ruled { sum, scores, compared } = combine_means(env, groups.codec, &robust.spec, attackers, means).await?;
    // Reports the devices that unmasked the groups' sums, and those that failed at their means.
    let failed = compared.failed.map(failure);
    let work = work.map(|work| SumWork { device_failure: work.device_failure.or(failed), ..work });
    let of_members = |(inputs, score): (&Vec<Admitted>, f64)| -> Vec<_> {
        inputs.iter().map(|input| (input.participant, score)).collect()
    };
    let mut scores: Vec<_> = members.iter().zip(scores).flat_map(of_members).collect();
    scores.extend(garbage.iter().flat_map(|inputs| of_members((inputs, MAX_SCORE))));
    let inputs = members.concat();
    let left_out = reported.saturating_sub(u32::try_from(inputs.len()).unwrap_or(u32::MAX));
    let combined = Combined { sum, scores, work };
    Ok(store_combined(env, lease, round, robust, combined, &inputs, left_out).await?)
}

/// Adds the work of both, with the first one's devices, unless only the other's failed.
fn add(work: SumWork, other: SumWork) -> SumWork {
    let sum_ms = work.sum_ms.saturating_add(other.sum_ms);
    let unmask_ms = work.unmask_ms.saturating_add(other.unmask_ms);
    let keystream_bytes = work.keystream_bytes.saturating_add(other.keystream_bytes);
    let shown = if work.device_failure.is_none() && other.device_failure.is_some() { other } else { work };
    SumWork { sum_ms, unmask_ms, keystream_bytes, ..shown }
}

/// The remaining groups, and the number of their inputs.
async fn read(env: &Environment, round: &Round) -> Result<(Vec<Group>, u32), StepError> {
    let attempt = round.key;
    env.store
        .read("groups to open", |tx| {
            Box::pin(async move {
                let stored = stored(tx, attempt).await?;
                let inputs = tx.unfolded(attempt, u32::MAX).await?;
                let mut groups = Vec::new();
                for (number, session) in (0..).zip(restore_all(round, &stored)?) {
                    let Some(session) = session else { continue };
                    let members = Some(session.members());
                    let answers = messages_of(tx, attempt, MessageKind::Unmasking, members).await?;
                    let of_group = |input: &&Admitted| session.index(input.participant).is_some();
                    let inputs = inputs.iter().filter(of_group).copied().collect();
                    groups.push(Group { number, session, answers, inputs });
                }
                Ok((groups, u32::try_from(inputs.len()).unwrap_or(u32::MAX)))
            })
        })
        .await
}

async fn open_group(
    env: &Environment,
    model: &TaskModel,
    round: &Round,
    session: Session,
    answers: Vec<SessionMessage>,
    inputs: &[Admitted],
) -> Result<GroupSum, StepError> {
    let (sealer, place) = (Arc::clone(&env.sealer), round.key);
    let plan = match blocking(move || mask_plan(session, &answers, &sealer, place)).await {
        Ok(plan) => plan,
        Err(CloseError::Aborted(abort)) => return Ok(GroupSum::Aborted(abort)),
        Err(CloseError::Step(error)) => return Err(error),
    };
    let codec = *model.codec.plain().ok_or_else(|| StepError::unworkable("groups need updates as they are"))?;
    let mut sum = sum_up(env, &SumCache::default(), model, Slices::whole(model), None, inputs).await?;
    let participants = u32::try_from(inputs.len()).unwrap_or(u32::MAX);
    blocking(move || {
        let Some((offset, whole)) = sum.next()? else { return Err(StepError::unworkable("a sum has no words")) };
        let OpenedSlice { exact, measured } = open(whole, &plan, offset, participants)?;
        sum.end()?;
        // The task lets the coordinator see group sums; the published result combines all of them.
        let sum: NoisedSum = exact.release_without_noise();
        Ok(match codec.decode(&sum) {
            Ok(mean) => GroupSum::Mean(mean, measured),
            Err(error) => GroupSum::Implausible(error.to_string()),
        })
    })
    .await
}
