//! Answers of two threads, in the order that tells most.

use client_sdk::learning::{Layout, Parameters, TensorSpec};
use client_sdk::runner::Called;
use client_sdk::{Cancel, Checkpoints, Purpose, Trained, Trainer as _, TrainerError, TrainingJob, TrainingPlan};

use super::*;

/// What a participant gets of a job whose handle `app` has.
fn trained_by(mut app: impl FnMut(TributaryJob) + Send) -> Result<Trained, TrainerError> {
    let layout = Layout::new(vec![TensorSpec { name: "w".to_owned(), shape: vec![2] }]).unwrap();
    let job = TrainingJob {
        task: "t".to_owned(),
        round: 1,
        purpose: Purpose::Shared,
        plan: TrainingPlan::default(),
        architecture: None,
        table: None,
        analytics: None,
        metrics: Vec::new(),
        seed: 1,
        deadline: None,
        cancel: Cancel::default(),
        checkpoints: Checkpoints::default(),
    };
    let mut trainer = Called::new(0, |job| app(hand_out(Arc::new(Job::new(job, None))).unwrap()));
    trainer.train(&Parameters::zeros(Arc::new(layout)), &job)
}

#[test]
fn an_answer_that_was_handed_in_is_ok_though_another_thread_forgets_the_handle() {
    let mut codes = Vec::new();
    let trained = trained_by(|job| {
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
    let trained = trained_by(|job| {
        codes.push(answer(job, |open| open.hand_in(Some(vec![f32::NAN; 2]), 1, Vec::new())));
        codes.push(tributary_job_fail(job, std::ptr::null()));
        codes.push(tributary_job_refuse(job, c"it cannot".as_ptr()));
    });
    assert_eq!(codes, [TributaryCode::Update, TributaryCode::Argument, TributaryCode::Ok]);
    assert!(matches!(trained, Err(TrainerError::Refused(_))));
}
