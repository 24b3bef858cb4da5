//! The noise of one release, and its charge: prepared before the sum is unmasked, with no step in between.
//!
//! The coordinator's noise comes from a seed, stored sealed before its use and deleted with the transaction that records the noised sum: a
//! repeated step adds the same noise. The seed's sealing key is destroyed afterwards, so a row in a log or a copy does not reveal the
//! noise. Noise correlated over rounds, along a tree or a banded matrix, has a seed for each place, drawn when first needed: a restored
//! backup lacks the seeds of later places, and releases there again with other noise. These seeds are needed until the task ends. Noise
//! without a seed is handled differently ([`super::draw`]).

use std::sync::Arc;

use federation::id::Attempt;
use federation::round::{Round, RoundState};
use learning::privacy::{
    BandedNoise, DiscreteGaussian, LedgerError, NoiseShares, OpenDpGaussian, PlaceSeeds, TreeNoise,
};
use learning::{ExactSum, NoisedSum};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};
use zeroize::Zeroizing;

use super::release::ReleaseError;
use crate::privacy::ledger::{
    self, Charge, NOISE_OF_A_BANDED_MATRIX, NOISE_OF_A_RELEASE, NOISE_OF_A_TREE, noise_of_a_place,
};
use crate::privacy::release_keys::of_the_task;
use crate::privacy::seal::Sealer;
use crate::work::engine::lease::Lease;
use crate::work::keep_ledger::read_ledger;
use crate::work::summing::sums::blocking;
use crate::work::{Environment, StepError};
use recipe::server::PrivateTask;

/// The noise required to release an exact sum.
pub(in crate::work) enum Noise {
    /// None: the task is not private.
    None,
    /// Independent noise for each word.
    Central(DiscreteGaussian, Box<ChaCha20Rng>),
    /// Independent noise for each word, drawn by OpenDP.
    OpenDp(OpenDpGaussian),
    /// This release's noise along a tree.
    Tree(TreeNoise),
    /// This release's noise along a banded matrix.
    Banded(BandedNoise),
    /// Added by the participants.
    ByParticipants(NoiseShares),
}

impl Noise {
    /// Adds the noise to a sum, or to its next slice.
    ///
    /// # Errors
    /// Fewer participants than the noise requires, or an error of OpenDP. The exact sum is dropped.
    pub(super) fn release(&mut self, exact: ExactSum) -> Result<NoisedSum, StepError> {
        match self {
            Self::None => Ok(exact.release_without_noise()),
            Self::Central(noise, rng) => Ok(exact.add_central_noise(noise, &mut **rng)),
            Self::OpenDp(noise) => exact.add_opendp_noise(*noise).map_err(StepError::unworkable),
            Self::Tree(noise) => Ok(exact.add_tree_noise(noise)),
            Self::Banded(noise) => Ok(exact.add_banded_noise(noise)),
            Self::ByParticipants(shares) => exact.release_noised_by_participants(shares).map_err(StepError::unworkable),
        }
    }

    /// Whether a second draw would differ, so that the first must be stored.
    pub(super) fn has_no_seed(&self) -> bool {
        match self {
            Self::OpenDp(_) => true,
            Self::None | Self::Central(..) | Self::Tree(..) | Self::Banded(..) | Self::ByParticipants(_) => false,
        }
    }
}

