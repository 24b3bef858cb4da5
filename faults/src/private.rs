//! Private tasks, seen from outside: the releases of a round, and their charges.
//!
//! A coordinator's noise follows from a seed that it draws. All draws of coordinators are recorded here ([`Draws`]),
//! and updates are unmasked, so the exact sum is known. A release must be that sum with the noise of one drawn seed
//! that other releases did not use.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use federation::id::{Attempt, Digest};
use learning::privacy::{DiscreteGaussian, Ledger, LedgerRow, Release, SealedRow};
use learning::{ExactSum, NoisedSum};
use rand::{Rng, SeedableRng as _, TryRng};
use rand_chacha::ChaCha20Rng;
use recipe::TaskModel;
use recipe::server::PrivateTask;
use secure_agg::packing::unpack;
use task_spec::TaskSpec;

use super::outcome::{Broken, Check};

type Seed = [u8; 32];

/// Every seed that coordinators drew.
#[derive(Clone, Default)]
pub(super) struct Draws(Arc<Mutex<BTreeSet<Seed>>>);

impl Draws {
    /// A generator whose draws are noted.
    pub(super) fn noting<R: Rng>(&self, rng: R) -> impl Rng + use<R> {
        Noting { rng, draws: self.clone() }
    }

    fn drawn(&self) -> Vec<Seed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

struct Noting<R> {
    rng: R,
    draws: Draws,
}

impl<R: Rng> TryRng for Noting<R> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.rng.next_u32())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.rng.next_u64())
    }

    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), Infallible> {
        self.rng.fill_bytes(to);
        if let Ok(seed) = Seed::try_from(&*to) {
            self.draws.0.lock().unwrap_or_else(PoisonError::into_inner).insert(seed);
        }
        Ok(())
    }
}

/// A sum that was released.
pub(super) struct Released {
    /// The sum with its noise, as a [`NoisedSum`] is stored.
    pub(super) file: Bytes,
    /// The inputs that were admitted to its round.
    pub(super) inputs: Vec<Digest>,
}

/// Outside knowledge of a private task.
pub(super) struct PrivateSums {
    model: TaskModel,
    task: Arc<PrivateTask>,
    /// Charged for the real releases, under a seal of its own.
    ledger: Ledger,
    draws: Draws,
    used: BTreeSet<Seed>,
    /// Masked inputs as devices sent them, by their SHA-256.
    uploads: BTreeMap<Digest, Bytes>,
}

impl PrivateSums {
    /// For a task as its coordinator completed it; `None` if it is not private.
    pub(super) fn of(spec: &TaskSpec, draws: Draws) -> Option<Self> {
        let model = TaskModel::new(spec).ok()?;
        let task = model.private.clone()?;
        let ledger = Ledger::open(task.mechanism(), task.budget()?, Vec::new(), &unsealed).ok()?;
        Some(Self { model, task, ledger, draws, used: BTreeSet::new(), uploads: BTreeMap::new() })
    }

    /// A device sends this.
    pub(super) fn sent(&mut self, digest: Digest, body: &Bytes) {
        self.uploads.insert(digest, body.clone());
    }

    /// The ledger has a further row, for an attempt that released a sum or ended without one.
    pub(super) fn charged(&mut self, attempt: Attempt, row: &str, released: Option<&Released>) -> Result<(), Broken> {
        let wrong = |what: String| (Check::Ledger, format!("the charge for {attempt:?}: {what}"));
        let stored: SealedRow = serde_json::from_str(row).map_err(|error| wrong(error.to_string()))?;
        let release = self.release(attempt, released).map_err(&wrong)?;
        let expected = self.ledger.charge(release, &unsealed).map_err(|error| wrong(error.to_string()))?;
        if stored.row != expected.row {
            return Err(wrong(differs(&stored.row, &expected.row)));
        }
        released.map_or(Ok(()), |released| self.check_sum(attempt, released))
    }

    /// The release that the accountant is to charge.
    fn release(&self, attempt: Attempt, released: Option<&Released>) -> Result<Release, String> {
        let Attempt { round, attempt, .. } = attempt;
        let release = match released {
            Some(Released { inputs, .. }) => {
                let participants = u32::try_from(inputs.len()).unwrap_or(u32::MAX);
                self.task.release(&self.ledger, round, attempt, participants)
            }
            // It may have been opened: it costs the planned amount.
            None => self.task.planned(&self.ledger, round, attempt),
        };
        release.map_err(|error| error.to_string())
    }

    fn check_sum(&mut self, attempt: Attempt, released: &Released) -> Result<(), Broken> {
        let wrong = |what: String| (Check::Sums, format!("the released sum of {attempt:?}: {what}"));
        let stored = NoisedSum::from_bytes(&released.file).map_err(|error| wrong(error.to_string()))?;
        let bits = self.model.modulus.bits();
        let mut words = vec![0_u32; self.model.codec.len()];
        for input in &released.inputs {
            let body = self.uploads.get(input).ok_or_else(|| wrong(format!("nobody sent its input {input}")))?;
            let update = unpack(body, words.len(), self.model.modulus).map_err(|error| wrong(error.to_string()))?;
            for (sum, word) in words.iter_mut().zip(update) {
                *sum = sum.wrapping_add(word) & (u32::MAX >> (32 - u32::from(bits)));
            }
        }
        let noise = DiscreteGaussian::new(self.task.quantizer.codec.sigma());
        let unused: Vec<_> = self.draws.drawn().into_iter().filter(|seed| !self.used.contains(seed)).collect();
        for seed in unused {
            let exact = match u32::try_from(released.inputs.len()).unwrap_or(u32::MAX) {
                0 => ExactSum::of_nobody(words.len(), bits),
                participants => ExactSum::new(words.clone(), bits, participants),
            };
            let exact = exact.map_err(|error| wrong(error.to_string()))?;
            if exact.add_central_noise(&noise, &mut ChaCha20Rng::from_seed(seed)).to_bytes() == stored.to_bytes() {
                self.used.insert(seed);
                return Ok(());
            }
        }
        Err(wrong("it is not the exact sum with the noise of a seed that was drawn for it alone".to_owned()))
    }
}

fn differs(stored: &LedgerRow, expected: &LedgerRow) -> String {
    format!("{stored:?} is stored; for what happened the accountant says {expected:?}")
}

fn unsealed(_: &[u8]) -> [u8; 32] {
    [0; 32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_as_a_seed_is_noted_and_drawn_as_without_notes() {
        let draws = Draws::default();
        let (mut noting, mut plain) = (draws.noting(ChaCha20Rng::from_seed([1; 32])), ChaCha20Rng::from_seed([1; 32]));
        let (mut seed, mut same, mut short) = ([0; 32], [0; 32], [0; 16]);
        for _ in 0..2 {
            noting.fill_bytes(&mut seed);
            plain.fill_bytes(&mut same);
            assert_eq!(seed, same);
        }
        noting.fill_bytes(&mut short);
        assert_eq!(draws.drawn().len(), 2);
        assert!(draws.drawn().contains(&seed));
    }
}
