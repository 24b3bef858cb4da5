//! Local tensors stay on the device: sent bytes do not contain them, and the next round finds them again.

use std::sync::{Arc, Mutex};

use client_sdk::Constraints;
use client_sdk::journal::Journal;
use client_sdk::journal::MemoryJournal;
use client_sdk::learning::{Adapters, MetricValue, Parameters};
use client_sdk::participant::snapshot;
use client_sdk::{Model, Origin, Trained, Trainer, TrainerError, TrainingJob};
use task_spec::{AdapterScope, Personalization, TrainingPlan};
use wire::participant::Assignment;

use crate::support::trainers::By;
use crate::support::{Coordinator, task};

/// A value with bytes unlike those of any header or other weight.
const SECRET: f32 = 0.718_281_8;

struct Secretive(Arc<Mutex<Vec<Vec<f32>>>>);

impl Trainer for Secretive {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        self.0.lock().unwrap().push(model.values().to_vec());
        let mut parameters = model.clone();
        let head = parameters.layout().range(1);
        parameters.values_mut()[head].fill(SECRET + job.round as f32);
        Ok(Trained { parameters, examples: 1, metrics: vec![] })
    }

    fn evaluate(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        assert_eq!(model.layout().len(), 5, "the whole model is evaluated");
        Ok(vec![])
    }

    fn examples(&self) -> u64 {
        1
    }
}

async fn run(personal: bool) -> (Coordinator, Vec<Vec<f32>>, Arc<MemoryJournal>) {
    let coordinator = Coordinator::new(3);
    coordinator.world(|world| world.personal = personal);
    let (seen, journal) = (Arc::default(), Arc::new(MemoryJournal::new()));
    let mut participant = coordinator
        .app()
        .enrollment_token("token")
        .journal(Arc::clone(&journal))
        .trainer(Secretive(Arc::clone(&seen)))
        .build()
        .unwrap();
    participant.run(std::future::pending()).await.unwrap();
    let seen = seen.lock().unwrap().clone();
    (coordinator, seen, journal)
}

/// Words of each accepted update (of 32 bits each).
fn words(coordinator: &Coordinator) -> Vec<usize> {
    coordinator.world(|world| world.accepted.values().map(|body| body.len() / 4).collect())
}

#[tokio::test(start_paused = true)]
async fn they_come_back_each_round() {
    let (_, seen, _) = run(true).await;
    assert_eq!(seen[0], [0.0; 5]);
    assert_eq!(seen[1], [1.0, 1.0, 1.0, SECRET + 1.0, SECRET + 1.0]);
    assert_eq!(seen[2], [2.0, 2.0, 2.0, SECRET + 2.0, SECRET + 2.0]);
    // Shared, the fetched values count instead.
    let (_, seen, _) = run(false).await;
    assert_eq!(seen[2], [2.0; 5]);
}

#[tokio::test(start_paused = true)]
async fn no_byte_of_them_is_sent() {
    let (coordinator, _, journal) = run(true).await;
    let contains = |bytes: &[u8], value: f32| bytes.windows(4).any(|window| window == value.to_le_bytes());
    let record = journal.load(&snapshot::personal(task())).unwrap().unwrap();
    assert!(contains(&record, SECRET + 3.0), "the journal keeps them");
    coordinator.world(|world| {
        assert!(!world.wire.is_empty());
        for round in 1..=3_u8 {
            assert!(!contains(&world.wire, SECRET + f32::from(round)), "values");
        }
    });
    // An update has as many words as shared parameters, weight and metrics: two fewer than with the head.
    let (shared, whole) = (words(&coordinator), words(&run(false).await.0));
    assert_eq!(shared.iter().map(|words| words + 2).collect::<Vec<_>>(), whole);
    // The base was not changed by training, so all its words are zero, whatever the head did.
    coordinator.world(|world| assert!(world.accepted.values().all(|body| body[..12] == [0; 12])));
}

