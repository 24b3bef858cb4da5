//! The participant's privacy spending on every task, and its limits.
//!
//! Each task has one ledger, each row sealed with SHA-256 over the task and its first promise. An edited, moved or
//! copied row is detected when the app starts, and the participant then stops sending updates to that task. The seals
//! work without a secret key: they detect accidents, not an attacker who rewrites the whole journal. Rows are
//! permanent: a full account refuses further charges. This module works without I/O.

use std::collections::BTreeMap;
use task_spec::{PrivacyAccounting, PrivacyMechanism, PrivacyView};

use learning::privacy::{Budget, Cost, Ledger, LedgerError, Release, SealedRow};
use ring::digest;
use serde::{Deserialize, Serialize};
use wire::{Attempt, TaskId};

use super::{Lifetime, LifetimeSpent, Participations, PrivacyPolicy, PrivacySpent, PrivateRound, Promise};

/// Maximum number of tasks.
const MOST_TASKS: usize = 1000;
/// Maximum number of releases, of all tasks.
const MOST_ROWS: u64 = 50_000;
/// Maximum length of a task's name.
const NAME_MAX: usize = 64;

/// The reason for withholding an update from a task. Reported to the app; the coordinator only learns that privacy is the reason.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum PrivacyRefusal {
    #[error("the task has no privacy mechanism, which this participant demands")]
    Required,
    #[error("the task's delta is {delta:e}; this participant takes at most {most:e}")]
    Delta { delta: f64, most: f64 },
    #[error("the task promised {promised} when this participant first sent an update, and now says {now}")]
    Mechanism { promised: &'static str, now: &'static str },
    #[error("the task promised a noise multiplier of {promised} first, and now says {now}, which is less")]
    LessNoise { promised: f64, now: f64 },
    #[error("the task promised a delta of {promised:e} first, and now says {now:e}, which is more")]
    MoreDelta { promised: f64, now: f64 },
    #[error("an update of this attempt was charged and sent before; another one would be released for nothing")]
    Sent,
    #[error(
        "an update of this attempt was charged before the app ended, for a release of noise multiplier {charged:.4}; the \
         coordinator now states another one, of {now:.4}, which was not charged"
    )]
    OtherRelease { charged: f64, now: f64 },
    #[error("this participant was in the task's tree before, and the promise of a tree is for whoever is in it once")]
    Tree,
    #[error(
        "this participant took part in round {last}; the task's promise is for participations that are {separation} rounds apart \
         at least, and this is round {round}"
    )]
    TooSoon { last: u64, round: u64, separation: u32 },
    #[error(
        "the task promised {} participations at most, {} rounds apart at least, when this participant first sent an update, and \
         now says {} and {}", promised.most, promised.separation, now.most, now.separation
    )]
    Participations { promised: Participations, now: Participations },
    #[error("this participant has sent {0} updates to the task, as many as its promise was planned for")]
    Rounds(u32),
    #[error("its privacy budget for the task is used up: {0}")]
    Budget(LedgerError),
    #[error(
        "all its tasks together would have cost epsilon {after:.3} at delta {delta:e}, and it spends at most {most} in its life"
    )]
    Lifetime { after: f64, most: f64, delta: f64 },
    #[error("its privacy ledger of another task cannot be trusted, so nobody knows what all together have cost: {0}")]
    Unknown(LedgerError),
    #[error("its privacy ledger of the task cannot be trusted, so nothing more is sent to it: {0}")]
    Damaged(LedgerError),
    #[error("its privacy ledgers are full: they hold {rows} releases of {tasks} tasks")]
    Full { rows: u64, tasks: usize },
}

/// The ledgers of all tasks.
pub(crate) struct Account {
    policy: PrivacyPolicy,
    tasks: BTreeMap<TaskId, TaskAccount>,
    /// The last attempt charged.
    last: Option<Attempt>,
    /// The last attempt charged, if the process died before writing, and so before sending, its update.
    unsent: Option<Attempt>,
}

struct TaskAccount {
    name: String,
    promise: Promise,
    ledger: Result<Ledger, Damaged>,
}

/// Rows that fail verification; kept unchanged.
struct Damaged {
    rows: Vec<SealedRow>,
    error: LedgerError,
}

