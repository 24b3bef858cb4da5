//! Columns of a C program, compared with the SDK's own trainer on the same examples.

use std::ptr::{null, null_mut};

use client_sdk::{Targets, TrainerError};

use super::super::guard::last_error;
use super::super::job::{hand_out, tributary_job_refuse};
use super::super::model::{hand_out as hand_out_model, tributary_model_free};
use super::*;
use crate::columns::tests::{
    HELD_OUT, LIST, TRAINED, architecture, bits, expected, kinds, known, numbers, output, targets, trained,
};
use crate::machine::tests::model_after;

fn floats(name: &'static std::ffi::CStr, values: &[f32]) -> TributaryColumn {
    let (name, floats, count) = (name.as_ptr(), values.as_ptr(), values.len());
    TributaryColumn { name, floats, integers: null(), truths: null(), count }
}

fn integers(name: &'static std::ffi::CStr, values: &[i64]) -> TributaryColumn {
    let (name, integers, count) = (name.as_ptr(), values.as_ptr(), values.len());
    TributaryColumn { name, floats: null(), integers, truths: null(), count }
}

fn truths(name: &'static std::ffi::CStr, values: &[u8]) -> TributaryColumn {
    let (name, truths, count) = (name.as_ptr(), values.as_ptr(), values.len());
    TributaryColumn { name, floats: null(), integers: null(), truths, count }
}

/// Examples with these columns and targets, which live longer.
fn of(columns: &[TributaryColumn], targets: &Targets, examples: usize) -> TributaryExamples {
    let (classes, numbers, target_count) = match targets {
        Targets::Classes(classes) => (classes.as_ptr(), null(), classes.len()),
        Targets::Numbers(numbers) => (null(), numbers.as_ptr(), numbers.len()),
    };
    let (columns, column_count) = (columns.as_ptr(), columns.len());
    TributaryExamples { columns, column_count, classes, numbers, target_count, examples, length: 1 }
}

#[test]
fn c_columns_train_the_same_bits_as_rust() {
    for loss in ["mse", "cross_entropy"] {
        let trained = trained(&architecture(loss), |job| {
            let job = hand_out(job).unwrap();
            let (some, kind, targets_of_some) = (numbers(TRAINED), kinds(TRAINED), targets(loss, TRAINED));
            let (mask, other_mask) = (known(TRAINED), known(HELD_OUT));
            let columns = [integers(c"kind", &kind), truths(c"known", &mask), floats(c"numbers", &some)];
            let (others, other_kind, other_targets) = (numbers(HELD_OUT), kinds(HELD_OUT), targets(loss, HELD_OUT));
            let other_columns =
                [floats(c"numbers", &others), integers(c"kind", &other_kind), truths(c"known", &other_mask)];
            let (examples, held_out) = (of(&columns, &targets_of_some, 8), of(&other_columns, &other_targets, 3));
            let train = || tributary_job_train_columns(job, &raw const examples, &raw const held_out);
            assert_eq!(train(), TributaryCode::Ok, "{}", last_error());
            assert_eq!(train(), TributaryCode::Closed);
        });
        let (trained, expected) = (trained.unwrap(), expected(loss));
        assert_eq!(bits(trained.parameters.values()), bits(expected.parameters.values()), "{loss}");
        assert_eq!((trained.examples, trained.metrics), (8, expected.metrics), "{loss}");
    }
}

/// Makes right examples wrong.
type Change<'a> = &'a (dyn Fn(&mut Vec<TributaryColumn>, &mut TributaryExamples) + Sync);

/// The reason for a refusal of changed examples, also as held-out ones, after which the job is still open.
fn refused(code: TributaryCode, change: Change<'_>) -> String {
    let mut why = String::new();
    let left = trained(&architecture("cross_entropy"), |job| {
        let job = hand_out(job).unwrap();
        let (some, kind, classes) = (numbers(TRAINED), kinds(TRAINED), targets("cross_entropy", TRAINED));
        let mask = known(TRAINED);
        let mut columns = vec![floats(c"numbers", &some), integers(c"kind", &kind), truths(c"known", &mask)];
        let rights = columns.clone();
        let right = of(&rights, &classes, 8);
        let mut wrong = right;
        change(&mut columns, &mut wrong);
        if !wrong.columns.is_null() {
            (wrong.columns, wrong.column_count) = (columns.as_ptr(), columns.len());
        }
        assert_eq!(tributary_job_train_columns(job, &raw const wrong, null()), code);
        why = last_error();
        // Held-out examples may be missing.
        if wrong.examples > 0 {
            assert_eq!(tributary_job_train_columns(job, &raw const right, &raw const wrong), code, "{why}");
        }
        assert_eq!(tributary_job_refuse(job, c"it does not fit".as_ptr()), TributaryCode::Ok);
    });
    assert!(matches!(left, Err(TrainerError::Refused(_))));
    why
}

