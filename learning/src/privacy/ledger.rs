//! The ledger: one row per release, written before the release leaves, never changed, never taken back.
//!
//! A pure value: whoever keeps it (the coordinator in its database, a participant in its journal) stores each new row in the
//! transaction that decides about the release, and opens it again from the stored rows. Every row carries a seal over itself
//! and the seal before it, so an edited, dropped or reordered row is found; the figures of every row are computed again from
//! its parameters, so a wrong sum is found too. With a key that is kept elsewhere (an HMAC) whoever can write rows cannot
//! forge them; with a plain hash only accidents and careless hands are found. Rows cut off the end are found by comparing
//! [`Ledger::head`] with a copy kept elsewhere.

use std::collections::BTreeSet;
use task_spec::{Digest, PrivacyAccounting, PrivacyMechanism, PrivacyView};

use serde::{Deserialize, Serialize};

use super::release::{BadRelease, Bound, Cost, Epsilons, NoServerEpsilon, Release};

/// Seals bytes: a keyed hash, or SHA-256 where no key can be kept. This crate has none of its own.
pub trait Sealer {
    /// The seal of these bytes.
    fn seal(&self, bytes: &[u8]) -> [u8; 32];
}

impl<F: Fn(&[u8]) -> [u8; 32]> Sealer for F {
    fn seal(&self, bytes: &[u8]) -> [u8; 32] {
        self(bytes)
    }
}

/// What may be spent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// No ledger says more; none: there is no limit, spending is only counted.
    pub epsilon: Option<f64>,
    /// At which all epsilons of the ledger are meant.
    pub delta: f64,
    /// Whose epsilon is held against it.
    pub against: PrivacyView,
    /// What its figures rest on.
    #[serde(default)]
    pub accounting: PrivacyAccounting,
}

/// One release and where the ledger stands after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerRow {
    /// From 0, without gaps.
    pub index: u64,
    /// What ran.
    pub release: Release,
    /// zCDP of this release to those who know who took part, where it has one.
    pub rho: Option<f64>,
    /// Rényi epsilon of this release alone, published.
    pub rdp: f64,
    /// The same of the textbook release with continuous noise by its loss distribution, for comparison.
    pub pld: Option<f64>,
    /// Spent after it.
    pub total: Epsilons,
    /// What `total.published` rests on. Rows without it were charged by Rényi divergences alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounting: Option<PrivacyAccounting>,
}

/// A row as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealedRow {
    /// The row.
    pub row: LedgerRow,
    /// Over the row and the seal before it.
    pub seal: Digest,
}

/// Why rows are no ledger, or a release cannot be charged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// A row that was changed, moved, or sealed with another key.
    #[error(
        "row {0} of the privacy ledger is not what was written: its seal does not fit; restore the ledger from a backup"
    )]
    Tampered(u64),
    /// A row missing, or one too many.
    #[error("row {expected} of the privacy ledger is missing: row {got} is in its place")]
    Gap {
        /// What should come.
        expected: u64,
        /// What came.
        got: u64,
    },
    /// A row whose figures do not follow from its parameters.
    #[error("row {0} of the privacy ledger says other figures than its release costs")]
    Figures(u64),
    /// The end is not what was kept elsewhere.
    #[error("the privacy ledger ends otherwise than was noted: rows were removed or added")]
    Head,
    /// Charged already.
    #[error("attempt {attempt} of round {round} is in the ledger already: every release is charged once")]
    Twice {
        /// The release.
        round: u64,
        /// The release.
        attempt: u32,
    },
    /// Nothing that can be charged.
    #[error(transparent)]
    Release(#[from] BadRelease),
    /// Mechanisms that say different things about the coordinator.
    #[error("a ledger of {expected} cannot charge a release of {got}", expected = .expected.as_str(), got = .got.as_str())]
    Mechanism {
        /// What the ledger is of.
        expected: PrivacyMechanism,
        /// What the release is of.
        got: PrivacyMechanism,
    },
    /// More than may be spent.
    #[error(
        "the release would raise epsilon from {spent:.4} to {would_be:.4} at delta {delta:e}; the budget is {budget:.4}"
    )]
    BudgetExceeded {
        /// Spent so far.
        spent: f64,
        /// What it would be.
        would_be: f64,
        /// What may be spent.
        budget: f64,
        /// At which all of them are meant.
        delta: f64,
    },
    /// A budget that is none.
    #[error("a privacy budget needs delta above 0 and below 1 and epsilon above 0, not {epsilon:?} and {delta}")]
    Budget {
        /// As asked for.
        epsilon: Option<f64>,
        /// As asked for.
        delta: f64,
    },
}

