//! Provenance of received models. Before training or evaluation, the participant checks the coordinator's signed record of the version
//! against the records it has seen.
//!
//! The key comes from the app ([`Builder::coordinator_keys`](crate::participant::Builder::coordinator_keys)). Without one, the
//! participant keeps the key of the first record in its journal (trust on first use). Once there is a key, an assignment needs a
//! record. A coordinator that gives one number to two models must sign both: the participant accepts the first, rejects the second,
//! and keeps both records.

use secure_agg::IndexSet;
use serde::{Deserialize, Serialize};
use wire::audit::AuditKey;
use wire::participant::{Assignment, FinalModel, ModelRef};
use wire::provenance::{BadProvenance, MadeIn, Provenance, SignedProvenance, roster_digest, survivors_digest};
use wire::{Attempt, Digest, ParticipantId, TaskId};

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
    /// It is made of another round than the one that this participant took part in under its number, and signed.
    #[error(
        "the record of where the model comes from has another {0} than the round in which this participant has signed it"
    )]
    OtherRound(&'static str),
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

/// The journal's memory of records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::participant) struct Shown {
    /// The coordinator's key; `None` before the first record.
    key: Option<AuditKey>,
    /// The task that was shown last at the end.
    tasks: Vec<ShownTask>,
    /// Whose updates are in a sum, as this participant has signed it: the last time in each task, of which the latest is at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    signed: Vec<SignedSum>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct SignedSum {
    place: Attempt,
    /// [`roster_digest`] of the participant's session.
    roster: Digest,
    /// [`survivors_digest`] of it.
    survivors: Digest,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ShownTask {
    task: TaskId,
    /// Ascending by number; one of each.
    versions: Vec<ShownVersion>,
    /// The first two contradictory records: the accepted one and the rejected one.
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

/// A version that the coordinator offers, with the required content of its record.
pub(in crate::participant) struct Offered<'a> {
    task: TaskId,
    version: &'a ModelRef,
    provenance: Option<&'a SignedProvenance>,
    terms: AssignmentTerms<'a>,
}

impl<'a> From<&'a Assignment> for Offered<'a> {
    fn from(assignment: &'a Assignment) -> Self {
        Self {
            task: assignment.task,
            version: &assignment.base,
            provenance: assignment.provenance.as_ref(),
            terms: assignment.into(),
        }
    }
}

impl<'a> Offered<'a> {
    /// The last version of a task that is over.
    pub(in crate::participant) fn at_the_end(task: TaskId, model: &'a FinalModel) -> Self {
        Self { task, version: &model.version, provenance: Some(&model.provenance), terms: model.into() }
    }
}

/// Verdict about a record.
pub(in crate::participant) struct Judged {
    pub(in crate::participant) verdict: Result<Option<News>, ProvenanceError>,
    /// The new memory, if the record changes it.
    pub(in crate::participant) shown: Option<Shown>,
}

/// The event reported to the app for an accepted record.
pub(in crate::participant) enum News {
    /// The key was taken on first use.
    Pinned(AuditKey),
    /// The task goes on from an earlier version than it had reached.
    Rebased { version: u32 },
}

impl Shown {
    /// Judges a version by its record. `trusted`: the keys that the app names.
    pub(in crate::participant) fn judge(&self, trusted: &[AuditKey], offered: &Offered<'_>) -> Judged {
        let record = match self.checked(trusted, offered) {
            Ok(Some(record)) => record,
            verdict => return Judged { verdict: verdict.map(|_| None), shown: None },
        };
        let signed = offered.provenance.cloned().into_iter();
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

    /// The record, if the right key signed it and it describes the offered model; `None` if it is absent and optional.
    fn checked(&self, trusted: &[AuditKey], offered: &Offered<'_>) -> Result<Option<Provenance>, ProvenanceError> {
        let keys = self.keys(trusted);
        let Some(signed) = offered.provenance else {
            return if keys.is_empty() { Ok(None) } else { Err(ProvenanceError::Missing) };
        };
        let record = signed.open()?;
        if !keys.is_empty() && !keys.contains(&record.coordinator) {
            let expected: Vec<_> = keys.iter().map(ToString::to_string).collect();
            return Err(ProvenanceError::OtherKey { expected: expected.join(", "), found: record.coordinator });
        }
        let version = offered.version;
        for (what, is_same) in [
            ("task", record.task == offered.task),
            ("version", record.version == version.version),
            ("model", record.sha256 == version.sha256),
            ("size", record.bytes == version.bytes),
            ("training", record.task_sha256 == offered.terms.in_every_round()),
        ] {
            if !is_same {
                return Err(ProvenanceError::OtherAssignment(what));
            }
        }
        // Of a divided cohort a member knows its own group alone.
        let contradiction = offered.terms.encoding.groups.is_none().then(|| self.contradicts(&record)).flatten();
        contradiction.map_or(Ok(Some(record)), |what| Err(ProvenanceError::OtherRound(what)))
    }

    /// Returns the field in which a record differs from the one signed by this participant in the attempt that made the version.
    fn contradicts(&self, record: &Provenance) -> Option<&'static str> {
        let made_in = record.round.map(|MadeIn { round, attempt }| Attempt { task: record.task, round, attempt })?;
        let signed = self.signed.iter().find(|signed| signed.place == made_in)?;
        [("roster", record.roster, signed.roster), ("set of survivors", record.survivors, signed.survivors)]
            .into_iter()
            .find_map(|(what, told, known)| told.is_some_and(|told| told != known).then_some(what))
    }

