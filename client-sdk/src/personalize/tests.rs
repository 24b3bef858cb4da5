//! The methods on a loss whose optimum, and every step towards it, is known: half the squared distance to a point.
//!
//! The trainer takes exact gradient steps, so that the methods' results can be written down.

use std::sync::Arc;

use learning::{MetricValue, Parameters, Patterns, initialize};
use task_spec::{Initial, TensorDeclaration, TrainingPlan};

use super::round::narrow;
use recipe::Tensors;

use super::*;
use crate::checkpoints::Checkpoints;
use crate::models::{Architecture, Mlp};
use crate::train::Device;
use crate::trainer::{Cancel, Constraints, Purpose, Trained, Trainer, TrainerError, TrainingJob};
use crate::{Dataset, ModelTrainer};

/// Gradient descent on ½|w - target|², one step per epoch or step of the plan.
struct Descent {
    target: Vec<f32>,
    /// Length of the whole model's frozen tensors in each training, and the plan's steps.
    seen: Vec<(Vec<bool>, u32)>,
}

impl Descent {
    fn to(target: &[f32]) -> Self {
        Self { target: target.to_vec(), seen: Vec::new() }
    }
}

impl Trainer for Descent {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        self.train_within(model, job, Constraints::default())
    }

    fn train_within(
        &mut self,
        model: &Parameters,
        job: &TrainingJob,
        constraints: Constraints<'_>,
    ) -> Result<Trained, TrainerError> {
        let steps = job.plan.steps.unwrap_or(job.plan.epochs);
        self.seen.push((constraints.frozen.to_vec(), steps));
        let anchor = constraints.anchor.unwrap_or(model).clone();
        let (rate, mu) = (narrow(job.plan.learning_rate), narrow(job.plan.proximal_mu));
        let mut trained = model.clone();
        for _ in 0..steps {
            for index in 0..model.layout().tensors().len() {
                if constraints.frozen.get(index) == Some(&true) {
                    continue;
                }
                for at in model.layout().range(index) {
                    let value = trained.values()[at];
                    let gradient = (value - self.target[at]) + mu * (value - anchor.values()[at]);
                    trained.values_mut()[at] = value - rate * gradient;
                }
            }
        }
        Ok(Trained { parameters: trained, examples: 1, metrics: vec![] })
    }

    fn evaluate(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        let squares = model.values().iter().zip(&self.target).map(|(value, target)| f64::from(value - target).powi(2));
        Ok(vec![("loss".into(), MetricValue { value: squares.sum::<f64>() / 2.0, count: 1 })])
    }

    fn examples(&self) -> u64 {
        1
    }
}

fn model(personal: &[&str]) -> ModelSpec {
    let tensor = |name: &str, shape: &[u64]| TensorDeclaration {
        name: name.into(),
        shape: shape.to_vec(),
        init: Initial::Zeros,
    };
    ModelSpec {
        architecture: None,
        graph: None,
        loss: None,
        batch_norm: None,
        table: None,
        tensors: vec![tensor("body", &[1, 2]), tensor("norm", &[1]), tensor("head", &[1])],
        personal: personal.iter().map(|&pattern| pattern.into()).collect(),
        seed: 9,
        initial: None,
    }
}

fn job() -> TrainingJob {
    TrainingJob {
        task: "t".into(),
        round: 1,
        purpose: Purpose::Shared,
        plan: TrainingPlan { epochs: 2, learning_rate: 0.25, ..TrainingPlan::default() },
        architecture: None,
        table: None,
        analytics: None,
        metrics: vec!["loss".into(), "personal_loss".into()],
        seed: 1,
        deadline: None,
        cancel: Cancel::default(),
        checkpoints: Checkpoints::default(),
    }
}

/// A method, and the layout of the shared part.
struct Derived {
    personalizer: Personalizer,
    shared: Arc<Layout>,
}

impl std::ops::Deref for Derived {
    type Target = Personalizer;

    fn deref(&self) -> &Personalizer {
        &self.personalizer
    }
}

impl Derived {
    fn shared(&self) -> &Arc<Layout> {
        &self.shared
    }
}

fn derive(model: &ModelSpec, method: Option<&Personalization>) -> Result<Option<Derived>, String> {
    let tensors = Tensors::of_model(model, method, None).map_err(|error| error.to_string())?;
    let personalizer = Personalizer::new(&tensors, model, method).map_err(|error| error.to_string())?;
    Ok(personalizer.map(|personalizer| Derived { personalizer, shared: tensors.shared }))
}