#[tokio::test(start_paused = true)]
async fn a_damaged_record_is_an_error_not_a_fresh_start() {
    let (coordinator, _, journal) = run(true).await;
    coordinator.world(|world| world.rounds = 4);
    journal.save(&snapshot::personal(task()), b"damaged").unwrap();
    let mut participant = coordinator.app().journal(journal).trainer(Secretive(Arc::default())).build().unwrap();
    let error = participant.run(std::future::pending()).await.unwrap_err();
    assert!(error.to_string().contains("personal-"), "{error}");
    assert_eq!(coordinator.world(|world| world.accepted.len()), 3);
}

#[tokio::test(start_paused = true)]
async fn they_are_not_kept_when_training_diverged() {
    let coordinator = Coordinator::new(1);
    coordinator.world(|world| world.personal = true);
    let journal = Arc::new(MemoryJournal::new());
    // In the part that stays at home.
    let diverging = By(|model: &Parameters| {
        let mut parameters = model.clone();
        parameters.values_mut()[4] = f32::NAN;
        Ok(Trained { parameters, examples: 1, metrics: vec![] })
    });
    let builder = coordinator.app().enrollment_token("token");
    let mut participant = builder.journal(Arc::clone(&journal)).trainer(diverging).build().unwrap();
    participant.run(std::future::pending()).await.unwrap();
    assert_eq!(coordinator.world(|world| world.abandoned.clone()), [(1, "training_failed")]);
    assert!(journal.load(&snapshot::personal(task())).unwrap().is_none());
}

/// Yields `secret` wherever a method trains the participant's own tensors, and leaves the update as it was received.
struct Marked {
    secret: f32,
    parted: bool,
}

impl Trainer for Marked {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        let mut parameters = model.clone();
        let head = parameters.layout().range(1);
        if self.parted {
            parameters.values_mut()[head].fill(self.secret);
        } else if job.plan != TrainingPlan::default() {
            parameters.values_mut().fill(self.secret);
        }
        Ok(Trained { parameters, examples: 1, metrics: vec![] })
    }

    fn train_within(
        &mut self,
        model: &Parameters,
        job: &TrainingJob,
        constraints: Constraints<'_>,
    ) -> Result<Trained, TrainerError> {
        let mut parameters = model.clone();
        match (constraints.anchor, constraints.frozen) {
            (Some(_), _) => parameters.values_mut().fill(self.secret),
            (None, [true, false]) => parameters.values_mut()[3..].fill(self.secret),
            (None, [false, true]) => {}
            _ => return self.train(model, job),
        }
        Ok(Trained { parameters, examples: 1, metrics: vec![] })
    }

    fn train_adapters(
        &mut self,
        _: &Parameters,
        start: &Parameters,
        _: &TrainingJob,
        _: &Adapters,
    ) -> Result<Trained, TrainerError> {
        let mut parameters = start.clone();
        parameters.values_mut().fill(self.secret);
        Ok(Trained { parameters, examples: 1, metrics: vec![] })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(vec![])
    }

    fn examples(&self) -> u64 {
        1
    }
}

/// Runs one round with a method. Returns the upload, all sent bytes, and the journal's content.
async fn marked(parted: bool, secret: f32, tweak: fn(&mut Assignment)) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let coordinator = Coordinator::new(1);
    coordinator.world(|world| (world.personal, world.matrix, world.tweak) = (parted, true, Some(tweak)));
    let journal = Arc::new(MemoryJournal::new());
    let mut participant = coordinator
        .app()
        .enrollment_token("token")
        .journal(Arc::clone(&journal))
        .trainer(Marked { secret, parted })
        .build()
        .unwrap();
    participant.run(std::future::pending()).await.unwrap();
    let record = journal.load(&snapshot::personal(task())).unwrap().unwrap();
    let (body, wire) = coordinator.world(|world| (world.accepted[&1].clone(), world.wire.clone()));
    (body.to_vec(), wire, record.to_vec())
}

