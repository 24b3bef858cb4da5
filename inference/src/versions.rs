//! The versions of a model in memory, and their roles.
//!
//! A version is downloaded and verified, loaded, warmed up ([`Warm::judge`]), and then activated. At most two versions
//! are in memory: the stable one, and either a canary or a draining one. A draining version answers its pending
//! requests and gets no new ones, so a change of versions fails no request.

use std::collections::BTreeSet;

use crate::Moment;
use crate::rollout::{Reason, Rollout, Side, Verdict, Watch};

/// Proof that a version returned finite scores of the right number for sample inputs.
#[derive(Debug)]
pub struct Warm(());

/// Why a loaded version is not activated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("it gives {found} scores for {examples} inputs, and {expected} were expected")]
    Scores { examples: usize, found: usize, expected: usize },
    #[error("one of its scores is not a finite number")]
    NotFinite,
    #[error("one of its parameters is not a finite number")]
    Parameters,
}

impl Warm {
    /// Checks a version by its parameters and by its scores for this many inputs, each with this many scores.
    ///
    /// # Errors
    /// [`Unfit`]: it must not be activated.
    pub fn judge(parameters: &[f32], scores: &[f32], examples: usize, each: usize) -> Result<Self, Unfit> {
        if !parameters.iter().all(|value| value.is_finite()) {
            return Err(Unfit::Parameters);
        }
        let (found, expected) = (scores.len(), examples * each);
        if found != expected {
            return Err(Unfit::Scores { examples, found, expected });
        }
        if scores.iter().all(|score| score.is_finite()) { Ok(Self(())) } else { Err(Unfit::NotFinite) }
    }
}

/// A version in memory.
#[derive(Clone, Debug)]
pub struct LoadedVersion<M> {
    pub version: u32,
    pub model: M,
}

/// The effect of activating a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It answers all requests; the previous one, if any, is draining.
    Stable { before: Option<u32> },
    /// It is a canary; the stable version stays active.
    Canary,
}

/// Why a rollback is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoWayBack {
    #[error("there is no version before the one in use")]
    None,
}

/// How to return to an earlier version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WayBack {
    /// The canary was rolled back; nothing needs to be loaded.
    Canary,
    /// Load the first usable one of these, at least one, then call [`Versions::go_back`].
    To(Vec<u32>),
}

/// The versions of a model.
#[derive(Debug)]
pub struct Versions<M> {
    stable: Option<LoadedVersion<M>>,
    /// The stable version belongs to a former task, so its number is not comparable.
    is_former: bool,
    canary: Option<(LoadedVersion<M>, Watch)>,
    draining: Option<LoadedVersion<M>>,
    /// Version used before the stable one, and usable for a rollback.
    previous: Option<u32>,
    /// Rolled-back versions, which are not used again automatically.
    refused: BTreeSet<u32>,
}

impl<M> Versions<M> {
    /// No versions yet, with the state that an earlier process stored.
    #[must_use]
    pub fn new(previous: Option<u32>, refused: BTreeSet<u32>) -> Self {
        Self { stable: None, is_former: false, canary: None, draining: None, previous, refused }
    }

    #[must_use]
    pub fn stable(&self) -> Option<&LoadedVersion<M>> {
        self.stable.as_ref()
    }

    /// Whether the stable version belongs to a former task.
    #[must_use]
    pub fn is_former(&self) -> bool {
        self.is_former
    }

    #[must_use]
    pub fn canary(&self) -> Option<&LoadedVersion<M>> {
        self.canary.as_ref().map(|(held, _)| held)
    }

    /// End of the canary; `None` without one.
    #[must_use]
    pub fn canary_ends(&self, rollout: &Rollout) -> Option<Moment> {
        self.canary.as_ref().map(|(_, watch)| watch.end(rollout))
    }

    #[must_use]
    pub fn previous(&self) -> Option<u32> {
        self.previous
    }

    #[must_use]
    pub fn refused(&self) -> &BTreeSet<u32> {
        &self.refused
    }

    /// The version that answers a request with this draw.
    #[must_use]
    pub fn route(&self, draw: u64, rollout: &Rollout) -> Option<&LoadedVersion<M>> {
        match (&self.canary, rollout.side(draw)) {
            (Some((canary, _)), Side::Canary) => Some(canary),
            (Some(_), Side::Stable) | (None, _) => self.stable.as_ref(),
        }
    }

    /// An active version by its number; draining versions are excluded.
    #[must_use]
    pub fn at(&self, version: u32) -> Option<&LoadedVersion<M>> {
        [self.stable(), self.canary()].into_iter().flatten().find(|held| held.version == version)
    }

