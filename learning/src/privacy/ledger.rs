//! The privacy ledger: one row per release, written before the release leaves, and permanent.
//!
//! It is a pure value. Its owner (the coordinator's database, a participant's journal) stores each new row in the transaction that decides
//! on the release, and reopens the ledger from the stored rows. Every row carries a seal over itself and the seal before it, to reveal
//! edited, dropped and reordered rows. The figures of every row are recomputed from its parameters, to reveal a wrong sum. With a key that
//! is kept elsewhere (HMAC), write access to the rows does not suffice to forge them; a plain hash only reveals accidents. Comparing
//! [`Ledger::head`] with a copy kept elsewhere reveals rows cut off at the end.

use std::collections::BTreeSet;
use task_spec::{Digest, PrivacyAccounting, PrivacyMechanism, PrivacyView};

use serde::{Deserialize, Serialize};

use super::release::{BadRelease, Bound, Cost, Epsilons, NoServerEpsilon, Release};
use super::tally::Tally;

/// Computes seals: an HMAC, or SHA-256 without a stored key. Implemented outside this crate.
pub trait Sealer {
    /// The seal of these bytes.
    fn seal(&self, bytes: &[u8]) -> [u8; 32];
}

impl<F: Fn(&[u8]) -> [u8; 32]> Sealer for F {
    fn seal(&self, bytes: &[u8]) -> [u8; 32] {
        self(bytes)
    }
}

/// The most that the releases of a task may spend.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Upper limit; `None` only counts spending.
    pub epsilon: Option<f64>,
    /// The delta of all epsilons in the ledger.
    pub delta: f64,
    /// The view with the limited epsilon.
    pub against: PrivacyView,
    /// The accounting method behind the figures.
    #[serde(default)]
    pub accounting: PrivacyAccounting,
}

/// One release, and the ledger's totals after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerRow {
    /// From 0, without gaps.
    pub index: u64,
    pub release: Release,
    /// zCDP of this release to an observer who knows the cohort, if the mechanism has one.
    pub rho: Option<f64>,
    /// Published Rényi epsilon of this release alone.
    pub rdp: f64,
    /// As `rdp`, for the textbook release with continuous noise by its privacy loss distribution, for comparison.
    pub pld: Option<f64>,
    /// Totals after this release.
    pub total: Epsilons,
    /// Accounting behind `total.published`. Rows without it were charged by Rényi divergences alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounting: Option<PrivacyAccounting>,
}

/// A row in its stored form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealedRow {
    pub row: LedgerRow,
    /// Over the row and the seal before it.
    pub seal: Digest,
}

/// Reasons stored rows are rejected, or a release cannot be charged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The row was changed or moved, or sealed with another key.
    #[error(
        "row {0} of the privacy ledger is not what was written: its seal does not match; restore the ledger from a backup"
    )]
    Tampered(u64),
    /// A row is missing or duplicated.
    #[error("row {expected} of the privacy ledger is missing: row {got} is in its place")]
    Gap {
        /// Expected index.
        expected: u64,
        /// Index found.
        got: u64,
    },
    /// The figures of a row do not follow from its parameters.
    #[error("row {0} of the privacy ledger has figures that do not match the cost of its release")]
    Figures(u64),
    /// The last seal differs from the copy kept elsewhere.
    #[error("the end of the privacy ledger does not match its recorded head: rows were removed or added")]
    Head,
    /// The attempt is already charged.
    #[error("attempt {attempt} of round {round} is in the ledger already: every release is charged once")]
    Twice { round: u64, attempt: u32 },
    /// The release is invalid.
    #[error(transparent)]
    Release(#[from] BadRelease),
    /// The mechanisms make different claims about the coordinator.
    #[error("a ledger of {expected} cannot charge a release of {got}", expected = .expected.as_str(), got = .got.as_str())]
    Mechanism {
        /// The ledger's mechanism.
        expected: PrivacyMechanism,
        /// The release's mechanism.
        got: PrivacyMechanism,
    },
    /// The release counts participations up to another maximum than the rows before it.
    #[error("a ledger that counts {} of one participant cannot charge a release that counts {}", most(.expected), most(.got))]
    Participations {
        /// The maximum in the first row.
        expected: Option<u32>,
        /// The release's maximum.
        got: Option<u32>,
    },
    /// The release exceeds the budget.
    #[error(
        "the release would raise epsilon from {spent:.4} to {would_be:.4} at delta {delta:e}; the budget is {budget:.4}"
    )]
    BudgetExceeded {
        spent: f64,
        /// Epsilon after the release.
        would_be: f64,
        /// Epsilon of the budget.
        budget: f64,
        /// Delta of all three epsilons.
        delta: f64,
    },
    /// The budget's epsilon or delta is out of range.
    #[error("a privacy budget needs delta above 0 and below 1 and epsilon above 0, not {epsilon:?} and {delta}")]
    Budget { epsilon: Option<f64>, delta: f64 },
}

/// The maximum number of releases with one participant, in words.
fn most(participations: &Option<u32>) -> String {
    participations.map_or_else(|| "all releases".to_owned(), |most| format!("{most} releases at most"))
}

/// The rows, and their totals.
#[derive(Clone, Debug)]
pub struct Ledger {
    mechanism: PrivacyMechanism,
    budget: Budget,
    rows: Vec<SealedRow>,
    /// Round and attempt of every row.
    charged: BTreeSet<(u64, u32)>,
    tally: Tally,
    /// Cache of the costs of recent releases; most releases cost the same as an earlier one.
    known: Vec<(Release, Cost)>,
}

