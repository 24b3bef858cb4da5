//! Oort: prefers fast participants with data that still improve the model.

use rand::Rng;
use rand::seq::SliceRandom as _;
use task_spec::Oort;

use super::{Candidate, History, Selector, weighted};
use crate::id::ParticipantId;
use crate::quantile::quantile;

impl Selector for Oort {
    fn select(
        &self,
        candidates: &[Candidate],
        history: &History,
        count: usize,
        rng: &mut dyn Rng,
    ) -> Vec<ParticipantId> {
        let count = count.min(candidates.len());
        let preferred = preferred_duration(self, candidates, &history.utilities);
        let spent =
            |candidate: &&Candidate| self.blacklist_after > 0 && candidate.participations >= self.blacklist_after;
        let (spent, fresh): (Vec<_>, Vec<_>) = candidates.iter().partition(spent);
        let (known, unknown): (Vec<&Candidate>, Vec<_>) = fresh.into_iter().partition(|one| one.loss.is_some());
        let wanted = explorers(self, count, history.round);
        let (silent, untried): (Vec<_>, Vec<_>) = unknown.into_iter().partition(|one| one.participations > 0);
        // If one side has too few participants, the other takes its places.
        let exploring = wanted.max(count.saturating_sub(known.len())).min(untried.len());
        // Places left over by untried participants go to participants without a current loss, which would otherwise never report one again.
        let retrying = wanted.min(count).saturating_sub(exploring).min(silent.len());
        let exploiting = (count - exploring - retrying).min(known.len());
        let mut chosen = explore(self, &untried, preferred, exploring, rng);
        chosen.extend(exploit(self, &known, preferred, history.round, exploiting, rng));
        chosen.extend(explore(self, &silent, preferred, (count - chosen.len()).min(silent.len()), rng));
        chosen.extend(least_drawn(spent, count - chosen.len(), rng));
        chosen
    }
}

/// Number of places for new participants.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a part of a cohort"
)]
fn explorers(oort: &Oort, count: usize, round: u32) -> usize {
    let decayed = oort.exploration * oort.exploration_decay.powf(f64::from(round.saturating_sub(1)));
    (count as f64 * decayed.max(oort.exploration_min)).round() as usize
}

/// T in milliseconds; `None` if any duration is acceptable. The percentile follows from history alone: for each full window after the
/// first, it is relaxed if that window gained less than the one before.
fn preferred_duration(oort: &Oort, candidates: &[Candidate], utilities: &[f64]) -> Option<u64> {
    let windows: Vec<f64> =
        utilities.chunks_exact(oort.pacer_window.max(1) as usize).map(|window| window.iter().sum()).collect();
    let relaxed = windows.windows(2).filter(|pair| pair[1] < pair[0]).count();
    let relaxed = u32::try_from(relaxed).unwrap_or(u32::MAX);
    let percentile = oort.pacer_start.saturating_add(oort.pacer_step.saturating_mul(relaxed));
    let mut durations: Vec<_> = candidates.iter().filter_map(|candidate| candidate.duration_ms).collect();
    if percentile >= 100 || durations.is_empty() {
        return None;
    }
    durations.sort_unstable();
    Some(durations[(durations.len() - 1).min(durations.len() * percentile as usize / 100)])
}

/// (T/t)^α for a participant slower than T, otherwise 1.
#[expect(clippy::cast_precision_loss, reason = "a ratio of durations")]
fn speed(oort: &Oort, candidate: &Candidate, preferred: Option<u64>) -> f64 {
    match (candidate.duration_ms, preferred) {
        (Some(took), Some(preferred)) if took > preferred => (preferred as f64 / took as f64).powf(oort.alpha),
        _ => 1.0,
    }
}

/// Participants drawn before without reporting a loss are likely to fail again: the more often they were drawn, the
/// less they are tried.
fn explore(
    oort: &Oort,
    unknown: &[&Candidate],
    preferred: Option<u64>,
    count: usize,
    rng: &mut dyn Rng,
) -> Vec<ParticipantId> {
    let weight = |one: &&Candidate| speed(oort, one, preferred) / (1.0 + f64::from(one.participations));
    let weights: Vec<_> = unknown.iter().map(weight).collect();
    weighted::sample(&weights, count, rng).into_iter().map(|position| unknown[position].participant).collect()
}

fn exploit(
    oort: &Oort,
    known: &[&Candidate],
    preferred: Option<u64>,
    round: u32,
    count: usize,
    rng: &mut dyn Rng,
) -> Vec<ParticipantId> {
    if count == 0 {
        return Vec::new();
    }
    let utilities = utilities(oort, known, preferred, round);
    let mut order: Vec<_> = (0..known.len()).collect();
    order.sort_by(|&a, &b| utilities[b].total_cmp(&utilities[a]));
    let bar = oort.cutoff * utilities[order[count - 1]];
    order.retain(|&position| utilities[position] >= bar);
    let weights: Vec<_> = order.iter().map(|&position| utilities[position]).collect();
    weighted::sample(&weights, count, rng).into_iter().map(|drawn| known[order[drawn]].participant).collect()
}

/// The utility of each, at least 0.
fn utilities(oort: &Oort, known: &[&Candidate], preferred: Option<u64>, round: u32) -> Vec<f64> {
    let statistical: Vec<_> = known.iter().map(|one| statistical_utility(one)).collect();
    let mut sorted = statistical.clone();
    sorted.sort_by(f64::total_cmp);
    let top = quantile(&sorted, oort.clip_quantile).unwrap_or_default();
    let scale = if top > 0.0 { top } else { 1.0 };
    let now = f64::from(round.max(1));
    known
        .iter()
        .zip(statistical)
        .map(|(one, utility)| {
            let last = one.last.map_or(1.0, |(round, _)| f64::from(round.max(1)));
            // A long time ago: the known loss may be outdated.
            let stale = (0.1 * now.ln() / last).sqrt();
            (utility.min(top) / scale + stale) * speed(oort, one, preferred)
        })
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "a weight")]
fn statistical_utility(candidate: &Candidate) -> f64 {
    candidate.loss.map_or(0.0, |loss| candidate.examples.max(1) as f64 * loss.value())
}

/// Among participants drawn often, those drawn least; ties are broken at random.
fn least_drawn(mut spent: Vec<&Candidate>, count: usize, mut rng: &mut dyn Rng) -> Vec<ParticipantId> {
    spent.shuffle(&mut rng);
    spent.sort_by_key(|candidate| candidate.participations);
    spent.iter().take(count).map(|candidate| candidate.participant).collect()
}

#[cfg(test)]
mod tests;
