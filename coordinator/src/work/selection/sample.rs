//! The draw behind the published figure of a private task: from all enrolled participants, present or not.
//!
//! If it improves the privacy figures ([`TaskSpec::sampling_amplifies`]), the draw takes place in the transaction that closes the
//! selection. Before that, failures cannot depend on it; after it, nothing that could fail depends on the number drawn. So there is one
//! draw for each charged release, and present participants are drawn exactly as often as the ledger assumes. Otherwise the draw takes place
//! when the round opens, to request keys from the drawn participants, without a privacy gain.
//!
//! [`TaskSpec::sampling_amplifies`]: task_spec::TaskSpec::sampling_amplifies

use federation::cohort::Candidate;
use federation::id::ParticipantId;
use learning::privacy::SamplingRate;
use rand::SeedableRng as _;
use rand::seq::{SliceRandom as _, index};
use rand_chacha::ChaCha20Rng;
use store::Transaction;
use store::entity::task::TaskRow;
use task_spec::Sampling;

pub(in crate::work) use crate::rounds::selection::eligible::population;
use crate::work::StepError;

/// Draws from all enrolled participants, if the task samples.
pub(in crate::work) async fn sample(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    seed: [u8; 32],
) -> Result<Option<Vec<ParticipantId>>, StepError> {
    let Some(sampling) = task.spec.privacy.sampling else { return Ok(None) };
    let wanted = task.spec.privacy.population.unwrap_or_default();
    let mut population = population(tx, task).await?;
    let enrolled = u32::try_from(population.len()).unwrap_or(u32::MAX);
    let mut rng = ChaCha20Rng::from_seed(seed);
    Ok(Some(match sampling {
        Sampling::Poisson(rate) => {
            let rate = SamplingRate::new(rate).map_err(StepError::unworkable)?;
            rate.draw(enrolled, &mut rng).into_iter().map(|index| population[index as usize]).collect()
        }
        // Participants not enrolled yet are drawn like all others, and are absent: members of a smaller population would be drawn more
        // often.
        Sampling::FixedSize(size) if task.spec.sampling_amplifies() => {
            let drawn = index::sample(&mut rng, wanted.max(size) as usize, size as usize);
            drawn.into_iter().filter_map(|index| population.get(index).copied()).collect()
        }
        Sampling::FixedSize(_) if enrolled < wanted => Vec::new(),
        Sampling::FixedSize(size) => population.partial_shuffle(&mut rng, size as usize).0.to_vec(),
    }))
}

/// Draws now, and returns the present participants among the drawn, however few; at most `most`, a bound exceeded with a probability below
/// 2^-40.
pub(super) async fn sample_present(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    mut present: Vec<Candidate>,
    most: u32,
    seed: [u8; 32],
) -> Result<Vec<Candidate>, StepError> {
    let mut drawn = sample(tx, task, seed).await?.unwrap_or_default();
    drawn.sort_unstable();
    present.retain(|candidate| drawn.binary_search(&candidate.participant).is_ok());
    present.truncate(most as usize);
    Ok(present)
}
