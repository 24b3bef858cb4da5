//! Checks all stored data for damage, reports each finding with its meaning and remedy, and replaces damaged blobs by good copies.
//!
//! It may run concurrently with coordinators, over SQLite and PostgreSQL: it reads one state of the rows, and replaces a blob as a whole.
//! Blobs are only replaced by bytes with their digest.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use federation::id::TaskId;
use store::entity::blob_reference::{BlobReference, BlobUse};
use store::{BlobStore, Blobs, Database, Store, StoreConfig, StoreError};

use crate::backup::{
    BackupError, LedgerStanding, Manifest, OnProgress, Progress, Stage, blobs_folder, copy_blob, described, examine,
    unmasked_private_tasks,
};
use crate::maintenance::damage::{is_damage, remake};
use crate::privacy::seal::Sealer;
use crate::records::all_tasks::AllTasks;
use crate::records::audit;

/// A younger blob without a row may be about to get one.
const YOUNG: Duration = Duration::from_secs(3_600);

task_spec::named_enum! {
    /// Kinds of problems with rows or blobs, for filtering.
    pub enum FindingKind {
        /// SQLite reports a malformed file or a dangling reference.
        Database = "database",
        /// Rows contradict each other.
        Rows = "rows",
        /// A row references a missing blob.
        MissingBlob = "missing_blob",
        /// A blob's bytes do not match its name.
        DamagedBlob = "damaged_blob",
        /// A privacy ledger was changed.
        Ledger = "ledger",
        /// A privacy ledger could not be checked.
        UncheckedLedger = "unchecked_ledger",
        /// The audit log was changed.
        Audit = "audit",
        /// A referenced input or partial sum, excluded from backups, is missing, as after a restore.
        LeftOut = "left_out",
        /// Blobs without a row.
        Orphans = "orphans",
    }
}

impl FindingKind {
    /// Whether data is lost unless repaired.
    #[must_use]
    pub fn is_damage(self) -> bool {
        match self {
            Self::Database | Self::Rows | Self::MissingBlob | Self::DamagedBlob | Self::Ledger | Self::Audit => true,
            Self::UncheckedLedger | Self::LeftOut | Self::Orphans => false,
        }
    }
}

/// A finding for operators.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Finding {
    pub kind: FindingKind,
    /// The problem with its location.
    pub what: String,
    /// What follows for tasks and participants.
    pub meaning: String,
    /// The operator's remedy, in words.
    pub remedy: String,
    /// The source of the good copy, if repaired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repaired: Option<&'static str>,
}

/// Outcome of a check.
#[derive(Clone, Debug, serde::Serialize)]
pub struct FsckReport {
    /// Number of blobs that rows refer to.
    pub blobs: usize,
    /// Private tasks with checked ledgers, including finished ones.
    pub ledgers: usize,
    /// Entries of the audit log.
    pub events: u64,
    pub findings: Vec<Finding>,
}

impl FsckReport {
    /// Number of unrepaired findings of damage.
    #[must_use]
    pub fn damage(&self) -> usize {
        self.findings.iter().filter(|finding| finding.kind.is_damage() && finding.repaired.is_none()).count()
    }
}

/// How to replace damaged blobs.
#[derive(Clone, Copy, Debug)]
pub enum Repair<'d> {
    /// Keep them.
    No,
    /// From recomputation, or from another copy of the store.
    Yes,
    /// Also from the backup in this folder.
    From(&'d Path),
}

/// Checks rows, blobs, and the references between them; privacy ledgers with `sealer`. Blocks the thread.
///
/// # Errors
/// [`BackupError`] if the check cannot continue; damage is not an error.
pub(crate) async fn check(
    at: &StoreConfig,
    sealer: Option<&Arc<Sealer>>,
    repair: Repair<'_>,
    on_progress: OnProgress<'_>,
) -> Result<FsckReport, BackupError> {
    match &at.database {
        Database::SqliteFile(path) if !path.exists() => return Err(BackupError::NoDatabase(path.clone())),
        Database::SqliteMemory => return Err(BackupError::InMemory("database.url")),
        Database::SqliteFile(_) | Database::Postgres(_) => {}
    }
    let copies = match repair {
        Repair::From(folder) => {
            Manifest::read(folder)?;
            Some(Blobs::Disk(blobs_folder(folder)).open(Arc::clone(&at.clock)).await?)
        }
        Repair::No | Repair::Yes => None,
    };
    let blobs = at.blobs.clone().open(Arc::clone(&at.clock)).await?;
    let mut report = FsckReport { blobs: 0, ledgers: 0, events: 0, findings: Vec::new() };
    let store = match Store::open_rows_to_read(&at.database, at.connections, Arc::clone(&blobs)).await {
        Err(StoreError::Corrupt(why)) => {
            report.findings.push(malformed(why.to_string()));
            return Ok(report);
        }
        store => store?,
    };
    let findings = match check_rows(&store).await {
        Err(StoreError::Corrupt(why)) => vec![malformed(why.to_string())],
        findings => findings?,
    };
    report.findings = findings;
    // Blob and ledger references of a malformed database are unreliable.
    if report.findings.iter().any(|finding| finding.kind == FindingKind::Database) {
        return Ok(report);
    }
    check_blobs(&store, &repair, copies.as_deref(), on_progress, &mut report).await?;
    check_ledgers(&store, sealer, &mut report).await?;
    check_log(&store, &mut report).await?;
    Ok(report)
}

