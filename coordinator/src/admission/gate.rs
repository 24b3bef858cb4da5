//! Admission checks: against stored facts before a body is read, and again when it is written.

use std::sync::Arc;

use federation::id::{Attempt, Digest, ParticipantId};
use federation::round::{AssignmentState, RoundState};
use recipe::UpdateCodec;
use secure_agg::Index;
use secure_agg::modular::Modulus;
use store::entity::admitted::Admitted;
use store::entity::standing::ParticipantStatus;
use store::{Store, StoreError};

use crate::rounds::models::Models;
use crate::rounds::session::Session;
use crate::rounds::sessions::{SessionFound, Sessions};

/// Reasons for rejecting a masked input or message. Reported to the participant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rejection {
    #[error("there is no such round, or no such attempt at it")]
    NoSuchRound,
    /// The round is in another state.
    #[error("the round is {state}; this is taken while it is {wanted}")]
    PhaseClosed {
        state: RoundState,
        /// The required state.
        wanted: RoundState,
    },
    /// The round has no secure aggregation session.
    #[error("the round has no secure aggregation")]
    NoSession,
    /// Another message of this kind was accepted before, and is final.
    #[error("another message of this kind was accepted before; it cannot be replaced")]
    DifferentMessage,
    /// The protocol rejects the message.
    #[error("{code}: {problem}")]
    Protocol {
        /// Code from `secure-agg`.
        code: &'static str,
        problem: String,
    },
    /// The body differs from the signed one.
    #[error(
        "the body does not have the digest that its signature is for: it was changed on the way, or signed for another"
    )]
    NotSigned,
    /// The participant lacks a place in the round, or lost it.
    #[error("this participant has no place in this attempt of the round: {why}")]
    NotAssigned { why: &'static str },
    /// A different input was accepted, or announced in parts, before; it is final.
    #[error("a masked input with SHA-256 {stored} was accepted or announced before; another one cannot replace it")]
    DifferentInput {
        /// The name of the earlier input.
        stored: Digest,
    },
    /// The length differs from the task's masked inputs.
    #[error("the masked input has {got} bytes; those of this task have {expected}")]
    WrongLength {
        expected: u64,
        /// Actual or announced length; or the first excessive byte count.
        got: u64,
    },
    /// The part belongs to no currently announced input of the participant.
    #[error("part {part} belongs to no input that was announced here: send its manifest again")]
    PartNotExpected { part: u32 },
    /// All parts arrived, but their input is no longer announced.
    #[error("the input whose parts are {root} is not announced here any more: send its manifest again")]
    NotAnnounced { root: Digest },
    /// Larger than every masked input accepted by this coordinator.
    #[error("masked inputs may have at most {limit} bytes here")]
    TooLarge { limit: u64 },
    /// The body does not match the announced digest.
    #[error("the body does not have the SHA-256 {expected} that its header gives: it was changed on the way")]
    DigestMismatch { expected: Digest },
    /// Added to the others, it could spoil or wrap their sum.
    #[error("the masked input is not valid in this task's encoding: {0}")]
    Implausible(String),
    /// The connection ended too early. The received data is dropped.
    #[error("the body was cut off after {got} bytes; nothing of it is kept, send it again")]
    CutOff {
        /// Number of bytes received.
        got: u64,
    },
}

/// Reasons why an input is not admitted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdmissionError {
    /// Expected, and reported to the participant.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// Validation failed because of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Permission to send a masked input.
#[derive(Clone)]
pub(crate) struct UploadPermit {
    /// Required SHA-256.
    pub(crate) sha256: Digest,
    /// Required length.
    pub(crate) bytes: u64,
    /// The task's encoding of updates.
    pub(crate) codec: UpdateCodec,
    pub(crate) modulus: Modulus,
    /// The earlier acceptance of the same input: the input is not stored again, and the receipt is repeated.
    pub(crate) earlier: Option<Admitted>,
    /// The session for checking the signature; without one, the coordinator can read the input.
    pub(crate) session: Option<Arc<Session>>,
}

/// Checks whether a participant may send a masked input at all, before reading it.
///
/// # Errors
/// [`AdmissionError`].
pub(crate) async fn may_send(
    store: &Store,
    attempt: Attempt,
    participant: ParticipantId,
) -> Result<(), AdmissionError> {
    let standing = find(store, "masked_input_gate", attempt, participant).await?;
    Ok(check_standing(&standing)?)
}

/// A receipt may be requested again at any time, also after the round; inputs are only accepted while the round collects.
fn check_standing(standing: &ParticipantStatus) -> Result<(), Rejection> {
    let round = standing.round.as_ref().ok_or(Rejection::NoSuchRound)?;
    if standing.admitted.is_some() {
        return Ok(());
    }
    may_answer(standing.place)?;
    open(round.state, RoundState::Collecting)
}

