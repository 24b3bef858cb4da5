//! Draws the cohort of a round with enough eligible participants.

use std::collections::HashMap;

use bytes::Bytes;
use federation::cohort::{self, Candidate, History};
use federation::id::{Attempt, Digest, ParticipantId};
use federation::round::{Assignment, AssignmentState, Round, RoundState, SecureLimits};
use federation::round_trip;
use federation::time::Timestamp;
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha20Rng;
use secure_agg::codec::Message as _;
use secure_agg::messages::Advertise;
use secure_agg::params::InvalidConfig;
use secure_agg::rejection::Abort;
use secure_agg::server::{Admitted, CollectKeys, CollectShares, Enrolled, Phase};
use store::Transaction;
use store::entity::task::TaskRow;
use task_spec::{Draw, TRAINING_LOSS, TaskSpec};

use super::batches;
use super::sample::sample_present;
use crate::rounds::ahead::TrainingStates;
use crate::rounds::base;
use crate::rounds::models::Models;
use crate::rounds::proximal::plan_of_round;
use crate::rounds::session::{CloseError, StoredCertificates, encode_all, round_name};
use crate::work::StepError;
use crate::work::engine::situation::{eligible, keyed};
use recipe::TaskModel;
use recipe::server::RobustAggregation;

/// Rounds considered by a strategy.
const LOOK_BACK: u32 = 4096;

/// Stores cohort, assignments and the next state within the caller's transaction. `fresh_seed` is used if the task has no seed of its own.
/// Returns the updated round and the drawn participants in the order of ids; `None` if the round was changed concurrently, or if a
/// participant's duplicate keys prevented the draw, after checking that participant out.
///
/// # Errors
/// [`CloseError::Aborted`] if these participants can form no session at all.
pub(in crate::work) async fn draw_cohort(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    round: &Round,
    models: &Models,
    fresh_seed: [u8; 32],
    now: Timestamp,
) -> Result<Option<(Round, Vec<ParticipantId>)>, CloseError> {
    let mut after = round.clone();
    after.state_since = now;
    let (mut session, mut group_of, mut batch_of) = (None, HashMap::new(), HashMap::new());
    let history = history(tx, task, round).await?;
    let ahead = match task.spec.ahead() {
        Some(ahead) => Some(TrainingStates::read(tx, task, &ahead, now).await?),
        None => None,
    };
    let choose = |candidates: &[Candidate], count: u32| match &ahead {
        Some(ahead) => oldest(ahead, candidates, count, fresh_seed, now),
        None => select(&task.spec, round, &history, candidates, count, fresh_seed),
    };
    let (mut round_trips, mut round_trip_ms) = (HashMap::new(), None);
    let mut note = |candidates: &[Candidate]| {
        round_trips.extend(candidates.iter().map(|candidate| (candidate.participant, candidate.round_trip_ms)));
    };
    let mut cohort = match round.limits.secure {
        None => {
            let mut candidates = eligible(tx, task, round, now).await?;
            note(&candidates);
            if task.spec.sampling_amplifies() {
                // Drawn participants get the deadline, which must not reveal the other members.
                round_trip_ms = Some(round_trip::of_cohort(candidates.iter().map(|present| present.round_trip_ms)));
                candidates = sample_present(tx, task, candidates, round.limits.collect.max, fresh_seed).await?;
            }
            let draw = draw(&task.spec, round, candidates.len());
            after.state = RoundState::Collecting;
            after.limits.collect.max = draw.collect_max;
            choose(&candidates, draw.cohort)
        }
        Some(limits) => {
            let keyed = keyed(tx, task, round, now).await?;
            let draw = draw(&task.spec, round, keyed.len());
            let (candidates, keys): (Vec<_>, Vec<_>) = keyed.into_iter().unzip();
            note(&candidates);
            let ids = || candidates.iter().map(|candidate| candidate.participant);
            let stated = ids().zip(&keys).filter_map(|(id, keys)| Some((id, batches::stated(keys)?)));
            batch_of = stated.collect();
            let chosen = if batch_of.is_empty() {
                choose(&candidates, draw.cohort)
            } else {
                let order = match &ahead {
                    Some(_) => choose(&candidates, u32::MAX),
                    None => shuffled(&task.spec, round, ids().collect(), fresh_seed),
                };
                batches::draw_whole(order, &batch_of, draw.cohort as usize)
            };
            let keys: HashMap<_, _> = ids().zip(keys).filter(|(id, _)| chosen.contains(id)).collect();
            batch_of.retain(|id, _| keys.contains_key(id));
            let opened = open_sessions(tx, task, round, models, (keys, &batch_of), fresh_seed, now).await?;
            let Some(groups) = opened else { return Ok(None) };
            after.state = RoundState::Sharing;
            set_limits(task, &mut after, limits, &groups, draw.collect_max)?;
            let (phases, members): (Vec<_>, Vec<_>) = groups.into_iter().unzip();
            let phases: Vec<_> = phases.into_iter().map(|phase| Some(Phase::CollectShares(phase))).collect();
            session = Some(encode_all(&after, &phases)?);
            let numbered = (0..).zip(&members).flat_map(|(group, members)| members.iter().map(move |id| (*id, group)));
            group_of = numbered.collect();
            members.concat()
        }
    };
    cohort.sort_unstable();
    let of_cohort = || round_trip::of_cohort(cohort.iter().map(|member| round_trips.get(member).copied().flatten()));
    after.limits = after.limits.extended_for(round_trip_ms.unwrap_or_else(of_cohort));
    after.cohort = u32::try_from(cohort.len()).unwrap_or(u32::MAX);
    if !tx.transition_round(round, &after).await? {
        return Ok(None);
    }
    if let Some(session) = session {
        tx.put_session(after.key, &session, now).await?;
    }
    let group = |participant| after.limits.groups.and_then(|_| group_of.get(&participant).copied());
    let assignments: Vec<_> =
        cohort.iter().map(|&participant| assignment(&after, participant, group(participant), now)).collect();
    tx.insert_assignments(&assignments).await?;
    let batches: Vec<_> = cohort.iter().filter_map(|id| Some((*id, *batch_of.get(id)?))).collect();
    tx.insert_assignment_batches(after.key, &batches).await?;
    if let Some(ahead) = ahead {
        let updates: Vec<_> = cohort.iter().filter_map(|&participant| ahead.ready(participant)).collect();
        tx.insert_buffered(after.key, &updates).await?;
        tx.lapse_trainings(task.id, &cohort, now).await?;
    }
    tx.remove_check_ins(&cohort).await?;
    tx.forget_sampled(after.key).await?;
    Ok(Some((after, cohort)))
}