fn malformed(what: String) -> Finding {
    Finding {
        kind: FindingKind::Database,
        what,
        meaning: "the database file is damaged: what its rows say cannot be relied on".to_owned(),
        remedy: "stop the coordinator, keep a copy of the file, and restore the newest backup (`tributary restore DIR --replace`)"
            .to_owned(),
        repaired: None,
    }
}

async fn check_rows(store: &Store) -> Result<Vec<Finding>, StoreError> {
    let mut findings: Vec<_> = store.problems().await?.into_iter().map(malformed).collect();
    if findings.is_empty() {
        let broken = store.read("broken rules", |tx| Box::pin(async move { tx.broken_rules().await })).await?;
        findings.extend(broken.into_iter().map(|broken| Finding {
            kind: FindingKind::Rows,
            what: format!("task {}, number {}: {} — and here it is not so", broken.task, broken.number, broken.rule),
            meaning: "rows were changed by something other than a coordinator, or lost: the task may stop or publish nothing more"
                .to_owned(),
            remedy: "restore the newest backup, or cancel the task and create it again".to_owned(),
            repaired: None,
        }));
    }
    Ok(findings)
}

async fn check_blobs(
    store: &Store,
    repair: &Repair<'_>,
    copies: Option<&dyn BlobStore>,
    on_progress: OnProgress<'_>,
    report: &mut FsckReport,
) -> Result<(), StoreError> {
    let blobs = &**store.blobs();
    let references = store.read("blob references", |tx| Box::pin(async move { tx.blob_references().await })).await?;
    let needed: BTreeMap<_, _> = references.into_iter().map(|reference| (reference.digest, reference)).collect();
    let (newest, unmasked) = (newest_versions(store).await?, unmasked_private_tasks(store).await?);
    let (of, mut lost) = (needed.len() as u64, Vec::new());
    for (done, reference) in (1..).zip(needed.values()) {
        let problem = match blobs.open_verified(reference.digest).await {
            Ok(blob) if reference.bytes.is_none_or(|bytes| bytes == blob.size()) => None,
            Ok(_) => Some((FindingKind::Rows, "its row says another size".to_owned())),
            Err(StoreError::MissingBlob(_)) if unmasked.expose(reference) => {
                Some((FindingKind::LeftOut, "its file is not there, and is in no backup".to_owned()))
            }
            Err(StoreError::MissingBlob(_)) => Some((FindingKind::MissingBlob, "its file is not there".to_owned())),
            Err(error) if is_damage(&error) => {
                Some((FindingKind::DamagedBlob, "its file holds other bytes".to_owned()))
            }
            Err(error) => return Err(error),
        };
        if let Some((kind, why)) = problem {
            lost.push((kind, reference, why));
        }
        on_progress(Progress { stage: Stage::Check, done, of });
    }
    // A running coordinator may have released some in the meantime.
    let still = store.read("referenced blobs", |tx| Box::pin(async move { tx.referenced_blobs().await })).await?;
    lost.retain(|(_, reference, _)| still.contains(&reference.digest));
    for (kind, reference, why) in lost {
        let repaired = match repair {
            Repair::No => None,
            Repair::Yes | Repair::From(_) => put_again(store, reference, copies).await?,
        };
        report.findings.push(lost_blob(kind, reference, &why, &newest, repaired));
    }
    report.blobs = needed.len();
    let named: HashSet<_> = needed.keys().chain(&still).copied().collect();
    let orphans = blobs.list(YOUNG).await?.into_iter().filter(|digest| !named.contains(digest)).count();
    if orphans > 0 {
        report.findings.push(Finding {
            kind: FindingKind::Orphans,
            what: format!("{orphans} blobs are older than an hour and named by no row"),
            meaning: "they take room and nothing else".to_owned(),
            remedy: "none: a coordinator removes them while it runs".to_owned(),
            repaired: None,
        });
    }
    Ok(())
}

/// Number of tasks with a privacy ledger.
async fn private_tasks(store: &Store) -> Result<usize, StoreError> {
    let (mut private, mut tasks) = (0, AllTasks::of(store));
    while let Some(page) = tasks.next().await? {
        private += page.iter().filter(|task| task.spec.privacy.is_private()).count();
    }
    Ok(private)
}

