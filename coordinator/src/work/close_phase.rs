//! Ends a phase: closes it, fails the round, or restarts its deadline after the clock was set back.
//!
//! `federation::advance` decides. The decision is recomputed in the transaction applying it, so an input at the last moment is either
//! counted or rejected, never lost in between.

use federation::advance::Decision;
use federation::groups::{GroupTally, GroupVerdict, advance_groups, is_enough};
use federation::id::{Attempt, ParticipantId, RoundKey};
use federation::round::{AssignmentState, FailureReason, Round, RoundState};
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use secure_agg::messages::MaskedInput;
use secure_agg::rejection::Abort;
use secure_agg::server::{Admitted, Phase};
use store::entity::session_message::MessageKind;
use store::entity::task::TaskRow;
use store::{Transaction, WakeEvent};
use wire::grammar::counted;
use wire::inspect::ShortageView;

use super::engine::lease::Lease;
use super::engine::situation::{Situation, groups_of, tally};
use super::selection::select::draw_cohort;
use super::selection::starved;
use super::shred::destroy_keys_of_an_end;
use super::{Environment, StepError};
use crate::observe::{During, count_dropped};
use crate::privacy::ledger::{self, Charger};
use crate::rounds::session::{CloseError, Session, admitted, encode_all, failure, forget, restore_all, stored};
use crate::rounds::waiting::retries::failures;
use crate::rounds::waiting::shortage::shortage;

/// Why an accepted input is excluded from a sum.
const TORN: &str = "a member of its batch sent no input";

/// Result of closing a phase.
#[derive(Clone, Debug)]
enum CloseOutcome {
    /// The facts have changed; nothing to do.
    Nothing,
    Rebased,
    Drawn {
        round: Round,
        cohort: Vec<ParticipantId>,
    },
    Closed {
        round: Round,
        missing: u32,
    },
    Failed(Failed),
}

impl CloseOutcome {
    /// Whether summing comes next.
    fn is_followed_by_work(&self) -> bool {
        matches!(self, Self::Closed { round, .. } if round.state == RoundState::Aggregating)
    }
}

#[derive(Clone, Debug)]
struct Failed {
    round: Round,
    reason: FailureReason,
    /// Why the task was paused, if it was.
    paused: Option<String>,
    /// The shortage of participants, if that was the reason.
    shortage: Option<ShortageView>,
}

/// Applies the decision of `advance`. Keeps the lease if summing comes next.
pub(super) async fn close_phase(env: &Environment, lease: &mut Lease, situation: &Situation) -> Result<(), StepError> {
    let Some(before) = situation.open_round() else { return Ok(()) };
    let fresh_seed = env.random.bytes();
    env.fail_point.reached("close_phase: before the rows")?;
    let charger = &Charger::of_round(&env.models, &env.sealer, &situation.task, before).await?;
    let holder = &*lease;
    let closed = env
        .store
        .transact("close phase", |tx| {
            Box::pin(async move {
                let (token, now) = holder.confirm(tx, &*env.clock).await?;
                let outcome = decide(tx, charger, before.key.round_key(), fresh_seed, now).await?;
                let held = outcome.is_followed_by_work().then_some(token);
                if held.is_none() {
                    holder.give_up(tx, token).await?;
                }
                Ok::<_, StepError>((outcome, held))
            })
        })
        .await;
    let (outcome, held) = match closed {
        // A retry would give the same decision after every deadline.
        Err(error) if error.is_loss() => {
            tracing::error!(task = %before.key.task, round = before.key.round, %error, "the session cannot be read any more");
            return fail_round(env, lease, situation, FailureReason::InputLost).await;
        }
        closed => closed?,
    };
    lease.note(held);
    env.fail_point.reached("close_phase: after the rows")?;
    if matches!(outcome, CloseOutcome::Failed(_)) {
        destroy_keys_of_an_end(env, before.key).await;
    }
    announce(env, before, outcome);
    Ok(())
}

