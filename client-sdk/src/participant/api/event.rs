//! Events for an observer of a participant. They are free of parameter values and secrets.

use std::time::Duration;

use learning::{Clipping, MetricValue};
use wire::audit::AuditKey;
use wire::participant::{AbandonReason, DiscardReason, RefusalCode, WaitingFor};
use wire::provenance::SignedProvenance;
use wire::{Attempt, Digest, ParticipantId, TaskId, Timestamp, TraceContext};

use crate::conditions::Unmet;
use crate::participant::checks::policy::LoweredFloor;
use crate::participant::checks::provenance::ProvenanceError;

/// Something that happened; reported in order, at once.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The app has set a floor of its [`crate::participant::SecurityPolicy`] below the default. Reported first, at every start.
    Lowered {
        /// The floor and its value.
        floor: LoweredFloor,
    },
    /// The participant was enrolled and has a certificate.
    Enrolled {
        /// The participant's id from now on.
        participant: ParticipantId,
        name: String,
    },
    /// The app named another authority than the one that had certified the participant, and gave a new token: it
    /// enrolled again. Its models, sent updates and spending stay in its journal; a round in progress was left.
    /// [`Event::Enrolled`] follows.
    AuthorityReplaced {
        /// The participant's id until now. The next one is the same if the token was made for it.
        before: ParticipantId,
        /// The attempt that was left, if the journal held an update or keys of one.
        left: Option<Attempt>,
    },
    /// The certificate was renewed.
    Renewed,
    /// The participant has checked in and waits for work.
    CheckedIn {
        /// The pause requested by the coordinator before the next check-in.
        come_back: Duration,
        /// Reasons for the wait; empty if the coordinator gave none.
        waiting_for: Vec<WaitingFor>,
    },
    /// The participant reported to a task whether the device meets its criteria.
    Asked {
        task: TaskId,
        /// Whether it does. The coordinator receives only this bit.
        eligible: bool,
    },
    /// The participant was drawn into a fixed batch, whose updates are only ever opened together.
    InBatch {
        batch: Digest,
        /// Number of members, this participant included.
        size: u16,
    },
    /// Keys were made for a round with secure aggregation whose cohort is about to be drawn.
    Invited { place: Attempt },
    /// The participant was assigned to a round.
    Assigned {
        place: Attempt,
        /// Size of the cohort; the expected size where privacy relies on the drawn size being secret.
        cohort: u32,
        /// Time until collection closes.
        remaining: Duration,
        /// Whether the update will be masked; otherwise the coordinator can read it.
        is_secure: bool,
    },
    /// The participant trains now, ahead of any round, and keeps the update.
    ToTrain {
        /// The first round that may take the update; `attempt` is the serial number of the training.
        place: Attempt,
        /// The version to start from.
        version: u32,
        /// Time until the coordinator stops waiting for the update.
        remaining: Duration,
        /// Whether the update will be masked; otherwise the coordinator can read it.
        is_secure: bool,
    },
    /// The update trained ahead was discarded, because all rounds would reject it.
    Discarded { task: TaskId, serial: u32, reason: DiscardReason },
    /// Shares of this participant's mask seeds were dealt to the cohort.
    Shared {
        place: Attempt,
        /// Participants in the cohort, this one included.
        participants: usize,
    },
    /// The shares dealt by the others arrived and open.
    Delivered {
        place: Attempt,
        /// Number of dealers; the update is masked with some or all of them.
        dealers: u16,
    },
    /// The shares that a dealer signed do not open. This ends the round.
    Complained { place: Attempt, dealer: ParticipantId },
    /// The included participants were signed, this one among them.
    Confirmed {
        place: Attempt,
        /// Number of included participants.
        survivors: u16,
    },
    /// The shares that help to open the sum are ready to be sent. They open only this sum.
    Unmasked {
        place: Attempt,
        /// Number of members that signed the same set.
        signers: usize,
    },
    /// The participant took this coordinator's key for model provenance on first use, since the app names none. It rejects all other
    /// keys from now on.
    KeyPinned { key: AuditKey },
    /// The coordinator's record of the model's origin is missing or invalid, so training is skipped. [`Event::Refused`]
    /// follows.
    Unproven { place: Attempt, error: ProvenanceError },
    /// The coordinator has signed two models under one number of the task: each record is its own, and together they are evidence.
    /// Reported when it happens, and at every start from then on.
    Equivocation {
        task: TaskId,
        /// The one that was shown first, and is taken.
        taken: Box<SignedProvenance>,
        refused: Box<SignedProvenance>,
    },
    /// The task goes on from another model of a version that the participant has seen, made in a later round than any that it has seen:
    /// its operator has gone back to an older database.
    Rebased { place: Attempt, version: u32 },
    /// The participant refuses to take part, or to continue. The text stays on the device; if an attempt is abandoned,
    /// the coordinator receives a [`RefusalCode`].
    Refused {
        place: Attempt,
        /// The reason, preceded by the protocol's code if there is one.
        reason: String,
    },
    /// The model was received and matches its digest.
    Fetched {
        place: Attempt,
        version: u32,
        /// Size of the file.
        bytes: u64,
    },
    /// The received model was evaluated on held-out data.
    Evaluated {
        place: Attempt,
        /// By name, as the trainer reported them.
        metrics: Vec<(String, MetricValue)>,
    },
    /// The model was trained and the update encoded.
    Trained {
        place: Attempt,
        /// By name, as the trainer reported them, for example `train_loss`.
        metrics: Vec<(String, MetricValue)>,
        /// Examples trained on.
        examples: u64,
    },
    /// The update was longer than the task's limits and counts for less than it is: a smaller learning rate or fewer steps keep it
    /// within them, or larger limits of the task.
    Clipped { place: Attempt, clipping: Clipping },
    /// A condition of the app's [`DeviceConditions`](crate::conditions::DeviceConditions) is unmet. Reported when the
    /// unmet condition changes.
    HeldUp { unmet: Unmet },
    /// Training was paused because the app's conditions do not hold; it goes on from its checkpoint when they do, if the round still
    /// waits.
    Paused { place: Attempt },
    /// Training goes on from a checkpoint of an earlier process.
    Resumed { place: Attempt },
    /// Training failed, so this round goes on without an update; the reason stays on the device.
    TrainingFailed { place: Attempt, error: String },
    /// The coordinator returned a receipt for the update.
    Uploaded {
        place: Attempt,
        /// Size of the masked input.
        bytes: u64,
        sha256: Digest,
    },
    /// The participant has done its part of the round: the coordinator has accepted the update and, in secure aggregation, the share
    /// that helps to open the sum. Reported before the journal is written, so stop the participant rather than the process.
    TookPart { place: Attempt },
    /// The attempt was abandoned.
    Abandoned {
        place: Attempt,
        /// The reason reported to the coordinator.
        reason: AbandonReason,
        /// The code of the refusal, if that is the reason, as reported to the coordinator; the preceding event has the
        /// text.
        refusal: Option<RefusalCode>,
    },
    /// The round continued without this participant.
    RoundOver {
        place: Attempt,
        /// The coordinator's reason, or the passed deadline.
        reason: String,
    },
    /// The task is over, and its last version was fetched and verified for the app, which keeps models: it is
    /// [`Participant::model`](crate::participant::Participant::model) from the end of the participant on.
    FinalModel {
        task: TaskId,
        version: u32,
        /// Size of the file in bytes.
        bytes: u64,
    },
    /// The task is over, and the app does not get its last version: the journal keeps the version that it had, if any.
    NoFinalModel {
        task: TaskId,
        version: u32,
        /// Why the version was not fetched, or was refused.
        reason: String,
    },
    /// Something took its time in a round that the coordinator follows (W3C Trace Context): for an app that traces.
    Span(Span),
    /// A request failed and will be retried.
    Retry {
        what: &'static str,
        error: String,
        /// Time until the retry.
        after: Duration,
    },
}

impl Event {
    /// The records are the one that was taken and the one that was refused.
    pub(in crate::participant) fn equivocation(task: TaskId, [taken, refused]: [SignedProvenance; 2]) -> Self {
        Self::Equivocation { task, taken: taken.into(), refused: refused.into() }
    }
}

/// Something that the participant did in a round, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The trace, and in it the span that this one is a part of.
    pub parent: TraceContext,
    /// This span's own id.
    pub id: [u8; 8],
    pub name: &'static str,
    pub began: Timestamp,
    pub took: Duration,
}

/// How a participant ends without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The task has run all its rounds, or was cancelled.
    TaskOver { task: TaskId },
    /// The participant was stopped; its state is in the journal.
    Stopped,
}
