//! A task's criteria are checked on the device; only the result is sent.

use std::sync::{Arc, Mutex};

use client_sdk::journal::MemoryJournal;
use client_sdk::learning::{MetricValue, Parameters};
use client_sdk::{Attribute, Attributes, Event, Trained, Trainer, TrainerError, TrainingJob};
use wire::Criterion;

use crate::support::{Coordinator, task};

/// Returns what it was given.
struct Idle;

impl Trainer for Idle {
    fn train(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Trained, TrainerError> {
        Ok(Trained { parameters: model.clone(), examples: 50, metrics: vec![] })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(vec![])
    }

    fn examples(&self) -> u64 {
        50
    }
}

fn criteria() -> Vec<Criterion> {
    let language = Criterion { attribute: "language".into(), one_of: vec!["de".into()], ..Criterion::default() };
    let examples = Criterion { attribute: "examples".into(), at_least: Some(50.0), ..Criterion::default() };
    vec![language, examples]
}

/// Runs to the end, and returns the reported criteria.
async fn run(
    coordinator: &Coordinator,
    criteria: Vec<Criterion>,
    attributes: impl Fn() -> Attributes + Send + Sync + 'static,
) -> Vec<bool> {
    coordinator.world(|world| world.criteria = criteria);
    let answers = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&answers);
    let mut participant = coordinator
        .app()
        .enrollment_token("token")
        .journal(MemoryJournal::new())
        .trainer(Idle)
        .attributes(attributes)
        .on_event(move |event| {
            if let Event::Asked { task: asking, eligible } = event {
                assert_eq!(*asking, task());
                seen.lock().unwrap().push(*eligible);
            }
        })
        .build()
        .unwrap();
    participant.run(std::future::pending()).await.unwrap();
    answers.lock().unwrap().clone()
}

fn speaks(language: &'static str) -> impl Fn() -> Attributes {
    move || [("language".to_owned(), Attribute::from(language)), ("secret".to_owned(), "needle".into())].into()
}

fn said(coordinator: &Coordinator, words: &str) -> bool {
    coordinator.world(|world| String::from_utf8_lossy(&world.wire).contains(words))
}

#[tokio::test]
async fn a_device_that_is_meant_says_yes_and_not_why() {
    let coordinator = Coordinator::new(1);
    assert_eq!(run(&coordinator, criteria(), speaks("de")).await, [true]);
    assert_eq!(coordinator.count("upload"), 1);
    assert!(said(&coordinator, "\"eligible\":true"));
    assert!(!said(&coordinator, "language") && !said(&coordinator, "needle"), "attributes stay on the device");
}

#[tokio::test]
async fn another_says_no_and_trains_nothing() {
    for attributes in [speaks("it")(), Attributes::new()] {
        let coordinator = Coordinator::new(1);
        assert_eq!(run(&coordinator, criteria(), move || attributes.clone()).await, [false]);
        assert_eq!((coordinator.count("upload"), coordinator.count("fetch")), (0, 0));
        assert!(said(&coordinator, "\"eligible\":false") && !said(&coordinator, "\"eligible\":true"));
    }
    // Too few examples, which every participant knows of itself.
    let more = Criterion { attribute: "examples".into(), at_least: Some(51.0), ..Criterion::default() };
    let coordinator = Coordinator::new(1);
    assert_eq!(run(&coordinator, vec![more], Attributes::new).await, [false]);
    assert_eq!(coordinator.count("upload"), 0);
}

#[tokio::test]
async fn graph_of_a_later_format_is_declined() {
    let graphs =
        |version| Criterion { attribute: "graph_version".into(), at_least: Some(version), ..Criterion::default() };
    let coordinator = Coordinator::new(1);
    assert_eq!(run(&coordinator, vec![graphs(2.0)], Attributes::new).await, [true]);
    let coordinator = Coordinator::new(1);
    assert_eq!(run(&coordinator, vec![graphs(3.0)], speaks("de")).await, [false]);
    assert_eq!(coordinator.count("fetch"), 0);
}

#[tokio::test]
async fn what_changes_is_told_at_the_next_check_in() {
    let coordinator = Coordinator::new(1);
    let sent_away = coordinator.clone();
    let attributes = move || speaks(if sent_away.world(|world| world.declined) == 0 { "it" } else { "de" })();
    assert_eq!(run(&coordinator, criteria(), attributes).await, [false], "asked once");
    assert_eq!((coordinator.world(|world| world.declined), coordinator.count("upload")), (1, 1));
}

#[tokio::test]
async fn a_task_without_criteria_asks_nothing() {
    let coordinator = Coordinator::new(1);
    assert!(run(&coordinator, Vec::new(), speaks("de")).await.is_empty());
    assert_eq!(coordinator.count("upload"), 1);
    assert!(!said(&coordinator, "findings"));
}

#[tokio::test]
async fn a_check_in_does_not_tell_how_many_examples_there_are() {
    let coordinator = Coordinator::new(1);
    assert_eq!(run(&coordinator, criteria(), speaks("de")).await, [true]);
    assert!(said(&coordinator, "\"eligible\":true"));
    assert!(!said(&coordinator, "\"examples\":50"), "that there are at least 50 is all that was asked");
}
