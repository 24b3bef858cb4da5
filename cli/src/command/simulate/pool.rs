//! The data of a simulation.

use std::path::PathBuf;
use std::sync::Arc;

use datasets::{Dataset, Partition, synthetic};
use simulation::{Data, PooledData, Synthetic};

use crate::data::{Source, mnist};
use crate::failure::{Exit, Failure, Outcome, of_data};

/// A source of data that any number of devices can be dealt from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum DataPool {
    /// The federated Synthetic(α, β) benchmark of Li et al. 2020, generated
    Synthetic,
    /// MNIST or anything in its IDX format, from --data-dir
    Mnist,
}

impl From<DataPool> for Source {
    fn from(pool: DataPool) -> Self {
        match pool {
            DataPool::Synthetic => Self::Synthetic,
            DataPool::Mnist => Self::Mnist,
        }
    }
}

/// Flags for the simulated data.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SimulatedData {
    /// What to train on
    #[arg(long, value_enum, default_value = "synthetic")]
    data: DataPool,
    /// Folder with the files of other data than those that come with the program, in MNIST's IDX format
    #[arg(long, env = "TRIBUTARY_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Mnist: how devices draw from the common images: iid, dirichlet:ALPHA or shards:K
    #[arg(long, default_value = "dirichlet:0.5")]
    partition: Partition,
    /// Mnist: examples of each device
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    examples: u32,
    /// Synthetic: how much the devices' models differ
    #[arg(long, default_value_t = 1.0)]
    alpha: f64,
    /// Synthetic: how much the devices' data differ
    #[arg(long, default_value_t = 1.0)]
    beta: f64,
}

/// Data in the hands of devices.
pub(super) struct DeviceData {
    pub(super) data: Arc<dyn Data>,
    pub(super) description: String,
    /// Training examples of the device that has most.
    pub(super) most_examples: usize,
    pub(super) source: Source,
    /// Something of the test data's kind and shape.
    pub(super) sample: Dataset,
}

impl SimulatedData {
    pub(super) fn source(&self) -> Source {
        self.data.into()
    }

    pub(super) fn deal(&self, population: u32, seed: u64) -> Outcome<DeviceData> {
        let data_failure = |error: simulation::SimulationError| Failure::new(Exit::Data, error);
        match self.data {
            DataPool::Synthetic => {
                let sample = Dataset::Labelled(synthetic::shard(0, self.alpha, self.beta, seed).map_err(of_data)?.1);
                let data = Synthetic::new(self.alpha, self.beta, seed, population).map_err(data_failure)?;
                Ok(DeviceData {
                    data: Arc::new(data),
                    description: format!("Synthetic({}, {})", self.alpha, self.beta),
                    most_examples: synthetic::MAX_EXAMPLES,
                    source: self.source(),
                    sample,
                })
            }
            DataPool::Mnist => {
                let (pool, test) = mnist(self.data_dir.as_deref(), seed)?;
                let description = format!("MNIST: {} of {} images each, {}", self.examples, pool.len(), self.partition);
                let sample = Dataset::Labelled(test.subset(&[0]));
                let examples = self.examples as usize;
                let data = PooledData::new(pool, test, self.partition, examples, seed).map_err(data_failure)?;
                Ok(DeviceData {
                    data: Arc::new(data),
                    description,
                    most_examples: examples,
                    source: self.source(),
                    sample,
                })
            }
        }
    }
}