/// All present participants sampled in advance; otherwise the number wanted by the task, up to the round's limit: a private round's grid
/// and noise are planned for a maximum cohort.
fn draw(spec: &TaskSpec, round: &Round, eligible: usize) -> Draw {
    let eligible = u32::try_from(eligible).unwrap_or(u32::MAX);
    match round.limits.sampled {
        Some(_) => Draw { cohort: eligible, collect_max: eligible },
        None => {
            let (draw, most) = (spec.draw(eligible), round.limits.select.max);
            Draw { cohort: draw.cohort.min(most), collect_max: draw.collect_max.min(most) }
        }
    }
}

/// Limits of each session and of the whole round, from their sizes.
fn set_limits(
    task: &TaskRow,
    after: &mut Round,
    limits: SecureLimits,
    groups: &[(CollectShares, Vec<ParticipantId>)],
    collect_max: u32,
) -> Result<(), StepError> {
    // All groups have one size.
    let (phase, members) = groups.first().ok_or_else(|| StepError::unworkable("a cohort without anybody"))?;
    let survivors = u32::from(phase.params().min_survivors());
    after.limits.secure = Some(SecureLimits { threshold: u32::from(phase.params().threshold()), ..limits });
    let collect = &mut after.limits.collect;
    collect.min = collect.min.max(survivors);
    collect.max = collect_max.max(collect.min);
    if let Some(limits) = &mut after.limits.groups {
        let robust = RobustAggregation::new(&task.spec, 1)
            .ok()
            .flatten()
            .ok_or_else(|| StepError::unworkable("groups without a rule"))?;
        limits.count = u32::try_from(groups.len()).unwrap_or(u32::MAX);
        let cohort = limits.count.saturating_mul(u32::try_from(members.len()).unwrap_or(u32::MAX));
        (limits.needed, limits.collect_min) = (robust.groups_needed(cohort), survivors);
    }
    Ok(())
}

type OpenedSessions = Vec<(CollectShares, Vec<ParticipantId>)>;
/// The sessions and the excluded participants. An error without an abort means that a participant prevented a session.
type Tried = (Result<OpenedSessions, Option<Abort>>, Vec<ParticipantId>);

