//! Local solvers on heterogeneous data: the experiment of FedProx (Li et al. 2020, §5.2) and one of SCAFFOLD's.
//!
//! Training is the SDK's own, updates pass through the SDK's pipeline, and sums are processed by the coordinator's
//! functions; only the network is left out. All results follow from the seed.

use anyhow::{Context as _, Result};
use client_sdk::learning::contribution::{Scaffold, scaffold};
use client_sdk::learning::optimizer::{self, OptimizerState};
use client_sdk::learning::{
    Controls, ExactSum, FedNova, Layout, MeanUpdate, Parameters, QuantizationParams, WeightedCodec,
};
use client_sdk::models::{Architecture, Linear};
use client_sdk::pipeline::{Encoder, MaskedInput, Protection, Weight, masked_input};
use client_sdk::train::{Device, evaluate};
use client_sdk::{
    Cancel, Checkpoints, Constraints, Dataset, ModelTrainer, Purpose, Trained, Trainer as _, TrainingJob,
};
use datasets::{Dataset as Data, synthetic};
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use task_spec::ServerOptimizer;
use task_spec::{Budget, TrainingPlan};

/// Number of participants of the example.
pub const DEVICES: u32 = 30;
/// Cohort size under partial participation.
pub const COHORT: usize = 10;
/// Number of stragglers in a cohort.
pub const STRAGGLERS: usize = 9;
/// Larger than any change of a coordinate in a round here, so that nothing is clipped.
const CLIP_RANGE: f32 = 8.0;
/// Cap on weights; the sum has headroom for every device at the cap.
const MAX_WEIGHT: u32 = 5000;

/// The local solver, or the rule that combines updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Solver {
    /// FedAvg without the stragglers.
    FedAvg,
    /// FedAvg with the stragglers' partial work.
    Partial,
    /// As `Partial`, with a proximal term of μ = 1.
    FedProx,
    /// The stragglers' partial work, normalized by their steps.
    FedNova,
    /// Control variates; unweighted.
    Scaffold,
    /// Unweighted FedAvg, the baseline for SCAFFOLD.
    Plain,
}

#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Cap on the number of examples of a device.
    pub most_examples: usize,
    /// Local epochs of a participant that is not a straggler.
    pub epochs: u32,
    pub rounds: u32,
    /// Whether all devices take part, without stragglers; otherwise [`COHORT`] devices with [`STRAGGLERS`] stragglers.
    pub everybody: bool,
}

/// A federation of devices with Synthetic(1, 1) data.
pub struct Federation {
    architecture: Architecture,
    devices: Vec<ModelTrainer>,
    examples: Vec<usize>,
    data: Vec<(Vec<f32>, Vec<u32>)>,
    seed: u64,
}

impl Federation {
    /// The data for a seed.
    ///
    /// # Errors
    /// None in practice.
    pub fn new(most_examples: usize, seed: u64) -> Result<Self> {
        let architecture = Architecture::Linear(Linear { inputs: 60, classes: 10 });
        let (mut devices, mut examples, mut data) = (Vec::new(), Vec::new(), Vec::new());
        for shard in synthetic::generate(DEVICES as usize, 1.0, 1.0, seed)?.shards {
            let Data::Labelled(shard) = shard else { continue };
            let count = shard.labels.len().min(most_examples);
            let (features, labels) = (shard.features[..count * shard.width].to_vec(), shard.labels[..count].to_vec());
            let own = Dataset::Labelled { features: features.clone(), labels: labels.clone(), width: shard.width };
            let none = Dataset::Labelled { features: Vec::new(), labels: Vec::new(), width: shard.width };
            devices.push(ModelTrainer::new(own, none, Device::Cpu));
            examples.push(count);
            data.push((features, labels));
        }
        Ok(Self { architecture, devices, examples, data, seed })
    }

