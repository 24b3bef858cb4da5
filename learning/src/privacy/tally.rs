//! The running cost of a ledger's releases to one participant, who may be in all of them or in a limited number.
//!
//! Take a participant who is in at most `k` releases, with noise that is independent of all other noise. Neighbours differ in its updates,
//! and public counts decide in which releases it is. Given the releases before it, a release without it has one distribution on both
//! sides, whatever the updates were, and adds no loss. So the whole sequence costs what `k` releases cost, chosen adaptively
//! (docs/PRIVACY.md, *Counted participations*). Up to `k` releases the costs add up. Beyond, the charge is `k` times a bound on every
//! single release, which covers any `k` of them.

use task_spec::PrivacyAccounting;

use super::accountant::CloseCurve;
use super::release::{Cost, Release};

/// The cost of several releases to one participant.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    releases: u64,
    /// Of all releases.
    sum: Cost,
    /// If participations are limited: their maximum number, and a bound on the cost of each single release.
    limit: Option<(u32, Cost)>,
}

impl Tally {
    /// Zero releases.
    pub(super) fn zero() -> Self {
        Self { releases: 0, sum: Cost::zero(), limit: None }
    }

    /// After this release and its successors, `count` in total, given the cost of this one alone. All releases have the
    /// same maximum of participations.
    #[must_use]
    pub(super) fn plus(&self, next: &Release, one: &Cost, count: u32, accounting: PrivacyAccounting) -> Self {
        let mut sum = self.sum.clone();
        match count {
            1 => sum.add(one),
            _ => sum.add(&next.series(one, count, accounting)),
        }
        let limit = match (&self.limit, next.participations) {
            (Some((most, each)), Some(_)) => Some((*most, each.max(one))),
            (None, Some(most)) => Some((most, one.clone())),
            (limit, None) => limit.clone(),
        };
        Self { releases: self.releases + u64::from(count), sum, limit }
    }

    /// The cost to a participant in as many of the releases as allowed.
    pub(super) fn cost(&self) -> Cost {
        match &self.limit {
            Some((most, each)) if self.releases > u64::from(*most) => each.times((*most).into()),
            Some(_) | None => self.sum.clone(),
        }
    }
}

impl Cost {
    /// A bound on either of two releases.
    fn max(&self, other: &Self) -> Self {
        let close = |one: &Option<CloseCurve>, another: &Option<CloseCurve>| {
            one.as_ref().zip(another.as_ref()).and_then(|(one, another)| one.max(another))
        };
        Self {
            published: self.published.max(&other.published),
            cohort_known: self.cohort_known.max(&other.cohort_known),
            rho: self.rho.zip(other.rho).map(|(one, another)| one.max(another)),
            close: close(&self.close, &other.close),
            close_known: close(&self.close_known, &other.close_known),
        }
    }
}
