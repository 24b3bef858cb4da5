//! Training data. A device's examples are a function of the seed and its number, so ten thousand devices take memory
//! only while they train.

use std::sync::Arc;

use client_sdk::Dataset;
use datasets::{Labelled, Partition, synthetic};
use rand_chacha::ChaCha20Rng;
use rand_distr::{Distribution as _, Gamma};
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};

use crate::SimulationError;
use crate::chance::{Purpose, stream, uniform};

/// Maximum number of synthetic devices whose examples stay in memory; with more, examples are generated for each
/// training.
const RESIDENT: u32 = 2000;
/// Number of devices whose held-out examples form the test set of synthetic data.
const TESTERS: u32 = 100;

/// The examples of all devices.
pub trait Data: Send + Sync {
    /// Number of a device's training examples.
    fn examples(&self, device: u32) -> u64;

    /// A device's training examples.
    fn shard(&self, device: u32) -> Arc<Dataset>;

    /// The held-out test set.
    fn test(&self) -> Arc<Dataset>;
}

/// Synthetic(α, β), see [`datasets::synthetic`]: each device has a distribution of its own.
pub struct Synthetic {
    alpha: f64,
    beta: f64,
    seed: u64,
    sizes: Vec<u64>,
    resident: Vec<Arc<Dataset>>,
    test: Arc<Dataset>,
}

impl Synthetic {
    /// Data for this number of devices. The test set is what the first hundred hold out.
    ///
    /// # Errors
    /// [`SimulationError::Data`] for an α or β that cannot be.
    pub fn new(alpha: f64, beta: f64, seed: u64, devices: u32) -> Result<Self, SimulationError> {
        let generate = |device: u32| synthetic::shard(device as usize, alpha, beta, seed).map_err(failed);
        let dealt: Vec<_> = (0..devices)
            .into_par_iter()
            .map(|device| {
                let (own, test) = generate(device)?;
                let size = own.len() as u64;
                let kept = (devices <= RESIDENT).then(|| Arc::new(labelled(own)));
                Ok((size, kept, (device < TESTERS).then_some(test)))
            })
            .collect::<Result<_, SimulationError>>()?;
        let sizes = dealt.iter().map(|(size, ..)| *size).collect();
        let resident = dealt.iter().filter_map(|(_, kept, _)| kept.clone()).collect();
        let tests: Vec<_> = dealt.into_iter().filter_map(|(.., test)| test).collect();
        let test = Arc::new(labelled(Labelled::concat(&tests).map_err(failed)?));
        Ok(Self { alpha, beta, seed, sizes, resident, test })
    }
}

impl Data for Synthetic {
    fn examples(&self, device: u32) -> u64 {
        self.sizes.get(device as usize).copied().unwrap_or_default()
    }

    fn shard(&self, device: u32) -> Arc<Dataset> {
        match self.resident.get(device as usize) {
            Some(shard) => Arc::clone(shard),
            // The same arguments were checked before.
            None => match synthetic::shard(device as usize, self.alpha, self.beta, self.seed) {
                Ok((own, _)) => Arc::new(labelled(own)),
                Err(error) => unreachable!("{error}"),
            },
        }
    }

    fn test(&self) -> Arc<Dataset> {
        Arc::clone(&self.test)
    }
}

/// Labelled examples in a common pool from which devices draw: several devices may have the same example, so their
/// number is not limited by the data set.
pub struct PooledData {
    pool: Labelled,
    by_class: Vec<Vec<usize>>,
    partition: Partition,
    examples: usize,
    seed: u64,
    test: Arc<Dataset>,
}

impl PooledData {
    /// Every device draws `examples` from `pool`: evenly (`iid`), of classes in proportions from a Dirichlet distribution
    /// (`dirichlet:ALPHA`), or of so many classes alone (`shards:K`).
    ///
    /// # Errors
    /// [`SimulationError::Data`] without examples.
    pub fn new(
        pool: Labelled,
        test: Labelled,
        partition: Partition,
        examples: usize,
        seed: u64,
    ) -> Result<Self, SimulationError> {
        if pool.is_empty() || test.is_empty() || examples == 0 {
            return Err(SimulationError::Data("there are no examples to draw from, or none to be drawn".to_owned()));
        }
        let mut by_class = vec![Vec::new(); pool.classes];
        for (index, label) in pool.labels.iter().enumerate() {
            if let Some(class) = by_class.get_mut(*label as usize) {
                class.push(index);
            }
        }
        by_class.retain(|class| !class.is_empty());
        Ok(Self { pool, by_class, partition, examples, seed, test: Arc::new(labelled(test)) })
    }

