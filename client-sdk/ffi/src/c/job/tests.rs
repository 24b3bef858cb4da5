//! The plan of a job, and answers of two threads in the most revealing order.

use std::mem::MaybeUninit;

use client_sdk::learning::{Layout, Parameters, TensorSpec};
use client_sdk::runner::CallbackTrainer;
use client_sdk::{Cancel, Checkpoints, Purpose, Trained, Trainer as _, TrainerError, TrainingJob, TrainingPlan};

use super::*;

/// The participant's result of a job whose handle `app` has.
fn trained_by(plan: TrainingPlan, mut app: impl FnMut(TributaryJob) + Send) -> Result<Trained, TrainerError> {
    let layout = Layout::new(vec![TensorSpec { name: "w".to_owned(), shape: vec![2] }]).unwrap();
    let job = TrainingJob {
        task: "t".to_owned(),
        round: 1,
        purpose: Purpose::Shared,
        plan,
        architecture: None,
        table: None,
        analytics: None,
        metrics: Vec::new(),
        seed: 1,
        deadline: None,
        cancel: Cancel::default(),
        checkpoints: Checkpoints::default(),
    };
    let mut trainer = CallbackTrainer::new(0, |job| app(hand_out(Arc::new(Job::new(job, None))).unwrap()));
    trainer.train(&Parameters::zeros(Arc::new(layout)), &job)
}

#[test]
fn an_answer_that_was_handed_in_is_ok_though_another_thread_forgets_the_handle() {
    let mut codes = Vec::new();
    let trained = trained_by(TrainingPlan::default(), |job| {
        let first = answer(job, |open| {
            let handed_in = open.hand_in(None, 3, Vec::new());
            // The other one finds the job answered before this one has forgotten its handle.
            codes.push(tributary_job_fail(job, c"it comes second".as_ptr()));
            handed_in
        });
        codes.extend([first, tributary_job_check(job)]);
    });
    assert_eq!(codes, [TributaryCode::Answered, TributaryCode::Ok, TributaryCode::Closed]);
    assert_eq!(trained.unwrap().examples, 3);
}

#[test]
fn an_answer_that_does_not_fit_leaves_the_handle() {
    let mut codes = Vec::new();
    let trained = trained_by(TrainingPlan::default(), |job| {
        codes.push(answer(job, |open| open.hand_in(Some(vec![f32::NAN; 2]), 1, Vec::new())));
        codes.push(tributary_job_fail(job, std::ptr::null()));
        codes.push(tributary_job_refuse(job, c"it cannot".as_ptr()));
    });
    assert_eq!(codes, [TributaryCode::Update, TributaryCode::Argument, TributaryCode::Ok]);
    assert!(matches!(trained, Err(TrainerError::Refused(_))));
}

#[test]
fn what_changes_the_rate_from_step_to_step_or_ends_training_early_is_told() {
    let told = |plan: &str| {
        let mut told = None;
        let left = trained_by(serde_json::from_str(plan).unwrap(), |job| {
            let mut plan = MaybeUninit::<TributaryPlan>::uninit();
            assert_eq!(tributary_job_plan(job, plan.as_mut_ptr()), TributaryCode::Ok);
            told = optional(plan.as_ptr(), "plan").unwrap();
        });
        assert!(left.is_err(), "it has no answer");
        let plan = told.unwrap();
        (plan.rate_changes, plan.budget_steps, plan.budget_ms)
    };
    assert_eq!(told("{}"), (0, 0, 0));
    assert_eq!(told(r#"{ "schedule": { "kind": "cosine", "length": 5, "over": "steps" } }"#), (1, 0, 0));
    assert_eq!(told(r#"{ "warmup": { "length": 3, "over": "steps" } }"#), (1, 0, 0));
    assert_eq!(told(r#"{ "budget": { "steps": 9 } }"#), (0, 9, 0));
    assert_eq!(told(r#"{ "budget": { "time_ms": 20 } }"#), (0, 0, 20));
}
