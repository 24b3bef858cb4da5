//! The reported state of a model's versions: active version, canary, and unused versions with reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use inference::Moment;
use inference::rollout::{Reason, Rollout};
use inference::versions::Versions;
use wire::inspect::{CanaryView, REFUSED_MAX, RefusedBecause, RefusedVersion};

/// Why versions are not used.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<BTreeMap<u32, RefusedBecause>>);

impl Refusals {
    /// Versions that an earlier process rolled back or replaced, without a stored reason.
    pub(crate) fn before(refused: &BTreeSet<u32>) -> Self {
        Self(Mutex::new(refused.iter().map(|&version| (version, RefusedBecause::Earlier)).collect()))
    }

    pub(crate) fn note(&self, version: u32, because: RefusedBecause) {
        self.lock().insert(version, because);
    }

    /// Records the reason of a rollback.
    pub(crate) fn note_taken_back(&self, version: u32, reason: Reason) {
        let because = match reason {
            Reason::Errors { .. } => RefusedBecause::Errors,
            Reason::Slow { .. } => RefusedBecause::Slow,
            Reason::Disagrees { .. } => RefusedBecause::Disagreement,
        };
        self.note(version, because);
    }

    /// Records those of these versions without a reason.
    pub(crate) fn note_others(&self, refused: &BTreeSet<u32>, because: RefusedBecause) {
        let mut noted = self.lock();
        for &version in refused {
            noted.entry(version).or_insert(because);
        }
    }

    /// Removes the reason of a version that is used after all.
    pub(crate) fn forget(&self, version: u32) {
        self.lock().remove(&version);
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn newest(&self) -> Vec<RefusedVersion> {
        let noted = self.lock();
        let newest = noted.iter().rev().take(REFUSED_MAX);
        newest.map(|(&version, &because)| RefusedVersion { version, because }).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, RefusedBecause>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of a model's versions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServingStatus {
    /// `None` before a version of the task is ready.
    pub(crate) version: Option<u32>,
    pub(crate) canary: Option<CanaryView>,
    /// Newest first.
    pub(crate) refused: Vec<RefusedVersion>,
}

impl ServingStatus {
    /// The current state of these versions.
    pub(crate) fn of<M>(versions: &Versions<M>, rollout: &Rollout, now: Moment, refusals: &Refusals) -> Self {
        let version = versions.stable().filter(|_| !versions.is_former()).map(|held| held.version);
        let canary = versions.canary().zip(versions.canary_ends(rollout)).map(|(held, end)| CanaryView {
            version: held.version,
            percent: rollout.canary_percent,
            left_ms: u64::try_from(end.saturating_sub(now).as_millis()).unwrap_or(u64::MAX),
        });
        Self { version, canary, refused: refusals.newest() }
    }

    /// Whether another state differs at most in the remaining time of a canary.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let canary = |of: &Self| of.canary.map(|canary| canary.version);
        (self.version, canary(self), &self.refused) == (other.version, canary(other), &other.refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_refusals_are_told_with_what_is_known_of_them() {
        let refusals = Refusals::before(&BTreeSet::from([1, 2]));
        refusals.note(3, RefusedBecause::Slow);
        refusals.note_others(&BTreeSet::from([1, 2, 3, 4]), RefusedBecause::RolledBack);
        refusals.note(5, RefusedBecause::Damaged);
        refusals.forget(5);
        let told = |refusals: &Refusals| -> Vec<(u32, RefusedBecause)> {
            refusals.newest().iter().map(|refused| (refused.version, refused.because)).collect()
        };
        let (earlier, back) = (RefusedBecause::Earlier, RefusedBecause::RolledBack);
        assert_eq!(told(&refusals), [(4, back), (3, RefusedBecause::Slow), (2, earlier), (1, earlier)]);
        for version in 10..30 {
            refusals.note(version, RefusedBecause::Unfit);
        }
        let newest = told(&refusals);
        assert_eq!((newest.len(), newest[0].0, newest[9].0), (REFUSED_MAX, 29, 20));
        refusals.clear();
        assert!(told(&refusals).is_empty());
    }

    #[test]
    fn a_trial_that_goes_on_is_no_news() {
        let canary = |left_ms| Some(CanaryView { version: 4, percent: 20.0, left_ms });
        let before = ServingStatus { version: Some(3), canary: canary(60_000), refused: Vec::new() };
        assert!(before.is_like(&ServingStatus { canary: canary(59_000), ..before.clone() }));
        let refused = vec![RefusedVersion { version: 4, because: RefusedBecause::Slow }];
        for after in [
            ServingStatus { canary: None, ..before.clone() },
            ServingStatus { version: Some(4), ..before.clone() },
            ServingStatus { refused, ..before.clone() },
        ] {
            assert!(!before.is_like(&after), "{after:?}");
        }
    }
}