/// Rows, and what they add up to.
#[derive(Clone, Debug)]
pub struct Ledger {
    mechanism: PrivacyMechanism,
    budget: Budget,
    rows: Vec<SealedRow>,
    /// Rounds and attempts in the rows.
    charged: BTreeSet<(u64, u32)>,
    cost: Cost,
    /// What releases cost that were seen lately: most cost what one before did.
    known: Vec<(Release, Cost)>,
}

impl Ledger {
    /// A ledger of a mechanism, with the rows it had when it was last stored.
    ///
    /// # Errors
    /// [`LedgerError`]: rows that are not what was written are refused, and with them every further release.
    pub fn open(
        mechanism: PrivacyMechanism,
        budget: Budget,
        rows: Vec<SealedRow>,
        sealer: &impl Sealer,
    ) -> Result<Self, LedgerError> {
        let positive = |epsilon: f64| epsilon.is_finite() && epsilon > 0.0;
        let sane = budget.delta > 0.0 && budget.delta < 1.0 && budget.epsilon.is_none_or(positive);
        if !sane {
            return Err(LedgerError::Budget { epsilon: budget.epsilon, delta: budget.delta });
        }
        let mut ledger = Self {
            mechanism,
            budget,
            rows: Vec::new(),
            charged: BTreeSet::new(),
            cost: Cost::zero(),
            known: Vec::new(),
        };
        for sealed in rows {
            ledger.admit(sealed, sealer)?;
        }
        Ok(ledger)
    }

    /// Its rows, oldest first.
    #[must_use]
    pub fn rows(&self) -> &[SealedRow] {
        &self.rows
    }

    /// The last seal; of an empty ledger, zeros.
    #[must_use]
    pub fn head(&self) -> Digest {
        self.rows.last().map_or(Digest([0; 32]), |sealed| sealed.seal)
    }

    /// What may be spent.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// What has been spent.
    #[must_use]
    pub fn spent(&self) -> Epsilons {
        self.total_of(&self.cost)
    }

    /// What its releases cost, and such a release more if there is one: bounds that add up with those of other ledgers, whatever
    /// their mechanisms, deltas and budgets are.
    #[must_use]
    pub fn cost_after(&self, next: Option<&Release>) -> Cost {
        let mut cost = self.cost.clone();
        next.into_iter().for_each(|next| cost.add(&self.cost_of(next)));
        cost
    }

    /// What would have been spent after such a release; an error if that is more than the budget. A round whose planned
    /// release this refuses must not start.
    ///
    /// # Errors
    /// [`LedgerError::BudgetExceeded`], or why it cannot be charged at all.
    pub fn would_exceed(&self, next: &Release) -> Result<Epsilons, LedgerError> {
        self.admissible(next)?;
        self.after(&self.cost_of(next)).map(|(_, total)| total)
    }

    /// Such a release at its place in a tree or a banded matrix: after those that were charged. What was charged and not
    /// published is left out of it.
    #[must_use]
    pub fn placed(&self, next: Release) -> Release {
        let count = u32::try_from(self.rows.len()).unwrap_or(u32::MAX).saturating_add(1);
        let last = self.rows.last().map(|sealed| sealed.row.release);
        let last = last.and_then(|last| last.bands.map(|bands| (last.round, bands)));
        let bands = next.bands.map(|bands| bands.following(next.round, last));
        Release { tree_release: next.tree_release.map(|_| count), bands, ..next }
    }