/// Makes rosters of the advertisements, validated on arrival, and opens a session, or one for each group. Participants refuse a roster with
/// a duplicate key, so a participant advertising another's key is excluded. It is also checked out, since a draw that becomes too small
/// would repeat. In that case no session opens, and the round waits.
async fn open_sessions(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    round: &Round,
    models: &Models,
    (mut keys, batch_of): (HashMap<ParticipantId, Bytes>, &HashMap<ParticipantId, Digest>),
    seed: [u8; 32],
    now: Timestamp,
) -> Result<Option<OpenedSessions>, CloseError> {
    let model = models.of(task).map_err(StepError::unworkable)?;
    let base = base::read(tx, task, round.base_version).await?;
    let base = base.ok_or_else(|| StepError::unworkable("the base model has no row"))?;
    let plan = plan_of_round(tx, &task.spec.training, round.key.round_key()).await?;
    let config = model.session_in(&task.spec, base.terms(), &plan);
    let config = config.ok_or_else(|| StepError::unworkable("a round with a session, of a task without"))?;
    let name = round_name(round.key);
    let begin = || CollectKeys::new(name.clone(), base.version.sha256.0, config.clone()).map_err(StepError::unworkable);
    let is_divided = round.limits.groups.is_some();
    let mut division = ChaCha20Rng::from_seed(seed);
    // Separate from the draw, and never from the task's own seed: groups must be unpredictable.
    division.set_stream(1);
    let mut out = Vec::new();
    let opened = loop {
        let rosters = divide(round, keys.keys().copied().collect(), batch_of, &mut division);
        let (opened, left_out) = open_each(&begin, rosters, &keys, now)?;
        keys.retain(|id, _| !left_out.contains(id));
        let torn = batches::torn(&keys.keys().copied().collect(), batch_of);
        keys.retain(|id, _| !torn.contains(id));
        let is_torn = is_divided && !left_out.is_empty();
        out.extend(left_out);
        let is_enough = is_enough(round, &model, keys.len());
        match opened {
            // Groups have one size: the remaining participants are divided anew.
            _ if is_torn && is_enough => {}
            Err(None) if !is_divided => {}
            Ok(opened) if out.is_empty() || (is_enough && !is_torn) => break Ok(Some(opened)),
            Err(Some(abort)) if out.is_empty() => break Err(abort),
            Err(Some(abort)) => {
                tracing::warn!(round = %round.key.round_key(), "no session can be opened without them: {abort}");
                break Ok(None);
            }
            Ok(_) | Err(None) => {
                tracing::warn!(round = %round.key.round_key(), "without them fewer are left than the round needs");
                break Ok(None);
            }
        }
    };
    tx.remove_check_ins(&out).await?;
    Ok(opened?)
}

/// Opens a session for each roster.
fn open_each(
    begin: &impl Fn() -> Result<CollectKeys, StepError>,
    rosters: Vec<Vec<ParticipantId>>,
    keys: &HashMap<ParticipantId, Bytes>,
    now: Timestamp,
) -> Result<Tried, StepError> {
    let (mut opened, mut left_out) = (Ok(Vec::new()), Vec::new());
    for mut members in rosters {
        let phase = begin()?;
        let mut admitted = Vec::with_capacity(members.len());
        members.retain(|id| match admit(&phase, &keys[id], now) {
            Ok(enrolled) => {
                admitted.push(enrolled);
                true
            }
            Err(problem) => {
                tracing::warn!(participant = %id, "its stored keys are unusable: {problem}");
                left_out.push(*id);
                false
            }
        });
        match (phase.close(admitted), &mut opened) {
            (Ok(phase), Ok(opened)) => opened.push((phase, members)),
            (Ok(_), Err(_)) => {}
            // A member with unusable keys made its batch incomplete: retry with the other batches.
            (Err(Abort::Config(InvalidConfig::Batch { .. })), _) if !left_out.is_empty() => opened = Err(None),
            (Err(abort), _) => match repeats(&abort, &members) {
                Some(id) => {
                    tracing::warn!(participant = %id, "it advertised another's key and is left out");
                    left_out.push(id);
                    opened = Err(None);
                }
                None => opened = Err(Some(abort)),
            },
        }
    }
    Ok((opened, left_out))
}

/// Whether this number of participants suffices: enough inputs, or enough groups for the task's rule.
fn is_enough(round: &Round, model: &TaskModel, participants: usize) -> bool {
    let participants = u32::try_from(participants).unwrap_or(u32::MAX);
    match (round.limits.groups, model.robust) {
        (Some(limits), Some(robust)) => {
            let cohort = participants - participants % limits.size.max(1);
            cohort >= robust.groups_needed(cohort).saturating_mul(limits.size)
        }
        _ => participants >= round.limits.collect.min,
    }
}

/// The rosters, each in the order of ids: one for all, or random groups. Members without a complete group are left over.
fn divide(
    round: &Round,
    mut cohort: Vec<ParticipantId>,
    batch_of: &HashMap<ParticipantId, Digest>,
    rng: &mut ChaCha20Rng,
) -> Vec<Vec<ParticipantId>> {
    cohort.sort_unstable();
    let Some(limits) = round.limits.groups else { return vec![cohort] };
    cohort.shuffle(rng);
    if !batch_of.is_empty() {
        return batches::groups(cohort, batch_of, limits.size.max(1) as usize);
    }
    let groups = cohort.chunks_exact(limits.size.max(1) as usize);
    groups
        .map(|group| {
            let mut group = group.to_vec();
            group.sort_unstable();
            group
        })
        .collect()
}