async fn decide(
    tx: &mut Transaction<'_>,
    charger: &Charger<'_>,
    key: RoundKey,
    fresh_seed: [u8; 32],
    now: Timestamp,
) -> Result<CloseOutcome, StepError> {
    let Some(task) = tx.task(key.task).await? else { return Ok(CloseOutcome::Nothing) };
    let Some(row) = tx.round(key).await? else { return Ok(CloseOutcome::Nothing) };
    let round = row.round;
    let tally = tally(tx, &task, &round, now).await?;
    let groups = groups_of(tx, &round).await?;
    let GroupVerdict { decision, lost } = advance_groups(&round, &tally, &groups, now);
    if complaint(tx, &round).await? {
        return failed(tx, charger, &task, &round, FailureReason::BadShares, now).await;
    }
    match decision {
        Decision::Close(_) if round.state == RoundState::Selecting => {
            match draw_cohort(tx, &task, &round, charger.models(), fresh_seed, now).await {
                Ok(drawn) => {
                    Ok(drawn.map_or(CloseOutcome::Nothing, |(round, cohort)| CloseOutcome::Drawn { round, cohort }))
                }
                Err(CloseError::Aborted(abort)) => aborted(tx, charger, &task, &round, &abort, now).await,
                Err(CloseError::Step(error)) => Err(error),
            }
        }
        Decision::Close(RoundState::Completed) => Ok(CloseOutcome::Nothing),
        Decision::Close(next) if round.limits.secure.is_some() => {
            match close_sessions(tx, &round, next, &groups, &lost, now).await {
                Ok(outcome) => Ok(outcome),
                Err(CloseError::Aborted(abort)) => aborted(tx, charger, &task, &round, &abort, now).await,
                Err(CloseError::Step(error)) => Err(error),
            }
        }
        Decision::Close(next) => match starved::nobody_left(tx, &task, &round).await? {
            Some(why) => starve(tx, charger, &task, &round, why, now).await,
            None => close_collection(tx, &round, next, now).await,
        },
        Decision::Abort(reason) => failed(tx, charger, &task, &round, reason, now).await,
        Decision::Rebase => {
            let rebased = tx.rebase_round(round.key, round.state, now).await?;
            Ok(if rebased { CloseOutcome::Rebased } else { CloseOutcome::Nothing })
        }
        Decision::Wait(_) | Decision::Done => Ok(CloseOutcome::Nothing),
    }
}

/// Whether a participant complained about a dealer. Complaints were validated on arrival.
async fn complaint(tx: &mut Transaction<'_>, round: &Round) -> Result<bool, StepError> {
    // A complaint in a group only affects the group.
    if round.state != RoundState::Collecting || round.limits.secure.is_none() || round.limits.groups.is_some() {
        return Ok(false);
    }
    Ok(!tx.message_senders(round.key, MessageKind::Complaint).await?.is_empty())
}

/// Freezes the included set: later inputs are rejected.
async fn close_collection(
    tx: &mut Transaction<'_>,
    round: &Round,
    next: RoundState,
    now: Timestamp,
) -> Result<CloseOutcome, StepError> {
    let after = Round { state: next, state_since: now, ..round.clone() };
    if !tx.transition_round(round, &after).await? {
        return Ok(CloseOutcome::Nothing);
    }
    let missing = tx.drop_missing(round.key, RoundState::Collecting, &[], now).await?;
    tx.end_reported_trainings(round.key).await?;
    Ok(CloseOutcome::Closed { round: after, missing })
}

