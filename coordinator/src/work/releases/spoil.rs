//! Applies a deliberate fault ([`crate::faults`]) to a release or publication.

use std::sync::Arc;

use federation::model_version::ModelVersion;
use federation::round::{Round, RoundState};
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use learning::privacy::{DiscreteGaussian, Sigma};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use store::Transaction;

use super::noise::Noise;
use crate::faults::{Fault, present};
use crate::records::provenance::{self, Signer};
use crate::work::StepError;
use recipe::server::PrivateTask;

/// Number of participants whose noise is charged.
pub(in crate::work) fn counted(participants: u32, round: &Round) -> u32 {
    if present() == Some(Fault::DropoutsCounted) { round.cohort.max(participants) } else { participants }
}

/// The noise actually added.
pub(in crate::work) fn noise(noise: Noise, private: Option<&Arc<PrivateTask>>) -> Noise {
    let half = private.and_then(|private| Sigma::at_least(private.quantizer.codec.sigma().value() / 2.0).ok());
    match (present(), noise, half) {
        (Some(Fault::NoNoise), Noise::Central(..), _) => Noise::None,
        (Some(Fault::HalfNoise), Noise::Central(_, rng), Some(half)) => {
            Noise::Central(DiscreteGaussian::new(half), rng)
        }
        (Some(Fault::ReusedNoise), Noise::Central(noise, _), _) => {
            Noise::Central(noise, Box::new(ChaCha20Rng::from_seed([7; 32])))
        }
        (_, noise, _) => noise,
    }
}

/// Whether a process publishes after losing its lease.
pub(in crate::work) fn publishes_twice() -> bool {
    present() == Some(Fault::PublishTwice)
}

/// Publishes a version under the next free number without checking the round's state, so a round may publish twice.
pub(in crate::work) async fn publish_again(
    tx: &mut Transaction<'_>,
    signer: Signer<'_>,
    round: &Round,
    version: &ModelVersion,
    now: Timestamp,
) -> Result<Option<TaskStatus>, StepError> {
    let Some(task) = tx.task(round.key.task).await? else { return Ok(None) };
    let Some(row) = tx.round_attempt(round.key).await? else { return Ok(None) };
    let after = Round { state: RoundState::Completed, state_since: now, ..row.round.clone() };
    tx.transition_round(&row.round, &after).await?;
    let version = ModelVersion { version: task.model_version.saturating_add(1), ..version.clone() };
    provenance::publish(tx, signer, &task, &version, Some(round.key)).await?;
    tx.task_advanced(task.id, task.rounds_completed, version.version).await?;
    Ok(Some(task.status))
}