    /// The training loss of a model: the mean over all examples, or over devices.
    fn loss(&self, model: &Parameters, over_devices: bool) -> Result<f64> {
        let (mut sum, mut weight) = (0.0, 0.0);
        for (features, labels) in &self.data {
            let examples = client_sdk::train::Examples::Labelled { features, labels, width: 60 };
            let own = evaluate(&self.architecture, model, examples, &Device::Cpu)?.loss;
            #[expect(clippy::cast_precision_loss, reason = "few examples")]
            let counts = if over_devices { 1.0 } else { labels.len() as f64 };
            (sum, weight) = (sum + counts * own, weight + counts);
        }
        Ok(sum / weight)
    }

    /// The training loss before the first round and after each round.
    ///
    /// # Errors
    /// If training diverges.
    pub fn run(&mut self, solver: Solver, setting: Setting, each_round: bool) -> Result<Vec<f64>> {
        let mut server = Server::new(&self.architecture, solver, setting)?;
        let alike = matches!(solver, Solver::Scaffold | Solver::Plain);
        let mut losses = vec![self.loss(&server.model, alike)?];
        let mut controls: Vec<Vec<f32>> = vec![Vec::new(); self.devices.len()];
        for round in 1..=setting.rounds {
            let mut inputs = Vec::new();
            for (device, epochs) in self.drawn(round, setting) {
                if epochs < setting.epochs && solver == Solver::FedAvg {
                    continue;
                }
                let input = self.work(&server, round, device, epochs, &controls[device])?;
                if let Some(kept) = &input.control {
                    controls[device] = kept.to_vec();
                }
                inputs.push(input);
            }
            server.step(&inputs)?;
            if each_round || round == setting.rounds {
                losses.push(self.loss(&server.model, alike)?);
            }
        }
        Ok(losses)
    }

    /// The participants of a round and the epochs each has time for: the same for every solver.
    fn drawn(&self, round: u32, setting: Setting) -> Vec<(usize, u32)> {
        let mut all: Vec<usize> = (0..self.devices.len()).collect();
        if setting.everybody {
            return all.into_iter().map(|device| (device, setting.epochs)).collect();
        }
        let mut rng = ChaCha20Rng::seed_from_u64(self.seed << 32 | u64::from(round));
        all.shuffle(&mut rng);
        all.truncate(COHORT);
        let mut epochs = |place: usize| {
            if place < STRAGGLERS { 1 + rng.next_u32() % (setting.epochs - 1).max(1) } else { setting.epochs }
        };
        all.into_iter().enumerate().map(|(place, device)| (device, epochs(place))).collect()
    }

    /// The upload of a device.
    fn work(&mut self, server: &Server, round: u32, device: usize, epochs: u32, own: &[f32]) -> Result<MaskedInput> {
        let batches = u32::try_from(self.examples[device].div_ceil(10))?;
        let plan =
            TrainingPlan { budget: Some(Budget { steps: Some(epochs * batches), time_ms: None }), ..server.plan() };
        let seed = self.seed << 32 | u64::from(round) << 8 | device as u64;
        let job = TrainingJob {
            task: "synthetic".to_owned(),
            round,
            purpose: Purpose::Shared,
            plan,
            architecture: Some(serde_json::to_value(&self.architecture)?),
            table: None,
            analytics: None,
            metrics: Vec::new(),
            seed,
            deadline: None,
            cancel: Cancel::default(),
            checkpoints: Checkpoints::default(),
        };
        let controls = Controls { server: &server.control, own };
        let correction = server.scaffold.map(|rule| rule.correction(controls)).transpose()?;
        let layout = server.model.layout().clone();
        let correction = correction.map(|values| Parameters::new(layout, values)).transpose()?;
        let constraints = Constraints { correction: correction.as_ref(), ..Constraints::default() };
        let trained = self.devices[device].train_within(&server.model, &job, constraints)?;
        let reach = trained.reach().context("the SDK's trainer says how far it went")?;
        let Trained { parameters, examples, .. } = trained;
        let weight = match (&server.scaffold, &server.nova) {
            (Some(rule), _) => Weight::Controlled(rule, reach, controls),
            (_, Some(rule)) => Weight::Steps(rule, reach, examples),
            (None, None) => Weight::Examples(examples),
        };
        let mut rounding = ChaCha20Rng::seed_from_u64(!seed);
        let encoder = Encoder::Plain { codec: &server.codec, residual: None, seed: &[0; 32], rounding: &mut rounding };
        Ok(masked_input(&server.model, parameters, weight, Vec::new(), encoder, Protection::Plaintext)?)
    }
}

