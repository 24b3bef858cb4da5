//! The privacy audit: releases of a complete federation, observed from outside, compared with its ledger.
//!
//! A real coordinator and real participants in one process, over the public routes. The clean build must pass; each of
//! five faults that builds could have is switched on in turn and must be caught by its test:
//!
//! | fault | where | caught by |
//! |---|---|---|
//! | updates are not clipped | participants, and a coordinator that does not look | the lower bound on epsilon (`canaries`) |
//! | no noise is added | coordinator; participants | the lower bound (`canaries`); the variance (`variance`) |
//! | half the noise | participants | the variance |
//! | noise of those who dropped out is counted | coordinator | the variance |
//! | noise is used again | coordinator | the correlation of two rounds (`reused`) |
//!
//! `counted` audits participants that are in one of several rounds, as their ledger counts.
//!
//! Everything is a function of the seeds below, so results are stable. They were not chosen: with random seeds, a clean
//! build would fail `variance` with probability 0.002 (two mechanisms at 0.001), `canaries` with at most 0.011 (the
//! variance at 0.001, and the bound at 0.01 if the mechanism were as bad as its ledger allows), `counted` with at most 0.01
//! and `reused` with 0.001.
//! That a faulty build is caught has the prior probability that each test asserts, at least 0.99.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::cast_precision_loss, reason = "words of 32 bits are exact as doubles")]
#![expect(clippy::print_stdout, reason = "what was measured, for docs/PRIVACY.md")]

mod canaries;
mod counted;
mod device;
mod repeated;
mod reused;
mod variance;
mod world;

/// With which probability an honest noise's variance passes.
const CONFIDENCE: f64 = 0.999;