#[test]
fn c_columns_that_do_not_fit_are_named() {
    let (ids, floats, mask) = ([0, 1, 2, 0, 1, 3, 0, 1], [0.5; 8], [1; 8]);
    let cases: [(Change<'_>, &str); 8] = [
        (&|columns, _| columns.truncate(1), "`kind`, which is missing"),
        (&|columns, _| columns[1].name = c"x".as_ptr(), "no input `x`"),
        (&|columns, _| columns.push(columns[1]), "the input `kind` once, not twice"),
        (&|columns, _| columns[0].count -= 2, "2 floats an example as its input `numbers`; 8 examples with 14 floats"),
        (
            &|columns, _| (columns[1].integers, columns[1].floats) = (null(), floats.as_ptr()),
            "1 integers an example as its input `kind`; 8 examples with 8 floats",
        ),
        (&|columns, _| columns.truncate(2), "`known`, which is missing"),
        (
            &|columns, _| (columns[1].integers, columns[1].truths) = (null(), mask.as_ptr()),
            "1 integers an example as its input `kind`; 8 examples with 8 truth values",
        ),
        (
            &|columns, _| columns[1].integers = ids.as_ptr(),
            "integers from 0 to 2 as its input `kind`, not 3 (example 5)",
        ),
    ];
    for (change, why) in cases {
        let text = refused(TributaryCode::Update, change);
        assert!(text.contains(why) && text.contains(LIST), "{text}");
    }
}

#[test]
fn c_targets_that_do_not_fit_are_named() {
    let (classes, floats) = ([0, 1, 2, 0, 1, 2, 3, 0], [0.5; 8]);
    let cases: [(Change<'_>, &str); 4] = [
        (&|_, examples| examples.target_count = 7, "got 7 targets where 8"),
        (&|_, examples| examples.classes = classes.as_ptr(), "example 6 has the label 3"),
        (
            &|_, examples| (examples.classes, examples.numbers) = (null(), floats.as_ptr()),
            "classes from 0 to 2 as targets",
        ),
        (&|_, examples| examples.examples = 0, "there are no examples"),
    ];
    for (change, why) in cases {
        let text = refused(TributaryCode::Update, change);
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn c_pointers_that_are_wrong_are_refused() {
    let (floats, mask) = ([0.5; 8], [0, 1, 1, 2, 1, 1, 1, 1]);
    let cases: [(Change<'_>, &str); 10] = [
        (&|columns, _| columns[0].name = null(), "a column's name is NULL"),
        (&|columns, _| columns[0].floats = null(), "column `numbers` must have one of floats, integers and truths"),
        (
            &|columns, _| columns[1].floats = floats.as_ptr(),
            "column `kind` must have one of floats, integers and truths",
        ),
        (&|columns, _| columns[1].truths = mask.as_ptr(), "column `kind` must have one of floats, integers and truths"),
        (
            &|columns, _| columns[2].truths = mask.as_ptr(),
            "column `known`: byte 3 of its truth values is 2; 0 is false, and 1 is true",
        ),
        (&|columns, _| columns[0].count = usize::MAX, "floats of `numbers` cannot have"),
        (
            &|columns, _| columns[1].integers = columns[1].integers.wrapping_byte_add(1),
            "integers of `kind` is not aligned to 8 bytes",
        ),
        (&|_, examples| examples.columns = null(), "columns is NULL"),
        (&|_, examples| examples.classes = null(), "the examples must have either classes or numbers"),
        (&|_, examples| examples.numbers = floats.as_ptr(), "the examples must have either classes or numbers"),
    ];
    for (change, why) in cases {
        let text = refused(TributaryCode::Argument, change);
        assert!(text.contains(why), "{text}");
    }
    let left = trained(&architecture("mse"), |job| {
        let job = hand_out(job).unwrap();
        assert_eq!(tributary_job_train_columns(job, null(), null()), TributaryCode::Argument);
        assert_eq!(last_error(), "examples is NULL");
    });
    assert!(left.is_err(), "it has no answer");
    let examples = of(&[], &Targets::Classes(Vec::new()), 1);
    let invented = TributaryJob { id: u64::MAX };
    assert_eq!(tributary_job_train_columns(invented, &raw const examples, null()), TributaryCode::Closed);
}

#[test]
fn c_model_predicts_columns_by_name() {
    let architecture = architecture("mse");
    let model = model_after(&architecture, |job| {
        let job = hand_out(job).unwrap();
        let (numbers, kind, targets) = (numbers(TRAINED), kinds(TRAINED), targets("mse", TRAINED));
        let mask = known(TRAINED);
        let columns = [integers(c"kind", &kind), truths(c"known", &mask), floats(c"numbers", &numbers)];
        let examples = of(&columns, &targets, 8);
        assert_eq!(tributary_job_train_columns(job, &raw const examples, null()), TributaryCode::Ok);
        Ok(())
    });
    let mut handle = TributaryModel { id: 0 };
    assert_eq!(hand_out_model(Some(model), &raw mut handle), Ok(TributaryCode::Ok));
    let (numbers, kind, mask) = (numbers(HELD_OUT), kinds(HELD_OUT), known(HELD_OUT));
    let columns = [integers(c"kind", &kind), floats(c"numbers", &numbers), truths(c"known", &mask)];
    let mut examples = of(&columns, &Targets::Classes(Vec::new()), 3);
    (examples.classes, examples.target_count) = (null(), 0);
    let (mut found, mut length) = ([0.0; 9], 0);
    let predict = |examples: &TributaryExamples, found: &mut [f32], length: *mut usize| {
        tributary_model_predict(handle, &raw const *examples, found.as_mut_ptr(), found.len(), length)
    };
    assert_eq!(predict(&examples, &mut found[..8], &raw mut length), TributaryCode::TooSmall);
    assert_eq!((length, found), (9, [0.0; 9]));
    assert_eq!(predict(&examples, &mut found, null_mut()), TributaryCode::Ok, "{}", last_error());
    assert_eq!(bits(&found), bits(&output(&architecture, HELD_OUT)));
    examples.column_count = 1;
    assert_eq!(predict(&examples, &mut found, null_mut()), TributaryCode::Argument);
    assert!(last_error().contains("`numbers`, which is missing") && last_error().contains(LIST), "{}", last_error());
    assert_eq!(tributary_model_predict(handle, null(), null_mut(), 0, null_mut()), TributaryCode::Argument);
    assert_eq!(tributary_model_free(handle), TributaryCode::Ok);
    assert_eq!(predict(&examples, &mut found, null_mut()), TributaryCode::Closed);
}