/// Validates an announced masked input.
///
/// # Errors
/// [`AdmissionError`].
pub(crate) async fn enter(
    store: &Store,
    models: &Models,
    sessions: &Sessions,
    attempt: Attempt,
    participant: ParticipantId,
    sha256: Digest,
) -> Result<UploadPermit, AdmissionError> {
    loop {
        let standing = find(store, "masked_input_gate", attempt, participant).await?;
        check_standing(&standing)?;
        let round = standing.round.ok_or(Rejection::NoSuchRound)?;
        let model = models.find(store, attempt.task).await?.ok_or(Rejection::NoSuchRound)?;
        let (bytes, codec, modulus) = (model.packed_len(), model.codec.clone(), model.modulus);
        let permit = UploadPermit { sha256, bytes, codec, modulus, earlier: None, session: None };
        if let Some(admitted) = standing.admitted {
            same(&admitted, sha256)?;
            #[cfg(feature = "deliberate-faults")]
            if crate::faults::present() == Some(crate::faults::Fault::ReplayedInput)
                && round.state == RoundState::Collecting
            {
                return Ok(permit);
            }
            return Ok(UploadPermit { earlier: Some(admitted), ..permit });
        }
        if round.limits.secure.is_none() {
            return Ok(permit);
        }
        match sessions.find(store, &round, participant).await? {
            SessionFound::Session(session) => return Ok(UploadPermit { session: Some(session), ..permit }),
            SessionFound::LeftOut => return Err(Rejection::NotAssigned { why: LEFT_OUT }.into()),
            SessionFound::MovedOn => {}
        }
    }
}

async fn find(
    store: &Store,
    name: &'static str,
    attempt: Attempt,
    participant: ParticipantId,
) -> Result<ParticipantStatus, StoreError> {
    store.read(name, |tx| Box::pin(async move { tx.standing(attempt, participant).await })).await
}

/// Reason for rejecting messages of an excluded group.
const LEFT_OUT: &str = "too few of its group could go on, and the group was left out";

/// A participant's place in a session, valid while the round is in one state.
pub(crate) struct SessionMember {
    pub(crate) session: Arc<Session>,
    /// The participant's position in the roster.
    pub(crate) index: Index,
    pub(crate) state: RoundState,
}

/// Finds a participant's place in a round with secure aggregation, in any state.
///
/// # Errors
/// [`AdmissionError`].
pub(crate) async fn find_member(
    store: &Store,
    sessions: &Sessions,
    attempt: Attempt,
    participant: ParticipantId,
) -> Result<SessionMember, AdmissionError> {
    loop {
        let standing = find(store, "session_gate", attempt, participant).await?;
        let round = standing.round.ok_or(Rejection::NoSuchRound)?;
        let state = round.state;
        if round.limits.secure.is_none() {
            return Err(Rejection::NoSession.into());
        }
        // Assignments begin with the draw.
        if state != RoundState::Selecting {
            may_answer(standing.place)?;
        }
        // A session lasts from the draw to the release of the sum.
        if state.is_terminal() || state == RoundState::Aggregating || state == RoundState::Selecting {
            return Err(Rejection::PhaseClosed { state, wanted: RoundState::Unmasking }.into());
        }
        match sessions.find(store, &round, participant).await? {
            SessionFound::Session(session) => {
                let index = session.index(participant);
                let index = index.ok_or(Rejection::NotAssigned { why: "it is not in the roster" })?;
                return Ok(SessionMember { session, index, state });
            }
            SessionFound::LeftOut => return Err(Rejection::NotAssigned { why: LEFT_OUT }.into()),
            SessionFound::MovedOn => {}
        }
    }
}

/// Checks that the bytes equal those accepted before.
pub(super) fn same(admitted: &Admitted, sha256: Digest) -> Result<(), Rejection> {
    if admitted.sha256 == sha256 { Ok(()) } else { Err(Rejection::DifferentInput { stored: admitted.sha256 }) }
}

/// Checks that the round is in the wanted state.
pub(crate) fn open(state: RoundState, wanted: RoundState) -> Result<(), Rejection> {
    if state == wanted { Ok(()) } else { Err(Rejection::PhaseClosed { state, wanted }) }
}

/// Checks that the round still waits for the participant's place.
pub(super) fn may_answer(place: Option<AssignmentState>) -> Result<(), Rejection> {
    let why = match place {
        Some(AssignmentState::Assigned | AssignmentState::Working) => return Ok(()),
        // REPORTED without an accepted input does not occur; the input's row decides.
        Some(AssignmentState::Reported) => return Ok(()),
        // The round itself ended these; the closed phase is the better answer.
        Some(AssignmentState::Late | AssignmentState::Released) => return Ok(()),
        Some(AssignmentState::Abandoned) => "it gave its place up",
        Some(AssignmentState::Excused) => "an operator excused it",
        Some(AssignmentState::Revoked) => "its certificate was revoked",
        None => "it was not drawn",
    };
    Err(Rejection::NotAssigned { why })
}

impl From<secure_agg::rejection::MessageRejection> for Rejection {
    fn from(rejection: secure_agg::rejection::MessageRejection) -> Self {
        Self::Protocol { code: rejection.code(), problem: rejection.to_string() }
    }
}
