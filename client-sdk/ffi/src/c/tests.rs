//! Calls with the numbers and pointers of a program in C, without a participant.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex};

use client_sdk::learning::{Layout, MetricValue, Parameters, TensorSpec};
use client_sdk::runner::CallbackTrainer;
use client_sdk::{Cancel, Checkpoints, Purpose, Trained, Trainer as _, TrainerError, TrainingJob, TrainingPlan};

use super::arguments::{array, give, optional, text};
use super::code::TributaryCode;
use super::exchange::{TributaryExchange, tributary_exchange_fail, tributary_exchange_head};
use super::job::{
    TributaryJob, TributaryMetric, TributaryPlan, hand_out, tributary_job_check, tributary_job_checkpoint,
    tributary_job_description, tributary_job_fail, tributary_job_finish, tributary_job_free,
    tributary_job_is_checkpoint_due, tributary_job_parameters, tributary_job_plan, tributary_job_refuse,
    tributary_job_save_checkpoint, tributary_job_should_pause, tributary_job_tensor,
};
use super::machine::{TributaryMachine, tributary_machine_close, tributary_machine_open, tributary_machine_perform};
use super::model::{TributaryModel, tributary_model_free, tributary_model_load, tributary_model_parameters};
use super::participant::{
    TributaryParticipant, tributary_close, tributary_last_error, tributary_next, tributary_start, tributary_version,
};
use super::tensors::TributaryTensor;
use crate::job::Job;

/// A matrix and a number.
fn model() -> Parameters {
    let tensor = |name: &str, shape: &[u64]| TensorSpec { name: name.to_owned(), shape: shape.to_vec() };
    let layout = Layout::new(vec![tensor("w", &[2, 2]), tensor("b", &[])]).unwrap();
    Parameters::new(Arc::new(layout), vec![0.0, 1.0, 2.0, 3.0, 4.0]).unwrap()
}

/// Gives an app the handle of a job to train, and returns its answer.
fn trained(mut train: impl FnMut(TributaryJob) + Send) -> Result<Trained, TrainerError> {
    let training = TrainingJob {
        task: "task".to_owned(),
        round: 3,
        purpose: Purpose::Shared,
        plan: TrainingPlan::default(),
        architecture: None,
        table: None,
        analytics: None,
        metrics: vec!["accuracy".to_owned()],
        seed: 5,
        deadline: None,
        cancel: Cancel::default(),
        checkpoints: Checkpoints::default(),
    };
    CallbackTrainer::new(3, |job| train(hand_out(Arc::new(Job::new(job, None))).unwrap())).train(&model(), &training)
}

fn parameters(job: TributaryJob) -> (*mut f32, usize) {
    let (mut values, mut count) = (null_mut(), 0);
    assert_eq!(tributary_job_parameters(job, &raw mut values, &raw mut count), TributaryCode::Ok);
    (values, count)
}

#[test]
fn a_model_that_is_trained_in_place_is_handed_in() {
    let answered = trained(|job| {
        let (values, count) = parameters(job);
        assert_eq!(array(values.cast_const(), count, "values"), Ok(&[0.0, 1.0, 2.0, 3.0, 4.0][..]));
        give(7.5, values, "value").unwrap();
        // A second request returns the same memory, and both pointers may be used.
        let (again, _) = parameters(job);
        assert_eq!(values, again);
        give(8.5, again.wrapping_add(4), "value").unwrap();
        assert_eq!(tributary_job_check(job), TributaryCode::Ok);
        give(9.5, values.wrapping_add(1), "value").unwrap();
        assert_eq!(tributary_job_finish(job, null(), 0, 10, null(), 0), TributaryCode::Ok);
        assert_eq!(tributary_job_finish(job, null(), 0, 10, null(), 0), TributaryCode::Closed);
        assert_eq!(tributary_job_parameters(job, null_mut(), null_mut()), TributaryCode::Closed);
    });
    let Trained { parameters, examples, metrics } = answered.unwrap();
    assert_eq!((parameters.values(), examples, metrics), (&[7.5, 9.5, 2.0, 3.0, 8.5][..], 10, vec![]));
}