/// Charges the release of `participants` updates and prepares its noise; the charge must be stored with the noised sum.
pub(super) async fn prepare(
    env: &Environment,
    lease: &Lease,
    private: Option<&Arc<PrivateTask>>,
    task: &TaskRow,
    round: &Round,
    participants: u32,
) -> Result<(Noise, Option<Charge>), ReleaseError> {
    let Some(private) = private else { return Ok((Noise::None, None)) };
    let (attempt, now) = (round.key, env.clock.now());
    let mut ledger = read_ledger(env, task, private).await?;
    let release = private.release(&ledger, attempt.round, attempt.attempt, participants);
    let release = release.map_err(StepError::unworkable)?;
    let sealer = Arc::clone(&env.sealer);
    // Accounting for a release of another size also runs the textbook accountant, which takes a while.
    let charge = move || match ledger::charge(&mut ledger, &sealer, attempt, release, true, now) {
        Ok(charge) => Ok(charge),
        Err(error @ LedgerError::BudgetExceeded { .. }) => Err(ReleaseError::OverBudget(error)),
        Err(error) => Err(StepError::unworkable(error).into()),
    };
    let charge = blocking(charge).await?;
    let sigma = private.quantizer.codec.sigma();
    let noise = match (private.quantizer.shares, release.tree_release, release.bands) {
        (Some(shares), ..) => Noise::ByParticipants(shares),
        (None, Some(index), _) => {
            let seeds = place_seeds(env, lease, round, NOISE_OF_A_TREE, index).await?;
            Noise::Tree(TreeNoise::new(seeds, sigma))
        }
        (None, None, Some(bands)) => {
            let seeds = place_seeds(env, lease, round, NOISE_OF_A_BANDED_MATRIX, bands.place).await?;
            Noise::Banded(BandedNoise::new(seeds, sigma, bands.bands).map_err(StepError::unworkable)?)
        }
        (None, None, None) => match private.opendp().map_err(StepError::unworkable)? {
            Some(measurement) => Noise::OpenDp(measurement),
            None => {
                let seed = release_seed(env, lease, round).await?;
                Noise::Central(DiscreteGaussian::new(sigma), Box::new(ChaCha20Rng::from_seed(*seed)))
            }
        },
    };
    Ok((noise, Some(charge)))
}

/// The seed of an attempt's noise, the same on every call. Only for unreleased attempts: a release deletes the seed, and a new one would
/// noise the same sum a second time.
async fn release_seed(env: &Environment, lease: &Lease, round: &Round) -> Result<Zeroizing<[u8; 32]>, StepError> {
    let of = round.key;
    let seeds = seeds(env, lease, round, of, vec![NOISE_OF_A_RELEASE.to_owned()]).await?;
    seeds.into_iter().next().ok_or_else(|| StepError::unworkable("the seed of the noise is stored and is not"))
}

/// The seeds of a task's correlated noise for all places up to `last`, the same on every call. Places without a release have one too: later
/// noise includes theirs.
async fn place_seeds(
    env: &Environment,
    lease: &Lease,
    round: &Round,
    correlated: &'static str,
    last: u32,
) -> Result<PlaceSeeds, StepError> {
    let attempt = of_the_task(round.key.task);
    let is_one =
        env.store.read("noise seed", |tx| Box::pin(async move { tx.secret(attempt, correlated).await })).await?;
    if is_one.is_some() {
        let why = format!("task {} has one seed of all its noise, which goes with no other: cancel it", attempt.task);
        return Err(StepError::unworkable(why));
    }
    let purposes = (1..=last).map(|place| noise_of_a_place(correlated, place)).collect();
    let seeds = PlaceSeeds::new(seeds(env, lease, round, attempt, purposes).await?);
    seeds.ok_or_else(|| StepError::unworkable("places of releases are counted from 1"))
}