    /// Numbers of the active versions, ascending.
    #[must_use]
    pub fn answering(&self) -> Vec<u32> {
        let mut numbers: Vec<_> =
            [self.stable(), self.canary()].into_iter().flatten().map(|held| held.version).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Number of versions in memory.
    #[must_use]
    pub fn in_memory(&self) -> usize {
        [self.stable.is_some(), self.canary.is_some(), self.draining.is_some()].iter().filter(|is| **is).count()
    }

    /// Whether to use a published version: it was not rolled back, and it is newer than all active and rolled-back
    /// ones. Skipped versions in between stay unused after a newer one failed. Without an active version, an older one
    /// is acceptable.
    #[must_use]
    pub fn wants(&self, version: u32) -> bool {
        let answering = if self.is_former { None } else { self.answering().last().copied() };
        let newest = answering.map(|newest| self.refused.last().map_or(newest, |&refused| refused.max(newest)));
        newest.is_none_or(|newest| version > newest) && !self.refused.contains(&version)
    }

    /// Whether there is room for another version. A draining version must be unloaded first ([`Self::drained`]), and a
    /// canary stays until its verdict, so that newer versions do not shorten its trial.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.in_memory() < 2
    }

    /// Removes the canary in favour of a version that is activated immediately, unless a version is draining. The
    /// canary is not marked as rolled back.
    pub fn overtake(&mut self) {
        if self.draining.is_none() {
            self.draining = self.canary.take().map(|(overtaken, _)| overtaken);
        }
    }

    /// Records that another task reused the name: the next version is activated immediately, whatever its number, and
    /// the stable one answers until then.
    pub fn begin_anew(&mut self) {
        if let Some((held, _)) = self.canary.take() {
            self.draining.get_or_insert(held);
        }
        (self.previous, self.is_former) = (None, self.stable.is_some());
        self.refused.clear();
    }

    /// Activates a version for which there is room: as a canary, if a share is configured and there is a stable
    /// version; immediately with `at_once`, as for a restored version.
    ///
    /// # Panics
    /// If there is no room ([`Self::has_room`]).
    pub fn place(&mut self, held: LoadedVersion<M>, _: Warm, now: Moment, rollout: &Rollout, at_once: bool) -> Placed {
        assert!(self.in_memory() < 2, "at most two versions are in memory");
        if self.stable.is_some() && !self.is_former && rollout.canary_percent > 0.0 && !at_once {
            self.canary = Some((held, Watch::new(now)));
            return Placed::Canary;
        }
        Placed::Stable { before: self.become_stable(held) }
    }

    fn become_stable(&mut self, held: LoadedVersion<M>) -> Option<u32> {
        let before = self.stable.replace(held);
        let number = before.as_ref().map(|before| before.version);
        if let Some(before) = before {
            self.previous = (!self.is_former).then_some(before.version);
            self.draining = Some(before);
        }
        self.is_former = false;
        number
    }

    /// Updates the statistics of this version, if it is the canary.
    pub fn watch(&mut self, version: u32) -> Option<&mut Watch> {
        self.canary.as_mut().filter(|(held, _)| held.version == version).map(|(_, watch)| watch)
    }

    /// Applies the verdict on the canary, if there is one.
    pub fn judge(&mut self, now: Moment, rollout: &Rollout) -> Option<(u32, Verdict)> {
        let (held, watch) = self.canary.as_ref()?;
        let (version, verdict) = (held.version, watch.verdict(now, rollout));
        match verdict {
            Verdict::Hold(_) => {}
            Verdict::Promote => {
                if let Some((held, _)) = self.canary.take() {
                    self.become_stable(held);
                }
            }
            Verdict::TakeBack(Reason::Errors { .. } | Reason::Slow { .. } | Reason::Disagrees { .. }) => {
                self.refused.insert(version);
                self.draining = self.canary.take().map(|(held, _)| held);
            }
        }
        Some((version, verdict))
    }

    /// The candidates for a rollback: the previously used version, then those of `others` that are older than the
    /// stable one, newest first. With a canary, rolls that back instead.
    ///
    /// # Errors
    /// [`NoWayBack`].
    pub fn roll_back(&mut self, others: &[u32]) -> Result<WayBack, NoWayBack> {
        if let Some((held, _)) = self.canary.take() {
            self.refused.insert(held.version);
            self.draining = Some(held);
            return Ok(WayBack::Canary);
        }
        if self.is_former {
            return Err(NoWayBack::None);
        }
        let stable = self.stable.as_ref().map_or(0, |held| held.version);
        let is_good = |version: &u32| *version < stable && !self.refused.contains(version);
        let mut ways: Vec<_> =
            others.iter().copied().filter(is_good).filter(|one| Some(*one) != self.previous).collect();
        ways.sort_unstable_by(|one, other| other.cmp(one));
        let ways: Vec<_> = self.previous.into_iter().chain(ways).collect();
        if ways.is_empty() { Err(NoWayBack::None) } else { Ok(WayBack::To(ways)) }
    }

    /// Replaces the stable version, which is marked as rolled back, with one that [`Self::roll_back`] returned.
    ///
    /// # Panics
    /// If there is no room.
    pub fn go_back(&mut self, held: LoadedVersion<M>, _: Warm) {
        assert!(self.in_memory() < 2, "at most two versions are in memory");
        if let Some(stable) = &self.stable {
            self.refused.insert(stable.version);
        }
        self.become_stable(held);
        self.previous = None;
    }

    /// The draining version, if any.
    #[must_use]
    pub fn draining(&self) -> Option<&LoadedVersion<M>> {
        self.draining.as_ref()
    }

    /// Unloads the draining version, which has no pending requests.
    pub fn drained(&mut self) -> Option<LoadedVersion<M>> {
        self.draining.take()
    }
}

#[cfg(test)]
mod tests;