#[test]
fn the_jobs_own_pointer_is_as_good_as_none() {
    let answered = trained(|job| {
        let (values, count) = parameters(job);
        give(7.5, values, "value").unwrap();
        assert_eq!(tributary_job_finish(job, values, count, 10, null(), 0), TributaryCode::Ok);
    });
    assert_eq!(answered.unwrap().parameters.values(), [7.5, 1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn an_update_that_does_not_fit_leaves_the_job_open() {
    let given = [1.0_f32; 6];
    let answered = trained(|job| {
        let finish = |values: *const f32, count, metrics: &[TributaryMetric]| {
            tributary_job_finish(job, values, count, 10, metrics.as_ptr(), metrics.len())
        };
        for (values, count, code) in [
            (null(), 5, TributaryCode::Update),
            (given.as_ptr(), 4, TributaryCode::Update),
            (given.as_ptr(), 6, TributaryCode::Update),
            (given.as_ptr().wrapping_byte_add(1), 5, TributaryCode::Argument),
        ] {
            assert_eq!(finish(values, count, &[]), code, "{count} values");
        }
        let metric = |name: *const c_char| [TributaryMetric { name, value: 0.5, count: 3 }];
        for name in [null(), c"\xff".as_ptr()] {
            assert_eq!(finish(given.as_ptr(), 5, &metric(name)), TributaryCode::Argument);
        }
        assert_eq!(tributary_job_finish(job, given.as_ptr(), 5, 10, null(), 1), TributaryCode::Argument);
        assert_eq!(finish(given.as_ptr(), 5, &metric(c"accuracy".as_ptr())), TributaryCode::Ok);
    });
    let Trained { parameters, examples, metrics } = answered.unwrap();
    assert_eq!((parameters.values(), examples), (&[1.0; 5][..], 10));
    assert_eq!(metrics, [("accuracy".to_owned(), MetricValue { value: 0.5, count: 3 })]);
}

#[test]
fn what_a_job_tells_is_written_whole_and_can_be_read_until_it_ends() {
    let answered = trained(|job| {
        let mut json = null();
        assert_eq!(tributary_job_description(job, &raw mut json), TributaryCode::Ok);
        let mut plan = MaybeUninit::<TributaryPlan>::uninit();
        assert_eq!(tributary_job_plan(job, plan.as_mut_ptr()), TributaryCode::Ok);
        // Its first field.
        assert_eq!(optional(plan.as_ptr().cast::<u32>(), "round"), Ok(Some(3)));
        assert_eq!(tributary_job_plan(job, null_mut()), TributaryCode::Argument);

        let mut tensor = TributaryTensor { name: null(), shape: null(), dimensions: 9, offset: 9, count: 9 };
        for (number, name, shape, offset, count) in [(0, "w", &[2, 2][..], 0, 4), (1, "b", &[][..], 4, 1)] {
            assert_eq!(tributary_job_tensor(job, number, &raw mut tensor), TributaryCode::Ok);
            assert_eq!((tensor.offset, tensor.count), (offset, count));
            assert_eq!(text(tensor.name, "name"), Ok(name));
            assert_eq!(array(tensor.shape, tensor.dimensions, "shape"), Ok(shape));
        }
        assert_eq!(tributary_job_tensor(job, 2, &raw mut tensor), TributaryCode::Nothing);
        assert_eq!(tributary_job_tensor(job, 0, null_mut()), TributaryCode::Argument);

        // This test runs without a store of checkpoints.
        assert_eq!(tributary_job_checkpoint(job, null_mut(), 0, null_mut()), TributaryCode::Nothing);
        assert_eq!(tributary_job_save_checkpoint(job, null(), 1), TributaryCode::Argument);
        assert_eq!(tributary_job_save_checkpoint(job, null(), 0), TributaryCode::Overdue);
        assert_eq!(tributary_job_is_checkpoint_due(job), TributaryCode::Nothing);
        assert_eq!(tributary_job_should_pause(job), TributaryCode::Nothing);

        assert!(text(json, "json").unwrap().contains(r#""round":3"#));
        assert_eq!(tributary_job_free(job), TributaryCode::Ok);
        assert_eq!(tributary_job_free(job), TributaryCode::Closed);
        assert_eq!(tributary_job_description(job, &raw mut json), TributaryCode::Closed);
    });
    assert!(matches!(answered, Err(TrainerError::Failed(_))));
}

#[test]
fn of_several_threads_that_answer_a_job_one_is_heard() {
    let codes = Mutex::new(Vec::new());
    let answered = trained(|job| {
        assert_eq!(tributary_job_fail(job, null()), TributaryCode::Argument, "it is still open");
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let code = tributary_job_refuse(job, c"not such a job".as_ptr());
                    codes.lock().unwrap().push(code);
                });
            }
        });
    });
    assert!(matches!(answered, Err(TrainerError::Refused(_))));
    let codes = codes.into_inner().unwrap();
    assert_eq!(codes.iter().filter(|code| **code == TributaryCode::Ok).count(), 1, "{codes:?}");
    let is_late = |code: &TributaryCode| matches!(code, TributaryCode::Answered | TributaryCode::Closed);
    assert_eq!(codes.iter().filter(|code| is_late(code)).count(), 2, "{codes:?}");
}