/// An account in the journal's encoding: the rows of all tasks follow the header, as JSON.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct AccountRecord {
    pub(crate) last: Option<Attempt>,
    pub(crate) tasks: Vec<TaskRecord>,
}

/// A task's part of the record.
#[derive(Serialize, Deserialize)]
pub(crate) struct TaskRecord {
    pub(crate) task: TaskId,
    pub(crate) name: String,
    pub(crate) promise: Promise,
    /// Length of its rows as JSON.
    pub(crate) rows_bytes: usize,
    #[serde(skip)]
    pub(crate) rows: Vec<SealedRow>,
}

impl Account {
    /// Opens the journal's record. `answered_for` is the number of charges known to the round's record.
    pub(crate) fn open(kept: AccountRecord, answered_for: u64, policy: PrivacyPolicy) -> Self {
        let tasks = kept.tasks.into_iter().map(|TaskRecord { task, name, promise, rows, .. }| {
            let ledger = open(task, &promise, rows.clone(), &policy).map_err(|error| Damaged { rows, error });
            (task, TaskAccount { name, promise, ledger })
        });
        let mut account = Self { policy, tasks: tasks.collect(), last: kept.last, unsent: None };
        account.unsent = account.last.filter(|_| account.charges() > answered_for);
        account
    }

    /// Number of releases ever charged.
    pub(crate) fn charges(&self) -> u64 {
        self.tasks.values().map(|account| account.rows().len() as u64).sum()
    }

    /// The record for the journal.
    pub(crate) fn keep(&self) -> AccountRecord {
        let tasks = self.tasks.iter().map(|(&task, account)| TaskRecord {
            task,
            name: account.name.clone(),
            promise: account.promise,
            rows_bytes: 0,
            rows: account.rows().to_vec(),
        });
        AccountRecord { last: self.last, tasks: tasks.collect() }
    }

    /// The spending by task, for the app.
    pub(crate) fn spent(&self) -> Vec<PrivacySpent> {
        self.tasks.iter().map(|(&task, account)| account.spent(task, &self.policy)).collect()
    }

    /// Whether an update may be made at this place, on these terms; before anything is trained.
    pub(crate) fn check(&self, place: Attempt, round: Option<&PrivateRound>) -> Result<(), PrivacyRefusal> {
        let account = self.tasks.get(&place.task);
        let Some(round) = round else {
            return match account {
                Some(account) => Err(PrivacyRefusal::Mechanism {
                    promised: account.promise.mechanism.as_str(),
                    now: PrivacyMechanism::None.as_str(),
                }),
                None if self.policy.required => Err(PrivacyRefusal::Required),
                None => Ok(()),
            };
        };
        let now = &Promise::of(round);
        if let Some(most) = self.policy.max_delta.filter(|most| now.delta > *most) {
            return Err(PrivacyRefusal::Delta { delta: now.delta, most });
        }
        let release = Release { round: place.round.into(), attempt: place.attempt, ..round.release };
        match account {
            Some(account) => {
                account.promise.holds(now)?;
                self.room(account, place, &release)
            }
            None => self.first(place.task, now, &release),
        }
    }

    /// Returns the refusal at this place if it is independent of the terms: then making keys is unnecessary.
    pub(crate) fn is_closed(&self, place: Attempt) -> Result<(), PrivacyRefusal> {
        let Some(account) = self.tasks.get(&place.task) else { return Ok(()) };
        let like_before = account.rows().last().map(|sealed| {
            let (round, attempt) = (place.round.into(), place.attempt);
            Release { round, attempt, ..sealed.row.release }
        });
        like_before.map_or(Ok(()), |release| self.room(account, place, &release))
    }

    /// Charges an update, before it is kept or sent. True if there is something new to be kept.
    pub(crate) fn charge(&mut self, place: Attempt, name: &str, round: &PrivateRound) -> Result<bool, PrivacyRefusal> {
        self.check(place, Some(round))?;
        if self.unsent.take() == Some(place) {
            return Ok(false);
        }
        let (task, promise) = (place.task, Promise::of(round));
        if !self.tasks.contains_key(&task) {
            let ledger = open(task, &promise, Vec::new(), &self.policy).map_err(PrivacyRefusal::Budget)?;
            let name = name.chars().take(NAME_MAX).collect();
            self.tasks.insert(task, TaskAccount { name, promise, ledger: Ok(ledger) });
        }
        if let Some(TaskAccount { promise, ledger: Ok(ledger), .. }) = self.tasks.get_mut(&task) {
            ledger.charge(round.release, &sealer(task, promise)).map_err(PrivacyRefusal::Budget)?;
        }
        self.last = Some(place);
        Ok(true)
    }

