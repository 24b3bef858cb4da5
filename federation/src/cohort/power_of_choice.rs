//! Power-of-choice: among a random sample, the participants with the highest loss.

use rand::Rng;
use rand::seq::SliceRandom as _;
use task_spec::PowerOfChoice;

use super::{Candidate, CoarseLoss, History, Selector, weighted};
use crate::id::ParticipantId;

impl Selector for PowerOfChoice {
    fn select(&self, candidates: &[Candidate], _: &History, count: usize, mut rng: &mut dyn Rng) -> Vec<ParticipantId> {
        let mean = mean_examples(candidates);
        #[expect(clippy::cast_precision_loss, reason = "a weight")]
        let weight = |candidate: &Candidate| if candidate.examples > 0 { candidate.examples as f64 } else { mean };
        let weights: Vec<_> = candidates.iter().map(weight).collect();
        let first = weighted::sample(&weights, count.max(self.candidates as usize), rng);
        let mut first: Vec<_> = first.into_iter().map(|position| &candidates[position]).collect();
        // Ties in the loss are broken at random; the first draw favours participants with many examples.
        first.shuffle(&mut rng);
        first.sort_by_key(|candidate| (candidate.loss.is_some(), candidate.loss.map(highest_first)));
        first.iter().take(count).map(|candidate| candidate.participant).collect()
    }
}

/// Mean over the participants that report it; 1 if there are none.
#[expect(clippy::cast_precision_loss, reason = "a weight")]
fn mean_examples(candidates: &[Candidate]) -> f64 {
    let told = || candidates.iter().map(|candidate| candidate.examples).filter(|examples| *examples > 0);
    let sum = told().map(|examples| examples as f64).sum::<f64>();
    if sum > 0.0 { sum / told().count() as f64 } else { 1.0 }
}

fn highest_first(loss: CoarseLoss) -> std::cmp::Reverse<CoarseLoss> {
    std::cmp::Reverse(loss)
}