fn personalizer(personal: &[&str], method: Personalization) -> Derived {
    derive(&model(personal), Some(&method)).unwrap().unwrap()
}

/// Runs rounds in which the received model does not change; returns the last result.
fn rounds(personalizer: &Derived, trainer: &mut Descent, received: &[f32], count: u32) -> LocalResult {
    let received = Parameters::new(Arc::clone(personalizer.shared()), received.to_vec()).unwrap();
    let mut kept = personalizer.initial(&model(&["head"])).unwrap();
    let mut last = None;
    for _ in 0..count {
        let mut round = LocalRound { trainer, job: &job(), received: &received, kept: kept.as_ref() };
        let local = personalizer.run(&mut round).unwrap();
        let record = local.personal.as_ref().unwrap().to_record().unwrap();
        kept = Some(PersonalTensors::from_record(&record, personalizer.stored_layout()).unwrap());
        last = Some(local);
    }
    last.unwrap()
}

fn loss(metrics: &[(String, MetricValue)], name: &str) -> f64 {
    metrics.iter().find(|(own, _)| own == name).unwrap().1.value
}

fn close(got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() < 1e-4, "{got} is not {expected}");
    }
}

const TARGET: [f32; 4] = [1.0, 2.0, 3.0, 4.0];
/// The distance left after two steps of rate 1/4.
const LEFT: f32 = 0.75 * 0.75;

#[test]
fn fed_rep_trains_the_head_first_and_then_the_body_alone() {
    let personalizer = personalizer(&["head"], Personalization::FedRep { head_epochs: 5 });
    let mut trainer = Descent::to(&TARGET);
    let local = rounds(&personalizer, &mut trainer, &[0.0; 3], 1);
    assert_eq!(trainer.seen, [(vec![true, true, false], 5), (vec![false, false, true], 2)]);
    close(local.update.parameters.values(), &[1.0 - LEFT, 2.0 * (1.0 - LEFT), 3.0 * (1.0 - LEFT)]);
    close(local.personal.as_ref().unwrap().0.values(), &[4.0 * (1.0 - 0.75_f32.powi(5))]);
    assert!((loss(&local.evaluated, "loss") - 15.0).abs() < 1e-6, "of the model as it came");
    assert!(loss(&local.own.metrics, "personal_loss") < 15.0 * f64::from(LEFT * LEFT) + 1e-6);
    // The head continues where it was.
    let later = rounds(&personalizer, &mut Descent::to(&TARGET), &[0.0; 3], 2);
    close(later.personal.as_ref().unwrap().0.values(), &[4.0 * (1.0 - 0.75_f32.powi(10))]);
}

#[test]
fn fed_bn_keeps_vectors_and_refuses_matrices() {
    let personalizer = personalizer(&["norm"], Personalization::FedBn {});
    assert_eq!(personalizer.shared().len(), 3);
    let error = derive(&model(&["body"]), Some(&Personalization::FedBn {})).err().unwrap();
    assert!(error.contains("\"body\" of 2 dimensions"), "{error}");
}

#[test]
fn fine_tuning_begins_with_what_was_received_each_time() {
    let tuned = Personalization::FineTune { epochs: Some(6), learning_rate: Some(0.5) };
    let personalizer = personalizer(&[], tuned);
    for count in [1, 3] {
        let local = rounds(&personalizer, &mut Descent::to(&TARGET), &[0.0; 4], count);
        close(local.update.parameters.values(), &TARGET.map(|target| target * (1.0 - LEFT)));
        close(local.personal.as_ref().unwrap().0.values(), &TARGET.map(|target| target * (1.0 - 0.5_f32.powi(6))));
    }
    let plain = Personalization::FineTune { epochs: None, learning_rate: None };
    let mut trainer = Descent::to(&TARGET);
    let local = rounds(&self::personalizer(&[], plain), &mut trainer, &[0.0; 4], 1);
    assert_eq!(trainer.seen.len(), 1, "the update's own training tunes");
    assert_eq!(local.personal.as_ref().unwrap().0.values(), local.update.parameters.values());
}

