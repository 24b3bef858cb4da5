//! Draws the cohort of a round with enough eligible participants.

use std::collections::HashMap;

use bytes::Bytes;
use federation::cohort::{self, Candidate, History};
use federation::id::{Attempt, ParticipantId};
use federation::round::{Assignment, AssignmentState, Round, RoundState, SecureLimits};
use federation::round_trip;
use federation::time::Timestamp;
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha20Rng;
use secure_agg::codec::Message as _;
use secure_agg::messages::Advertise;
use secure_agg::rejection::Abort;
use secure_agg::server::{Admitted, CollectKeys, CollectShares, Enrolled, Phase};
use store::Transaction;
use store::entity::task::TaskRow;
use task_spec::{Draw, TRAINING_LOSS, TaskSpec};

use super::StepError;
use super::sample::sample_present;
use super::situation::{eligible, keyed};
use crate::ahead::TrainingStates;
use crate::base;
use crate::models::Models;
use crate::proximal::plan_of_round;
use crate::session::{CloseError, StoredCertificates, encode_all, round_name};
use recipe::TaskModel;
use recipe::server::RobustAggregation;

/// Rounds that a strategy learns from.
const LOOK_BACK: u32 = 4096;

/// Stores cohort, assignments and the next state, as a part of the caller's transaction. `fresh_seed` is used if the
/// task has no seed of its own. Returns the round as it is then and who was drawn, in the order of ids; nothing if somebody
/// else changed the round, or if somebody's keys are in the way, who is not checked in any more then.
///
/// # Errors
/// [`CloseError::Aborted`] if these participants can have no session at all.
pub(super) async fn draw_cohort(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    round: &Round,
    models: &Models,
    fresh_seed: [u8; 32],
    now: Timestamp,
) -> Result<Option<(Round, Vec<ParticipantId>)>, CloseError> {
    let mut after = round.clone();
    after.state_since = now;
    let (mut session, mut group_of) = (None, HashMap::new());
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
                // Whoever is drawn is told its deadline, which must not say who else is.
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
            let chosen = choose(&candidates, draw.cohort);
            let ids = candidates.iter().map(|candidate| candidate.participant);
            let keys: HashMap<_, _> = ids.zip(keys).filter(|(id, _)| chosen.contains(id)).collect();
            let opened = open_sessions(tx, task, round, models, keys, fresh_seed, now).await?;
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
    if let Some(ahead) = ahead {
        let updates: Vec<_> = cohort.iter().filter_map(|&participant| ahead.ready(participant)).collect();
        tx.insert_buffered(after.key, &updates).await?;
        tx.lapse_trainings(task.id, &cohort, now).await?;
    }
    tx.remove_check_ins(&cohort).await?;
    tx.forget_sampled(after.key).await?;
    Ok(Some((after, cohort)))
}

/// Everybody who is there of those sampled in advance; else as many as the task wants, and never more than the round has room
/// for: a private one's grid is laid for the cohort that its noise was planned for, however many check in at once.
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
    // Groups are all of one size.
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
/// The sessions; without an abort as error, somebody was in the way. And who cannot be in one.
type Tried = (Result<OpenedSessions, Option<Abort>>, Vec<ParticipantId>);

/// Makes rosters of the advertisements and opens a session, or one for each group. They were judged when they came. Nobody would
/// accept a roster with a key twice, so a participant that advertises another's is left out; and it is not checked in any
/// more, or a draw that it leaves too small would be made again and again. Nothing if that is so: the others are waited for.
async fn open_sessions(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    round: &Round,
    models: &Models,
    mut keys: HashMap<ParticipantId, Bytes>,
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
    // Apart from the draw, and never from the task's own seed: who shares a group is nobody's to foresee.
    division.set_stream(1);
    let mut out = Vec::new();
    let opened = loop {
        let rosters = divide(round, keys.keys().copied().collect(), &mut division);
        let (opened, left_out) = open_each(&begin, rosters, &keys, now)?;
        keys.retain(|id, _| !left_out.contains(id));
        let is_torn = is_divided && !left_out.is_empty();
        out.extend(left_out);
        let is_enough = is_enough(round, &model, keys.len());
        match opened {
            // Groups are of one size: the others are divided anew.
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

/// Whether a round can do with so many participants: inputs enough, or groups enough for the task's rule.
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

/// The rosters, each in the order of ids: everybody, or groups at random. Whoever makes no whole group is left over.
fn divide(round: &Round, mut cohort: Vec<ParticipantId>, rng: &mut ChaCha20Rng) -> Vec<Vec<ParticipantId>> {
    cohort.sort_unstable();
    let Some(limits) = round.limits.groups else { return vec![cohort] };
    cohort.shuffle(rng);
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

/// The participants to leave out.
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

/// What the completed rounds gained, where the strategy asks.
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

/// The updates that were begun first, so that none grows too old by waiting; among equals by chance. Whoever was drawn before
/// and sent nothing comes last, or a few who never send would be drawn for ever.
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

/// Another draw for each round and attempt, the same in every process.
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
