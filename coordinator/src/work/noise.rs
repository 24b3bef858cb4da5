//! The noise of one release, and its charge: ready before the sum is opened, so that nothing stands between the two.
//!
//! Noise that the coordinator adds comes from a seed that is stored sealed before it is used and forgotten with the
//! transaction that records the noised sum: a step that is repeated adds the same noise. The key it was sealed with is destroyed
//! after that, so nobody can take the noise off who finds the row in a log or a copy. The seed of noise that is correlated over
//! rounds, along a tree or a banded matrix, is needed until its task is over. Noise that has no seed is kept another way
//! ([`super::draw`]).

use std::sync::Arc;

use federation::id::RoundKey;
use federation::round::{Round, RoundState};
use learning::privacy::{BandedNoise, DiscreteGaussian, LedgerError, NoiseShares, OpenDpGaussian, TreeNoise};
use learning::{ExactSum, NoisedSum};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};
use zeroize::Zeroizing;

use super::lease::Lease;
use super::sums::blocking;
use super::{Environment, StepError};
use crate::ledger::{self, Charge, LedgerFault, NOISE_OF_A_BANDED_MATRIX, NOISE_OF_A_RELEASE, NOISE_OF_A_TREE};
use crate::private::Private;
use crate::seal::{NotOpened, Sealer};

/// What makes an exact sum one that may be released.
pub(super) enum Noise {
    /// Nothing: the task promises nothing.
    None,
    /// One draw for each word.
    Central(DiscreteGaussian, Box<ChaCha20Rng>),
    /// One draw for each word, by OpenDP.
    OpenDp(OpenDpGaussian),
    /// This release of a tree.
    Tree(TreeNoise, u32),
    /// The release at this place of a banded matrix.
    Banded(BandedNoise, u32),
    /// The participants have added it.
    ByParticipants(NoiseShares),
}

impl Noise {
    /// Adds it.
    ///
    /// # Errors
    /// Fewer participants than the noise counts on; what OpenDP says. The exact sum is gone then.
    pub(super) fn release(self, exact: ExactSum) -> Result<NoisedSum, StepError> {
        match self {
            Self::None => Ok(exact.release_without_noise()),
            Self::Central(noise, mut rng) => Ok(exact.add_central_noise(&noise, &mut *rng)),
            Self::OpenDp(noise) => exact.add_opendp_noise(noise).map_err(|error| unworkable(&error)),
            Self::Tree(tree, release) => Ok(exact.add_tree_noise(&tree, release)),
            Self::Banded(noise, place) => Ok(exact.add_banded_noise(&noise, place)),
            Self::ByParticipants(shares) => {
                exact.release_noised_by_participants(&shares).map_err(|error| unworkable(&error))
            }
        }
    }

    /// Whether another draw would be another noise, so that the first must be kept.
    pub(super) fn has_no_seed(&self) -> bool {
        match self {
            Self::OpenDp(_) => true,
            Self::None | Self::Central(..) | Self::Tree(..) | Self::Banded(..) | Self::ByParticipants(_) => false,
        }
    }
}

fn unworkable(error: &dyn std::fmt::Display) -> StepError {
    StepError::Unworkable(error.to_string())
}

/// Why there is neither noise nor charge.
pub(super) enum NoNoise {
    /// The budget has no room for the release.
    OverBudget(LedgerError),
    /// Another error of the step.
    Step(StepError),
}

impl From<StepError> for NoNoise {
    fn from(error: StepError) -> Self {
        Self::Step(error)
    }
}

impl From<StoreError> for NoNoise {
    fn from(error: StoreError) -> Self {
        Self::Step(error.into())
    }
}

