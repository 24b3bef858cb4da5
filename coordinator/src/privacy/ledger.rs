//! The privacy ledger in rows: reads, verifies, and appends in the transaction that decides about a release.
//!
//! `learning` defines the meaning and cost of a row. Seals are keyed with the coordinator's sealing key, stored outside the database, so an
//! attacker with write access cannot forge rows. The last seal has a row of its own, and the number of rows equals the number of releases,
//! so removed rows are detected. The end of the ledger at the last publication, and the task's specification, are also stored outside the
//! database ([`crate::privacy::ledger_end`]).

use std::sync::Arc;

use federation::event::{EventKind, Fact, Subject};
use federation::id::{Attempt, TaskId};
use federation::round::{Round, RoundState};
use federation::time::Timestamp;
use learning::privacy::{Cost, Epsilons, Ledger, LedgerError, NoServerEpsilon, Release, SealedRow};
use store::entity::privacy_ledger::PrivacyRow;
use store::entity::task::TaskRow;
use store::{Store, StoreError, Transaction};
use task_spec::{NoisedBy, PrivacyAccounting, PrivacyMechanism, TaskSpec};

use crate::privacy::ledger_end::{LedgerEnd, LedgerEndError, StoredEnd};
use crate::privacy::release_keys::of_the_task;
use crate::privacy::seal::Sealer;
use crate::rounds::models::Models;
use crate::step_error::StepError;
use recipe::server::PrivateTask;

/// Purpose of the stored seed of one release's noise.
pub(crate) const NOISE_OF_A_RELEASE: &str = "noise";
/// Prefix of the purposes of the stored seeds of a tree's noise ([`noise_of_a_place`]); these seeds belong to the task.
pub(crate) const NOISE_OF_A_TREE: &str = "tree noise";
/// The same prefix for noise along a banded matrix.
pub(crate) const NOISE_OF_A_BANDED_MATRIX: &str = "banded noise";
/// Rows read at once.
const PAGE: u32 = 1000;

/// Reasons why a ledger cannot be charged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerFault {
    /// The rows cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The rows fail verification, or the budget is insufficient for the release.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The rows verify, but some are missing.
    #[error(transparent)]
    End(#[from] LedgerEndError),
}

impl From<LedgerFault> for StepError {
    fn from(fault: LedgerFault) -> Self {
        match fault {
            LedgerFault::Store(error) => error.into(),
            untrusted @ (LedgerFault::Ledger(_) | LedgerFault::End(_)) => Self::unworkable(untrusted),
        }
    }
}

/// Reads the end of a task's ledger, stored outside the database. Read it before the rows: these may grow in between but never fall behind
/// it. Call it outside of a transaction, since the secret store may be remote.
///
/// # Errors
/// Errors of the secret store.
pub(crate) async fn stored_end(sealer: &Arc<Sealer>, task: TaskId) -> Result<StoredEnd, StoreError> {
    let sealer = Arc::clone(sealer);
    tokio::task::spawn_blocking(move || sealer.ledger_end(task)).await.map_err(StoreError::fault)?
}

/// A task's ledger, verified as by [`read`]; `None` for a task created without privacy.
///
/// # Errors
/// [`LedgerFault`] if the ledger cannot be read or verified.
pub(crate) async fn verify(
    store: &Store,
    sealer: &Arc<Sealer>,
    task: &TaskRow,
    private: Option<&PrivateTask>,
) -> Result<Option<Ledger>, LedgerFault> {
    let end = &stored_end(sealer, task.id).await?;
    match (private, end) {
        (Some(private), _) => {
            let read = store.read("privacy ledger", |tx| Box::pin(read(tx, task, private, sealer, end)));
            read.await.map(Some)
        }
        (None, StoredEnd::Nothing(_)) => Ok(None),
        // Its mechanism was removed from the database.
        (None, StoredEnd::End(_) | StoredEnd::Foreign(_)) => Err(LedgerEndError::Promise.into()),
    }
}