    /// The account of a task before its first release.
    fn first(&self, task: TaskId, promise: &Promise, release: &Release) -> Result<(), PrivacyRefusal> {
        if self.tasks.len() >= MOST_TASKS {
            return Err(self.full());
        }
        let ledger = open(task, promise, Vec::new(), &self.policy).map_err(PrivacyRefusal::Budget)?;
        self.fits(task, &ledger, release)
    }

    fn room(&self, account: &TaskAccount, place: Attempt, release: &Release) -> Result<(), PrivacyRefusal> {
        let ledger = account.ledger.as_ref().map_err(|damaged| PrivacyRefusal::Damaged(damaged.error.clone()))?;
        if self.unsent == Some(place) {
            return as_charged(ledger, release);
        }
        let key = (u64::from(place.round), place.attempt);
        let releases = ledger.rows().iter().map(|sealed| &sealed.row.release);
        if releases.map(|release| (release.round, release.attempt)).any(|charged| charged == key) {
            return Err(PrivacyRefusal::Sent);
        }
        if account.promise.mechanism == PrivacyMechanism::Tree && !ledger.rows().is_empty() {
            return Err(PrivacyRefusal::Tree);
        }
        if ledger.rows().len() as u64 >= account.promise.most_releases().into() {
            return Err(PrivacyRefusal::Rounds(account.promise.most_releases()));
        }
        if let Some(Participations { separation, .. }) = account.promise.participations {
            // Only the coordinator knows whether an attempt's sum was opened, so another attempt at the same round
            // counts as distance 0. A separation of 1 allows every distance.
            let is_close = |last: u64| separation > 1 && last.abs_diff(key.0) < separation.into();
            let mut rounds = ledger.rows().iter().map(|sealed| sealed.row.release.round);
            if let Some(last) = rounds.find(|last| is_close(*last)) {
                return Err(PrivacyRefusal::TooSoon { last, round: key.0, separation });
            }
        }
        self.fits(place.task, ledger, release)
    }

    fn fits(&self, task: TaskId, ledger: &Ledger, release: &Release) -> Result<(), PrivacyRefusal> {
        if self.charges() >= MOST_ROWS {
            return Err(self.full());
        }
        ledger.would_exceed(release).map_err(PrivacyRefusal::Budget)?;
        self.lives_on(task, ledger.cost_after(Some(release)))
    }

    /// Checks the lifetime budget, if `task` will have cost this.
    fn lives_on(&self, task: TaskId, mut cost: Cost) -> Result<(), PrivacyRefusal> {
        let Some(Lifetime { epsilon: most, delta }) = self.policy.lifetime else { return Ok(()) };
        self.add_others(Some(task), &mut cost).map_err(|error| PrivacyRefusal::Unknown(error.clone()))?;
        let after = together(&cost, delta);
        if after > most { Err(PrivacyRefusal::Lifetime { after, most, delta }) } else { Ok(()) }
    }

    /// Adds the cost of all tasks except this one.
    fn add_others(&self, but: Option<TaskId>, cost: &mut Cost) -> Result<(), &LedgerError> {
        for (_, account) in self.tasks.iter().filter(|(task, _)| Some(**task) != but) {
            let ledger = account.ledger.as_ref().map_err(|damaged| &damaged.error)?;
            cost.add(&ledger.cost_after(None));
        }
        Ok(())
    }

    /// The spending on all tasks together, for the app.
    pub(crate) fn lifetime(&self) -> LifetimeSpent {
        let delta = self.policy.lifetime.unwrap_or_default().delta;
        let mut cost = Cost::zero();
        let known = self.add_others(None, &mut cost).is_ok();
        LifetimeSpent {
            epsilon: known.then(|| together(&cost, delta)),
            delta,
            limit: self.policy.lifetime.map(|most| most.epsilon),
        }
    }