/// Charges the release of `participants` updates and prepares its noise; the charge is to be stored with the noised sum.
pub(super) async fn prepare(
    env: &Environment,
    lease: &Lease,
    private: Option<&Arc<Private>>,
    task: &TaskRow,
    round: &Round,
    participants: u32,
) -> Result<(Noise, Option<Charge>), NoNoise> {
    let Some(private) = private else { return Ok((Noise::None, None)) };
    let (key, attempt, now) = (round.key, round.attempt, env.clock.now());
    let read = env.store.read("privacy ledger", |tx| Box::pin(ledger::read(tx, task, private, &env.sealer))).await;
    let mut ledger = read.map_err(|fault| match fault {
        LedgerFault::Store(error) => NoNoise::from(error),
        untrusted @ (LedgerFault::Ledger(_) | LedgerFault::End(_)) => {
            StepError::Unworkable(untrusted.to_string()).into()
        }
    })?;
    let release = private.release(&ledger, key.number, attempt, participants);
    let release = release.map_err(|error| StepError::Unworkable(error.to_string()))?;
    let sealer = Arc::clone(&env.sealer);
    // A release of another size is accounted for by the textbook, too, which takes a while.
    let charged = blocking(move || Ok(ledger::charge(&mut ledger, &sealer, key, release, true, now))).await?;
    let charge = match charged {
        Ok(charge) => charge,
        Err(error @ LedgerError::BudgetExceeded { .. }) => return Err(NoNoise::OverBudget(error)),
        Err(error) => return Err(StepError::Unworkable(error.to_string()).into()),
    };
    let (sigma, of_the_task) = (private.codec.sigma(), RoundKey { task: task.id, number: 0 });
    let noise = match (private.shares, release.tree_release, release.bands) {
        (Some(shares), ..) => Noise::ByParticipants(shares),
        (None, Some(index), _) => {
            let seed = seed(env, lease, round, of_the_task, 0, NOISE_OF_A_TREE).await?;
            Noise::Tree(TreeNoise::new(*seed, sigma), index)
        }
        (None, None, Some(bands)) => {
            let seed = seed(env, lease, round, of_the_task, 0, NOISE_OF_A_BANDED_MATRIX).await?;
            let noise = BandedNoise::new(*seed, sigma, bands.bands).map_err(|error| unworkable(&error))?;
            Noise::Banded(noise, bands.place)
        }
        (None, None, None) => match private.opendp().map_err(|error| unworkable(&error))? {
            Some(measurement) => Noise::OpenDp(measurement),
            None => {
                let seed = seed(env, lease, round, key, attempt, NOISE_OF_A_RELEASE).await?;
                Noise::Central(DiscreteGaussian::new(sigma), Box::new(ChaCha20Rng::from_seed(*seed)))
            }
        },
    };
    Ok((noise, Some(charge)))
}

/// A seed that is the same whenever this is asked again. It is asked for an attempt that has not released: once it has, the
/// seed is forgotten, and another one would noise the same sum a second time.
async fn seed(
    env: &Environment,
    lease: &Lease,
    round: &Round,
    key: RoundKey,
    attempt: u32,
    purpose: &'static str,
) -> Result<Zeroizing<[u8; 32]>, StepError> {
    let fresh = Zeroizing::new(env.random.bytes::<32>());
    let sealer = Arc::clone(&env.sealer);
    let sealed = &blocking(move || {
        let sealed = sealer.seal_for_release((key, attempt), &place(key, attempt, purpose), &*fresh);
        Ok(sealed.map_err(StoreError::from)?)
    })
    .await?;
    env.fail_point.reached("release_sum: before the seed")?;
    let stored = env
        .store
        .transact("noise seed", |tx| {
            Box::pin(async move {
                must_be_open(env, lease, round, tx).await?;
                Ok::<_, StepError>(tx.put_secret_if_absent(key, attempt, purpose, sealed).await?)
            })
        })
        .await?;
    env.fail_point.reached("release_sum: after the seed")?;
    let plain = opened(&env.sealer, key, attempt, purpose, &stored)?;
    let mut seed = Zeroizing::new([0; 32]);
    if plain.len() != seed.len() {
        return Err(StepError::Unworkable(format!("the seed of the noise of {key} has {} bytes", plain.len())));
    }
    seed.copy_from_slice(&plain);
    Ok(seed)
}

/// The attempt has not released, and this worker holds it.
pub(super) async fn must_be_open(
    env: &Environment,
    lease: &Lease,
    round: &Round,
    tx: &mut (dyn Transaction + '_),
) -> Result<(), StepError> {
    lease.confirm(tx, env.clock.now()).await?;
    let present = tx.round_attempt(round.key, round.attempt).await?;
    let is_open = present.is_some_and(|row| row.round.state == RoundState::Aggregating);
    if !is_open || tx.noised_sum(round.key, round.attempt).await?.is_some() {
        return Err(StepError::LeaseLost(format!("{} has been released, or has ended", round.key)));
    }
    Ok(())
}

/// Opens what was kept for a purpose. Without it the sum cannot get the noise that it may have got before.
pub(super) fn opened(
    sealer: &Sealer,
    key: RoundKey,
    attempt: u32,
    purpose: &str,
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, StepError> {
    let plain = sealer.open_for_release((key, attempt), &place(key, attempt, purpose), sealed);
    Ok(plain.map_err(|error| match error {
        NotOpened::Io(error) => StoreError::from(error),
        gone @ NotOpened::Gone => StoreError::Corrupt(format!("the {purpose} of {key}: {gone}")),
    })?)
}

/// What sealed noise is bound to.
pub(super) fn place(key: RoundKey, attempt: u32, purpose: &str) -> Vec<u8> {
    let mut place = b"noise seed ".to_vec();
    place.extend(key.task.0.as_bytes());
    place.extend(key.number.to_be_bytes());
    place.extend(attempt.to_be_bytes());
    place.extend(purpose.as_bytes());
    place
}