    /// How many releases like this the budget has room for, up to `most`.
    #[must_use]
    pub fn room_for(&self, next: &Release, most: u32) -> u32 {
        let cost = self.cost_of(next);
        let fits = |count: u32| self.after(&next.series(&cost, count, self.budget.accounting)).is_ok();
        // In doubling steps first: what many releases cost together takes long to say.
        let (mut low, mut high) = (0, most.min(1));
        while high < most && fits(high) {
            (low, high) = (high, high.saturating_mul(2).min(most));
        }
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(middle) { low = middle } else { high = middle - 1 }
        }
        low
    }

    /// Charges a release: the row to be stored before anything of it leaves.
    ///
    /// # Errors
    /// Those of [`would_exceed`](Self::would_exceed), [`LedgerError::Twice`]; nothing has been charged then.
    pub fn charge(&mut self, release: Release, sealer: &impl Sealer) -> Result<&SealedRow, LedgerError> {
        self.admissible(&release)?;
        let cost = self.cost_of(&release);
        let (after, total) = self.after(&cost)?;
        let row = self.row(release, &cost, total);
        let seal = seal_of(&row, self.head(), sealer);
        self.cost = after;
        self.charged.insert((release.round, release.attempt));
        self.remember(release, cost);
        self.rows.push(SealedRow { row, seal });
        Ok(&self.rows[self.rows.len() - 1])
    }

    fn admissible(&self, release: &Release) -> Result<(), LedgerError> {
        release.check()?;
        if release.mechanism != self.mechanism {
            return Err(LedgerError::Mechanism { expected: self.mechanism, got: release.mechanism });
        }
        let (round, attempt) = (release.round, release.attempt);
        if self.charged.contains(&(round, attempt)) {
            return Err(LedgerError::Twice { round, attempt });
        }
        Ok(())
    }

    fn cost_of(&self, release: &Release) -> Cost {
        let alike = |last: &Release| {
            (last.sum, last.sampled, last.tree_release, last.bands)
                == (release.sum, release.sampled, release.tree_release, release.bands)
        };
        match self.known.iter().rev().find(|(known, _)| alike(known)) {
            Some((_, cost)) => cost.clone(),
            None => release.cost(self.budget.accounting),
        }
    }

    fn remember(&mut self, release: Release, cost: Cost) {
        const KNOWN_MAX: usize = 64;
        if self.known.iter().any(|(_, known)| *known == cost) {
            return;
        }
        if self.known.len() == KNOWN_MAX {
            self.known.remove(0);
        }
        self.known.push((release, cost));
    }

    fn total_of(&self, cost: &Cost) -> Epsilons {
        cost.at(self.budget.delta, NoServerEpsilon::of(self.mechanism), self.budget.accounting)
    }

    fn after(&self, cost: &Cost) -> Result<(Cost, Epsilons), LedgerError> {
        let mut after = self.cost.clone();
        after.add(cost);
        let total = self.total_of(&after);
        let Some(budget) = self.budget.epsilon else { return Ok((after, total)) };
        let of = |epsilons: &Epsilons| match self.budget.against {
            PrivacyView::Published => epsilons.published,
            PrivacyView::CohortKnown => epsilons.cohort_known,
            PrivacyView::Server => epsilons.server.unwrap_or(f64::INFINITY),
        };
        let would_be = of(&total);
        if would_be > budget {
            let (spent, delta) = (of(&self.spent()), self.budget.delta);
            return Err(LedgerError::BudgetExceeded { spent, would_be, budget, delta });
        }
        Ok((after, total))
    }

    fn row(&self, release: Release, cost: &Cost, total: Epsilons) -> LedgerRow {
        let delta = self.budget.delta;
        let alike = self
            .rows
            .last()
            .filter(|last| (last.row.release.sum, last.row.release.sampled) == (release.sum, release.sampled));
        let pld = alike.map_or_else(|| release.textbook_pld(delta), |last| last.row.pld);
        let rdp = cost.published.epsilon(delta).0;
        let accounting = Some(total.rests_on());
        LedgerRow { index: self.rows.len() as u64, release, rho: cost.rho, rdp, pld, total, accounting }
    }

    /// Takes back a stored row if it is what this ledger would have written, its comparison figure aside.
    fn admit(&mut self, sealed: SealedRow, sealer: &impl Sealer) -> Result<(), LedgerError> {
        let expected = self.rows.len() as u64;
        let row = &sealed.row;
        if seal_of(row, self.head(), sealer) != sealed.seal {
            return Err(LedgerError::Tampered(expected));
        }
        if row.index != expected {
            return Err(LedgerError::Gap { expected, got: row.index });
        }
        self.admissible(&row.release)?;
        let cost = self.cost_of(&row.release);
        let mut after = self.cost.clone();
        after.add(&cost);
        let bound = match (row.accounting, row.total.closeness) {
            (Some(_), _) => self.budget.accounting.into(),
            (None, Some(_)) => Bound::Renyi,
            (None, None) => Bound::General,
        };
        let total = after.by(self.budget.delta, NoServerEpsilon::of(self.mechanism), bound);
        let by_same = row.accounting.is_none_or(|accounting| accounting == total.rests_on());
        let server = total.server.zip(row.total.server).is_none_or(|(a, b)| close(a, b));
        // Rényi divergences of sampled continuous noise were given up at low orders: such a row may say more, never less.
        let by_more = bound == Bound::Renyi && row.total.published > total.published;
        let published = close(total.published, row.total.published) || by_more;
        let same = published && close(total.cohort_known, row.total.cohort_known);
        if !same || !server || !by_same || total.server_reason != row.total.server_reason {
            return Err(LedgerError::Figures(expected));
        }
        self.cost = after;
        self.charged.insert((row.release.round, row.release.attempt));
        self.remember(row.release, cost);
        self.rows.push(sealed);
        Ok(())
    }
}

/// Equal but for what another version's arithmetic may round otherwise.
fn close(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// Over the seal before and the row as compact JSON, whose numbers come back to the last bit.
fn seal_of(row: &LedgerRow, before: Digest, sealer: &impl Sealer) -> Digest {
    let mut bytes = b"tributary privacy ledger 1\0".to_vec();
    bytes.extend_from_slice(&before.0);
    // A row has no map with other keys than text, which is all that can fail.
    bytes.extend_from_slice(&serde_json::to_vec(row).unwrap_or_default());
    Digest(sealer.seal(&bytes))
}