/// The stored seeds of these purposes, in order. Missing seeds are drawn and stored first, sealed.
async fn seeds(
    env: &Environment,
    lease: &Lease,
    round: &Round,
    attempt: Attempt,
    purposes: Vec<String>,
) -> Result<Vec<Zeroizing<[u8; 32]>>, StepError> {
    let names = &purposes;
    let known = env.store.read("noise seeds", |tx| {
        Box::pin(async move {
            let mut known = Vec::new();
            for purpose in names {
                known.push(tx.secret(attempt, purpose).await?);
            }
            Ok::<_, StoreError>(known)
        })
    });
    let (known, sealer, random) = (known.await?, Arc::clone(&env.sealer), env.random.clone());
    let sealed = blocking(move || {
        let mut sealed = Vec::new();
        for (purpose, known) in purposes.into_iter().zip(known) {
            let seed = match known {
                Some(seed) => seed,
                None => {
                    let fresh = Zeroizing::new(random.bytes::<32>());
                    #[cfg(feature = "deliberate-faults")]
                    let fresh = recipe::repeatable_noise::seed(attempt.round, attempt.attempt, &purpose)
                        .map_or(fresh, Zeroizing::new);
                    let place = place(attempt, &purpose);
                    sealer.seal_for_release(attempt, &place, &*fresh)?
                }
            };
            sealed.push((purpose, seed));
        }
        Ok::<_, StepError>(sealed)
    })
    .await?;
    env.fail_point.reached("release_sum: before the seed")?;
    let fresh = &sealed;
    let stored = env.store.transact("noise seeds", |tx| {
        Box::pin(async move {
            must_be_open(env, lease, round, tx).await?;
            let mut stored = Vec::new();
            for (purpose, seed) in fresh {
                // Another worker may have stored it first.
                stored.push((purpose.clone(), tx.put_secret_if_absent(attempt, purpose, seed).await?));
            }
            Ok::<_, StepError>(stored)
        })
    });
    let (stored, sealer) = (stored.await?, Arc::clone(&env.sealer));
    env.fail_point.reached("release_sum: after the seed")?;
    blocking(move || stored.iter().map(|(purpose, seed)| open_seed(&sealer, attempt, purpose, seed)).collect()).await
}

fn open_seed(
    sealer: &Sealer,
    attempt: Attempt,
    purpose: &str,
    sealed: &[u8],
) -> Result<Zeroizing<[u8; 32]>, StepError> {
    let plain = opened(sealer, attempt, purpose, sealed)?;
    let mut seed = Zeroizing::new([0; 32]);
    if plain.len() != seed.len() {
        return Err(StepError::unworkable(format!(
            "the seed of the noise of {} has {} bytes",
            attempt.round_key(),
            plain.len()
        )));
    }
    seed.copy_from_slice(&plain);
    Ok(seed)
}

/// Checks that the attempt has not released, and that this worker holds it.
pub(super) async fn must_be_open(
    env: &Environment,
    lease: &Lease,
    round: &Round,
    tx: &mut Transaction<'_>,
) -> Result<(), StepError> {
    lease.confirm(tx, &*env.clock).await?;
    let present = tx.round_attempt(round.key).await?;
    let is_open = present.is_some_and(|row| row.round.state == RoundState::Aggregating);
    if !is_open || tx.noised_sum(round.key).await?.is_some() {
        return Err(StepError::LeaseLost(format!("{} has been released, or has ended", round.key.round_key())));
    }
    Ok(())
}

/// Opens the stored seed of a purpose, required to add the same noise again.
pub(super) fn opened(
    sealer: &Sealer,
    attempt: Attempt,
    purpose: &str,
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, StepError> {
    let plain = sealer.open_for_release(attempt, &place(attempt, purpose), sealed);
    Ok(plain.map_err(|error| error.of(format!("the {purpose} of {}", attempt.round_key())))?)
}

/// The context for sealing noise.
pub(super) fn place(attempt: Attempt, purpose: &str) -> Vec<u8> {
    let mut place = b"noise seed ".to_vec();
    place.extend(attempt.task.0.as_bytes());
    place.extend(attempt.round.to_be_bytes());
    place.extend(attempt.attempt.to_be_bytes());
    place.extend(purpose.as_bytes());
    place
}

#[cfg(test)]
mod tests {
    use federation::id::TaskId;

    use super::*;

    #[test]
    fn sealed_noise_is_bound_to_the_place_it_always_was() {
        let task = TaskId("00112233-4455-6677-8899-aabbccddeeff".parse().unwrap());
        let place = place(Attempt { task, round: 258, attempt: 3 }, "noise");
        let known =
            b"noise seed \x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff\0\0\x01\x02\0\0\0\x03noise";
        assert_eq!(place, known);
    }
}
