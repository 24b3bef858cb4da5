//! The draw that the published figure of a private task rests on: from everybody enrolled, whoever is there.
//!
//! Where it is worth something ([`TaskSpec::sampling_amplifies`]) it is made in the transaction that closes the selection: until
//! then there is none that a failure could depend on, and after it nothing that could fail looks at how many were drawn. So there
//! is one draw for each release that is charged, and participants who are there are in it exactly as often as the
//! ledger says. Elsewhere it is made when the round opens, because those who were drawn are asked for keys, and nothing is gained
//! from it.
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

use super::StepError;

/// Whom draws are made from, in the order of enrolment.
pub(super) async fn population(tx: &mut Transaction<'_>, task: &TaskRow) -> Result<Vec<ParticipantId>, StepError> {
    let wanted = task.spec.privacy.population.unwrap_or_default();
    Ok(tx.population(&task.spec.selection.require.labels, wanted).await?)
}

/// Draws from everybody enrolled, where the task samples.
pub(super) async fn sample(
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
        // Whoever is still to enrol is drawn like everybody else, and is not there: fewer to draw from would be drawn more often.
        Sampling::FixedSize(size) if task.spec.sampling_amplifies() => {
            let drawn = index::sample(&mut rng, wanted.max(size) as usize, size as usize);
            drawn.into_iter().filter_map(|index| population.get(index).copied()).collect()
        }
        Sampling::FixedSize(_) if enrolled < wanted => Vec::new(),
        Sampling::FixedSize(size) => population.partial_shuffle(&mut rng, size as usize).0.to_vec(),
    }))
}

/// Those who are there of a draw that is made now, however few; at most so many, which a draw exceeds with a probability below
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
