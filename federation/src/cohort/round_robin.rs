//! Sampling without replacement: the participants with the longest wait come first.

use rand::Rng;
use rand::seq::SliceRandom as _;

use super::{Candidate, History, Selector};
use crate::id::ParticipantId;

/// New participants come first, then those with the oldest last round, then those drawn least; ties are broken at random. While the same
/// participants stay checked in, each is drawn once per cycle. Ordering by last round instead of by number of participations keeps a
/// newcomer from being drawn repeatedly until it has caught up. Participants drawn together in the first cycle tend to meet again in the
/// next.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin;

impl Selector for RoundRobin {
    fn select(&self, candidates: &[Candidate], _: &History, count: usize, mut rng: &mut dyn Rng) -> Vec<ParticipantId> {
        let mut order: Vec<_> = candidates.iter().collect();
        order.shuffle(&mut rng);
        // The sort is stable: ties keep the shuffled order.
        order.sort_by_key(|candidate| (candidate.last.map(|(round, _)| round), candidate.participations));
        order.iter().take(count).map(|candidate| candidate.participant).collect()
    }
}
