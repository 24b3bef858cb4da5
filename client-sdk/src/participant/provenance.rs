//! Where the models come from that this participant is given: nothing is trained or evaluated before the coordinator's signed record
//! of the version is checked, and what was shown before is remembered.
//!
//! The key is the app's ([`Builder::coordinator_keys`](super::Builder::coordinator_keys)) or, where it names none, that of the first
//! record, which the journal keeps (trust on first use). Once there is a key, no assignment is taken without a record. A coordinator
//! that gives one number to two models has to sign both: the participant takes the first, refuses the second, and keeps both records.

use serde::{Deserialize, Serialize};
use wire::audit::AuditKey;
use wire::participant::Assignment;
use wire::provenance::{BadProvenance, Provenance, SignedProvenance};
use wire::{Digest, TaskId};

use recipe::AssignmentTerms;

/// Maximum number of tasks of which versions are remembered: the latest.
const MOST_TASKS: usize = 64;
/// Maximum number of versions of a task that are remembered: the highest.
const MOST_VERSIONS: usize = 16;

/// Why a participant does not take a model: its coordinator does not show where it comes from, or not as it must.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProvenanceError {
    /// A record is due: the app has named the key, or there was one before.
    #[error("the model comes without a record of where it comes from, and this coordinator signs one for each")]
    Missing,
    #[error("the record of where the model comes from proves nothing: {0}")]
    Bad(#[from] BadProvenance),
    #[error("the record of where the model comes from is signed by {found}, and the coordinator's key is {expected}")]
    OtherKey {
        /// The key or keys, with commas between them.
        expected: String,
        found: AuditKey,
    },
    /// The record is of something else than is to be trained.
    #[error("the record of where the model comes from has another {0} than the assignment")]
    OtherAssignment(&'static str),
    /// The coordinator has signed two models for one number.
    #[error(
        "the coordinator has signed two models as version {version}: {sha256}, and another that this participant was shown \
         before; both records are kept"
    )]
    Equivocation {
        version: u32,
        /// The file that is refused.
        sha256: Digest,
    },
    /// The version is older than all that are remembered, which are as many as can be.
    #[error("version {version} is older than those of the task that this participant remembers")]
    TooOld { version: u32 },
}

/// What the journal remembers of records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Shown {
    /// The coordinator's key; none before the first record.
    key: Option<AuditKey>,
    /// The task that was shown last at the end.
    tasks: Vec<ShownTask>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ShownTask {
    task: TaskId,
    /// Ascending by number; one of each.
    versions: Vec<ShownVersion>,
    /// The first two records that contradict each other: the one that was taken, and the one that was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    contradiction: Option<[SignedProvenance; 2]>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ShownVersion {
    version: u32,
    sha256: Digest,
    /// The round that made it, if one did.
    round: Option<u32>,
    signed: SignedProvenance,
}

/// What a record amounts to.
pub(super) struct Judged {
    pub(super) verdict: Result<Option<News>, ProvenanceError>,
    /// What is to be remembered, if that is something new.
    pub(super) shown: Option<Shown>,
}

/// What an app is told of a record that is taken.
pub(super) enum News {
    /// The key was taken on first use.
    Pinned(AuditKey),
    /// The task goes on from an earlier version than it had reached.
    Rebased { version: u32 },
}

impl Shown {
    /// Judges an assignment by its record. `trusted`: the keys that the app names.
    pub(super) fn judge(&self, trusted: &[AuditKey], assignment: &Assignment) -> Judged {
        let record = match self.checked(trusted, assignment) {
            Ok(Some(record)) => record,
            verdict => return Judged { verdict: verdict.map(|_| None), shown: None },
        };
        let signed = assignment.provenance.clone().into_iter();
        let version = signed.map(|signed| ShownVersion {
            version: record.version,
            sha256: record.sha256,
            round: record.round.map(|made| made.round),
            signed,
        });
        let mut shown = self.clone();
        let first = self.key.is_none() && trusted.is_empty();
        shown.key = Some(record.coordinator);
        let verdict = version.map(|version| shown.note(record.task, version)).next().unwrap_or(Ok(None));
        let verdict = verdict.map(|news| if first { Some(News::Pinned(record.coordinator)) } else { news });
        Judged { verdict, shown: (shown != *self).then_some(shown) }
    }