#[test]
fn ditto_settles_between_the_own_optimum_and_the_received_model() {
    for lambda in [0.1_f32, 1.0] {
        let ditto = Personalization::Ditto { lambda: f64::from(lambda), epochs: Some(20) };
        let received = [2.0, 2.0, 2.0, 2.0];
        let local = rounds(&personalizer(&[], ditto), &mut Descent::to(&TARGET), &received, 5);
        // The minimum of ½|v - t|² + λ/2 |v - w|².
        let settled = TARGET.map(|target| (target + lambda * 2.0) / (1.0 + lambda));
        close(local.personal.as_ref().unwrap().0.values(), &settled);
        // The update is FedAvg's.
        close(local.update.parameters.values(), &TARGET.map(|target| target + (2.0 - target) * LEFT));
    }
}

#[test]
fn pfedme_moves_the_shared_model_along_the_envelope() {
    let method = Personalization::PFedMe { lambda: 1.0, local_rounds: 1, steps: 60, rate: 0.5 };
    let local = rounds(&personalizer(&[], method), &mut Descent::to(&TARGET), &[0.0; 4], 1);
    // θ = (t + λ w) / (1 + λ) with w = 0, then w moves η λ (θ - w).
    close(local.personal.as_ref().unwrap().0.values(), &TARGET.map(|target| target / 2.0));
    close(local.update.parameters.values(), &TARGET.map(|target| target / 4.0));
    let method = Personalization::PFedMe { lambda: 1.0, local_rounds: 200, steps: 60, rate: 0.5 };
    let local = rounds(&personalizer(&[], method), &mut Descent::to(&TARGET), &[0.0; 4], 1);
    close(local.update.parameters.values(), &TARGET);
}

#[test]
fn apfl_takes_the_papers_steps_and_alpha_follows_its_gradient() {
    let still = personalizer(&[], Personalization::Apfl { alpha: 0.5, alpha_rate: 0.0 });
    let received = [8.0; 4];
    let local = rounds(&still, &mut Descent::to(&TARGET), &received, 1);
    let shared: Vec<f32> = TARGET.iter().map(|target| target + (8.0 - target) * LEFT).collect();
    // By hand: v' = v - η α ∇f(α v + (1 - α) w), twice.
    let expected: Vec<f32> = (0..4)
        .map(|at| {
            let mut v = 8.0;
            for _ in 0..2 {
                v -= 0.25 * 0.5 * (0.5 * v + 0.5 * shared[at] - TARGET[at]);
            }
            v
        })
        .collect();
    close(local.update.parameters.values(), &shared);
    close(&local.personal.as_ref().unwrap().0.values()[..4], &expected);
    assert_eq!(local.personal.as_ref().unwrap().0.values()[4], 0.5);
    // And α' = α - rate ⟨v - w, mean of ∇f(α v + (1 - α) w)⟩.
    let gradient: f32 = (0..4)
        .map(|at| {
            let (mut v, mut sum) = (8.0, 0.0);
            for _ in 0..2 {
                let own = 0.5 * v + 0.5 * shared[at] - TARGET[at];
                (v, sum) = (v - 0.25 * 0.5 * own, sum + own / 2.0);
            }
            (8.0 - shared[at]) * sum
        })
        .sum();
    let adaptive = personalizer(&[], Personalization::Apfl { alpha: 0.5, alpha_rate: 0.001 });
    let far = rounds(&adaptive, &mut Descent::to(&TARGET), &received, 1);
    assert!(gradient > 1.0);
    close(&far.personal.as_ref().unwrap().0.values()[4..], &[0.5 - 0.001 * gradient]);
    assert!(loss(&far.own.metrics, "personal_loss") < loss(&far.evaluated, "loss"));
}

#[test]
fn elastic_averaging_takes_the_papers_steps() {
    let elastic = personalizer(&[], Personalization::Elastic { alpha: 0.25 });
    let centre = [8.0_f32; 4];
    for count in [1, 3] {
        let local = rounds(&elastic, &mut Descent::to(&TARGET), &centre, count);
        // By hand: two steps, then e = α (x - x̃), which x loses and the centre gains.
        let (mut x, mut e) = (centre, [0.0; 4]);
        for _ in 0..count {
            for at in 0..4 {
                x[at] = TARGET[at] + (x[at] - TARGET[at]) * LEFT;
                e[at] = 0.25 * (x[at] - centre[at]);
                x[at] -= e[at];
            }
        }
        close(local.personal.as_ref().unwrap().0.values(), &x);
        close(local.own.model.0.values(), &x);
        let moved: Vec<f32> = centre.iter().zip(e).map(|(centre, e)| centre + e).collect();
        close(local.update.parameters.values(), &moved);
    }
    // The first round begins with the received model; at α = 1 it is FedAvg's.
    let rigid = personalizer(&[], Personalization::Elastic { alpha: 1.0 });
    let local = rounds(&rigid, &mut Descent::to(&TARGET), &centre, 2);
    close(local.personal.as_ref().unwrap().0.values(), &centre);
    close(local.update.parameters.values(), &TARGET.map(|target| target + (8.0 - target) * LEFT));
}