/// Closes a phase of secure aggregation. This fixes the members that answered, and the requests of the next phase. Lost or blocked groups
/// are excluded if enough others remain.
async fn close_sessions(
    tx: &mut Transaction<'_>,
    round: &Round,
    next: RoundState,
    groups: &[GroupTally],
    lost: &[(u32, FailureReason)],
    now: Timestamp,
) -> Result<CloseOutcome, CloseError> {
    let attempt = round.key;
    let stored = stored(tx, attempt).await?;
    let mut phases = Vec::new();
    let (mut left_out, mut last, mut excluded) = (Vec::new(), None, Vec::new());
    for (group, session) in (0..).zip(restore_all(round, &stored)?) {
        let reason = lost.iter().find(|(other, _)| *other == group).map(|(_, reason)| *reason);
        let phase = match (session, reason) {
            (None, _) => None,
            (Some(_), Some(reason)) => {
                tracing::warn!(round = %attempt.round_key(), attempt = attempt.attempt, group, %reason, "a group is left out");
                left_out.push(group);
                None
            }
            (Some(session), None) => match close_one(tx, round, session).await {
                Ok((phase, without)) => {
                    excluded.extend(without);
                    Some(phase)
                }
                Err(CloseError::Aborted(abort)) if round.limits.groups.is_some() => {
                    tracing::warn!(round = %attempt.round_key(), attempt = attempt.attempt, group, code = abort.code(), "a group is left out: {abort}");
                    left_out.push(group);
                    last = Some(abort);
                    None
                }
                Err(error) => return Err(error),
            },
        };
        phases.push(phase);
    }
    match last {
        // Too many groups are lost for the rule or the sum.
        Some(abort) if !can_go_on(round, &phases, groups) => return Err(abort.into()),
        _ => {}
    }
    let after = Round { state: next, state_since: now, ..round.clone() };
    if !tx.transition_round(round, &after).await? {
        return Ok(CloseOutcome::Nothing);
    }
    tx.put_session(attempt, &encode_all(round, &phases)?, now).await?;
    if round.state == RoundState::Collecting {
        // All members that may still need them have them.
        tx.clear_messages(attempt, &[MessageKind::Shares]).await?;
        tx.end_reported_trainings(attempt).await?;
        tx.exclude_inputs(attempt, &excluded, now, TORN).await?;
    }
    let missing = tx.drop_missing(attempt, round.state, &left_out, now).await?;
    Ok(CloseOutcome::Closed { round: after, missing })
}

/// Whether enough groups can continue; a round without groups has one.
fn can_go_on(round: &Round, phases: &[Option<Phase>], groups: &[GroupTally]) -> bool {
    let left = || phases.iter().zip(groups).filter(|(phase, _)| phase.is_some());
    let has_inputs = round.state != RoundState::Sharing;
    let inputs = left().map(|(_, facts)| if has_inputs { facts.tally.reported } else { facts.tally.answered });
    is_enough(round, u32::try_from(left().count()).unwrap_or(u32::MAX), inputs.sum())
}

/// Closes the phase of one session. Returns the next phase, and the senders excluded because of incomplete batches.
async fn close_one(
    tx: &mut Transaction<'_>,
    round: &Round,
    session: Session,
) -> Result<(Phase, Vec<ParticipantId>), CloseError> {
    let attempt = round.key;
    let members = session.members().to_vec();
    let mut excluded = Vec::new();
    let (phase, group) = session.into_parts();
    let group = group.as_deref();
    let phase = match phase {
        Phase::CollectShares(phase) => {
            Phase::CollectMasked(phase.close(admitted(tx, attempt, MessageKind::Shares, group).await?)?)
        }
        Phase::CollectMasked(phase) => {
            let inputs = admitted(tx, attempt, MessageKind::Input, group).await?;
            let senders: Vec<_> =
                inputs.iter().map(|input: &Admitted<MaskedInput>| input.message().body.sender).collect();
            let phase = phase.close(inputs)?;
            let without = senders.into_iter().filter(|sender| !phase.survivors().contains(*sender));
            excluded.extend(without.filter_map(|sender| members.get(usize::from(sender).checked_sub(1)?)));
            Phase::CollectConsistency(phase)
        }
        Phase::CollectConsistency(phase) => {
            Phase::CollectUnmasking(phase.close(admitted(tx, attempt, MessageKind::Consistency, group).await?)?)
        }
        // The unmasking data is combined next to the sum, and never stored: see `release_sum`.
        phase @ (Phase::CollectUnmasking(_) | Phase::CollectKeys(_)) => phase,
    };
    Ok((phase, excluded))
}