fn admit(phase: &CollectKeys, advertisement: &Bytes, now: Timestamp) -> Result<Admitted<Enrolled>, String> {
    let advertise = Advertise::decode(advertisement).map_err(|error| error.to_string())?;
    phase.admit(advertise, &StoredCertificates { now }).map_err(|error| error.to_string())
}

/// The participant to exclude, if any.
fn repeats(abort: &Abort, order: &[ParticipantId]) -> Option<ParticipantId> {
    let &Abort::RepeatedKey { second, .. } = abort else { return None };
    order.get(usize::from(second).checked_sub(1)?).copied()
}

fn assignment(round: &Round, participant: ParticipantId, group: Option<u32>, now: Timestamp) -> Assignment {
    Assignment {
        attempt: round.key,
        participant,
        state: AssignmentState::Assigned,
        state_since: now,
        detail: None,
        dropped_in: None,
        assigned_at: now,
        group,
    }
}

/// The gain of completed rounds, if the strategy needs it.
async fn history(tx: &mut Transaction<'_>, task: &TaskRow, round: &Round) -> Result<History, StepError> {
    let number = round.key.round;
    if !task.spec.selection.strategy.follows_the_loss() {
        return Ok(History { round: number, utilities: Vec::new() });
    }
    let rows = tx.rounds(task.id, Some(number), LOOK_BACK).await?;
    let completed = rows.iter().rev().filter(|row| row.round.state == RoundState::Completed);
    let losses = completed.filter_map(|row| row.metrics.iter().find(|metric| metric.name == TRAINING_LOSS));
    #[expect(clippy::cast_precision_loss, reason = "a weight")]
    let utilities = losses.map(|loss| loss.value.max(0.0) * loss.count as f64).collect();
    Ok(History { round: number, utilities })
}

fn select(
    spec: &TaskSpec,
    round: &Round,
    history: &History,
    candidates: &[Candidate],
    count: u32,
    fresh_seed: [u8; 32],
) -> Vec<ParticipantId> {
    let seed = spec.selection.seed.map_or(fresh_seed, |seed| draw_seed(seed, round.key));
    let rng = &mut ChaCha20Rng::from_seed(seed);
    cohort::selector(&spec.selection.strategy).select(candidates, history, count as usize, rng)
}

/// The participants in random order, repeatable with a seed of the task.
fn shuffled(spec: &TaskSpec, round: &Round, mut ids: Vec<ParticipantId>, fresh_seed: [u8; 32]) -> Vec<ParticipantId> {
    let seed = spec.selection.seed.map_or(fresh_seed, |seed| draw_seed(seed, round.key));
    ids.shuffle(&mut ChaCha20Rng::from_seed(seed));
    ids
}

/// The updates started first, so that none becomes too old; ties are broken at random. Participants drawn before without an upload come
/// last, or they could be drawn forever.
fn oldest(
    ahead: &TrainingStates,
    candidates: &[Candidate],
    count: u32,
    fresh_seed: [u8; 32],
    now: Timestamp,
) -> Vec<ParticipantId> {
    let mut updates: Vec<_> = candidates.iter().filter_map(|candidate| ahead.ready(candidate.participant)).collect();
    updates.shuffle(&mut ChaCha20Rng::from_seed(fresh_seed));
    updates.sort_by_key(|update| (ahead.was_drawn(update.participant, now), update.base_version));
    updates.into_iter().take(count as usize).map(|update| update.participant).collect()
}

/// A distinct draw for each round and attempt, the same in every process.
fn draw_seed(seed: u64, attempt: Attempt) -> [u8; 32] {
    let mut key = *b"----------------tributary cohort";
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..12].copy_from_slice(&attempt.round.to_le_bytes());
    key[12..16].copy_from_slice(&attempt.attempt.to_le_bytes());
    key
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn attempt(round: u32, attempt: u32) -> Attempt {
        Attempt { task: federation::id::TaskId(uuid::Uuid::from_u128(1)), round, attempt }
    }

    #[test]
    fn every_round_and_attempt_has_a_draw_of_its_own() {
        let seeds: HashSet<_> = (0..4)
            .flat_map(|seed| (0..4).flat_map(move |round| (0..4).map(move |n| draw_seed(seed, attempt(round, n)))))
            .collect();
        assert_eq!(seeds.len(), 64);
    }

    #[test]
    fn the_draw_of_a_seed_is_the_one_it_always_was() {
        assert_eq!(draw_seed(1, attempt(258, 3)), *b"\x01\0\0\0\0\0\0\0\x02\x01\0\0\x03\0\0\0tributary cohort");
    }
}
