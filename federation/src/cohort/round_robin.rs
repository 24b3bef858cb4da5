//! Without replacement: whoever waited longest comes first.

use rand::Rng;
use rand::seq::SliceRandom as _;

use super::{Candidate, History, Selector};
use crate::id::ParticipantId;

/// Those that were never drawn come first, then those whose last round is longest ago, of the same round those drawn less
/// often; chance decides between equals. While the same participants stay checked in, everybody is drawn once per cycle.
/// Counting from the last round and not by the number of participations keeps a newcomer from being drawn again and again
/// until it has caught up. Who is drawn together in the first cycle tends to meet again in the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin;

impl Selector for RoundRobin {
    fn select(&self, candidates: &[Candidate], _: &History, count: usize, mut rng: &mut dyn Rng) -> Vec<ParticipantId> {
        let mut order: Vec<_> = candidates.iter().collect();
        order.shuffle(&mut rng);
        // A stable sort: the shuffled order stays among those of the same round.
        order.sort_by_key(|candidate| (candidate.last.map(|(round, _)| round), candidate.participations));
        order.iter().take(count).map(|candidate| candidate.participant).collect()
    }
}