    /// Relative frequency of each class for a device.
    fn weights(&self, rng: &mut ChaCha20Rng) -> Vec<f64> {
        let classes = self.by_class.len();
        match self.partition {
            Partition::Iid => self.by_class.iter().map(|class| class.len() as f64).collect(),
            Partition::Dirichlet { alpha } => match Gamma::new(alpha, 1.0) {
                // Of a tiny concentration every draw may be zero; then one class has all.
                Ok(gamma) => (0..classes).map(|_| gamma.sample(rng) + f64::MIN_POSITIVE).collect(),
                Err(_) => vec![1.0; classes],
            },
            Partition::Shards { per_participant } => {
                let mut weights = vec![0.0; classes];
                for _ in 0..per_participant {
                    weights[below(classes, rng)] += 1.0;
                }
                weights
            }
        }
    }
}

impl Data for PooledData {
    fn examples(&self, _: u32) -> u64 {
        self.examples as u64
    }

    fn shard(&self, device: u32) -> Arc<Dataset> {
        let rng = &mut stream(self.seed, Purpose::Data, device.into(), 0);
        let weights = self.weights(rng);
        let total: f64 = weights.iter().sum();
        let chosen: Vec<_> = (0..self.examples)
            .map(|_| {
                let mut left = uniform(rng) * total;
                let class = weights.iter().position(|weight| {
                    left -= weight;
                    left < 0.0
                });
                let class = &self.by_class[class.unwrap_or(weights.len() - 1)];
                class[below(class.len(), rng)]
            })
            .collect();
        Arc::new(labelled(self.pool.subset(&chosen)))
    }

    fn test(&self) -> Arc<Dataset> {
        Arc::clone(&self.test)
    }
}

/// Uniform below `count`, which is not zero.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the product is below `count`")]
fn below(count: usize, rng: &mut ChaCha20Rng) -> usize {
    ((uniform(rng) * count as f64) as usize).min(count - 1)
}

fn labelled(data: Labelled) -> Dataset {
    Dataset::Labelled { features: data.features, labels: data.labels, width: data.width }
}

fn failed(error: impl std::fmt::Display) -> SimulationError {
    SimulationError::Data(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Labelled {
        Labelled {
            features: (0..400_u16).map(f32::from).collect(),
            labels: (0..400).map(|i| i % 10).collect(),
            width: 1,
            classes: 10,
        }
    }

    fn labels(partition: Partition, device: u32) -> Vec<u32> {
        let data = PooledData::new(pool(), pool(), partition, 60, 5).unwrap();
        let Dataset::Labelled { labels, .. } = &*data.shard(device) else { panic!("labelled") };
        assert_eq!((labels.len() as u64, &*data.shard(device)), (data.examples(device), &*data.shard(device)));
        labels.clone()
    }

    #[test]
    fn devices_draw_as_the_partition_says() {
        let classes = |labels: Vec<u32>| labels.into_iter().collect::<std::collections::BTreeSet<_>>().len();
        for device in 0..20 {
            assert!(classes(labels(Partition::Iid, device)) >= 8);
            assert!(classes(labels(Partition::Shards { per_participant: 2 }, device)) <= 2);
            assert!(classes(labels(Partition::Dirichlet { alpha: 0.05 }, device)) <= 6);
        }
        assert_ne!(labels(Partition::Iid, 0), labels(Partition::Iid, 1));
    }

    #[test]
    fn synthetic_devices_have_the_same_examples_whether_they_are_kept_or_made_again() {
        let mut data = Synthetic::new(1.0, 1.0, 3, 5).unwrap();
        let kept = data.shard(4);
        data.resident.clear();
        assert_eq!(kept, data.shard(4));
        let Dataset::Labelled { labels, .. } = &*kept else { panic!("labelled") };
        assert_eq!(labels.len() as u64, data.examples(4));
    }
}
