//! The SDK from outside. What tests one source file lies at its path; the others are about whole rounds, restarts and lies.
#![expect(clippy::unwrap_used, clippy::cast_precision_loss, reason = "helpers of tests are not tests themselves")]

mod support;

#[cfg(feature = "deliberate-faults")]
mod faults;
mod participant;
mod personalize;
mod pre_issued;
mod privacy;
mod train;
mod trainer;
mod transport;

mod checkpoints;
mod device_conditions;
mod doctored;
mod downloads;
mod fairness;
mod far;
mod final_model;
mod local_model;
mod members;
mod names;
mod offline;
mod private;
mod provenance;
mod rejections;
mod renewal_killed;
mod restart;
mod restored;
mod runner;
mod secrecy;
mod secure;
mod secure_restart;
mod solvers;
mod train_mnist;
mod withdrawal;