/// The reason to refuse releases for the task; `None` if its ledger is verified and its noise can be drawn. An unavailable secret store is
/// no obstacle for a task without noise.
///
/// # Errors
/// Errors of the store and of the secret store.
pub(crate) async fn why_untrusted(
    store: &Store,
    sealer: &Arc<Sealer>,
    task: &TaskRow,
    private: Option<&PrivateTask>,
) -> Result<Option<String>, StoreError> {
    match verify(store, sealer, task, private).await {
        Ok(_) => {
            let sampler = private.and_then(|private| private.opendp().err());
            Ok(sampler.map(|error| format!("privacy.sampler {error}")))
        }
        Err(LedgerFault::Store(_)) if private.is_none() => Ok(None),
        Err(LedgerFault::Store(error)) => Err(error),
        Err(untrusted @ (LedgerFault::Ledger(_) | LedgerFault::End(_))) => Ok(Some(untrusted.to_string())),
    }
}

/// Reads a task's ledger, verifies every row, and compares it with its stored end.
///
/// # Errors
/// [`LedgerFault`].
pub(crate) async fn read(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    private: &PrivateTask,
    sealer: &Sealer,
    end: &StoredEnd,
) -> Result<Ledger, LedgerFault> {
    let mut rows = Vec::new();
    loop {
        let page = tx.privacy_rows(task.id, rows.len() as u64, PAGE).await?;
        let is_last = page.len() < PAGE as usize;
        for row in page {
            let index = rows.len() as u64;
            rows.push(serde_json::from_str::<SealedRow>(&row.row).map_err(|_| LedgerError::Tampered(index))?);
        }
        if is_last {
            break;
        }
    }
    // A delta is required for a mechanism, and `Private` implies one.
    let budget = private.budget().ok_or(LedgerError::Budget { epsilon: None, delta: f64::NAN })?;
    let seal = |bytes: &[u8]| sealer.mac(task.id.0.as_bytes(), bytes);
    let ledger = Ledger::open(private.mechanism(), budget, rows, &seal)?;
    let head = tx.privacy_head(task.id).await?;
    let expected = (!ledger.rows().is_empty()).then(|| ledger.head().to_string());
    let versions = task.rounds_completed.max(task.model_version);
    if head != expected || (ledger.rows().len() as u64) < u64::from(versions) {
        return Err(LedgerError::Head.into());
    }
    check_end(end, &ledger, task)?;
    Ok(ledger)
}

/// Compares the ledger and the task's specification with the copy outside the database.
fn check_end(end: &StoredEnd, ledger: &Ledger, task: &TaskRow) -> Result<(), LedgerEndError> {
    let rows = ledger.rows().len() as u64;
    let end = match end {
        StoredEnd::End(end) => end,
        StoredEnd::Nothing(place) => return Err(LedgerEndError::Missing(place.clone())),
        StoredEnd::Foreign(place) => return Err(LedgerEndError::File(place.clone())),
    };
    if !end.promises(&task.spec) {
        return Err(LedgerEndError::Promise);
    }
    let Some(last) = end.rows.checked_sub(1) else { return Ok(()) };
    let Some(there) = usize::try_from(last).ok().and_then(|last| ledger.rows().get(last)) else {
        return Err(LedgerEndError::Older { rows, kept: end.rows });
    };
    if there.seal.to_string() == end.seal { Ok(()) } else { Err(LedgerEndError::Other(last)) }
}