    fn full(&self) -> PrivacyRefusal {
        PrivacyRefusal::Full { rows: self.charges(), tasks: self.tasks.len() }
    }
}

impl TaskAccount {
    fn rows(&self) -> &[SealedRow] {
        self.ledger.as_ref().map_or_else(|damaged| &damaged.rows[..], Ledger::rows)
    }

    fn spent(&self, task: TaskId, policy: &PrivacyPolicy) -> PrivacySpent {
        let last = self.rows().last().map(|sealed| sealed.row.total);
        PrivacySpent {
            task,
            name: self.name.clone(),
            mechanism: self.promise.mechanism,
            delta: self.promise.delta,
            epsilon: last.map_or(0.0, |total| total.cohort_known),
            server: last.and_then(|total| total.server),
            releases: self.rows().len() as u64,
            most_releases: self.promise.most_releases(),
            limit: self.promise.limit(policy),
            damaged: self.ledger.as_ref().err().map(|damaged| damaged.error.to_string()),
        }
    }
}

impl Promise {
    /// Maximum number of updates.
    fn most_releases(&self) -> u32 {
        match (self.mechanism, self.participations) {
            (PrivacyMechanism::Tree, _) => 1,
            (_, Some(participations)) => participations.most.min(self.rounds),
            (_, None) => self.rounds,
        }
    }

    /// Checks that the current promise is at least as strong as the first one.
    fn holds(&self, now: &Self) -> Result<(), PrivacyRefusal> {
        if now.mechanism != self.mechanism {
            let (promised, now) = (self.mechanism.as_str(), now.mechanism.as_str());
            return Err(PrivacyRefusal::Mechanism { promised, now });
        }
        if now.noise_multiplier < self.noise_multiplier {
            return Err(PrivacyRefusal::LessNoise { promised: self.noise_multiplier, now: now.noise_multiplier });
        }
        if now.delta > self.delta {
            return Err(PrivacyRefusal::MoreDelta { promised: self.delta, now: now.delta });
        }
        // A different number of bands is a different matrix, whose costs do not compose with those of the first.
        if let Some((promised, now)) =
            self.participations.zip(now.participations).filter(|(promised, now)| promised != now)
        {
            return Err(PrivacyRefusal::Participations { promised, now });
        }
        Ok(())
    }

    fn limit(&self, policy: &PrivacyPolicy) -> Option<f64> {
        [self.epsilon, policy.max_epsilon].into_iter().flatten().min_by(f64::total_cmp)
    }
}

/// Checks that the last row, whose update was not sent, was charged for exactly this release.
fn as_charged(ledger: &Ledger, release: &Release) -> Result<(), PrivacyRefusal> {
    match ledger.rows().last().map(|sealed| sealed.row.release) {
        Some(charged) if charged != *release => {
            Err(PrivacyRefusal::OtherRelease { charged: charged.noise_multiplier(), now: release.noise_multiplier() })
        }
        Some(_) | None => Ok(()),
    }
}

fn open(task: TaskId, promise: &Promise, rows: Vec<SealedRow>, policy: &PrivacyPolicy) -> Result<Ledger, LedgerError> {
    let budget = Budget {
        epsilon: promise.limit(policy),
        delta: promise.delta,
        // The releases that a participant can rely on.
        against: PrivacyView::CohortKnown,
        accounting: Default::default(),
    };
    Ledger::open(promise.mechanism, budget, rows, &sealer(task, promise))
}

/// Epsilon of releases of several tasks, towards observers with knowledge of the members.
fn together(cost: &Cost, delta: f64) -> f64 {
    cost.at(delta, None, PrivacyAccounting::default()).cohort_known
}

/// Covers the task and its first promise, so that later changes of either invalidate the rows.
fn sealer(task: TaskId, promise: &Promise) -> impl Fn(&[u8]) -> [u8; 32] {
    let mut prefix = b"tributary participant ledger 1\0".to_vec();
    prefix.extend_from_slice(task.0.as_bytes());
    // Numbers and a name: this cannot fail.
    prefix.extend(serde_json::to_vec(promise).unwrap_or_default());
    prefix.push(0);
    move |bytes| {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&prefix);
        context.update(bytes);
        let mut seal = [0; 32];
        seal.copy_from_slice(context.finish().as_ref());
        seal
    }
}
