//! Provenance records of model versions, signed and stored by the publishing transaction.
//!
//! A record is made only of rows, so it can be signed later: at the start of a program whose key has signed none, for the newest versions
//! of running tasks ([`sign_unsigned`]).

use federation::id::{Attempt, ParticipantId, TaskId};
use federation::model_version::ModelVersion;
use federation::round::Assignment;
use federation::time::Timestamp;
use learning::privacy::SealedRow;
use store::entity::provenance::ProvenanceRow;
use store::entity::task::TaskRow;
use store::{Store, StoreError, Transaction};
use wire::audit::Hex;
use wire::provenance::{
    BaseVersion, FORMAT, MAX_BELOW, MadeIn, Origin, Provenance, SignedProvenance, SpentSoFar, roster_digest,
    survivors_digest,
};

use super::all_tasks::AllTasks;
use crate::privacy::seal::Sealer;
use crate::rounds::models::Models;

/// Members of a cohort read at once.
const PAGE: u32 = 1000;

/// Signs records. The numbers derived from tasks are part of the signed data.
#[derive(Clone, Copy)]
pub(crate) struct Signer<'a> {
    pub(crate) models: &'a Models,
    pub(crate) sealer: &'a Sealer,
}

/// Stores a task's new version with its record: the only way to publish one. `made_in`: the attempt behind it, if any.
///
/// # Errors
/// Errors of the store, as of [`Transaction::insert_model_version`].
pub(crate) async fn publish(
    tx: &mut Transaction<'_>,
    signer: Signer<'_>,
    task: &TaskRow,
    version: &ModelVersion,
    made_in: Option<Attempt>,
) -> Result<(), StoreError> {
    tx.insert_model_version(version).await?;
    sign(tx, signer, task, version, made_in, version.created_at).await
}

/// The stored record of a version, if any.
///
/// # Errors
/// Errors of the store; `Corrupt` for a signature of a wrong length.
pub(crate) async fn of(
    tx: &mut Transaction<'_>,
    task: TaskId,
    version: u32,
) -> Result<Option<SignedProvenance>, StoreError> {
    let Some(row) = tx.provenance(task, version).await? else { return Ok(None) };
    let signature = row.signature.try_into().map_err(|_| {
        StoreError::corrupt(format!("the record of version {version} of task {task} has a signature of another length"))
    })?;
    Ok(Some(SignedProvenance { record: row.record, signature: Hex(signature) }))
}

/// Signs the record of each version available to participants but unsigned by this key: the newest one of each running task and, with
/// training ahead of rounds, possible base versions. This happens after an upgrade from a program without records, and after a replacement
/// of the sealing key. Returns their number.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn sign_unsigned(store: &Store, signer: Signer<'_>, now: Timestamp) -> Result<u32, StoreError> {
    let (mut signed, mut tasks) = (0, AllTasks::of(store));
    while let Some(page) = tasks.next().await? {
        for task in page.iter().filter(|task| !task.status.is_terminal()) {
            signed +=
                store.transact("sign versions", |tx| Box::pin(sign_unsigned_of(tx, signer, task.id, now))).await?;
        }
    }
    Ok(signed)
}

async fn sign_unsigned_of(
    tx: &mut Transaction<'_>,
    signer: Signer<'_>,
    task: TaskId,
    now: Timestamp,
) -> Result<u32, StoreError> {
    let Some(task) = tx.task(task).await? else { return Ok(0) };
    let mut signed = 0;
    let given = task.spec.ahead().map_or(0, |ahead| ahead.staleness.max).saturating_add(1);
    for version in tx.model_versions(task.id, None, given).await? {
        let record = of(tx, task.id, version.version).await?.and_then(|record| record.open().ok());
        if record.is_some_and(|record| record.coordinator == signer.sealer.audit_key()) {
            continue;
        }
        let round = match version.round {
            Some(number) => tx.round(federation::id::RoundKey { task: task.id, number }).await?,
            None => None,
        };
        let made_in = round.filter(|row| row.model_version == Some(version.version)).map(|row| row.round.key);
        sign(tx, signer, &task, &version, made_in, now).await?;
        signed += 1;
    }
    Ok(signed)
}