    /// The record, if it is signed by the right key and is that of the assignment's model; `None` if there is none and none is due.
    fn checked(&self, trusted: &[AuditKey], assignment: &Assignment) -> Result<Option<Provenance>, ProvenanceError> {
        let keys = if trusted.is_empty() { self.key.as_slice() } else { trusted };
        let Some(signed) = &assignment.provenance else {
            return if keys.is_empty() { Ok(None) } else { Err(ProvenanceError::Missing) };
        };
        let record = signed.open()?;
        if !keys.is_empty() && !keys.contains(&record.coordinator) {
            let expected: Vec<_> = keys.iter().map(ToString::to_string).collect();
            return Err(ProvenanceError::OtherKey { expected: expected.join(", "), found: record.coordinator });
        }
        let base = &assignment.base;
        for (what, is_same) in [
            ("task", record.task == assignment.task),
            ("version", record.version == base.version),
            ("model", record.sha256 == base.sha256),
            ("size", record.bytes == base.bytes),
            ("training", record.task_sha256 == AssignmentTerms::from(assignment).in_every_round()),
        ] {
            if !is_same {
                return Err(ProvenanceError::OtherAssignment(what));
            }
        }
        Ok(Some(record))
    }

    /// Remembers a version, unless it contradicts what was shown before.
    fn note(&mut self, task: TaskId, version: ShownVersion) -> Result<Option<News>, ProvenanceError> {
        let known = self.tasks.iter().position(|known| known.task == task);
        let mut of_task = known.map_or_else(
            || ShownTask { task, versions: Vec::new(), contradiction: None },
            |known| self.tasks.remove(known),
        );
        let verdict = of_task.note(version);
        self.tasks.push(of_task);
        let surplus = self.tasks.len().saturating_sub(MOST_TASKS);
        self.tasks.drain(..surplus);
        verdict
    }
}

impl ShownTask {
    fn note(&mut self, new: ShownVersion) -> Result<Option<News>, ProvenanceError> {
        let (number, sha256) = (new.version, new.sha256);
        let place = match self.versions.binary_search_by_key(&number, |known| known.version) {
            Ok(at) if self.versions[at].sha256 == sha256 => {
                self.versions[at] = new;
                return Ok(None);
            }
            // It says itself, signed, that it was made later than all that this participant has seen: the operator has gone on from
            // an older database, and skipped the rounds that it had forgotten (`task rebase`).
            Ok(at) if self.versions[at].round.is_some() && new.round > self.last_round() => {
                self.versions.truncate(at);
                self.versions.push(new);
                return Ok(Some(News::Rebased { version: number }));
            }
            Ok(at) => {
                let before = self.versions[at].signed.clone();
                self.contradiction.get_or_insert([before, new.signed]);
                return Err(ProvenanceError::Equivocation { version: number, sha256 });
            }
            Err(0) if self.versions.len() == MOST_VERSIONS && new.round <= self.last_round() => {
                return Err(ProvenanceError::TooOld { version: number });
            }
            Err(place) => place,
        };
        self.versions.insert(place, new);
        let surplus = self.versions.len().saturating_sub(MOST_VERSIONS);
        self.versions.drain(..surplus);
        Ok(None)
    }

    fn last_round(&self) -> Option<u32> {
        self.versions.iter().filter_map(|known| known.round).max()
    }
}

impl Shown {
    /// What contradicts each other, by task: the record that was taken, and the one that was refused.
    pub(super) fn contradictions(&self) -> impl Iterator<Item = (TaskId, [SignedProvenance; 2])> {
        self.tasks.iter().filter_map(|known| known.contradiction.clone().map(|pair| (known.task, pair)))
    }

    pub(super) fn contradiction(&self, task: TaskId) -> Option<&[SignedProvenance; 2]> {
        self.tasks.iter().find(|known| known.task == task)?.contradiction.as_ref()
    }
}