    /// The keys one of which must have signed: those that the app names, or else the first that did. Empty before that.
    pub(in crate::participant) fn keys<'k>(&'k self, trusted: &'k [AuditKey]) -> &'k [AuditKey] {
        if trusted.is_empty() { self.key.as_slice() } else { trusted }
    }

    /// Whether there is a coordinator whose records are checked.
    pub(in crate::participant) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Remembers the members of a sum, in the order of their roster. Without a key, records are unsigned.
    pub(in crate::participant) fn sign(&mut self, place: Attempt, members: &[ParticipantId], survivors: &IndexSet) {
        if self.key.is_none() {
            return;
        }
        let in_sum = members.iter().zip(1..).filter(|(_, index)| survivors.contains(*index)).map(|(member, _)| *member);
        let survivors = survivors_digest(&[in_sum.collect()]);
        self.signed.retain(|signed| signed.place.task != place.task);
        self.signed.push(SignedSum { place, roster: roster_digest(&[members.to_vec()]), survivors });
        let surplus = self.signed.len().saturating_sub(MOST_TASKS);
        self.signed.drain(..surplus);
    }

    /// Remembers a version, unless it contradicts an earlier record.
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
            // The record is signed and later than all records seen by this participant: the operator continued from an older database,
            // and skipped the rounds missing there (`task rebase`).
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
    /// Contradictory records by task: the accepted one and the rejected one.
    pub(in crate::participant) fn contradictions(&self) -> impl Iterator<Item = (TaskId, [SignedProvenance; 2])> {
        self.tasks.iter().filter_map(|known| known.contradiction.clone().map(|pair| (known.task, pair)))
    }

    pub(in crate::participant) fn contradiction(&self, task: TaskId) -> Option<&[SignedProvenance; 2]> {
        self.tasks.iter().find(|known| known.task == task)?.contradiction.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use wire::Timestamp;
    use wire::audit::Hex;
    use wire::provenance::{FORMAT, Origin};

    use super::*;

    fn members() -> Vec<ParticipantId> {
        (1..=4).map(|n| format!("00000000-0000-0000-0000-{n:012}").parse().unwrap()).collect()
    }

    fn place(task: u32, attempt: u32) -> Attempt {
        Attempt { task: format!("00000000-0000-0000-0000-{task:012}").parse().unwrap(), round: 3, attempt }
    }

    fn record(Attempt { task, round, attempt }: Attempt) -> Provenance {
        Provenance {
            format: FORMAT,
            coordinator: Hex([0; 32]),
            task,
            task_sha256: Digest([1; 32]),
            version: 3,
            sha256: Digest([2; 32]),
            bytes: 1,
            origin: Origin::Trained,
            base: None,
            round: Some(MadeIn { round, attempt }),
            roster: Some(roster_digest(&[members()])),
            survivors: Some(survivors_digest(&[[&members()[..1], &members()[2..]].concat()])),
            updates: Some(3),
            below: Vec::new(),
            privacy: None,
            published_at: Timestamp(0),
            signed_at: Timestamp(0),
            program: "a test".to_owned(),
        }
    }

    #[test]
    fn a_record_of_a_round_that_was_signed_here_must_say_the_same_of_it() {
        // All but the second.
        let survivors = IndexSet::of(4, [1, 3, 4]);
        let mut shown = Shown::default();
        shown.sign(place(1, 2), &members(), &survivors);
        assert_eq!(shown, Shown::default(), "there is no key that signs records");
        shown.key = Some(Hex([0; 32]));
        shown.sign(place(1, 1), &members(), &IndexSet::full(4));
        shown.sign(place(1, 2), &members(), &survivors);
        shown.sign(place(2, 1), &members(), &IndexSet::full(4));
        assert_eq!(shown.signed.len(), 2, "the last of each task");

        let told = record(place(1, 2));
        assert_eq!(shown.contradicts(&told), None);
        let everybody = Some(survivors_digest(&[members()]));
        assert_eq!(shown.contradicts(&Provenance { survivors: everybody, ..told.clone() }), Some("set of survivors"));
        let fewer = Some(roster_digest(&[members()[..3].to_vec()]));
        assert_eq!(shown.contradicts(&Provenance { roster: fewer, ..told.clone() }), Some("roster"));
        // An older coordinator omits the digests; this participant signed only the last attempt of each task.
        assert_eq!(shown.contradicts(&Provenance { roster: None, survivors: None, ..told }), None);
        assert_eq!(shown.contradicts(&Provenance { survivors: everybody, ..record(place(1, 1)) }), None);
        assert_eq!(shown.contradicts(&record(place(2, 1))), Some("set of survivors"));
        let restored: Shown = serde_json::from_str(&serde_json::to_string(&shown).unwrap()).unwrap();
        assert_eq!(restored, shown);
    }
}
