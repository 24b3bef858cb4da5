//! Where a trainer leaves its state, so that a training that was killed or paused goes on and does not begin again.

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::journal::JournalError;

/// Why a state was not kept. The training may go on all the same.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotKept {
    /// The state exceeds the app's limit.
    #[error("the checkpoint has {bytes} bytes, and its limit is {limit} (four times Builder::max_model_bytes)")]
    TooLarge {
        /// Size of the state with all that the round has computed before.
        bytes: u64,
        limit: u64,
    },
    /// The training was answered, paused or given up since, or its checkpoints are not kept.
    #[error("nobody waits for a checkpoint of this training")]
    Over,
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Keeps the state of one training. Implemented by the component that starts the training.
pub(crate) trait Keep: Send + Sync {
    fn load(&self) -> Option<Zeroizing<Vec<u8>>>;
    /// Whether there is a state to load.
    fn has_state(&self) -> bool;
    /// `at_once`: it goes to the journal however young the last one is.
    fn save(&self, state: &[u8], at_once: bool) -> Result<(), NotKept>;
    fn is_due(&self) -> bool;
    fn should_pause(&self) -> bool;
    fn must_pause(&self) -> bool;
}

/// The checkpoints of one training: opaque bytes, which the journal seals and drops with the round. They are found again by the
/// same training alone: of the same attempt, from the same model, by the same plan.
///
/// A trainer that saves must look at [`Self::should_pause`] between batches, as the SDK's own does:
///
/// ```
/// # use client_sdk::{TrainerError, TrainingJob};
/// # fn train(job: &TrainingJob, steps: u8) -> Result<u8, TrainerError> {
/// let mut done: u8 = job.checkpoints.load().and_then(|state| state.first().copied()).unwrap_or_default();
/// while done < steps {
///     done += 1; // a step
///     let pauses = job.checkpoints.should_pause();
///     if pauses || job.checkpoints.is_due() {
///         let is_kept = job.checkpoints.save(&[done]).is_ok();
///         if pauses && is_kept {
///             return Err(TrainerError::Paused);
///         }
///     }
/// }
/// # Ok(done)
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Checkpoints(Option<Arc<dyn Keep>>);

impl fmt::Debug for Checkpoints {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_some() { "Checkpoints" } else { "Checkpoints(none)" })
    }
}

impl Checkpoints {
    pub(crate) fn new(keep: Arc<dyn Keep>) -> Self {
        Self(Some(keep))
    }

    /// The last state that this training saved before it was killed or paused.
    #[must_use]
    pub fn load(&self) -> Option<Zeroizing<Vec<u8>>> {
        self.0.as_ref()?.load()
    }

    /// Whether there is a state to [load](Self::load). It is not copied.
    #[must_use]
    pub fn has_state(&self) -> bool {
        self.0.as_ref().is_some_and(|keep| keep.has_state())
    }

    /// Keeps the state in place of the last one, at most four times [`max_model_bytes`](crate::Builder::max_model_bytes). It goes to
    /// the journal unless the last one that did is younger than
    /// [`checkpoint_every`](crate::Builder::checkpoint_every); when the device's conditions do not hold it always does, and one that did not
    /// before goes to the journal before the training rests.
    ///
    /// # Errors
    /// [`NotKept`]; the last state is still there.
    pub fn save(&self, state: &[u8]) -> Result<(), NotKept> {
        self.0.as_ref().ok_or(NotKept::Over)?.save(state, false)
    }

    /// The same, in the journal when it returns: for a short state that refers to data kept elsewhere.
    #[cfg(feature = "process")]
    pub(crate) fn save_at_once(&self, state: &[u8]) -> Result<(), NotKept> {
        self.0.as_ref().ok_or(NotKept::Over)?.save(state, true)
    }

    /// Whether the last state is so old that a new one is worth its cost.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.0.as_ref().is_some_and(|keep| keep.is_due())
    }

    /// Whether the trainer should save its state and return [`TrainerError::Paused`](crate::TrainerError::Paused): the device's
    /// conditions do not hold, or its slice of time is used up. The job is handed out again later, if its round still waits.
    #[must_use]
    pub fn should_pause(&self) -> bool {
        self.0.as_ref().is_some_and(|keep| keep.should_pause())
    }

    /// Whether a training with a pause request has saved its state since, or has used up its grace period
    /// ([`Trainer::pause_grace`](crate::Trainer::pause_grace)).
    pub(crate) fn must_pause(&self) -> bool {
        self.0.as_ref().is_some_and(|keep| keep.must_pause())
    }
}
