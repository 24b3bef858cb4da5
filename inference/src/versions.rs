//! Which versions of a model are in memory, and what each is there for.
//!
//! A version is fetched and verified, loaded, warmed ([`Warm::judge`]), and only then put to use. At most two versions are in
//! memory: the stable one, beside it one that is tried or one that is drained. What is drained answers what it was asked before, and
//! nothing new; so a change of versions fails no request.

use std::collections::BTreeSet;

use crate::Moment;
use crate::rollout::{Reason, Rollout, Side, Verdict, Watch};

/// Proof that a version answered sample inputs with finite scores of the right number.
#[derive(Debug)]
pub struct Warm(());

/// Why a loaded version is not put to use.
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
    /// Judges a version by its parameters and by its scores for this many inputs, each with this many scores.
    ///
    /// # Errors
    /// [`Unfit`]: it must not become ready.
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
pub struct Held<M> {
    pub version: u32,
    pub model: M,
}

/// What putting a version to use did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It answers everything; the one before, if there was one, is drained.
    Stable { before: Option<u32> },
    /// It is tried beside the stable one.
    Canary,
}

/// Why nothing can be rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoWayBack {
    #[error("there is no version before the one in use")]
    None,
}

/// How to go back to an earlier version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WayBack {
    /// The canary was taken back: nothing is to be loaded.
    Canary,
    /// To the first of these that can be loaded, at least one, then [`Versions::go_back`].
    To(Vec<u32>),
}

/// The versions of a model.
#[derive(Debug)]
pub struct Versions<M> {
    stable: Option<Held<M>>,
    /// The stable one is of a task that another one took the place of: its number says nothing about the new one's.
    is_former: bool,
    canary: Option<(Held<M>, Watch)>,
    draining: Option<Held<M>>,
    /// Used before the stable one, and good to go back to.
    previous: Option<u32>,
    /// Taken back: not used again by itself.
    refused: BTreeSet<u32>,
}

impl<M> Versions<M> {
    /// None yet; with what an earlier process left written.
    #[must_use]
    pub fn new(previous: Option<u32>, refused: BTreeSet<u32>) -> Self {
        Self { stable: None, is_former: false, canary: None, draining: None, previous, refused }
    }

    #[must_use]
    pub fn stable(&self) -> Option<&Held<M>> {
        self.stable.as_ref()
    }

    /// Whether the stable version is of a task that another one took the place of.
    #[must_use]
    pub fn is_former(&self) -> bool {
        self.is_former
    }

    #[must_use]
    pub fn canary(&self) -> Option<&Held<M>> {
        self.canary.as_ref().map(|(held, _)| held)
    }

    /// Until when the canary is tried; none without one.
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

    /// The version that answers a request of this draw.
    #[must_use]
    pub fn route(&self, draw: u64, rollout: &Rollout) -> Option<&Held<M>> {
        match (&self.canary, rollout.side(draw)) {
            (Some((canary, _)), Side::Canary) => Some(canary),
            (Some(_), Side::Stable) | (None, _) => self.stable.as_ref(),
        }
    }

    /// A version that answers by its number: what is drained does not.
    #[must_use]
    pub fn at(&self, version: u32) -> Option<&Held<M>> {
        [self.stable(), self.canary()].into_iter().flatten().find(|held| held.version == version)
    }

    /// Numbers of the versions that answer, ascending.
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

    /// Whether a version that was published is one to use: not taken back, and newer than those that answer or were taken back. What
    /// is in between was overtaken, and is not tried because a newer one failed. Where nothing answers, an older one is better.
    #[must_use]
    pub fn wants(&self, version: u32) -> bool {
        let answering = if self.is_former { None } else { self.answering().last().copied() };
        let newest = answering.map(|newest| self.refused.last().map_or(newest, |&refused| refused.max(newest)));
        newest.is_none_or(|newest| version > newest) && !self.refused.contains(&version)
    }

    /// Whether there is room for another version: what is drained has to go first ([`Self::drained`]), and a canary keeps its place
    /// until it is judged, or newer ones would have each other's time.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.in_memory() < 2
    }

    /// Has the canary make room for a version that is used at once, if nothing is drained yet. It is not refused: it did nothing wrong.
    pub fn overtake(&mut self) {
        if self.draining.is_none() {
            self.draining = self.canary.take().map(|(overtaken, _)| overtaken);
        }
    }

    /// Another task has taken the place of the one that the versions are of: the next version is used at once, whatever its number, and
    /// until then the stable one answers.
    pub fn begin_anew(&mut self) {
        if let Some((held, _)) = self.canary.take() {
            self.draining.get_or_insert(held);
        }
        (self.previous, self.is_former) = (None, self.stable.is_some());
        self.refused.clear();
    }

    /// Puts a version to use for which there is room: as the canary, if there is a share to try it on and a stable version to go back
    /// to; at once where `at_once` says so, as for a version that goes back to an earlier one.
    ///
    /// # Panics
    /// If there is no room: [`Self::has_room`] says so.
    pub fn place(&mut self, held: Held<M>, _: Warm, now: Moment, rollout: &Rollout, at_once: bool) -> Placed {
        assert!(self.in_memory() < 2, "at most two versions are in memory");
        if self.stable.is_some() && !self.is_former && rollout.canary_percent > 0.0 && !at_once {
            self.canary = Some((held, Watch::new(now)));
            return Placed::Canary;
        }
        Placed::Stable { before: self.become_stable(held) }
    }

    fn become_stable(&mut self, held: Held<M>) -> Option<u32> {
        let before = self.stable.replace(held);
        let number = before.as_ref().map(|before| before.version);
        if let Some(before) = before {
            self.previous = (!self.is_former).then_some(before.version);
            self.draining = Some(before);
        }
        self.is_former = false;
        number
    }

    /// Tells the watch of this version, if it is the canary.
    pub fn watch(&mut self, version: u32) -> Option<&mut Watch> {
        self.canary.as_mut().filter(|(held, _)| held.version == version).map(|(_, watch)| watch)
    }

    /// Does what the watch concludes; none without a canary.
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

    /// The versions to go back to: the one used before, then those of these `others` that are older than the stable one, newest first.
    /// A canary is taken back by this alone.
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

    /// Puts a version that [`Self::roll_back`] named in the place of the stable one, which is refused from now on.
    ///
    /// # Panics
    /// If there is no room.
    pub fn go_back(&mut self, held: Held<M>, _: Warm) {
        assert!(self.in_memory() < 2, "at most two versions are in memory");
        if let Some(stable) = &self.stable {
            self.refused.insert(stable.version);
        }
        self.become_stable(held);
        self.previous = None;
    }

    /// What is drained, until nobody waits for it.
    #[must_use]
    pub fn draining(&self) -> Option<&Held<M>> {
        self.draining.as_ref()
    }

    /// Nobody waits for it any more: it leaves memory.
    pub fn drained(&mut self) -> Option<Held<M>> {
        self.draining.take()
    }
}

#[cfg(test)]
mod tests;