/// Ends the round as FAILED, for a reason found by a step.
pub(super) async fn fail_round(
    env: &Environment,
    lease: &mut Lease,
    situation: &Situation,
    reason: FailureReason,
) -> Result<(), StepError> {
    let Some(before) = situation.open_round() else { return Ok(()) };
    env.fail_point.reached("fail_round: before the rows")?;
    let charger = &Charger::of_round(&env.models, &env.sealer, &situation.task, before).await?;
    let holder = &*lease;
    let failed = env
        .store
        .transact("fail round", |tx| {
            Box::pin(async move {
                let (token, now) = holder.confirm(tx, &*env.clock).await?;
                let failed = fail(tx, charger, &situation.task, before, reason, now).await?;
                holder.give_up(tx, token).await?;
                Ok::<_, StepError>(failed)
            })
        })
        .await?;
    lease.note(None);
    env.fail_point.reached("fail_round: after the rows")?;
    destroy_keys_of_an_end(env, before.key).await;
    if let Some(failed) = failed {
        announce(env, before, CloseOutcome::Failed(failed));
    }
    Ok(())
}

async fn aborted(
    tx: &mut Transaction<'_>,
    charger: &Charger<'_>,
    task: &TaskRow,
    round: &Round,
    abort: &Abort,
    now: Timestamp,
) -> Result<CloseOutcome, StepError> {
    tracing::warn!(round = %round.key.round_key(), attempt = round.key.attempt, code = abort.code(), "the session ends: {abort}");
    failed(tx, charger, task, round, failure(abort), now).await
}

async fn failed(
    tx: &mut Transaction<'_>,
    charger: &Charger<'_>,
    task: &TaskRow,
    round: &Round,
    reason: FailureReason,
    now: Timestamp,
) -> Result<CloseOutcome, StepError> {
    Ok(fail(tx, charger, task, round, reason, now).await?.map_or(CloseOutcome::Nothing, CloseOutcome::Failed))
}

/// Fails a round after its cohort refused, without a release or charge, and pauses the task.
async fn starve(
    tx: &mut Transaction<'_>,
    charger: &Charger<'_>,
    task: &TaskRow,
    round: &Round,
    why: String,
    now: Timestamp,
) -> Result<CloseOutcome, StepError> {
    let is_paused = starved::pause(tx, round.key, &why, now).await?;
    let mut outcome = failed(tx, charger, task, round, FailureReason::TooFewInputs, now).await?;
    if let CloseOutcome::Failed(failed) = &mut outcome {
        failed.paused = is_paused.then_some(why);
    }
    Ok(outcome)
}

async fn fail(
    tx: &mut Transaction<'_>,
    charger: &Charger<'_>,
    task: &TaskRow,
    round: &Round,
    reason: FailureReason,
    now: Timestamp,
) -> Result<Option<Failed>, StepError> {
    let after = Round { state: RoundState::Failed, state_since: now, failure: Some(reason), ..round.clone() };
    if !tx.transition_round(round, &after).await? {
        return Ok(None);
    }
    ledger::charge_unpublished(tx, task, round, charger, now).await?;
    // Participants forget an update once it was sent, so a late report of it must not draw it again.
    tx.end_reported_trainings(round.key).await?;
    tx.set_pending_assignments(round.key, AssignmentState::Released, now).await?;
    tx.delete_partial_sum(round.key).await?;
    forget(tx, round.key).await?;
    let paused = pause_if_hopeless(tx, task, &after, reason, now).await?.then(|| "too many failed attempts".to_owned());
    let is_spent = round.is_spent() || (round.may_have_inputs() && task.spec.keeps_updates_apart());
    if is_spent && round.key.round_key() == task.next_round() {
        tx.forfeit_rounds(task.id, 1).await?;
    }
    let shortage = shortage(tx, task, Some(&after), now).await?;
    Ok(Some(Failed { round: after, reason, paused, shortage }))
}

