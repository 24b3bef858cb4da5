//! Options that the commands of participants share: the requirements on tasks, and the journal.

use std::path::PathBuf;

use client_sdk::journal::{FileJournal, JournalFiles};
use client_sdk::{Lifetime, PrivacyPolicy, SecurityPolicy};
use wire::Digest;

use super::failures::failure;
use crate::failure::{Exit, Failure, Outcome};

/// What a participant requires of the tasks that it takes part in.
#[derive(clap::Args)]
pub(crate) struct PolicyArgs {
    /// Also take part in tasks whose updates the coordinator can read
    #[arg(long)]
    insecure_aggregation: bool,
    /// Minimum cohort to take part in
    #[arg(long, value_name = "N", default_value_t = SecurityPolicy::default().min_cohort)]
    min_cohort: u16,
    /// Minimum number of colluding participants that the smallest cohort must tolerate
    #[arg(long, value_name = "N", default_value_t = SecurityPolicy::default().min_tolerated_colluders)]
    min_tolerated_colluders: u16,
    /// Minimum fraction of colluding participants that a cohort must tolerate, 0 to 0.5
    #[arg(long, value_name = "FRACTION", default_value_t = SecurityPolicy::default().min_tolerated_corrupt)]
    min_tolerated_corrupt: f64,
    /// Minimum number of updates in an opened sum; in a sum of two, each member can compute the other's update
    #[arg(long, value_name = "N", default_value_t = SecurityPolicy::default().min_included)]
    min_included: u16,
    /// Minimum size of the fixed batch that every member of a session must belong to; 0: the task decides
    #[arg(long, value_name = "N", default_value_t = SecurityPolicy::default().min_batch)]
    min_batch: u16,
    /// Id of the fixed batch to leave for another one, for example because a member is gone for good
    #[arg(long, value_name = "ID")]
    leave_batch: Option<Digest>,
    /// Maximum staleness of updates in asynchronous tasks, in versions; above 0, a dishonest coordinator may isolate an
    /// update by publishing a version from which nothing can be learned
    #[arg(long, value_name = "N", default_value_t = SecurityPolicy::default().max_staleness)]
    max_staleness: u32,
    /// Maximum epsilon per task, against observers who know that this participant took part
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    max_epsilon: Option<f64>,
    /// Maximum epsilon of all private tasks together at delta 1e-5, counted in the same way, over the journal's
    /// lifetime
    #[arg(long, value_name = "E", default_value_t = Lifetime::default().epsilon, allow_negative_numbers = true)]
    lifetime_epsilon: f64,
    /// Only take part in tasks with a privacy mechanism
    #[arg(long)]
    require_privacy: bool,
}

/// Where a participant keeps its state.
#[derive(clap::Args)]
pub(crate) struct JournalArgs {
    /// Folder for persistent state: key, certificate, pending update. Do not restore it from a copy
    #[arg(long, value_name = "DIR")]
    journal: PathBuf,
    /// File with the key that seals the journal, created on first use [default: DIR.key]
    #[arg(long, value_name = "FILE")]
    journal_key: Option<PathBuf>,
    /// File that identifies the latest state of the journal, created on first use; store it on another disk, so that
    /// copies exclude it [default: DIR.generation]
    #[arg(long, value_name = "FILE")]
    journal_generation: Option<PathBuf>,
}

impl PolicyArgs {
    /// Rejects values without a meaning.
    pub(crate) fn check(&self) -> Outcome {
        if self.max_epsilon.is_some_and(|epsilon| !(epsilon.is_finite() && epsilon > 0.0)) {
            return Err(Failure::new(Exit::Usage, "--max-epsilon must be finite and above 0"));
        }
        if !(self.lifetime_epsilon.is_finite() && self.lifetime_epsilon > 0.0) {
            return Err(Failure::new(Exit::Usage, "--lifetime-epsilon must be finite and above 0"));
        }
        Ok(())
    }

    pub(crate) fn security(&self, tell_loss: bool) -> SecurityPolicy {
        SecurityPolicy {
            required: !self.insecure_aggregation,
            min_cohort: self.min_cohort,
            min_tolerated_colluders: self.min_tolerated_colluders,
            min_tolerated_corrupt: self.min_tolerated_corrupt,
            min_included: self.min_included,
            min_batch: self.min_batch,
            leave_batch: self.leave_batch,
            max_staleness: self.max_staleness,
            tell_loss,
        }
    }

    pub(crate) fn privacy(&self) -> PrivacyPolicy {
        PrivacyPolicy {
            required: self.require_privacy,
            max_epsilon: self.max_epsilon,
            lifetime: Some(Lifetime { epsilon: self.lifetime_epsilon, ..Lifetime::default() }),
            ..PrivacyPolicy::default()
        }
    }
}

impl JournalArgs {
    /// Opens the journal, which locks it.
    pub(crate) fn open(&self) -> Outcome<FileJournal> {
        let beside = JournalFiles::beside(&self.journal);
        let journal = JournalFiles {
            key: self.journal_key.clone().unwrap_or(beside.key),
            generation: self.journal_generation.clone().unwrap_or(beside.generation),
            folder: beside.folder,
        };
        journal.open().map_err(|error| failure(&error.into()))
    }
}