/// Replaces the stored end of a committed and verified ledger by a later one; waits for the secret store.
///
/// # Errors
/// Errors of the secret store.
pub(crate) fn keep_end(sealer: &Sealer, task: TaskId, spec: &TaskSpec, ledger: &Ledger) -> Result<(), StoreError> {
    let end = LedgerEnd::new(ledger.rows().len() as u64, ledger.head().to_string(), spec);
    sealer.keep_ledger_end(task, |stored| match stored {
        StoredEnd::End(kept) if kept.rows > end.rows || (kept.rows == end.rows && kept.task.is_some()) => None,
        StoredEnd::End(_) => Some(end.clone()),
        // The next reader of the ledger reports this. The file is never rebuilt from the database.
        StoredEnd::Nothing(_) | StoredEnd::Foreign(_) => None,
    })
}

/// Stores the end of a new private task's empty ledger, with its specification, before the task's row. A task with a row but no end has
/// therefore lost its end. If storing the task fails, a small unused file remains.
///
/// # Errors
/// Errors of the secret store.
pub(crate) fn keep_promise(sealer: &Sealer, task: TaskId, spec: &TaskSpec) -> Result<(), StoreError> {
    let end = LedgerEnd::new(0, hex::encode([0; 32]), spec);
    sealer.keep_ledger_end(task, |stored| match stored {
        StoredEnd::Nothing(_) => Some(end.clone()),
        StoredEnd::End(_) | StoredEnd::Foreign(_) => None,
    })
}

/// The cost for a participant in every release of these ledgers, of any mechanisms, at one delta. The cost against the coordinator exists
/// only if no mechanism trusts it.
pub(crate) fn together<'a>(ledgers: impl IntoIterator<Item = (PrivacyMechanism, &'a Ledger)>, delta: f64) -> Epsilons {
    let (mut cost, mut server) = (Cost::zero(), None);
    for (mechanism, ledger) in ledgers.into_iter().filter(|(_, ledger)| !ledger.rows().is_empty()) {
        cost.add(&ledger.cost_after(None));
        server = server.or(NoServerEpsilon::of(mechanism));
    }
    cost.at(delta, server, PrivacyAccounting::default())
}

pub(crate) struct Charge {
    row: PrivacyRow,
    head: String,
    mechanism: PrivacyMechanism,
    /// The task's total cost including this charge, against adversaries without knowledge of the cohorts.
    epsilon: f64,
}

/// Charges a release.
///
/// # Errors
/// [`LedgerError`].
pub(crate) fn charge(
    ledger: &mut Ledger,
    sealer: &Sealer,
    attempt: Attempt,
    release: Release,
    published: bool,
    now: Timestamp,
) -> Result<Charge, LedgerError> {
    let seal = |bytes: &[u8]| sealer.mac(attempt.task.0.as_bytes(), bytes);
    let sealed = ledger.charge(release, &seal)?;
    // Numbers and text: this cannot fail.
    let row = serde_json::to_string(sealed).unwrap_or_default();
    let (index, head) = (sealed.row.index, sealed.seal.to_string());
    let (mechanism, epsilon) = (sealed.row.release.mechanism, sealed.row.total.published);
    let row = PrivacyRow { attempt, idx: index, published, row, created_at: now };
    Ok(Charge { row, head, mechanism, epsilon })
}

/// Stores a charge in the transaction that decides about its release.
///
/// # Errors
/// `Conflict` if another row came first.
pub(crate) async fn store(tx: &mut Transaction<'_>, charge: &Charge) -> Result<(), StoreError> {
    let Charge { row, head, mechanism, epsilon } = charge;
    tx.append_privacy_row(row).await?;
    let facts = [
        ("mechanism", Fact::from(mechanism.as_str())),
        ("epsilon", epsilon.to_string().into()),
        ("published", row.published.into()),
    ];
    tx.note_event(row.created_at, EventKind::PrivacyCharged, Subject::Round(row.attempt), facts);
    tx.set_privacy_head(row.attempt.task, head).await
}

/// The context for charging and verifying ledgers in a transaction.
pub(crate) struct Charger<'a> {
    models: &'a Models,
    sealer: &'a Sealer,
    /// The stored end of the task's ledger, if it may be charged.
    end: Option<StoredEnd>,
}