extern "C" fn never(_: *mut std::ffi::c_void, _: TributaryJob) {
    unreachable!("there is no machine")
}

#[test]
fn a_handle_that_was_made_up_stands_for_nothing() {
    for id in [0, u64::MAX] {
        let mut job = TributaryJob { id };
        assert_eq!(tributary_job_check(job), TributaryCode::Closed);
        assert_eq!(tributary_next(TributaryParticipant { id }, 0, &raw mut job), TributaryCode::Closed);
        assert_eq!(tributary_close(TributaryParticipant { id }, 0), TributaryCode::Closed);
        let machine = TributaryMachine { id };
        assert_eq!(tributary_machine_perform(machine, Some(never), null_mut()), TributaryCode::Closed);
        assert_eq!(tributary_machine_close(machine), TributaryCode::Closed);
        let model = TributaryModel { id };
        assert_eq!(tributary_model_parameters(model, null_mut(), null_mut()), TributaryCode::Closed);
        assert_eq!(tributary_model_free(model), TributaryCode::Closed);
        let exchange = TributaryExchange { id };
        assert_eq!(tributary_exchange_head(exchange, 200, null(), 0), TributaryCode::Closed);
        assert_eq!(tributary_exchange_fail(exchange, c"lost".as_ptr()), TributaryCode::Closed);
        assert_eq!(tributary_exchange_fail(exchange, null()), TributaryCode::Argument);
    }
}

#[test]
fn options_that_cannot_be_read_start_nothing_and_the_reason_fits_its_buffer() {
    let mut participant = TributaryParticipant { id: 0 };
    let (mut machine, mut model) = (TributaryMachine { id: 0 }, TributaryModel { id: 0 });
    assert_eq!(tributary_start(c"{}".as_ptr(), null(), null_mut()), TributaryCode::Argument);
    assert_eq!(tributary_start(null(), null(), &raw mut participant), TributaryCode::Argument);
    assert_eq!(tributary_machine_open(c"\xff".as_ptr(), null(), &raw mut machine), TributaryCode::Argument);
    assert_eq!(
        tributary_model_load(c"{".as_ptr(), null(), c"t".as_ptr(), &raw mut model),
        TributaryCode::Configuration
    );
    assert_eq!(tributary_start(c"{".as_ptr(), null(), &raw mut participant), TributaryCode::Configuration);
    assert_eq!((participant.id, machine.id, model.id), (0, 0, 0));

    let mut length = 0;
    assert_eq!(tributary_last_error(null_mut(), 0, &raw mut length), TributaryCode::TooSmall);
    let mut buffer = vec![0; length];
    assert_eq!(tributary_last_error(buffer.as_mut_ptr(), length - 1, null_mut()), TributaryCode::TooSmall);
    assert_eq!(tributary_last_error(buffer.as_mut_ptr(), length, null_mut()), TributaryCode::Ok);
    assert_eq!(text(buffer.as_ptr(), "reason").unwrap().len() + 1, length);
    assert_eq!(text(tributary_version(), "version"), Ok(env!("CARGO_PKG_VERSION")));
}
