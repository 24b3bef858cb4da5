//! Steps in slices of any length give the same results as whole vectors, and errors are reported.

use std::io::Cursor;
use std::sync::Arc;

use learning::{ExactSum, MeanUpdate, Parameters, SumHeader, TensorSpec, Update, Upload, checkpoint};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use task_spec::{Compression, ServerOptimizer, TaskSpec};
use wire::Digest;

use super::*;
use crate::codec::UpdateCodec;

/// A task of 116 parameters, a number not divisible by any slice length.
fn spec() -> TaskSpec {
    serde_json::from_value(serde_json::json!({
        "name": "t",
        "model": { "tensors": [
            { "name": "w", "shape": [37, 3], "init": { "uniform": { "bound": 0.5 } } },
            { "name": "b", "shape": [5] },
        ] },
        "rounds": { "count": 3, "select_max": 8 },
        "selection": { "cohort": { "count": 3 } },
        "metrics": ["loss"],
        "secure_aggregation": { "enabled": false },
    }))
    .unwrap()
}

fn optimizers() -> [ServerOptimizer; 5] {
    let (learning_rate, beta1, beta2, tau) = (0.1, 0.9, 0.99, 1e-3);
    [
        ServerOptimizer::FedAvg { learning_rate },
        ServerOptimizer::FedAvgM { learning_rate, momentum: 0.5 },
        ServerOptimizer::FedAdagrad { learning_rate, beta1, tau },
        ServerOptimizer::FedAdam { learning_rate, beta1, beta2, tau },
        ServerOptimizer::FedYogi { learning_rate, beta1, beta2, tau },
    ]
}

struct Case {
    model: TaskModel,
    terms: RoundTerms,
    base: Vec<u8>,
}

/// Written bytes and reported facts of a step.
type Written = (Vec<u8>, Option<Vec<u8>>, Vec<(String, MetricValue)>, Option<f64>);

impl Case {
    fn new(change: impl FnOnce(&mut TaskSpec)) -> Self {
        let mut spec = spec();
        change(&mut spec);
        let model = TaskModel::new(&spec).unwrap();
        let clip = model.private.as_ref().map_or(f64::NAN, |private| private.initial_clip());
        let terms = RoundTerms { clip, rotation: Digest([3; 32]), codec: Digest([4; 32]) };
        let base = model.first_version(&spec).unwrap();
        Self { model, terms, base }
    }

    /// The sum of three updates, stored.
    fn sum(&self, seed: u64) -> Vec<u8> {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let mut total = vec![0; self.model.codec.len()];
        for examples in [1, 2, 3] {
            let values = match &self.model.codec {
                UpdateCodec::Private(_) => self.model.tensors.shared.len(),
                UpdateCodec::Plain(_) | UpdateCodec::Sums(_) => self.model.tensors.published.len(),
            };
            let delta =
                (0..values).map(|_| f32::from(u16::try_from(rng.next_u32() >> 16).unwrap()) / 65_536.0 - 0.5).collect();
            let words = match &self.model.codec {
                UpdateCodec::Plain(codec) => {
                    let of_nova = matches!(self.model.solver, Some(Solver::FedNova { .. }));
                    let examples = if of_nova || codec.params().max_weight > 1 { examples } else { 1 };
                    let mut metrics = vec![MetricValue { value: 0.5, count: examples }];
                    metrics.extend(of_nova.then_some(MetricValue { value: 1.5, count: examples }));
                    let update = Update { delta, examples, metrics };
                    match codec.encode(&update, None, &self.terms.codec.0, &mut rng).unwrap().upload {
                        Upload::Words(words) => words.words,
                        Upload::Bytes(bytes) => codec.expand(&bytes.0).unwrap(),
                    }
                }
                UpdateCodec::Private(quantizer) => {
                    let update = Update { delta, examples, metrics: vec![] };
                    let rotation = &self.terms.rotation.0;
                    quantizer.codec.encode(&update, self.terms.clip, rotation, &mut rng).unwrap().words
                }
                UpdateCodec::Sums(_) => panic!("no case is an analysis"),
            };
            total.iter_mut().zip(words).for_each(|(sum, word): (&mut u32, u32)| *sum = sum.wrapping_add(word));
        }
        secure_agg::modular::reduce(&mut total, self.model.modulus);
        ExactSum::new(total, self.model.modulus.bits(), 3).unwrap().release_without_noise().to_bytes()
    }