impl<'a> Charger<'a> {
    /// For a task whose ledger is always needed.
    ///
    /// # Errors
    /// Errors of the secret store.
    pub(crate) async fn of_task(
        models: &'a Models,
        sealer: &'a Arc<Sealer>,
        task: &TaskRow,
    ) -> Result<Self, StoreError> {
        // An edited row may differ from the cached model: either one suffices.
        let has_ledger = || models.of(task).is_ok_and(|model| model.private.is_some());
        let end = match task.spec.privacy.is_private() || has_ledger() {
            true => Some(stored_end(sealer, task.id).await?),
            false => None,
        };
        Ok(Self { models, sealer, end })
    }

    /// For a round in its observed state; ending it may require a charge.
    ///
    /// # Errors
    /// Errors of the secret store.
    pub(crate) async fn of_round(
        models: &'a Models,
        sealer: &'a Arc<Sealer>,
        task: &TaskRow,
        round: &Round,
    ) -> Result<Self, StoreError> {
        match may_be_open(task, round) {
            true => Self::of_task(models, sealer, task).await,
            false => Ok(Self { models, sealer, end: None }),
        }
    }

    pub(crate) fn models(&self) -> &'a Models {
        self.models
    }

    /// The task's ledger.
    ///
    /// # Errors
    /// [`LedgerFault`]; `Busy` if the stored end was not read, because the round was at an earlier stage then.
    pub(crate) async fn ledger(
        &self,
        tx: &mut Transaction<'_>,
        task: &TaskRow,
        private: &PrivateTask,
    ) -> Result<Ledger, LedgerFault> {
        let end = self.end.as_ref().ok_or(StoreError::Busy)?;
        read(tx, task, private, self.sealer, end).await
    }
}

/// Charges the planned cost of a round without a version whose sum may have been unmasked. If the ledger cannot be charged, the round ends
/// anyway, and no further round opens with such a ledger.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn charge_unpublished(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    round: &Round,
    charger: &Charger<'_>,
    now: Timestamp,
) -> Result<(), StoreError> {
    if !task.spec.privacy.is_private() || !may_be_open(task, round) || tx.privacy_row_of(round.key).await?.is_some() {
        return Ok(());
    }
    let private = charger.models.of(task)?.private.clone();
    let private = private.ok_or_else(|| StoreError::fault("a task with a mechanism and without its arithmetic"))?;
    let charged = match charger.ledger(tx, task, &private).await {
        // The task's noise was validated at creation.
        Ok(mut ledger) => match private.planned(&ledger, round.key.round, round.key.attempt) {
            Ok(release) => charge(&mut ledger, charger.sealer, round.key, release, false, now),
            Err(_) => return Ok(()),
        },
        Err(LedgerFault::Store(error)) => return Err(error),
        Err(LedgerFault::Ledger(error)) => Err(error),
        Err(error @ LedgerFault::End(_)) => {
            tracing::error!(task = %task.id, round = %round.key.round_key(), "the privacy ledger cannot be charged: {error}");
            return Ok(());
        }
    };
    match charged {
        Ok(charge) => store(tx, &charge).await,
        Err(error) => {
            tracing::error!(task = %task.id, round = %round.key.round_key(), "the privacy ledger cannot be charged: {error}");
            Ok(())
        }
    }
}

/// Whether the coordinator may already have seen the release's data. With local noise and without masks, each upload suffices.
fn may_be_open(task: &TaskRow, round: &Round) -> bool {
    let is_local = task.spec.privacy.mechanism.noised_by() == NoisedBy::EachParticipant;
    let is_seen_singly = is_local && !task.spec.secure_aggregation.enabled;
    match round.state {
        RoundState::Unmasking | RoundState::Aggregating => true,
        RoundState::Collecting => is_seen_singly,
        RoundState::Selecting
        | RoundState::Sharing
        | RoundState::Confirming
        | RoundState::Completed
        | RoundState::Failed
        | RoundState::Cancelled => false,
    }
}

