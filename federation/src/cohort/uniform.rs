//! Every subset of the wanted size is equally likely.

use rand::Rng;
use rand::seq::SliceRandom as _;

use super::{Candidate, History, Selector};
use crate::id::ParticipantId;

/// Every subset of the wanted size is equally likely.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uniform;

impl Selector for Uniform {
    fn select(&self, candidates: &[Candidate], _: &History, count: usize, mut rng: &mut dyn Rng) -> Vec<ParticipantId> {
        let mut ids: Vec<_> = candidates.iter().map(|candidate| candidate.participant).collect();
        let (chosen, _) = ids.partial_shuffle(&mut rng, count);
        chosen.to_vec()
    }
}