#[test]
fn methods_and_patterns_that_do_not_fit_are_refused() {
    for (personal, method) in [
        (vec![], Personalization::FedPer {}),
        (vec![], Personalization::FedRep { head_epochs: 1 }),
        (vec!["head"], Personalization::Ditto { lambda: 1.0, epochs: None }),
        (vec!["nothing"], Personalization::FedPer {}),
        (vec!["*"], Personalization::FedPer {}),
    ] {
        assert!(derive(&model(&personal), Some(&method)).is_err(), "{personal:?} {method:?}");
    }
    assert!(derive(&model(&[]), None).unwrap().is_none());
}

#[test]
fn nothing_is_measured_that_the_task_does_not_ask_for() {
    let personalizer = personalizer(&["head"], Personalization::FedPer {});
    let received = Parameters::zeros(Arc::clone(personalizer.shared()));
    let kept = personalizer.initial(&model(&["head"])).unwrap();
    let job = TrainingJob { metrics: vec!["loss".into()], ..job() };
    let mut trainer = Descent::to(&TARGET);
    let mut round = LocalRound { trainer: &mut trainer, job: &job, received: &received, kept: kept.as_ref() };
    assert!(personalizer.run(&mut round).unwrap().own.metrics.is_empty());
}

fn lora(adapters: AdapterScope, base_sha256: Option<Digest>) -> Personalization {
    let layers = vec!["fc*.weight".to_owned()];
    Personalization::Lora { layers, rank: 2, alpha: Some(4.0), adapters, epochs: None, base_sha256 }
}

/// The task of `opposites`, its first model, and a job of one round.
fn opposites_task() -> (ModelSpec, Parameters, TrainingJob) {
    let architecture = Architecture::Mlp(Mlp { inputs: 2, hidden: vec![6], classes: 2 });
    let first = architecture.initial(5).unwrap();
    let specs = first.layout().tensors().iter();
    let tensors = specs.map(|tensor| TensorDeclaration {
        name: tensor.name.clone(),
        shape: tensor.shape.clone(),
        init: Initial::Uniform { bound: 0.4 },
    });
    let model = ModelSpec { tensors: tensors.collect(), ..model(&[]) };
    let job = TrainingJob {
        plan: TrainingPlan { epochs: 4, batch_size: 8, learning_rate: 0.3, ..TrainingPlan::default() },
        architecture: Some(serde_json::to_value(&architecture).unwrap()),
        metrics: vec!["accuracy".into(), "personal_accuracy".into()],
        ..job()
    };
    (model, first, job)
}

#[test]
fn shared_adapters_are_all_that_is_trained_and_sent() {
    let (model, first, job) = opposites_task();
    let personalizer = derive(&model, Some(&lora(AdapterScope::Shared, None))).unwrap().unwrap();
    // Adapters of 6 x 2 and 2 x 6, of rank 2.
    assert_eq!(personalizer.shared().len(), 2 * (2 * 2 + 6 * 2));
    let patterns = Patterns::new(vec!["fc*.weight".into()]).unwrap();
    let adapters = Adapters::new(first.layout(), &patterns, 2, Some(4.0)).unwrap();
    let base = initialize(Arc::clone(first.layout()), &model.tensors, model.seed).unwrap();
    let mut shared = adapters.initial(model.seed).unwrap();
    let [mut trainer, _] = opposites();
    let mut last = 0.0;
    for number in 0..15 {
        let job = TrainingJob { seed: number, ..job.clone() };
        let mut round = LocalRound { trainer: &mut trainer, job: &job, received: &shared, kept: None };
        let local = personalizer.run(&mut round).unwrap();
        assert!(local.personal.is_none(), "nothing is kept but the own model");
        let merged = adapters.merge(&base, &local.update.parameters).unwrap();
        assert_eq!(local.own.model.0.values(), merged.values(), "beside the base, which has not moved");
        last = loss(&local.own.metrics, "personal_accuracy");
        shared = local.update.parameters;
    }
    assert!(last >= 0.9, "{last}");
}

