//! The analysis description for a C program, and the rows that it returns.

use std::borrow::Cow;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use client_sdk::learning::Table;
use client_sdk::runner::{CallbackTrainer, Capabilities};
use client_sdk::{Cancel, Checkpoints, Purpose, Trainer as _, TrainerError, TrainingJob, TrainingPlan};
use serde_json::json;

use super::super::arguments::text;
use super::super::job::{hand_out, tributary_job_finish, tributary_job_parameters};
use super::*;
use crate::job::Job;

/// The participant's result of an analysis whose handle `app` has.
fn answered_by(mut app: impl FnMut(TributaryJob) + Send) -> Result<Table, TrainerError> {
    let columns = json!([{ "name": "x", "low": 0.0, "high": 1.0, "repeat": 2 }]);
    let target = json!({ "type": "class", "classes": 2 });
    let spec = json!({ "kind": "trees", "method": "boosting", "max_rows": 9, "columns": columns, "target": target,
                       "trees": 1, "depth": 1 });
    let job = TrainingJob {
        task: "t".to_owned(),
        round: 1,
        purpose: Purpose::Shared,
        plan: TrainingPlan::default(),
        architecture: None,
        table: None,
        analytics: Some(serde_json::from_value(spec).unwrap()),
        metrics: Vec::new(),
        seed: 1,
        deadline: None,
        cancel: Cancel::default(),
        checkpoints: Checkpoints::default(),
    };
    let able = Capabilities { analyses: true, ..Capabilities::default() };
    let mut trainer =
        CallbackTrainer::new(0, |job| app(hand_out(Arc::new(Job::new(job, None))).unwrap())).with_capabilities(able);
    trainer.table(&job).map(Cow::into_owned)
}

#[test]
fn an_analysis_is_told_and_takes_rows() {
    let mut said = String::new();
    let table = answered_by(|job| {
        let (mut json, mut values, mut count) = (null(), null_mut(), 9);
        assert_eq!(tributary_job_analysis(job, null_mut()), TributaryCode::Argument);
        assert_eq!(tributary_job_analysis(job, &raw mut json), TributaryCode::Ok);
        text(json, "json").unwrap().clone_into(&mut said);
        assert_eq!(tributary_job_parameters(job, &raw mut values, &raw mut count), TributaryCode::Ok);
        assert_eq!(count, 0);
        let given = [0.5, 1.0, 0.25, 0.0];
        let targets = [0.0, 1.0];
        assert_eq!(tributary_job_give_rows(job, given.as_ptr(), 2, 2, targets.as_ptr()), TributaryCode::Ok);
        assert_eq!(tributary_job_analysis(job, &raw mut json), TributaryCode::Closed);
    });
    let table = table.unwrap();
    assert_eq!((table.rows(), table.row(1), table.targets()), (2, &[0.25, 0.0][..], &[0.0, 1.0][..]));
    assert!(said.contains(r#""kind":"trees""#), "{said}");
}

#[test]
fn rows_that_do_not_fit_leave_the_job_open() {
    let answered = answered_by(|job| {
        let give = |values: &[f64], rows, width, targets: &[f64]| {
            tributary_job_give_rows(job, values.as_ptr(), rows, width, targets.as_ptr())
        };
        for (values, rows, width, targets) in [
            (&[0.5, 1.0][..], 2, 1, &[0.0, 1.0][..]),
            (&[0.5, f64::NAN], 1, 2, &[0.0]),
            (&[0.5, 1.0], 1, 2, &[2.0]),
            (&[], 0, 2, &[]),
            (&[], 2, 0, &[0.0, 1.0]),
        ] {
            assert_eq!(give(values, rows, width, targets), TributaryCode::Update, "{rows} rows of {width}");
        }
        assert_eq!(tributary_job_give_rows(job, null(), 1, 2, null()), TributaryCode::Argument);
        assert_eq!(give(&[0.5], usize::MAX, 2, &[]), TributaryCode::Argument);
        let (values, no_targets) = ([0.5, 1.0], null());
        assert_eq!(tributary_job_give_rows(job, values.as_ptr(), 1, 2, no_targets), TributaryCode::Update);
        assert_eq!(tributary_job_finish(job, null(), 0, 1, null(), 0), TributaryCode::Update, "a model is no answer");
        assert_eq!(give(&values, 1, 2, &[1.0]), TributaryCode::Ok);
    });
    assert_eq!(answered.unwrap().rows(), 1);
}