async fn sign(
    tx: &mut Transaction<'_>,
    signer: Signer<'_>,
    task: &TaskRow,
    version: &ModelVersion,
    made_in: Option<Attempt>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let record = record(tx, signer, task, version, made_in, now).await?;
    let SignedProvenance { record, signature } = signer.sealer.sign_provenance(&record);
    let row = ProvenanceRow { task: version.task, version: version.version, record, signature: signature.0.to_vec() };
    tx.put_provenance(&row).await
}

async fn record(
    tx: &mut Transaction<'_>,
    signer: Signer<'_>,
    task: &TaskRow,
    version: &ModelVersion,
    made_in: Option<Attempt>,
    now: Timestamp,
) -> Result<Provenance, StoreError> {
    let base = match version.parent {
        None => None,
        Some(parent) => tx.model_version(task.id, parent).await?,
    };
    let origin = match (version.parent, version.restored_from()) {
        (None, _) => Origin::Initial,
        (Some(_), None) => Origin::Trained,
        (Some(_), Some(_)) => Origin::Restored,
    };
    // If privacy rests on a secret draw, its size and a digest of its members are omitted.
    let shown = made_in.filter(|_| !task.spec.sampling_amplifies());
    let (mut roster, mut survivors, mut updates, mut below) = (None, None, None, Vec::new());
    if let Some(attempt) = shown {
        below = tx.records_below(attempt, MAX_BELOW).await?;
        updates = tx.noised_sum(attempt).await?.map(|sum| sum.participants);
        if task.spec.secure_aggregation.enabled {
            let cohort = Cohort::read(tx, attempt).await?;
            roster = Some(roster_digest(&cohort.members));
            survivors = Some(survivors_digest(&cohort.survivors));
        }
    }
    Ok(Provenance {
        format: FORMAT,
        coordinator: signer.sealer.audit_key(),
        task: task.id,
        task_sha256: signer.models.of(task)?.task_digest(&task.spec, version.clip),
        version: version.version,
        sha256: version.sha256,
        bytes: version.bytes,
        origin,
        base: base.map(|base| BaseVersion { version: base.version, sha256: base.sha256 }),
        round: made_in.map(|Attempt { round, attempt, .. }| MadeIn { round, attempt }),
        roster,
        survivors,
        updates,
        below,
        privacy: spent(tx, task, made_in).await?,
        published_at: version.created_at,
        signed_at: now,
        program: format!("tributary {}", listener::version()),
    })
}

/// The cohort of an attempt, by its groups.
#[derive(Default)]
struct Cohort {
    members: Vec<Vec<ParticipantId>>,
    /// The members whose inputs are in the sum.
    survivors: Vec<Vec<ParticipantId>>,
}

impl Cohort {
    async fn read(tx: &mut Transaction<'_>, attempt: Attempt) -> Result<Self, StoreError> {
        let folded = tx.folded(attempt).await?;
        let (mut cohort, mut cursor) = (Self::default(), None);
        loop {
            let page = tx.assignments(attempt, cursor, PAGE).await?;
            let Some(last) = page.last().map(|place| place.participant) else { return Ok(cohort) };
            cursor = Some(last);
            for Assignment { participant, group, .. } in page {
                let group = group.unwrap_or(0) as usize;
                if cohort.members.len() <= group {
                    cohort.members.resize_with(group + 1, Vec::new);
                    cohort.survivors.resize_with(group + 1, Vec::new);
                }
                cohort.members[group].push(participant);
                if folded.binary_search(&participant).is_ok() {
                    cohort.survivors[group].push(participant);
                }
            }
        }
    }
}

/// The task's privacy report after this attempt is charged, or now.
async fn spent(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    made_in: Option<Attempt>,
) -> Result<Option<SpentSoFar>, StoreError> {
    let (true, Some(delta)) = (task.spec.privacy.is_private(), task.spec.privacy.delta) else { return Ok(None) };
    let row = match made_in {
        Some(attempt) => tx.privacy_row_of(attempt).await?,
        None => {
            let last = tx.privacy_count(task.id).await?.checked_sub(1);
            match last {
                Some(last) => tx.privacy_rows(task.id, last, 1).await?.pop(),
                None => None,
            }
        }
    };
    let epsilon = match row {
        Some(row) => {
            let sealed: SealedRow = serde_json::from_str(&row.row)
                .map_err(|error| StoreError::unreadable(format!("the privacy ledger of task {}", task.id), error))?;
            sealed.row.total.published
        }
        None => 0.0,
    };
    Ok(Some(SpentSoFar { epsilon, delta }))
}
