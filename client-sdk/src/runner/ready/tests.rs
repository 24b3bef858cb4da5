//! Ready models in jobs, compared with the SDK's own trainer, which does the same without jobs.

use std::sync::Arc;

use learning::Layout;
use recipe::Tensors;
use recipe::digest::sha256;
use task_spec::{AdapterScope, Initial, ModelSpec, Personalization, TensorDeclaration, TrainingPlan};
use wire::Digest;

use super::*;
use crate::models::{Architecture, Mlp};
use crate::personalize::{LocalError, LocalRound, PersonalTensors, Personalizer};
use crate::runner::{CallbackTrainer, Capabilities, Job};
use crate::trainer::Trainer;

const ALL: Capabilities = Capabilities { within: true, adapters: true, analyses: true, base_model: None };

#[test]
fn rows_that_are_none_are_refused() {
    let made = |numbers, rows, width| labelled(vec![0.0; numbers], vec![0; rows], width);
    assert!(made(6, 2, 3).is_ok());
    for (numbers, rows, width) in [(0, 0, 3), (5, 2, 3), (6, 2, 2), (6, 2, usize::MAX), (6, 2, 0)] {
        assert_eq!(made(numbers, rows, width), Err(UpdateError::Rows { numbers, rows, width }));
    }
    let told = made(5, 2, 3).unwrap_err().to_string();
    assert_eq!(told, "5 numbers and 2 classes are no 2 rows of 3 numbers, at least one");
}

fn architecture() -> Architecture {
    Architecture::Mlp(Mlp { inputs: 2, hidden: vec![4], classes: 2 })
}

/// Rows of two classes.
fn rows(range: std::ops::Range<i16>) -> Dataset {
    let features = range.clone().flat_map(|row| [f32::from(row % 16 - 8) / 4.0 + 0.01, 1.0]).collect();
    labelled(features, range.map(|row| u32::from(row % 16 >= 8)).collect(), 2).unwrap()
}

fn job() -> TrainingJob {
    TrainingJob {
        plan: TrainingPlan { epochs: 2, batch_size: 8, learning_rate: 0.2, ..TrainingPlan::default() },
        architecture: Some(serde_json::to_value(architecture()).unwrap()),
        seed: 3,
        ..TrainingJob::of_test()
    }
}

/// A personalized task, and the base model of its round.
struct Round {
    personalizer: Personalizer,
    received: Parameters,
    kept: Option<PersonalTensors>,
}

impl Round {
    fn new(personal: &[&str], method: &Personalization) -> Self {
        let layout = architecture().layout().unwrap();
        let tensors = layout.tensors().iter().map(|tensor| TensorDeclaration {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
            init: Initial::Uniform { bound: 0.4 },
        });
        let model = ModelSpec {
            architecture: None,
            graph: None,
            loss: None,
            batch_norm: None,
            table: None,
            tensors: tensors.collect(),
            personal: personal.iter().map(|&pattern| pattern.into()).collect(),
            seed: 9,
            initial: None,
        };
        let tensors = Tensors::of_model(&model, Some(method), None).unwrap();
        let personalizer = Personalizer::new(&tensors, &model, Some(method)).unwrap().unwrap();
        let kept = personalizer.initial(&model).unwrap();
        Self { personalizer, received: different(&tensors.shared), kept }
    }

    /// The update that leaves the device, and the state that stays.
    fn run(&self, trainer: &mut dyn Trainer) -> Result<(Trained, Vec<f32>), LocalError> {
        let job = job();
        let mut round = LocalRound { trainer, job: &job, received: &self.received, kept: self.kept.as_ref() };
        let local = self.personalizer.run(&mut round)?;
        let own = local.own.model.parameters().values().to_vec();
        Ok((local.update, own))
    }
}

fn different(layout: &Arc<Layout>) -> Parameters {
    let values = (0..layout.len()).map(|index| (index * 7 % 11) as f32 / 20.0 - 0.25);
    Parameters::new(Arc::clone(layout), values.collect()).unwrap()
}

/// An app that uses the ready models, and the purposes of its jobs.
fn app(purposes: &mut Vec<Purpose>) -> CallbackTrainer<impl FnMut(Job) + Send> {
    CallbackTrainer::new(48, |job| {
        let Job { parameters, training, constraints, answer } = job;
        purposes.push(training.purpose);
        answer.finish(train_ready(rows(0..48), None, &parameters, &training, &constraints).unwrap()).unwrap();
    })
}

fn lora(adapters: AdapterScope, base_sha256: Option<Digest>) -> Personalization {
    Personalization::Lora {
        layers: vec!["fc*.weight".into()],
        rank: 2,
        alpha: Some(4.0),
        adapters,
        epochs: None,
        base_sha256,
    }
}

/// The SDK's own trainer.
fn trainer() -> ModelTrainer {
    let nothing = Dataset::Labelled { features: Vec::new(), labels: Vec::new(), width: 1 };
    ModelTrainer::new(rows(0..48), nothing, Device::Cpu)
}