    fn step(
        &self,
        sum: &[u8],
        version: u32,
        (base, state): (&[u8], Option<&[u8]>),
        slice: usize,
    ) -> Result<Written, StepFailure> {
        let (mut sum, mut base, mut state) = (Cursor::new(sum), Cursor::new(base), state.map(Cursor::new));
        let (mut out, mut state_out) = (Vec::new(), Vec::new());
        let optimizer_state = state.as_mut().map(|state| state as &mut dyn ReadSeek);
        let files = StepFiles { sum: &mut sum, base: &mut base, optimizer_state };
        let writers = StepOut { version: &mut out, optimizer_state: &mut state_out };
        let next = step(&self.model, &self.terms, version, files, writers, slice)?;
        assert_eq!(next.has_state, !state_out.is_empty());
        Ok((out, next.has_state.then_some(state_out), next.metrics, next.clip))
    }

    /// Two steps, in slices of each of these lengths, are those of the whole vectors; returns the versions.
    fn assert_same(&self, lengths: &[usize]) -> [Vec<u8>; 2] {
        let (first, second) = (self.sum(1), self.sum(2));
        let whole = usize::MAX >> 1;
        let one = self.step(&first, 0, (&self.base, None), whole).unwrap();
        let two = self.step(&second, 1, (&one.0, one.1.as_deref()), whole).unwrap();
        assert_ne!(one.0, self.base);
        for &length in lengths {
            let again = self.step(&first, 0, (&self.base, None), length).unwrap();
            assert!(again == one, "the first step in slices of {length}");
            let again = self.step(&second, 1, (&one.0, one.1.as_deref()), length).unwrap();
            assert!(again == two, "the second step in slices of {length}");
        }
        [one.0, two.0]
    }
}

const LENGTHS: [usize; 8] = [1, 2, 7, 58, 64, 115, 116, 117];

#[test]
fn slices_of_any_length_are_stepped_like_the_whole_by_every_optimizer() {
    for optimizer in optimizers() {
        let case = Case::new(|spec| spec.aggregation.optimizer = optimizer);
        let [one, two] = case.assert_same(&LENGTHS);
        // The whole equals its concatenated vectors.
        let codec = case.model.codec.plain().unwrap();
        let layout = &case.model.tensors.shared;
        let mut model = checkpoint::read(&case.base, layout).unwrap();
        let mut state = OptimizerState::Empty;
        for (sum, version) in [(case.sum(1), one), (case.sum(2), two)] {
            let mean = codec.decode(&NoisedSum::from_bytes(&sum).unwrap()).unwrap();
            state = optimizer::step(&optimizer, state, &mut model, &mean).unwrap();
            assert_eq!(checkpoint::write(&model).unwrap(), version, "{optimizer:?}");
        }
    }
}

#[test]
fn slices_are_stepped_like_the_whole_by_every_solver() {
    for optimizer in optimizers() {
        for solver in [Solver::FedNova { steps: Some(10) }, Solver::Scaffold { steps: Some(10), population: 5 }] {
            let case = Case::new(|spec| {
                spec.aggregation.optimizer = optimizer;
                spec.training.solver = Some(solver);
                if solver.has_control() {
                    spec.aggregation.max_weight = 1;
                }
            });
            let length = case.model.tensors.published.len();
            case.assert_same(&[1, 7, 100, 115, 116, 117, length - 1, length]);
        }
    }
}

#[test]
fn slices_of_decompressed_means_are_stepped_like_the_whole() {
    for compression in [
        Compression::Rotated { bits: 2, keep: 0.5 },
        Compression::RandomK { k: 9, bits: 12, error_feedback: false },
        Compression::LowRank { rank: 2, bits: 10, error_feedback: true },
        Compression::TopK { k: 5, error_feedback: true },
        Compression::Int8 {},
    ] {
        let case = Case::new(|spec| {
            spec.compression = Some(compression);
            spec.aggregation.clip_norm = Some(3.0);
        });
        case.assert_same(&LENGTHS);
    }
}

#[test]
fn slices_of_private_means_are_stepped_like_the_whole() {
    let private = |clip: serde_json::Value, parameters: u64| {
        Case::new(|spec| {
            spec.metrics = vec![];
            spec.model.tensors[1].shape = vec![parameters];
            spec.aggregation.optimizer = optimizers()[3];
            let privacy = serde_json::json!({
                "mechanism": "central_gaussian", "noise_multiplier": 0.2, "delta": 1e-5, "clip": clip,
            });
            spec.privacy = serde_json::from_value(privacy).unwrap();
            spec.privacy.rounds = Some(3);
        })
    };
    let fixed = serde_json::json!({ "fixed": 2.0 });
    let adaptive = serde_json::json!({ "adaptive": { "initial": 2.0 } });
    for clip in [&fixed, &adaptive] {
        private(clip.clone(), 5).assert_same(&LENGTHS);
    }
    // Two blocks of a rotation, the second of which is not full.
    private(adaptive, 1_100_000).assert_same(&[1, (1 << 20) + 1]);
}

