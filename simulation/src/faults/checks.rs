//! What must hold after each event, and at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use client_sdk::participant::Event;
use client_sdk::transport::Request;
use federation::id::{Attempt, Digest, ParticipantId, RoundKey, TaskId};
use federation::model_version::ModelVersion;
use federation::round::{FailureReason, RoundState};
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use store::entity::admitted::Admitted;
use store::{Store, StoreError, Transaction};

use super::device::{PARAMETERS, STEP};
use super::disk::Disk;
use super::outcome::Check;
use super::schedule::TaskKind;

/// Participants that a round needs.
pub(super) const NEEDED: usize = 3;
/// Longer than any pause between two attempts.
const PAUSE: Duration = Duration::from_secs(400);
/// How much later than its deadline a phase may end.
const LATE: Duration = Duration::from_secs(60);
/// How far a coordinate of a mean may be off: rounding, not one update more or less.
const TOLERANCE: f32 = 1e-3;

/// What did not hold.
pub(super) type Broken = (Check, String);

/// What a schedule excuses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Excuses {
    /// That work is due of which no wake-up told.
    pub(super) wakes: bool,
    /// That an input cannot be read any more.
    pub(super) losses: bool,
}

/// What is known from outside.
pub(super) struct Facts {
    task: TaskId,
    kind: TaskKind,
    /// In the order of devices.
    participants: Vec<ParticipantId>,
    pub(super) excuses: Excuses,
    status: Option<TaskStatus>,
    versions: Vec<ModelVersion>,
    /// Attempts that published a version, with the number of their inputs.
    completed: Vec<(Attempt, usize)>,
    ledger: Vec<(Attempt, String)>,
    /// What devices hold receipts for, in attempts that were open when last looked at.
    receipts: BTreeMap<(Attempt, u32), Digest>,
    /// What devices sent.
    inputs: BTreeMap<(Attempt, u32), Digest>,
    answers: BTreeMap<(Attempt, u32, RoundState), Vec<u8>>,
    /// The attempt for which a device gave an input from a base.
    bases: BTreeMap<(u32, u32), Attempt>,
    unopened: BTreeSet<(Attempt, u32)>,
    /// Inputs whose base is not known yet.
    fresh: Vec<(Attempt, u32)>,
    last_error: Option<String>,
    told_something: bool,
}

impl Facts {
    pub(super) fn new(task: TaskId, kind: TaskKind, participants: Vec<ParticipantId>, excuses: Excuses) -> Self {
        Self {
            task,
            kind,
            participants,
            excuses,
            status: None,
            versions: Vec::new(),
            completed: Vec::new(),
            ledger: Vec::new(),
            receipts: BTreeMap::new(),
            inputs: BTreeMap::new(),
            answers: BTreeMap::new(),
            bases: BTreeMap::new(),
            unopened: BTreeSet::new(),
            fresh: Vec::new(),
            last_error: None,
            told_something: false,
        }
    }

    /// Whether the task is over.
    pub(super) fn is_over(&self) -> bool {
        self.status.is_some_and(TaskStatus::is_terminal)
    }

    /// Whether devices told or sent something that was not checked yet.
    pub(super) fn is_new(&self) -> bool {
        self.told_something
    }