/// The newest model version of each task.
async fn newest_versions(store: &Store) -> Result<HashMap<TaskId, u32>, StoreError> {
    let (mut newest, mut tasks) = (HashMap::new(), AllTasks::of(store));
    while let Some(page) = tasks.next().await? {
        newest.extend(page.iter().map(|task| (task.id, task.model_version)));
    }
    Ok(newest)
}

/// Replaces a blob by a good copy; returns the copy's source, if any.
async fn put_again(
    store: &Store,
    reference: &BlobReference,
    copies: Option<&dyn BlobStore>,
) -> Result<Option<&'static str>, StoreError> {
    let (blobs, digest) = (&**store.blobs(), reference.digest);
    if let Some(copies) = copies {
        match copy_blob(copies, blobs, digest).await {
            Ok(()) if blobs.open_verified(digest).await.is_ok() => return Ok(Some("the backup")),
            Ok(()) => {}
            Err(error) if is_damage(&error) => {}
            Err(error) => return Err(error),
        }
    }
    if reference.used_as == BlobUse::Model {
        let (task, number) = (reference.task, reference.number);
        let version =
            store.read("model version", |tx| Box::pin(async move { tx.model_version(task, number).await })).await?;
        if let Some(version) = version
            && remake(store, blobs, &version).await?
            && blobs.open_verified(digest).await.is_ok()
        {
            return Ok(Some("the task's seed"));
        }
    }
    Ok(None)
}

/// Follows the chain of the audit log, and verifies it against its signed heads.
async fn check_log(store: &Store, report: &mut FsckReport) -> Result<(), StoreError> {
    let checked = audit::check(store).await?;
    report.events = checked.entries;
    report.findings.extend(checked.problem.map(|what| Finding {
        kind: FindingKind::Audit,
        what: format!("the audit log: {what}"),
        meaning: "entries were changed by something other than a coordinator, or lost: what they say cannot be relied on".to_owned(),
        remedy: "compare with an export or a head that was kept (`tributary audit verify`); restore a backup that is whole, or \
                 keep the database as evidence"
            .to_owned(),
        repaired: None,
    }));
    Ok(())
}

fn lost_blob(
    kind: FindingKind,
    reference: &BlobReference,
    why: &str,
    newest: &HashMap<TaskId, u32>,
    repaired: Option<&'static str>,
) -> Finding {
    let is_newest = newest.get(&reference.task) == Some(&reference.number);
    let meaning = match reference.used_as {
        BlobUse::Model if is_newest => "no round starts from it: the task pauses",
        BlobUse::Model => "it cannot be downloaded, and no round can go back to it",
        BlobUse::OptimizerState => "the server optimizer cannot take its next step: the task publishes nothing more",
        BlobUse::NoisedSum | BlobUse::PartialSum | BlobUse::Input => {
            "the round fails as `input_lost`; the task goes on with the next"
        }
    };
    let remedy = match (repaired, reference.used_as) {
        (Some(_), BlobUse::Model) if is_newest => {
            "resume the task if it is paused (`tributary task resume`)".to_owned()
        }
        (Some(_), _) => "none".to_owned(),
        (None, _) if kind == FindingKind::LeftOut => "none: a coordinator ends the round".to_owned(),
        (None, _) => format!(
            "`tributary fsck --repair --from DIR` with a backup that has it; or put a copy whose SHA-256 is {0} at {1} below the \
             folder of blobs",
            reference.digest,
            store::place_of(Path::new(""), reference.digest).display(),
        ),
    };
    Finding { kind, what: format!("{}: {why}", described(reference)), meaning: meaning.to_owned(), remedy, repaired }
}

async fn check_ledgers(store: &Store, sealer: Option<&Arc<Sealer>>, report: &mut FsckReport) -> Result<(), StoreError> {
    let Some(sealer) = sealer else {
        let private = private_tasks(store).await?;
        if private > 0 {
            report.findings.push(Finding {
                kind: FindingKind::UncheckedLedger,
                what: format!("the privacy ledgers of {private} tasks were not checked: there is no sealing key here"),
                meaning: "a coordinator without the key pauses these tasks".to_owned(),
                remedy: "put seal.key and seal.ledgers/ back into their place (`identity.seal_key_file`)".to_owned(),
                repaired: None,
            });
        }
        return Ok(());
    };
    for (task, standing) in examine(store, sealer).await? {
        report.ledgers += 1;
        let LedgerStanding::Wrong(why) = standing else { continue };
        report.findings.push(Finding {
            kind: FindingKind::Ledger,
            what: format!("task {} ({}): {why}", task.spec.name, task.id),
            meaning: "nothing more is released for the task, since what it has cost is not certain".to_owned(),
            remedy: "put the database, seal.key and seal.ledgers/ back that belong together, or cancel the task"
                .to_owned(),
            repaired: None,
        });
    }
    Ok(())
}