#[test]
fn goes_on_from_the_state_of_this_model_and_optimizer_only() {
    let layout = |len| Arc::new(Layout::new(vec![TensorSpec { name: "w".into(), shape: vec![len] }]).unwrap());
    let [_, momentum, _, adam, _] = optimizers();
    let mean = MeanUpdate { delta: vec![1.0, 2.0], weight: 1, participants: 1, metrics: vec![] };
    let mut model = Parameters::zeros(layout(2));
    let state = optimizer::step(&momentum, OptimizerState::Empty, &mut model, &mean).unwrap();
    let bytes = optimizer::write_state(&state, &layout(2)).unwrap().unwrap();
    let resume = |spec: &ServerOptimizer, length, version, bytes: Option<&[u8]>| {
        let mut kept = bytes.map(Cursor::new);
        let kept = kept.as_mut().map(|kept| kept as &mut dyn ReadSeek);
        resume(spec, &layout(length), version, kept).unwrap().map(|(_, kept)| kept.is_some())
    };
    assert_eq!(resume(&momentum, 2, 3, Some(&bytes)), Ok(true));
    assert_eq!(resume(&momentum, 2, 0, None), Ok(false));
    assert_eq!(resume(&ServerOptimizer::default(), 2, 3, None), Ok(false));
    assert_eq!(resume(&momentum, 2, 3, None), Err(StateError::NoState));
    assert!(matches!(resume(&adam, 2, 3, Some(&bytes)), Err(StateError::OtherOptimizer { .. })));
    assert!(matches!(resume(&momentum, 3, 3, Some(&bytes)), Err(StateError::OtherModel(_))));
    assert!(matches!(resume(&momentum, 2, 3, Some(&bytes[1..])), Err(StateError::OtherModel(_))));
    assert!(matches!(resume(&momentum, 2, 3, Some(&bytes[..bytes.len() - 1])), Err(StateError::OtherModel(_))));
}

#[test]
fn what_is_wrong_in_any_slice_is_told_of_its_file() {
    let case = Case::new(|spec| spec.aggregation.optimizer = optimizers()[1]);
    let sum = case.sum(1);
    let (model, state, ..) = case.step(&sum, 0, (&case.base, None), 7).unwrap();
    let state = state.unwrap();
    let with = |bytes: &[u8], place: usize, value: [u8; 4]| {
        let mut bytes = bytes.to_vec();
        let end = bytes.len();
        bytes[end - place..][..4].copy_from_slice(&value);
        bytes
    };
    let failure = |sum: &[u8], base: &[u8], state: Option<&[u8]>| case.step(sum, 1, (base, state), 7).unwrap_err();
    let nan = f32::NAN.to_le_bytes();
    for place in [4, 200] {
        let error = failure(&sum, &with(&model, place, nan), Some(&state));
        assert!(matches!(&error, StepFailure::UnusableBase(why) if why.contains("NaN")), "{error}");
        let error = failure(&sum, &model, Some(&with(&state, place, nan)));
        assert!(matches!(&error, StepFailure::UnusableBase(why) if why.contains("NaN")), "{error}");
    }
    // Behind the values are the weight and the limbs of a metric.
    let of_tail = sum.len() - SumHeader::BYTES - 4 * 116;
    for place in [of_tail, of_tail + 4, of_tail + 400] {
        let error = failure(&with(&sum, place, [0, 0, 0, 0x40]), &model, Some(&state));
        assert!(matches!(error, StepFailure::ImplausibleSum(_)), "{place}: {error}");
    }
    for length in [0, 15, 16, sum.len() - 1] {
        let error = failure(&sum[..length], &model, Some(&state));
        assert!(matches!(error, StepFailure::ImplausibleSum(_)), "{length}: {error}");
    }
    for base in [&model[..model.len() - 1], &state[..], &[][..]] {
        assert!(matches!(failure(&sum, base, Some(&state)), StepFailure::UnusableBase(_)));
    }
    assert!(matches!(failure(&sum, &model, None), StepFailure::UnusableBase(_)));
}