#[test]
fn with_every_method_a_ready_model_in_jobs_comes_to_what_the_trainer_comes_to_and_each_job_says_what_it_is_for() {
    use Purpose::{Own, Shared};
    for (personal, method, expected) in [
        (&["fc2.*"][..], Personalization::FedPer {}, &[Shared][..]),
        (&["fc*.bias"], Personalization::FedBn {}, &[Shared]),
        (&["fc2.*"], Personalization::FedRep { head_epochs: 3 }, &[Own, Shared]),
        (&[], Personalization::FineTune { epochs: Some(3), learning_rate: Some(0.1) }, &[Shared, Own]),
        (&[], Personalization::Ditto { lambda: 0.5, epochs: Some(3) }, &[Shared, Own]),
        (&[], Personalization::PFedMe { lambda: 0.5, local_rounds: 2, steps: 3, rate: 0.5 }, &[Own, Own]),
        (&[], Personalization::Apfl { alpha: 0.5, alpha_rate: 0.1 }, &[Shared, Own]),
        (&[], Personalization::Elastic { alpha: 0.2 }, &[Own]),
        (&[], lora(AdapterScope::Personal, None), &[Shared, Own]),
        (&[], lora(AdapterScope::Shared, None), &[Shared]),
    ] {
        let round = Round::new(personal, &method);
        let without_jobs = round.run(&mut trainer()).unwrap();
        let mut purposes = Vec::new();
        let in_jobs = round.run(&mut app(&mut purposes).with_capabilities(ALL)).unwrap();
        assert_eq!(in_jobs, without_jobs, "{method:?}");
        assert_eq!(purposes, expected, "{method:?}");
        assert_ne!(in_jobs.0.parameters.values(), round.received.values(), "{method:?}: nothing was trained");
    }
}

#[test]
fn what_an_app_does_not_say_it_can_do_is_refused_before_it_gets_the_job() {
    for (personal, method, before, option) in [
        (&["fc2.*"][..], Personalization::FedRep { head_epochs: 3 }, 0, "trains_within"),
        (&[], Personalization::Ditto { lambda: 0.5, epochs: None }, 1, "trains_within"),
        (&[], lora(AdapterScope::Personal, None), 1, "trains_adapters"),
        (&[], lora(AdapterScope::Shared, None), 0, "trains_adapters"),
    ] {
        let other = match option {
            "trains_within" => Capabilities { within: false, ..ALL },
            _ => Capabilities { adapters: false, ..ALL },
        };
        let mut purposes = Vec::new();
        let refused = Round::new(personal, &method).run(&mut app(&mut purposes).with_capabilities(other)).unwrap_err();
        assert!(matches!(&refused, LocalError::Trainer(TrainerError::Refused(_))), "{method:?}: {refused}");
        assert!(refused.to_string().contains(option), "{method:?}: {refused}");
        assert_eq!(purposes.len(), before, "{method:?}");
    }
}

#[test]
fn a_base_that_apps_bring_is_read_from_the_file_that_the_options_name() {
    let base = different(&Arc::new(architecture().layout().unwrap()));
    let (file, folder) = (learning::checkpoint::write(&base).unwrap(), tempfile::tempdir().unwrap());
    let round = Round::new(&[], &lora(AdapterScope::Shared, Some(sha256(&file))));
    let path = folder.path().join("base.safetensors");
    let run = |base_model| {
        let able = Capabilities { base_model, ..ALL };
        round.run(&mut app(&mut Vec::new()).with_capabilities(able)).map_err(|error| error.to_string())
    };
    assert!(run(None).unwrap_err().contains("option `base_model`"));
    assert!(run(Some(path.clone())).unwrap_err().contains("base.safetensors"), "there is no such file");
    std::fs::write(&path, &file).unwrap();
    assert_eq!(run(Some(path)).unwrap(), round.run(&mut trainer().with_base(base)).unwrap());
}

#[test]
fn rows_that_are_held_out_say_what_the_shared_model_is_worth_and_change_no_bit_of_it() {
    let (held_out, model) = (rows(100..110), different(&Arc::new(architecture().layout().unwrap())));
    let train = |held_out, job: &TrainingJob, parameters: &Parameters, constraints: &JobConstraints| {
        train_ready(rows(0..48), held_out, parameters, job, constraints)
    };
    let worth = |model: &Parameters| {
        ModelTrainer::new(rows(0..1), held_out.clone(), Device::Cpu).evaluate(model, &job()).unwrap()
    };
    let plain = train(None, &job(), &model, &JobConstraints::Free).unwrap();
    let measured = train(Some(held_out.clone()), &job(), &model, &JobConstraints::Free).unwrap();
    assert_eq!(measured.parameters, plain.parameters);
    assert_eq!(measured.metrics, [plain.metrics.clone(), worth(&model)].concat());
    assert_eq!(measured.metrics.iter().filter(|(name, _)| name == "loss" || name == "accuracy").count(), 2);
    let own = TrainingJob { purpose: Purpose::Own, ..job() };
    assert_eq!(train(Some(held_out.clone()), &own, &model, &JobConstraints::Free).unwrap(), plain);
    // The device's own model is measured after its training, if the task has such a metric.
    let reported = TrainingJob { metrics: vec!["loss".into(), "personal_loss".into()], ..own };
    let measured = train(Some(held_out.clone()), &reported, &model, &JobConstraints::Free).unwrap();
    let personal = worth(&plain.parameters).into_iter().map(|(name, value)| (format!("personal_{name}"), value));
    assert_eq!(measured.metrics, plain.metrics.iter().cloned().chain(personal).collect::<Vec<_>>());
    // For adapters, the adapted model.
    let patterns = learning::Patterns::new(vec!["fc*.weight".into()]).unwrap();
    let adapters = learning::Adapters::new(model.layout(), &patterns, 2, None).unwrap();
    let start = different(adapters.layout());
    let merged = adapters.merge(&model, &start).unwrap();
    let constraints = JobConstraints::Adapters { base: model.clone(), adapters };
    let measured = train(Some(held_out.clone()), &job(), &start, &constraints).unwrap();
    assert!(measured.metrics.ends_with(&worth(&merged)), "{:?}", measured.metrics);
    // Rows that do not fit fail before training.
    let wide = labelled(vec![0.0; 6], vec![0; 2], 3).unwrap();
    assert!(train(Some(wide), &job(), &model, &JobConstraints::Free).is_err());
}