/// Pauses the task at every `max_attempts`-th failed attempt; resuming it grants as many again.
async fn pause_if_hopeless(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    round: &Round,
    reason: FailureReason,
    now: Timestamp,
) -> Result<bool, StepError> {
    let max = task.spec.rounds.max_attempts;
    if max == 0 || round.key.round_key() != task.next_round() {
        return Ok(false);
    }
    let latest = tx.round(task.next_round()).await?;
    let in_a_row = failures(tx, task, latest.as_ref()).await?.map_or(0, |failures| failures.count);
    if !in_a_row.is_multiple_of(max) {
        return Ok(false);
    }
    let detail = format!(
        "attempt {} at round {} failed ({reason}): paused after {max} failed attempts in a row",
        round.key.attempt, round.key.round
    );
    Ok(tx.set_task_status(task.id, &[TaskStatus::Active], TaskStatus::Paused, now, Some(&detail)).await?)
}

/// Logs, counts and wakes, after the commit.
fn announce(env: &Environment, before: &Round, outcome: CloseOutcome) {
    let Attempt { task, round: number, attempt } = before.key;
    let wake = env.store.wake();
    match outcome {
        CloseOutcome::Nothing => return,
        CloseOutcome::Rebased => {
            tracing::warn!(%task, round = number, attempt, state = %before.state, "the clock was set back: the phase's time starts anew");
        }
        CloseOutcome::Drawn { round, cohort } => {
            tracing::info!(%task, round = number, attempt, cohort = cohort.len(), "cohort drawn");
            count_phase(env, before, &round);
            let during = During { began: before.state_since, ended: round.state_since };
            env.traces.drawn(before.key, &cohort, during);
            wake.publish(WakeEvent::Assigned(cohort.into()));
        }
        CloseOutcome::Closed { round, missing } => {
            tracing::info!(%task, round = number, attempt, missing, state = %before.state, next = %round.state, "phase closed");
            count_dropped(before.state, "late", missing);
            count_phase(env, before, &round);
        }
        CloseOutcome::Failed(failed) => {
            let reason = failed.reason;
            tracing::warn!(%task, round = number, attempt, state = %before.state, %reason, "round failed");
            if let Some(ShortageView { needed, enrolled, waiting }) = failed.shortage {
                tracing::warn!(
                    %task, round = number, attempt, needed, enrolled, waiting,
                    "the round needs {}: {} enrolled that may take part, {} waiting; nothing comes of a further attempt \
                     before {}",
                    counted(needed, "participant", "participants"),
                    counted(enrolled, "is", "are"),
                    counted(waiting, "is", "are"),
                    counted(needed, "is", "are"),
                );
            }
            count_phase(env, before, &failed.round);
            env.traces.ended(before, "failed", failed.round.state_since);
            count_round("failed", reason.as_str());
            if let Some(why) = failed.paused {
                tracing::warn!(%task, round = number, attempts = attempt, "task paused: {why}");
                wake.publish(WakeEvent::Task(task));
            }
        }
    }
    wake.publish(WakeEvent::Round(before.key.round_key()));
}

/// Records the duration of the ended phase.
pub(super) fn count_phase(env: &Environment, before: &Round, after: &Round) {
    let during = During { began: before.state_since, ended: after.state_since };
    env.traces.step(before.key, before.state.as_str(), false, during);
    let seconds = after.state_since.since(before.state_since).as_secs_f64();
    metrics::histogram!("tributary_round_phase_seconds", "phase" => before.state.as_str()).record(seconds);
}

/// Counts an ended round.
pub(super) fn count_round(outcome: &'static str, reason: &'static str) {
    metrics::counter!("tributary_rounds_total", "outcome" => outcome, "reason" => reason).increment(1);
}
