//! Invariants after each event, and at the end.

mod end;

use std::collections::{BTreeMap, BTreeSet};

use client_sdk::participant::Event;
use client_sdk::transport::Request;
use federation::id::{Attempt, Digest, ParticipantId, RoundKey, TaskId};
use federation::model_version::ModelVersion;
use federation::round::{FailureReason, RoundState};
use federation::task_status::TaskStatus;
use store::entity::admitted::Admitted;
use store::{Pulse, Store, StoreError, Transaction};

use super::device::{PARAMETERS, STEP};
use super::disk::Disk;
use super::outcome::{Broken, Check};
use super::private::{PrivateSums, Released};
use super::schedule::TaskKind;

/// Participants that a round needs.
pub(super) const NEEDED: usize = 3;
/// How far a coordinate of a mean may be off: rounding, not one update more or less.
const TOLERANCE: f32 = 1e-3;

/// Exceptions that a schedule allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Excuses {
    /// Work is due without a wake-up.
    pub(super) wakes: bool,
    /// That an input cannot be read any more.
    pub(super) losses: bool,
}

/// Facts known from outside.
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
    /// Receipts of devices, in attempts that were open at the last check.
    receipts: BTreeMap<(Attempt, u32), Digest>,
    /// Inputs that devices sent.
    inputs: BTreeMap<(Attempt, u32), Digest>,
    answers: BTreeMap<(Attempt, u32, RoundState), Vec<u8>>,
    /// The attempt that each device sent an input in, by device and round.
    sent_in: BTreeMap<(u32, u32), u32>,
    last_error: Option<String>,
    told_something: bool,
    /// Of a private task.
    private: Option<PrivateSums>,
    /// Progress of the task, and losses of disks, at the last comparison with the rows.
    state: Option<(Pulse, u64)>,
}

impl Facts {
    pub(super) fn new(
        (task, kind): (TaskId, TaskKind),
        participants: Vec<ParticipantId>,
        excuses: Excuses,
        private: Option<PrivateSums>,
    ) -> Self {
        Self {
            private,
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
            sent_in: BTreeMap::new(),
            last_error: None,
            told_something: false,
            state: None,
        }
    }

    /// Whether the task is over.
    pub(super) fn is_over(&self) -> bool {
        self.status.is_some_and(TaskStatus::is_terminal)
    }

    /// Whether devices reported or sent something that was not checked yet.
    pub(super) fn is_new(&self) -> bool {
        self.told_something
    }

    /// Versions that rounds published.
    pub(super) fn rounds(&self) -> u32 {
        u32::try_from(self.versions.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    pub(super) fn task(&self) -> TaskId {
        self.task
    }

    pub(super) fn step_failed(&mut self, error: String) {
        self.last_error = Some(error);
    }

    /// A device is about to send this.
    pub(super) fn sends(&mut self, device: u32, request: &Request) -> Result<(), Broken> {
        match request {
            Request::Upload(upload) => {
                if let Some(private) = &mut self.private {
                    private.sent(upload.sha256, &upload.body);
                }
                let earlier = self.inputs.insert((upload.place, device), upload.sha256);
                let Attempt { round, attempt, .. } = upload.place;
                if earlier.is_none() {
                    self.told_something = true;
                    if let Some(other) = self.sent_in.insert((device, round), attempt)
                        && self.kind == TaskKind::Secure
                    {
                        let detail =
                            format!("device {device} sends inputs in attempts {other} and {attempt} of round {round}");
                        return Err((Check::Devices, detail));
                    }
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

    /// A device reports this.
    pub(super) fn told(&mut self, device: u32, event: &Event) -> Result<(), Broken> {
        match event {
            Event::Uploaded { place, sha256, .. } => {
                self.receipts.insert((*place, device), *sha256);
                self.told_something = true;
            }
            Event::TrainingFailed { place, error } => {
                return Err((Check::Errors, format!("device {device} cannot train in {place:?}: {error}")));
            }
            _ => {}
        }
        Ok(())
    }

    /// Compares the rows with the known facts.
    pub(super) async fn check(&mut self, rows: &Store, disk: &Disk) -> Result<(), Broken> {
        let mut facts = Some(self);
        let broken = rows.read("check", |tx| {
            let facts = facts.take();
            Box::pin(async move {
                // The single connection in memory is always free, so the transaction runs once.
                let facts = facts.ok_or(StoreError::Busy)?;
                Ok::<_, StoreError>(facts.check_rows(tx, disk).await)
            })
        });
        broken.await.unwrap_or_else(|error| Err(unread(error)))
    }

    async fn check_rows(&mut self, tx: &mut Transaction<'_>, disk: &Disk) -> Result<(), Broken> {
        let is_told = std::mem::take(&mut self.told_something);
        let Some(pulse) = tx.pulse(self.task).await.map_err(unread)? else { return Ok(()) };
        let state = Some((pulse, disk.losses()));
        if state == self.state && !is_told {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.state, state).map(|(pulse, _)| pulse);
        self.status = Some(pulse.status);
        if before.is_none_or(|before| before.versions != pulse.versions) {
            self.check_versions(tx, disk).await?;
        }
        self.check_open_rounds(tx).await?;
        if before.is_none_or(|before| (before.transitions, before.admitted) != (pulse.transitions, pulse.admitted)) {
            self.check_ended_rounds(tx).await?;
        }
        self.check_receipts(tx, disk).await?;
        if before.is_none_or(|before| (before.charges, before.versions) != (pulse.charges, pulse.versions)) {
            self.check_ledger(tx, disk).await?;
        }
        let named = tx.referenced_blobs().await.map_err(unread)?;
        match named.iter().find(|digest| disk.bytes(**digest).is_none()) {
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
        // Noise hides the members of the sum.
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

    /// A round that ended stays the same, and keeps its inputs.
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

    async fn check_ledger(&mut self, tx: &mut Transaction<'_>, disk: &Disk) -> Result<(), Broken> {
        let Some(mut private) = self.private.take() else { return Ok(()) };
        let stored = tx.privacy_rows(self.task, 0, 1024).await.map_err(unread)?;
        let rows: Vec<_> = stored.iter().map(|row| (row.attempt, row.row.clone())).collect();
        let known = self.ledger.len();
        if rows.get(..known) != Some(&self.ledger[..]) {
            return Err((Check::Ledger, "a row of the ledger changed or is gone".to_owned()));
        }
        for charge in &stored[known..] {
            let released = match charge.published {
                true => self.released(tx, disk, charge.attempt).await?,
                false => None,
            };
            private.charged(charge.attempt, &charge.row, released.as_ref())?;
        }
        (self.private, self.ledger) = (Some(private), rows);
        for round in self.versions.iter().filter_map(|version| version.round) {
            if !self.ledger.iter().any(|(attempt, _)| attempt.round == round) {
                return Err((Check::Ledger, format!("round {round} published a version and was not charged")));
            }
        }
        Ok(())
    }

    /// The sum that an attempt released.
    async fn released(
        &self,
        tx: &mut Transaction<'_>,
        disk: &Disk,
        attempt: Attempt,
    ) -> Result<Option<Released>, Broken> {
        let row = tx.noised_sum(attempt).await.map_err(unread)?;
        let row = row.ok_or_else(|| (Check::Ledger, format!("{attempt:?} is charged, and released nothing")))?;
        let file = disk.bytes(row.blob);
        let file = file.ok_or_else(|| (Check::Blobs, format!("the released sum of {attempt:?} has no bytes")))?;
        let inputs = self.admitted(tx, attempt).await?.into_iter().map(|(_, row)| row.sha256).collect();
        Ok(Some(Released { file, inputs }))
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