#[tokio::test(start_paused = true)]
async fn no_method_sends_a_byte_of_what_it_keeps() {
    // Whether tensors are parted, whether the update is the same whatever is kept, and how often the secret is in the record.
    type Case = (bool, bool, f32, fn(&mut Assignment));
    let methods: [Case; 9] = [
        (true, true, 1.0, |a| a.encoding.personalization = Some(Personalization::FedPer {})),
        (true, true, 1.0, |a| a.encoding.personalization = Some(Personalization::FedRep { head_epochs: 2 })),
        (true, true, 1.0, |a| a.encoding.personalization = Some(Personalization::FedBn {})),
        (false, true, 1.0, |a| {
            a.encoding.personalization = Some(Personalization::FineTune { epochs: Some(7), learning_rate: None });
        }),
        (false, true, 1.0, |a| a.encoding.personalization = Some(Personalization::Ditto { lambda: 1.0, epochs: None })),
        // Its update follows the own model by design.
        (false, false, 1.0, |a| {
            let method = Personalization::PFedMe { lambda: 1.0, local_rounds: 1, steps: 1, rate: 0.5 };
            a.encoding.personalization = Some(method);
        }),
        // α v + (1 - α) w is the secret, w is 0 and α a half.
        (false, true, 2.0, |a| {
            a.encoding.personalization = Some(Personalization::Apfl { alpha: 0.5, alpha_rate: 0.0 })
        }),
        // Its update follows the own model by design, which keeps three quarters.
        (false, false, 0.75, |a| {
            a.encoding.personalization = Some(Personalization::Elastic { alpha: 0.25 });
            a.training.epochs += 1;
        }),
        (false, true, 1.0, |a| {
            a.encoding.personalization = Some(Personalization::Lora {
                layers: vec!["base".into()],
                rank: 1,
                alpha: None,
                adapters: AdapterScope::Personal,
                epochs: None,
                base_sha256: None,
            });
        }),
    ];
    let contains = |bytes: &[u8], value: f32| bytes.windows(4).any(|window| window == value.to_le_bytes());
    for (number, (parted, same, factor, tweak)) in methods.into_iter().enumerate() {
        let (body, wire, record) = marked(parted, SECRET, tweak).await;
        assert!(contains(&record, SECRET * factor), "method {number}: the journal keeps it");
        assert!(!wire.is_empty() && !contains(&wire, SECRET) && !contains(&wire, SECRET * factor), "method {number}");
        assert!(
            wire.windows(body.len()).any(|window| window == body),
            "method {number}: all that is sent was looked at"
        );
        let (other, ..) = marked(parted, SECRET / 3.0, tweak).await;
        assert_eq!(body == other, same, "method {number}: whatever is kept, the same update is sent");
    }
}

#[tokio::test(start_paused = true)]
async fn the_app_has_the_own_model_after_each_round_and_after_a_restart() {
    let (coordinator, _, journal) = run(true).await;
    let again = coordinator.app().journal(journal).trainer(Secretive(Arc::default())).build().unwrap();
    let model = again.model(task()).unwrap().unwrap();
    assert_eq!(model.origin(), Origin::Personalized { round: 3 });
    // The model received in round 3, and its trained head.
    assert_eq!(model.parameters().values(), [2.0, 2.0, 2.0, SECRET + 3.0, SECRET + 3.0]);
    // Without personalization the journal lacks personalized models.
    let (coordinator, _, journal) = run(false).await;
    drop(coordinator);
    assert!(Model::load_personalized(&journal, task()).unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_trainer_without_constraints_refuses_the_methods_that_need_them() {
    let coordinator = Coordinator::new(1);
    coordinator.world(|world| {
        world.tweak = Some(|a| a.encoding.personalization = Some(Personalization::Ditto { lambda: 1.0, epochs: None }));
    });
    let mut participant = coordinator
        .app()
        .enrollment_token("token")
        .journal(MemoryJournal::new())
        .trainer(crate::support::trainers::Nudge::default())
        .build()
        .unwrap();
    participant.run(std::future::pending()).await.unwrap();
    coordinator.world(|world| {
        assert_eq!(world.abandoned, [(1, "refused")]);
        assert!(world.accepted.is_empty());
    });
}
