//! Synthetic(α, β): a classification task whose heterogeneity is set by two numbers.
//!
//! Shamir, Srebro and Zhang (2014), as made federated by Li et al., *Federated Optimization in Heterogeneous Networks*
//! (FedProx, 2020), §5.1. Participant k draws a model `W_k, b_k ~ N(u_k, 1)` with `u_k ~ N(0, α)`, and inputs `x_k ~
//! N(v_k, Σ)` with `v_k ~ N(B_k, 1)` element by element, `B_k ~ N(0, β)` and `Σ` diagonal with `Σ_jj = j^-1.2`. The
//! label is `argmax softmax(W_k x + b_k)`. Second arguments of `N` are variances; `u_k` and `B_k` are single numbers,
//! as in the authors' code. β controls the distance between the participants' inputs. α moves the models' parameters; but
//! one `u_k` for all classes shifts all logits alike, so α does not change the labels. Even α = β = 0 is not IID: each
//! participant still draws its own `W_k`, `b_k` and `v_k`.
//!
//! Sizes are lognormal(4, 2) + 50, capped at [`MAX_EXAMPLES`] (which affects about one in eighty) so that a
//! demonstration stays quick.

use rand::Rng;
use rand_distr::{Distribution, LogNormal, Normal, StandardNormal};

use crate::federated::numbered;
pub use crate::limits::MAX_SPREAD;
use crate::random::{Purpose, stream, whole};
use crate::{DataError, Dataset, Federated, Labelled};

/// Features of an example.
pub const FEATURES: usize = 60;
pub const CLASSES: usize = 10;
/// Fewest examples one participant draws.
pub const MIN_EXAMPLES: usize = 50;
/// Most examples one participant draws.
pub const MAX_EXAMPLES: usize = 5000;
/// Share of each participant's examples that goes to the test set.
pub const HELD_OUT: f64 = 0.2;

/// Generates the data of `participants`; the test set is the union of all held-out examples.
///
/// # Errors
/// [`DataError::NoParticipants`]; [`DataError::BadSpread`] for an α or β that is not in 0..=[`MAX_SPREAD`].
pub fn generate(participants: usize, alpha: f64, beta: f64, seed: u64) -> Result<Federated, DataError> {
    if participants == 0 {
        return Err(DataError::NoParticipants);
    }
    let mut shards = Vec::with_capacity(participants);
    let mut held_out = Vec::with_capacity(participants);
    for index in 0..participants {
        let (own, test) = shard(index, alpha, beta, seed)?;
        shards.push(Dataset::Labelled(own));
        held_out.push(test);
    }
    Ok(Federated {
        shards,
        test: Dataset::Labelled(Labelled::concat(&held_out)?),
        names: numbered(participants),
        description: format!("Synthetic({alpha}, {beta}) for {participants} participants"),
    })
}

/// Generates the data of one participant, `(own, held_out)`: the same as [`generate`] with any number of participants.
///
/// # Errors
/// [`DataError::BadSpread`] for an α or β that is not in 0..=[`MAX_SPREAD`].
pub fn shard(participant: usize, alpha: f64, beta: f64, seed: u64) -> Result<(Labelled, Labelled), DataError> {
    for (name, value) in [("alpha", alpha), ("beta", beta)] {
        if !(0.0..=MAX_SPREAD).contains(&value) {
            return Err(DataError::BadSpread { name, value });
        }
    }
    let mut rng = stream(seed, Purpose::Synthetic, participant as u64);
    let count = size(&mut rng);
    let source = Source::draw(alpha, beta, &mut rng);
    let mut data = Labelled {
        features: Vec::with_capacity(count * FEATURES),
        labels: Vec::with_capacity(count),
        width: FEATURES,
        classes: CLASSES,
    };
    for _ in 0..count {
        let input = source.input(&mut rng);
        data.labels.push(source.label(&input));
        data.features.extend_from_slice(&input);
    }
    Ok(data.split(HELD_OUT, seed))
}

fn size(rng: &mut impl Rng) -> usize {
    let extra = LogNormal::new(4.0, 2.0).expect("a standard deviation of 2 is finite").sample(rng);
    MIN_EXAMPLES + whole(extra, MAX_EXAMPLES - MIN_EXAMPLES)
}

/// One participant's distribution of examples.
struct Source {
    /// One row of [`FEATURES`] weights per class.
    weights: Vec<[f64; FEATURES]>,
    biases: [f64; CLASSES],
    /// Mean and standard deviation of each feature.
    inputs: Vec<Normal<f64>>,
}

impl Source {
    fn draw(alpha: f64, beta: f64, rng: &mut impl Rng) -> Self {
        let model_mean = alpha.sqrt() * standard(rng);
        let input_mean = beta.sqrt() * standard(rng);
        let inputs = (1..=FEATURES)
            .map(|j| {
                let deviation = (j as f64).powf(-1.2).sqrt();
                Normal::new(input_mean + standard(rng), deviation).expect("a power of a small integer is finite")
            })
            .collect();
        let weights = (0..CLASSES).map(|_| std::array::from_fn(|_| model_mean + standard(rng))).collect();
        let biases = std::array::from_fn(|_| model_mean + standard(rng));
        Self { weights, biases, inputs }
    }

    fn input(&self, rng: &mut impl Rng) -> Vec<f32> {
        #[expect(clippy::cast_possible_truncation, reason = "features are stored in single precision")]
        self.inputs.iter().map(|feature| feature.sample(rng) as f32).collect()
    }

    /// The class with the largest logit, which also has the largest softmax. Computed from the stored single-precision
    /// features, so that the labels match them exactly.
    fn label(&self, input: &[f32]) -> u32 {
        let logits = self.weights.iter().zip(self.biases).map(|(row, bias)| {
            let product: f64 = row.iter().zip(input).map(|(weight, &x)| weight * f64::from(x)).sum();
            product + bias
        });
        let (label, _) = (0..).zip(logits).max_by(|(_, a), (_, b)| a.total_cmp(b)).expect("there are ten classes");
        label
    }
}

fn standard(rng: &mut impl Rng) -> f64 {
    StandardNormal.sample(rng)
}
