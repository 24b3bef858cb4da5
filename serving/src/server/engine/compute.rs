//! Computes a batch: answers its requests and compares versions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

use client_sdk::train::TrainError;
use inference::Moment;
use inference::batcher::{Batch, Part};
use tokio::time::Instant;

use super::super::input::{Input, Prediction, joined};
use super::super::meters::QueueMeters;
use super::pending_request::{ModelPair, NoAnswer, PendingRequest};

/// Computes a batch and answers its requests. Returns the duration. Texts of different lengths, and requests that
/// cannot be combined, are computed one by one.
pub(super) fn compute(meters: &QueueMeters, batch: Batch<ModelPair, PendingRequest>, now: Moment) -> Duration {
    let began = Instant::now();
    let Batch { target, parts } = batch;
    let examples: usize = parts.iter().map(|part| part.examples).sum();
    for part in &parts {
        meters.queued(now.saturating_sub(part.since));
    }
    // A single request needs no copy of its input.
    let together = if parts.len() > 1 { joined(parts.iter().map(|part| &part.pending.input)) } else { None };
    let together = together.and_then(|input| contained(|| target.model.compute(&input)).ok().map(|said| (input, said)));
    let said: Vec<(Input, Vec<u32>)> = match together {
        Some((input, all)) => {
            let classes = target.comparison.is_some().then(|| all.classes.clone());
            share(parts, &all, examples);
            classes.map(|classes| (input, classes)).into_iter().collect()
        }
        None => parts.into_iter().filter_map(|part| answer_alone(&target, part.pending)).collect(),
    };
    let took = began.elapsed();
    meters.computed(examples, took);
    // After all answers are sent, so that no client waits for the comparison.
    if let Some((stable, tell)) = &target.comparison {
        for (input, classes) in &said {
            let _ = contained(|| stable.compute(input).map(|other| tell(classes, &other.classes)));
        }
    }
    took
}

/// Computes and answers one part. Returns its input and classes if they are to be compared.
fn answer_alone(target: &ModelPair, PendingRequest { input, answer }: PendingRequest) -> Option<(Input, Vec<u32>)> {
    let said = contained(|| target.model.compute(&input));
    if matches!(said, Err(NoAnswer::Panicked)) && !target.model.has_panicked.swap(true, Ordering::Relaxed) {
        let version = target.model.version;
        tracing::error!(version, "computing with version {version} panicked: who asked is answered 500; told once");
    }
    let classes = said.as_ref().ok().filter(|_| target.comparison.is_some()).map(|said| said.classes.clone());
    let _ = answer.send(said);
    classes.map(|classes| (input, classes))
}

/// Computes and catches panics, so that the thread continues. Drops the prepared state of a panicked version.
pub(super) fn contained<T>(work: impl FnOnce() -> Result<T, TrainError>) -> Result<T, NoAnswer> {
    Ok(catch_unwind(AssertUnwindSafe(work)).map_err(|_| NoAnswer::Panicked)??)
}

/// Sends each part its share of the results.
fn share(parts: Vec<Part<PendingRequest>>, all: &Prediction, examples: usize) {
    let (count, mut start) = (examples, 0);
    for Part { examples, pending, .. } in parts {
        let _ = pending.answer.send(Ok(all.part(count, start..start + examples)));
        start += examples;
    }
}