    /// Versions that rounds published.
    pub(super) fn rounds(&self) -> u32 {
        u32::try_from(self.versions.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// The token of the task's lease, and where its latest rounds stand; none where no lease was ever taken, and where an
    /// operator ended a round, who needs none.
    pub(super) async fn lease_and_rounds(&self, rows: &Store) -> Option<(u64, Vec<(Attempt, RoundState)>)> {
        let task = self.task;
        let read = rows.read("lease and rounds", |tx| {
            Box::pin(async move {
                let token = tx.lease_token(&format!("round:{task}")).await?;
                Ok::<_, StoreError>((token, tx.rounds(task, None, 2).await?))
            })
        });
        let (token, rounds) = read.await.ok()?;
        let rounds: Vec<_> = rounds.iter().map(|row| (row.round.key, row.round.state)).collect();
        let is_cancelled = rounds.iter().any(|(_, state)| *state == RoundState::Cancelled);
        token.filter(|_| !is_cancelled).map(|token| (token, rounds))
    }

    pub(super) fn step_failed(&mut self, error: String) {
        self.last_error = Some(error);
    }

    /// A device is about to send this.
    pub(super) fn sends(&mut self, device: u32, request: &Request) -> Result<(), Broken> {
        match request {
            Request::Upload(upload) => {
                let earlier = self.inputs.insert((upload.place, device), upload.sha256);
                if earlier.is_none() {
                    self.fresh.push((upload.place, device));
                    self.told_something = true;
                }
                match earlier.filter(|earlier| *earlier != upload.sha256) {
                    Some(_) => Err((Check::Devices, format!("device {device} gives two inputs in {:?}", upload.place))),
                    None => Ok(()),
                }
            }
            Request::Answer { what, place, body, .. } => {
                let said = self.answers.entry((*place, device, what.state())).or_insert_with(|| body.to_vec());
                if *said == *body {
                    return Ok(());
                }
                Err((Check::Devices, format!("device {device} says two things ({}) in {place:?}", what.state())))
            }
            _ => Ok(()),
        }
    }

    /// A device tells this.
    pub(super) fn told(&mut self, device: u32, event: &Event) -> Result<(), Broken> {
        match event {
            Event::Uploaded { place, sha256, .. } => {
                self.receipts.insert((*place, device), *sha256);
                self.told_something = true;
            }
            Event::Unopened { place } => {
                self.unopened.insert((*place, device));
            }
            Event::TrainingFailed { place, error } => {
                return Err((Check::Errors, format!("device {device} cannot train in {place:?}: {error}")));
            }
            _ => {}
        }
        Ok(())
    }

    /// Holds the rows against what is known.
    pub(super) async fn check(&mut self, rows: &Store, disk: &Disk) -> Result<(), Broken> {
        let mut facts = Some(self);
        let broken = rows.read("check", |tx| {
            let facts = facts.take();
            Box::pin(async move {
                // One connection in memory is never busy, so nothing is read twice.
                let facts = facts.ok_or(StoreError::Busy)?;
                Ok::<_, StoreError>(facts.check_rows(tx, disk).await)
            })
        });
        broken.await.unwrap_or_else(|error| Err(unread(error)))
    }

    async fn check_rows(&mut self, tx: &mut Transaction<'_>, disk: &Disk) -> Result<(), Broken> {
        self.told_something = false;
        let task = tx.task(self.task).await.map_err(unread)?;
        self.status = task.map(|task| task.status);
        self.check_versions(tx, disk).await?;
        self.check_open_rounds(tx).await?;
        self.check_ended_rounds(tx).await?;
        self.check_receipts(tx, disk).await?;
        self.check_bases(tx).await?;
        if self.kind == TaskKind::Private {
            self.check_ledger(tx).await?;
        }
        let stored = disk.all();
        let named = tx.referenced_blobs().await.map_err(unread)?;
        match named.iter().find(|digest| !stored.contains_key(digest)) {
            Some(missing) => Err((Check::Blobs, format!("a row names blob {missing}, and there is none"))),
            None => Ok(()),
        }
    }

    async fn check_versions(&mut self, tx: &mut Transaction<'_>, disk: &Disk) -> Result<(), Broken> {
        let mut stored = tx.model_versions(self.task, None, 1024).await.map_err(unread)?;
        stored.sort_by_key(|version| version.version);
        let known = self.versions.len();
        if stored.get(..known) != Some(&self.versions[..]) {
            return Err((Check::Versions, "a version that was published is another one".to_owned()));
        }
        for version in stored.split_off(known) {
            self.check_version(tx, disk, &version).await?;
            self.versions.push(version);
        }
        Ok(())
    }

    async fn check_version(
        &mut self,
        tx: &mut Transaction<'_>,
        disk: &Disk,
        version: &ModelVersion,
    ) -> Result<(), Broken> {
        let number = version.version;
        if number as usize != self.versions.len() {
            return Err((Check::Versions, format!("version {number} comes after {}", self.versions.len())));
        }
        let (Some(round), Some(base)) = (version.round, self.versions.last()) else { return Ok(()) };
        if self.versions.iter().any(|earlier| earlier.round == Some(round)) {
            return Err((Check::Versions, format!("round {round} published two versions")));
        }
        let key = RoundKey { task: self.task, number: round };
        let row = tx.round(key).await.map_err(unread)?.map(|row| row.round);
        let Some(row) = row.filter(|row| row.state == RoundState::Completed) else {
            return Err((Check::Versions, format!("version {number} is of round {round}, which is not completed")));
        };
        let included = self.admitted(tx, row.key).await?;
        self.completed.push((row.key, included.len()));
        let of = |digest| disk.bytes(digest).ok_or((Check::Blobs, format!("version {number} has no bytes")));
        let (before, after) = (values(&of(base.sha256)?), values(&of(version.sha256)?));
        // Noise hides who is in it.
        if self.kind == TaskKind::Private || disk.damaged().contains(&version.sha256) {
            return Ok(());
        }
        let share = STEP / included.len().max(1) as f32;
        for (device, (before, after)) in before.iter().zip(&after).enumerate() {
            let counts = included.iter().any(|(other, _)| *other as usize == device);
            let expected = if counts { share } else { 0.0 };
            if (after - before - expected).abs() > TOLERANCE {
                let who: Vec<_> = included.iter().map(|(device, _)| device).collect();
                let detail = format!(
                    "version {number} of the updates of {who:?} moves coordinate {device} by {}, not by {expected}",
                    after - before
                );
                return Err((Check::Sums, detail));
            }
        }
        Ok(())
    }

    /// The admitted inputs of an attempt, with their devices.
    async fn admitted(&self, tx: &mut Transaction<'_>, attempt: Attempt) -> Result<Vec<(u32, Admitted)>, Broken> {
        let mut admitted = Vec::new();
        for (device, participant) in (0..).zip(&self.participants) {
            let row = tx.admitted(attempt, *participant).await.map_err(unread)?;
            admitted.extend(row.map(|row| (device, row)));
        }
        Ok(admitted)
    }

    /// A round that ended never changes, and loses no input for nothing.
    async fn check_ended_rounds(&self, tx: &mut Transaction<'_>) -> Result<(), Broken> {
        for (attempt, inputs) in &self.completed {
            let reported = tx.round_attempt(*attempt).await.map_err(unread)?.map_or(0, |row| row.reported);
            if reported as usize != *inputs {
                let detail = format!("{attempt:?} ended with {inputs} inputs, and counts {reported}");
                return Err((Check::Sums, detail));
            }
        }
        let latest = tx.rounds(self.task, None, 2).await.map_err(unread)?;
        let lost = [FailureReason::InputLost, FailureReason::GarbageSum, FailureReason::UnmaskingFailed];
        match latest.iter().find(|row| row.round.failure.is_some_and(|reason| lost.contains(&reason))) {
            Some(row) if !self.excuses.losses => {
                let reason = row.round.failure.map_or("", FailureReason::as_str);
                Err((Check::Receipts, format!("{:?} failed ({reason}), and nothing was damaged", row.round.key)))
            }
            _ => Ok(()),
        }
    }

    async fn check_open_rounds(&self, tx: &mut Transaction<'_>) -> Result<(), Broken> {
        for row in tx.open_rounds().await.map_err(unread)? {
            let attempt = row.round.key;
            let admitted = self.admitted(tx, attempt).await?;
            if row.reported as usize != admitted.len() {
                let detail = format!("{attempt:?} counts {} inputs and has {}", row.reported, admitted.len());
                return Err((Check::Receipts, detail));
            }
            let folded = admitted.iter().filter(|(_, row)| row.folded).count();
            let summed = tx.partial_sum(attempt).await.map_err(unread)?.map_or(0, |sum| sum.inputs as usize);
            if row.round.state != RoundState::Aggregating && folded != summed {
                return Err((
                    Check::Sums,
                    format!("the sum of {attempt:?} holds {summed} inputs; {folded} are folded"),
                ));
            }
        }
        Ok(())
    }

    async fn check_receipts(&mut self, tx: &mut Transaction<'_>, disk: &Disk) -> Result<(), Broken> {
        let mut ended = BTreeSet::new();
        for ((attempt, device), digest) in &self.receipts {
            let Some(participant) = self.participants.get(*device as usize) else { continue };
            let row = tx.admitted(*attempt, *participant).await.map_err(unread)?;
            let Some(row) = row.filter(|row| row.sha256 == *digest) else {
                let detail =
                    format!("device {device} has a receipt for {digest} in {attempt:?}, and there is no such row");
                return Err((Check::Receipts, detail));
            };
            let round = tx.round_attempt(*attempt).await.map_err(unread)?;
            let is_open = round.is_some_and(|row| !row.round.state.is_terminal());
            if is_open && !row.folded && disk.bytes(*digest).is_none() {
                return Err((Check::Receipts, format!("the input of device {device} in {attempt:?} is gone")));
            }
            if !is_open {
                ended.insert((*attempt, *device));
            }
        }
        self.receipts.retain(|key, _| !ended.contains(key));
        Ok(())
    }

    async fn check_bases(&mut self, tx: &mut Transaction<'_>) -> Result<(), Broken> {
        for (attempt, device) in std::mem::take(&mut self.fresh) {
            let Some(row) = tx.round_attempt(attempt).await.map_err(unread)? else { continue };
            let base = row.round.base_version;
            if let Some(earlier) = self.bases.insert((device, base), attempt)
                && self.kind == TaskKind::Secure
                && !self.unopened.contains(&(earlier, device))
            {
                let detail =
                    format!("device {device} gives two masked inputs from version {base}: {earlier:?}, {attempt:?}");
                return Err((Check::Devices, detail));
            }
        }
        Ok(())
    }

    async fn check_ledger(&mut self, tx: &mut Transaction<'_>) -> Result<(), Broken> {
        let stored = tx.privacy_rows(self.task, 0, 1024).await.map_err(unread)?;
        let stored: Vec<_> = stored.into_iter().map(|row| (row.attempt, row.row)).collect();
        if stored.get(..self.ledger.len()) != Some(&self.ledger[..]) {
            return Err((Check::Ledger, "a row of the ledger changed or is gone".to_owned()));
        }
        self.ledger = stored;
        for round in self.versions.iter().filter_map(|version| version.round) {
            if !self.ledger.iter().any(|(attempt, _)| attempt.round == round) {
                return Err((Check::Ledger, format!("round {round} published a version and was not charged")));
            }
        }
        Ok(())
    }

    /// Once faults have stopped: whether the task is over, or a reason is told why it is not.
    pub(super) async fn is_explained(&self, rows: &Store, now: Timestamp, live: usize) -> Result<(), Broken> {
        match self.status {
            Some(status) if status.is_terminal() => return Ok(()),
            Some(TaskStatus::Paused | TaskStatus::BudgetExhausted) => return Ok(()),
            Some(TaskStatus::Active | TaskStatus::Completed | TaskStatus::Cancelled) | None => {}
        }
        let (task, error) = (self.task, self.last_error.as_deref().unwrap_or("none"));
        let latest = rows.read("latest", |tx| Box::pin(async move { tx.rounds(task, None, 1).await })).await;
        let latest = latest.map_err(unread)?.pop().map(|row| row.round);
        let Some(round) = latest else {
            // A buffered round opens once enough devices hold an update.
            let never = format!("no round ever opened; last error: {error}");
            return if live < NEEDED { Ok(()) } else { Err((Check::Progress, never)) };
        };
        let age = now.since(round.state_since);
        let stands = format!("{:?} is {} for {} s; last error: {error}", round.key, round.state, age.as_secs());
        let late = round.phase_duration().map_or(PAUSE, |phase| phase + LATE);
        if live >= NEEDED && age > late {
            return Err((Check::Progress, format!("nothing happens: {stands}")));
        }
        // Under masks, whoever gave an input from this model gives no second one; in a private task each costs.
        let may_refuse = matches!(self.kind, TaskKind::Secure | TaskKind::Private);
        if live >= NEEDED && !may_refuse {
            return Err((Check::Progress, format!("the task does not end: {stands}")));
        }
        Ok(())
    }

    /// At the very end: no blob and no key is left that nothing names.
    pub(super) async fn is_tidy(&self, rows: &Store, disk: &Disk, keys: &Path) -> Result<(), Broken> {
        let named = rows.read("named", |tx| Box::pin(async move { tx.referenced_blobs().await })).await;
        let named = named.map_err(unread)?;
        if let Some(digest) = disk.all().keys().find(|digest| !named.contains(digest)) {
            return Err((Check::Garbage, format!("blob {digest} is left, and nothing names it")));
        }
        let mut left = std::fs::read_dir(keys).into_iter().flatten().flatten().map(|entry| entry.file_name());
        match left.find(|_| self.is_over()) {
            Some(name) => Err((Check::Garbage, format!("the key {name:?} is left of a task that is over"))),
            None => Ok(()),
        }
    }
}

/// The parameters of a model: they are the end of its file.
fn values(file: &[u8]) -> Vec<f32> {
    let begin = file.len().saturating_sub(4 * PARAMETERS);
    file[begin..].chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect()
}

fn unread(error: StoreError) -> Broken {
    (Check::Errors, format!("rows cannot be read: {error}"))
}