#[test]
fn a_base_that_the_app_brings_is_the_one_that_the_task_names() {
    let (model, first, job) = opposites_task();
    let digest = recipe::digest::sha256(&learning::checkpoint::write(&first).unwrap());
    let run = |trainer: &mut ModelTrainer| {
        let method = lora(AdapterScope::Shared, Some(digest));
        let personalizer = derive(&model, Some(&method)).unwrap().unwrap();
        let received = Parameters::zeros(Arc::clone(personalizer.shared()));
        personalizer
            .run(&mut LocalRound { trainer, job: &job, received: &received, kept: None })
            .map(|local| local.evaluated)
    };
    let [without, other] = opposites();
    let mut other = other.with_base(Parameters::zeros(Arc::clone(first.layout())));
    for (trainer, reason) in [(&mut { without }, "with_base"), (&mut other, "another than the task's")] {
        let error = run(trainer).err().unwrap().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let [trainer, _] = opposites();
    let mut trainer = trainer.with_base(first.clone());
    // Adapters of zeros keep the model's output.
    assert_eq!(run(&mut trainer).unwrap(), trainer.evaluate(&first, &job).unwrap());
}

/// Two participants with opposite labels: any single model is right for half of the examples.
fn opposites() -> [ModelTrainer; 2] {
    let rows = |count: u16, flipped: bool| {
        let place = |row: u16| (f32::from(row) + 0.5) / f32::from(count) * 2.0 - 1.0;
        Dataset::Labelled {
            features: (0..count).flat_map(|row| [place(row), 1.0]).collect(),
            labels: (0..count).map(|row| u32::from((place(row) > 0.0) != flipped)).collect(),
            width: 2,
        }
    };
    [false, true].map(|flipped| ModelTrainer::new(rows(64, flipped), rows(20, flipped), Device::Cpu))
}

/// Mean accuracies over both participants after some rounds of FedAvg: of the received model, and of the personalized
/// ones.
fn accuracies(personal: &[&str], method: Personalization) -> (f64, f64) {
    let (model, first, job) = opposites_task();
    let model = ModelSpec { personal: personal.iter().map(|&pattern| pattern.into()).collect(), ..model };
    let personalizer = derive(&model, Some(&method)).unwrap().unwrap();
    let mut trainers = opposites();
    let mut kept = [(); 2].map(|()| personalizer.initial(&model).unwrap());
    let mut shared = match &personalizer.parts {
        Some(parts) => parts.partition().split(&first).unwrap().0,
        None => first.clone(),
    };
    let mut means = (0.0, 0.0);
    for number in 0..15 {
        let job = TrainingJob { seed: number, ..job.clone() };
        let mut sum = vec![0.0_f32; shared.values().len()];
        means = (0.0, 0.0);
        for (trainer, kept) in trainers.iter_mut().zip(&mut kept) {
            let mut round = LocalRound { trainer, job: &job, received: &shared, kept: kept.as_ref() };
            let local = personalizer.run(&mut round).unwrap();
            sum.iter_mut().zip(local.update.parameters.values()).for_each(|(sum, value)| *sum += value / 2.0);
            means.0 += loss(&local.evaluated, "accuracy") / 2.0;
            means.1 += loss(&local.own.metrics, "personal_accuracy") / 2.0;
            *kept = local.personal;
        }
        shared.values_mut().copy_from_slice(&sum);
    }
    means
}

#[test]
fn where_participants_differ_every_method_beats_the_one_model() {
    for (personal, method) in [
        (vec!["fc2.*"], Personalization::FedPer {}),
        (vec!["fc2.*"], Personalization::FedRep { head_epochs: 4 }),
        (vec![], Personalization::FineTune { epochs: Some(20), learning_rate: None }),
        (vec![], Personalization::Ditto { lambda: 0.01, epochs: None }),
        (vec![], Personalization::PFedMe { lambda: 0.05, local_rounds: 4, steps: 30, rate: 1.0 }),
        (vec![], Personalization::Apfl { alpha: 0.5, alpha_rate: 0.1 }),
        (vec![], Personalization::Elastic { alpha: 0.02 }),
        (vec![], lora(AdapterScope::Personal, None)),
    ] {
        let (one, own) = accuracies(&personal, method.clone());
        assert!(own >= 0.9, "{method:?}: {own}");
        if personal.is_empty() {
            assert!(
                (one - 0.5).abs() < 1e-9,
                "{method:?}: one model is right for one where it is wrong for the other, {one}"
            );
        }
    }
}
