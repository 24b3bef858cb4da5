//! Training of one model at a site with many GPUs: rules as data, and their consequences. Pure functions, without
//! queries to a machine.
//!
//! Every figure has its source: computed, assumed (a rule of thumb, or a vendor's data sheet), or the user's.

mod batch;
mod document;
mod figure;
mod memory;
pub(crate) mod report;
mod request;
mod rules;
mod script;
mod sizes;
mod strategy;
#[cfg(test)]
mod tests;

pub(crate) use document::plan;
pub(crate) use request::Request;
use rules::Sharding;
pub(crate) use rules::{Engine, Gpu, Network};
pub(crate) use script::{Launcher, script};
pub(crate) use sizes::{bytes, count};

/// Errors of planning: the wrong flag, and its valid values.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum WrongRequest {
    #[error(
        "--target-batch {target} is no multiple of {gpus} GPUs, and each GPU takes the same part of a batch: {} is one",
        either(*.below, *.above)
    )]
    Uneven { target: u64, gpus: u64, below: u64, above: u64 },
    #[error(
        "--batch-per-gpu {per_gpu} on {gpus} GPUs makes {together}, and --target-batch {target} is no multiple of it: {nearest} per GPU is"
    )]
    Accumulation { per_gpu: u64, gpus: u64, together: u64, target: u64, nearest: u64 },
    #[error(
        "--engine pytorch has no strategy for more than 70e9 parameters: leave --engine out, or say --engine deepspeed"
    )]
    Engine,
    #[error(
        "it does not fit: each GPU needs {needs} bytes ({}, a batch of one) and has {has}; {remedy}. Without --script the plan is printed all the same",
        .sharding.name()
    )]
    DoesNotFit { needs: u64, has: u64, sharding: Sharding, remedy: &'static str },
}

/// Both, or the one that they are.
fn either(below: u64, above: u64) -> String {
    if below == above { below.to_string() } else { format!("{below} or {above}") }
}
