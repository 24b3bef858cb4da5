//! What an observer is told while a participant works. No values of parameters, no secrets.

use std::time::Duration;

use learning::MetricValue;
use wire::participant::{AbandonReason, DiscardReason, RefusalCode};
use wire::{Attempt, Digest, ParticipantId, TaskId};

use super::policy::LoweredFloor;

/// Something that happened; told in order, right after it happened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The app has set a floor of its [`super::SecurityPolicy`] lower than it is by default. Told first, each time it begins.
    Lowered {
        /// Which, and to what.
        floor: LoweredFloor,
    },
    /// The token bought a certificate.
    Enrolled {
        /// Who this participant is from now on.
        participant: ParticipantId,
        /// What it is called.
        name: String,
    },
    /// The certificate was renewed.
    Renewed,
    /// There is no work yet.
    CheckedIn {
        /// When the coordinator wants to see us again.
        come_back: Duration,
    },
    /// A task wanted to know whether this is a device for it, and is told.
    Asked {
        /// Which.
        task: TaskId,
        /// Whether it is. The coordinator learns no more.
        eligible: bool,
    },
    /// Keys were made for a round with secure aggregation whose cohort is about to be drawn.
    Invited {
        /// For which.
        place: Attempt,
    },
    /// A place in a round was given.
    Assigned {
        /// Where.
        place: Attempt,
        /// Participants in the cohort; expected ones where privacy rests on nobody knowing how many were drawn.
        cohort: u32,
        /// Until collection closes.
        remaining: Duration,
        /// Whether the update will be masked; otherwise the coordinator can read it.
        is_secure: bool,
    },
    /// It is to train now, ahead of any round, and to keep the update.
    ToTrain {
        /// The round that may take the update first; as attempt, which training it is.
        place: Attempt,
        /// The version to start from.
        version: u32,
        /// Until nobody counts on it any more.
        remaining: Duration,
        /// Whether the update will be masked; otherwise the coordinator can read it.
        is_secure: bool,
    },
    /// The update that was trained ahead of rounds was thrown away: no round takes it any more.
    Discarded {
        /// Of which task.
        task: TaskId,
        /// Which training's.
        serial: u32,
        /// Why.
        reason: DiscardReason,
    },
    /// Shares of this participant's mask seeds were dealt to the cohort.
    Shared {
        /// Where.
        place: Attempt,
        /// Participants in the cohort, this one included.
        participants: usize,
    },
    /// What the others dealt has come and opens.
    Delivered {
        /// Where.
        place: Attempt,
        /// Who dealt: the update will be masked with some or all of them.
        dealers: u16,
    },
    /// A dealer's shares do not open, as it signed them. The round ends with this.
    Complained {
        /// Where.
        place: Attempt,
        /// Whose.
        dealer: ParticipantId,
    },
    /// It was signed whose updates are in the sum, this participant's among them.
    Confirmed {
        /// Where.
        place: Attempt,
        /// How many they are.
        survivors: u16,
    },
    /// The shares were made ready that help to open the sum, and nothing else.
    Unmasked {
        /// Where.
        place: Attempt,
        /// How many signed the same survivors.
        signers: usize,
    },
    /// This participant takes no (further) part: something was not as it must be. The words stay on this device; where a place is
    /// given up, the coordinator is told a [`RefusalCode`].
    Refused {
        /// Where.
        place: Attempt,
        /// Why; with the protocol's own code in front where it has one.
        reason: String,
    },
    /// The model has come and is what its digest says.
    Fetched {
        /// Where.
        place: Attempt,
        /// The version.
        version: u32,
        /// Size of the file.
        bytes: u64,
    },
    /// The received model was measured on held-out data.
    Evaluated {
        /// Where.
        place: Attempt,
        /// By name, as the trainer reported them.
        metrics: Vec<(String, MetricValue)>,
    },
    /// The model was trained and the update encoded.
    Trained {
        /// Where.
        place: Attempt,
        /// By name, as the trainer reported them, for example `train_loss`.
        metrics: Vec<(String, MetricValue)>,
        /// Examples trained on.
        examples: u64,
    },
    /// There will be no update of this round; the reason stays on this device.
    TrainingFailed {
        /// Where.
        place: Attempt,
        /// Why.
        error: String,
    },
    /// The coordinator has given a receipt for the update.
    Uploaded {
        /// Where.
        place: Attempt,
        /// Size of the masked input.
        bytes: u64,
        /// Its digest.
        sha256: Digest,
    },
    /// The place was given up.
    Abandoned {
        /// Where.
        place: Attempt,
        /// Why, as the coordinator is told.
        reason: AbandonReason,
        /// What was refused, if that is why, as the coordinator is told; the event before this one says it in words.
        refusal: Option<RefusalCode>,
    },
    /// The round went on without this participant.
    RoundOver {
        /// Where.
        place: Attempt,
        /// Why, as the coordinator said or as the deadline implies.
        reason: String,
    },
    /// It was proven that the sum of a session in which this participant gave an input was never opened and never will be: it may give
    /// another one from the same model.
    Unopened {
        /// Where the input was given.
        place: Attempt,
    },
    /// Something failed and will be tried again.
    Retry {
        /// What failed.
        what: &'static str,
        /// How.
        error: String,
        /// When it will be tried again.
        after: Duration,
    },
}

/// How a participant ends when nothing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The task has run all its rounds, or was cancelled.
    TaskOver {
        /// Which.
        task: TaskId,
    },
    /// It was told to stop; what it has to remember is in the journal.
    Stopped,
}