impl Ledger {
    /// Opens a mechanism's ledger from its stored rows.
    ///
    /// # Errors
    /// [`LedgerError`] if the rows were changed; releases are then impossible.
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
            tally: Tally::zero(),
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

    /// The last seal; zeros for an empty ledger.
    #[must_use]
    pub fn head(&self) -> Digest {
        self.rows.last().map_or(Digest([0; 32]), |sealed| sealed.seal)
    }

    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The totals after the last row.
    #[must_use]
    pub fn spent(&self) -> Epsilons {
        self.total_of(&self.tally.cost())
    }

    /// The cost of all releases to one participant, including `next` if given: bounds that add up with those of other
    /// ledgers, whatever their mechanisms, deltas and budgets.
    #[must_use]
    pub fn cost_after(&self, next: Option<&Release>) -> Cost {
        next.map_or_else(|| self.tally.cost(), |next| self.tally_after(next, &self.cost_of(next), 1).cost())
    }

    /// The totals after such a release. A round must not start if its planned release is rejected here.
    ///
    /// # Errors
    /// [`LedgerError::BudgetExceeded`], or the reason the release cannot be charged at all.
    pub fn would_exceed(&self, next: &Release) -> Result<Epsilons, LedgerError> {
        self.admissible(next)?;
        self.after(next, &self.cost_of(next), 1).map(|(_, total)| total)
    }

    /// The release at its next place in a tree or banded matrix, after those charged. Places charged but not published
    /// are skipped.
    #[must_use]
    pub fn placed(&self, next: Release) -> Release {
        let count = u32::try_from(self.rows.len()).unwrap_or(u32::MAX).saturating_add(1);
        let last = self.rows.last().map(|sealed| sealed.row.release);
        let last = last.and_then(|last| last.bands.map(|bands| (last.round, bands)));
        let bands = next.bands.map(|bands| bands.following(next.round, last));
        Release { tree_release: next.tree_release.map(|_| count), bands, ..next }
    }

    /// Number of releases like this that the budget still allows, up to `most`.
    #[must_use]
    pub fn room_for(&self, next: &Release, most: u32) -> u32 {
        let cost = self.cost_of(next);
        let fits = |count: u32| self.after(next, &cost, count).is_ok();
        // Doubles first: computing the cost of many releases takes long.
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

    /// Charges a release. Store the returned row before any part of the release leaves.
    ///
    /// # Errors
    /// As for [`would_exceed`](Self::would_exceed), and [`LedgerError::Twice`]; the ledger is then unchanged.
    pub fn charge(&mut self, release: Release, sealer: &impl Sealer) -> Result<&SealedRow, LedgerError> {
        self.admissible(&release)?;
        let cost = self.cost_of(&release);
        let (after, total) = self.after(&release, &cost, 1)?;
        let row = self.row(release, &cost, total);
        let seal = seal_of(&row, self.head(), sealer);
        self.tally = after;
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
        let (expected, got) = (self.rows.first().map(|first| first.row.release.participations), release.participations);
        match expected {
            Some(expected) if expected != got => Err(LedgerError::Participations { expected, got }),
            Some(_) | None => Ok(()),
        }
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

    fn tally_after(&self, next: &Release, one: &Cost, count: u32) -> Tally {
        self.tally.plus(next, one, count, self.budget.accounting)
    }

    /// The tally and its totals after this release and its successors, `count` in total.
    fn after(&self, next: &Release, one: &Cost, count: u32) -> Result<(Tally, Epsilons), LedgerError> {
        let after = self.tally_after(next, one, count);
        let total = self.total_of(&after.cost());
        let Some(budget) = self.budget.epsilon else { return Ok((after, total)) };
        let of = |epsilons: &Epsilons| epsilons.against(self.budget.against);
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

    /// Appends a stored row if this ledger would have written the same, except for the comparison figure.
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
        let after = self.tally_after(&row.release, &cost, 1);
        let bound = match (row.accounting, row.total.closeness) {
            (Some(_), _) => self.budget.accounting.into(),
            (None, Some(_)) => Bound::Renyi,
            (None, None) => Bound::General,
        };
        let total = after.cost().by(self.budget.delta, NoServerEpsilon::of(self.mechanism), bound);
        let by_same = row.accounting.is_none_or(|accounting| accounting == total.rests_on());
        let server = total.server.zip(row.total.server).is_none_or(|(a, b)| close(a, b));
        // Older versions gave up on Rényi divergences of sampled continuous noise at low orders: such a row may charge
        // more, never less.
        let by_more = bound == Bound::Renyi && row.total.published > total.published;
        let published = close(total.published, row.total.published) || by_more;
        let same = published && close(total.cohort_known, row.total.cohort_known);
        if !same || !server || !by_same || total.server_reason != row.total.server_reason {
            return Err(LedgerError::Figures(expected));
        }
        self.tally = after;
        self.charged.insert((row.release.round, row.release.attempt));
        self.remember(row.release, cost);
        self.rows.push(sealed);
        Ok(())
    }
}

/// Equal up to rounding differences between versions.
fn close(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// Seal of the preceding seal and the row as compact JSON, which preserves numbers to the last bit.
fn seal_of(row: &LedgerRow, before: Digest, sealer: &impl Sealer) -> Digest {
    let mut bytes = b"tributary privacy ledger 1\0".to_vec();
    bytes.extend_from_slice(&before.0);
    // Serialization fails only for maps with keys other than text, and a row has none.
    bytes.extend_from_slice(&serde_json::to_vec(row).unwrap_or_default());
    Digest(sealer.seal(&bytes))
}