/// Purpose of the n-th piece, from 0, of an unreleased noised sum drawn without a seed.
pub(crate) fn piece_of_a_draw(n: usize) -> String {
    format!("noised sum {n}")
}

/// Purpose of the stored seed of a place, from 1, in noise correlated over releases.
pub(crate) fn noise_of_a_place(correlated: &str, place: u32) -> String {
    format!("{correlated} {place}")
}

/// Deletes the seed of an attempt's noise, or its stored noised sum.
pub(crate) async fn forget_noise(tx: &mut Transaction<'_>, attempt: Attempt) -> Result<(), StoreError> {
    tx.forget_secret(attempt, NOISE_OF_A_RELEASE).await?;
    let mut piece = 0;
    while tx.forget_secret(attempt, &piece_of_a_draw(piece)).await? {
        piece += 1;
    }
    Ok(())
}

/// Deletes the seeds of a task's correlated noise after its last release; with them the noise could be removed. Also deletes the unused
/// single seed for all places.
pub(crate) async fn forget_correlated_noise(tx: &mut Transaction<'_>, task: TaskId) -> Result<(), StoreError> {
    let of = of_the_task(task);
    for correlated in [NOISE_OF_A_TREE, NOISE_OF_A_BANDED_MATRIX] {
        tx.forget_secret(of, correlated).await?;
        let mut place = 1;
        while tx.forget_secret(of, &noise_of_a_place(correlated, place)).await? {
            place += 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use learning::privacy::Budget;
    use serde_json::json;
    use task_spec::PrivacyView;

    use super::*;

    /// A ledger of this many releases with noise multiplier 4.
    fn ledger(mechanism: PrivacyMechanism, releases: u32) -> Ledger {
        let budget = Budget {
            epsilon: None,
            delta: 1e-5,
            against: PrivacyView::CohortKnown,
            accounting: PrivacyAccounting::default(),
        };
        let seal = |_: &[u8]| [0; 32];
        let mut ledger = Ledger::open(mechanism, budget, Vec::new(), &seal).unwrap();
        for round in 1..=releases {
            let release = json!({
                "round": round, "attempt": 1, "mechanism": mechanism, "participants": 100,
                "sum": { "noise": { "discrete_gaussian": { "sigma": 400.0 } }, "sensitivity": 100.0, "dimension": 10 },
                "sampled": "anyhow",
            });
            ledger.charge(serde_json::from_value(release).unwrap(), &seal).unwrap();
        }
        ledger
    }

    #[test]
    fn tasks_of_one_population_add_up() {
        let (a, b, c) = (
            ledger(PrivacyMechanism::CentralGaussian, 2),
            ledger(PrivacyMechanism::Local, 3),
            ledger(PrivacyMechanism::Tree, 0),
        );
        let of = |ledgers: &[(PrivacyMechanism, &Ledger)]| together(ledgers.iter().copied(), 1e-5);
        let (central, local, tree) =
            ((PrivacyMechanism::CentralGaussian, &a), (PrivacyMechanism::Local, &b), (PrivacyMechanism::Tree, &c));
        let all = of(&[central, local, tree]);
        let five = ledger(PrivacyMechanism::CentralGaussian, 5).spent();
        assert!((all.cohort_known / five.cohort_known - 1.0).abs() < 1e-9, "five releases are five releases: {all:?}");
        assert_eq!((all.published, all.server), (all.cohort_known, None), "the coordinator is trusted by one of them");
        assert!(of(&[central]).cohort_known < all.cohort_known && of(&[local]).cohort_known < all.cohort_known);
        assert_eq!(
            of(&[local, tree]).server,
            Some(of(&[local]).cohort_known),
            "a tree that released nothing costs nothing"
        );
        assert_eq!(of(&[]).cohort_known, 0.0);
    }
}