/// The coordinator's part.
struct Server {
    model: Parameters,
    control: Vec<f32>,
    codec: WeightedCodec,
    scaffold: Option<Scaffold>,
    nova: Option<FedNova>,
    setting: Setting,
    mu: f64,
}

impl Server {
    fn new(architecture: &Architecture, solver: Solver, setting: Setting) -> Result<Self> {
        let model = Parameters::zeros(std::sync::Arc::new(architecture.layout()?));
        let alike = matches!(solver, Solver::Scaffold | Solver::Plain);
        let sent: Layout = match solver {
            Solver::Scaffold => scaffold::layout(model.layout())?,
            Solver::FedAvg | Solver::Partial | Solver::FedProx | Solver::FedNova | Solver::Plain => {
                (**model.layout()).clone()
            }
        };
        let params = QuantizationParams {
            parameters: sent.len(),
            modulus_bits: 32,
            clip_range: CLIP_RANGE,
            clip_norm: None,
            max_weight: if alike { 1 } else { MAX_WEIGHT },
            max_cohort: DEVICES,
            metrics: usize::from(solver == Solver::FedNova),
        };
        let codec = WeightedCodec::new(None, &sent, params)?;
        // About the steps that a device of median size takes in a round.
        let reference = 0.01 * f64::from(setting.epochs) * 10.0;
        let scaffold = (solver == Solver::Scaffold).then(|| Scaffold::new(reference, &params)).transpose()?;
        let nova = (solver == Solver::FedNova).then(|| FedNova::new(reference, &params)).transpose()?;
        let control = vec![0.0; if scaffold.is_some() { model.values().len() } else { 0 }];
        let mu = if solver == Solver::FedProx { 1.0 } else { 0.0 };
        Ok(Self { model, control, codec, scaffold, nova, setting, mu })
    }

    fn plan(&self) -> TrainingPlan {
        TrainingPlan {
            epochs: self.setting.epochs,
            batch_size: 10,
            learning_rate: 0.01,
            proximal_mu: self.mu,
            ..TrainingPlan::default()
        }
    }

    /// Sums the inputs as integers and takes a step.
    fn step(&mut self, inputs: &[MaskedInput]) -> Result<()> {
        let mut words = vec![0_u32; self.codec.len()];
        for input in inputs {
            for (sum, word) in words.iter_mut().zip(input.body.as_chunks::<4>().0) {
                *sum = sum.wrapping_add(u32::from_le_bytes(*word));
            }
        }
        let sum = ExactSum::new(words, 32, u32::try_from(inputs.len())?)?.release_without_noise();
        let mut mean: MeanUpdate = self.codec.decode(&sum, &[0; 32])?.mean;
        if self.scaffold.is_some() {
            Scaffold::absorb(&mut self.control, &mut mean, DEVICES, CLIP_RANGE)?;
        }
        if self.nova.is_some() {
            FedNova::scale(&mut mean)?;
        }
        optimizer::step(&ServerOptimizer::default(), OptimizerState::Empty, &mut self.model, &mean)?;
        Ok(())
    }
}

/// The first round after which the loss is at most `loss`.
#[must_use]
pub fn rounds_to(losses: &[f64], loss: f64) -> Option<usize> {
    losses.iter().position(|&found| found <= loss)
}
