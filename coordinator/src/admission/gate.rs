//! May this enter? Judged from stored facts before a byte of it is read, and again when it is written.

use std::sync::Arc;

use federation::id::{Digest, ParticipantId, RoundKey};
use federation::round::RoundState;
use recipe::UpdateCodec;
use secure_agg::Index;
use secure_agg::modular::Modulus;
use store::entity::admitted::Admitted;
use store::{Store, StoreError};

use crate::models::Models;
use crate::session::{Session, Sessions};

/// Why a masked input is not admitted. The participant is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rejection {
    /// The path names no round.
    #[error("there is no such round, or no such attempt at it")]
    NoSuchRound,
    /// The round is in another state.
    #[error("the round is {state}; this is taken while it is {wanted}")]
    PhaseClosed {
        /// Where it stands.
        state: RoundState,
        /// Where it would have to be.
        wanted: RoundState,
    },
    /// The round has no session of secure aggregation.
    #[error("the round has no secure aggregation")]
    NoSession,
    /// Another message of that kind was admitted before, and it stays.
    #[error("another message of this kind was accepted before; it cannot be replaced")]
    DifferentMessage,
    /// The protocol does not admit the message.
    #[error("{code}: {problem}")]
    Protocol {
        /// `secure-agg`'s own.
        code: &'static str,
        /// What was wrong.
        problem: String,
    },
    /// The body is not the one that was signed.
    #[error(
        "the body does not have the digest that its signature is for: it was changed on the way, or signed for another"
    )]
    NotSigned,
    /// The participant has no place, or none any more.
    #[error("this participant has no place in this attempt of the round: {why}")]
    NotAssigned {
        /// What is known.
        why: &'static str,
    },
    /// Something else was admitted before, and it stays.
    #[error("a masked input with SHA-256 {stored} was accepted before; another one cannot replace it")]
    DifferentInput {
        /// Of what was admitted.
        stored: Digest,
    },
    /// Not as long as the task's masked inputs.
    #[error("the masked input has {got} bytes; those of this task have {expected}")]
    WrongLength {
        /// What is right.
        expected: u64,
        /// What came, or was announced; or the first count that was too many.
        got: u64,
    },
    /// Larger than any masked input this coordinator takes.
    #[error("masked inputs may have at most {limit} bytes here")]
    TooLarge {
        /// The most.
        limit: u64,
    },
    /// Not the bytes that were announced.
    #[error("the body does not have the SHA-256 {expected} that its header gives: it was changed on the way")]
    DigestMismatch {
        /// What was announced.
        expected: Digest,
    },
    /// Added to the others it could spoil or wrap their sum.
    #[error("the masked input is not valid in this task's encoding: {0}")]
    Implausible(String),
    /// The connection ended too early. Nothing of it is kept.
    #[error("the body was cut off after {got} bytes; nothing of it is kept, send it again")]
    CutOff {
        /// How much came.
        got: u64,
    },
}

/// Leave to send a masked input.
#[derive(Clone)]
pub(crate) struct Ticket {
    /// What it must have as SHA-256.
    pub(crate) sha256: Digest,
    /// How long it must be.
    pub(crate) bytes: u64,
    /// How updates of the task are words.
    pub(crate) codec: UpdateCodec,
    /// Of the words.
    pub(crate) modulus: Modulus,
    /// The same input was admitted before: nothing is to be stored, only the receipt given again.
    pub(crate) earlier: Option<Admitted>,
    /// The session that judges what was signed; without one the coordinator can read the input.
    pub(crate) session: Option<Arc<Session>>,
}

/// Judges an announced masked input.
///
/// # Errors
/// The store's; a rejection is the inner error.
pub(crate) async fn enter(
    store: &Store,
    (models, sessions): (&Models, &Sessions),
    round: RoundKey,
    attempt: u32,
    participant: ParticipantId,
    sha256: Digest,
) -> Result<Result<Ticket, Rejection>, StoreError> {
    store
        .read("masked_input_gate", |tx| {
            Box::pin(async move {
                let Some(row) = tx.round_attempt(round, attempt).await? else {
                    return Ok(Err(Rejection::NoSuchRound));
                };
                let Some(task) = tx.task(round.task).await? else {
                    return Ok(Err(Rejection::NoSuchRound));
                };
                let Ok(model) = models.of(&task) else {
                    return Err(StoreError::Corrupt(format!("task {} cannot work as it is stored", task.id)));
                };
                let (bytes, codec, modulus) = (model.packed_len(), model.codec.clone(), model.modulus);
                let mut ticket = Ticket { sha256, bytes, codec, modulus, earlier: None, session: None };
                // A receipt may be asked for again at any time, also when the round is long over.
                if let Some(admitted) = tx.admitted(round, attempt, participant).await? {
                    ticket.earlier = Some(admitted);
                    return Ok(same(&admitted, sha256).map(|()| ticket));
                }
                let assignment = tx.assignment(round, attempt, participant).await?;
                let judged = place(assignment.map(|assignment| assignment.state))
                    .and_then(|()| open(row.round.state, RoundState::Collecting));
                if judged.is_ok() && row.round.limits.secure.is_some() {
                    match sessions.read(tx, &row.round, participant).await? {
                        Some(session) => ticket.session = Some(session),
                        None => return Ok(Err(Rejection::NotAssigned { why: LEFT_OUT })),
                    }
                }
                Ok(judged.map(|()| ticket))
            })
        })
        .await
}

/// Why nothing more is wanted of a group.
const LEFT_OUT: &str = "too few of its group could go on, and the group was left out";

/// A place in a session, for as long as the round is in one state.
pub(crate) struct Seat {
    /// The session.
    pub(crate) session: Arc<Session>,
    /// Where the participant stands in its roster.
    pub(crate) index: Index,
    /// The state.
    pub(crate) state: RoundState,
}

/// Finds a participant's place in a round with secure aggregation, whatever state that is in.
///
/// # Errors
/// The store's; a rejection is the inner error.
pub(crate) async fn take_seat(
    store: &Store,
    sessions: &Sessions,
    round: RoundKey,
    attempt: u32,
    participant: ParticipantId,
) -> Result<Result<Seat, Rejection>, StoreError> {
    store
        .read("session_gate", |tx| {
            Box::pin(async move {
                let Some(row) = tx.round_attempt(round, attempt).await? else {
                    return Ok(Err(Rejection::NoSuchRound));
                };
                let state = row.round.state;
                if row.round.limits.secure.is_none() {
                    return Ok(Err(Rejection::NoSession));
                }
                // Before the draw nobody has a place yet.
                if state != RoundState::Selecting {
                    let assignment = tx.assignment(round, attempt, participant).await?;
                    if let Err(rejection) = place(assignment.map(|assignment| assignment.state)) {
                        return Ok(Err(rejection));
                    }
                }
                // A session lasts from the draw to the release of the sum.
                if state.is_terminal() || state == RoundState::Aggregating || state == RoundState::Selecting {
                    return Ok(Err(Rejection::PhaseClosed { state, wanted: RoundState::Unmasking }));
                }
                let Some(session) = sessions.read(tx, &row.round, participant).await? else {
                    return Ok(Err(Rejection::NotAssigned { why: LEFT_OUT }));
                };
                let Some(index) = session.index(participant) else {
                    return Ok(Err(Rejection::NotAssigned { why: "it is not in the roster" }));
                };
                Ok(Ok(Seat { session, index, state }))
            })
        })
        .await
}

/// The bytes that were admitted before.
pub(super) fn same(admitted: &Admitted, sha256: Digest) -> Result<(), Rejection> {
    if admitted.sha256 == sha256 { Ok(()) } else { Err(Rejection::DifferentInput { stored: admitted.sha256 }) }
}

/// Whether the round is where it takes what came.
pub(crate) fn open(state: RoundState, wanted: RoundState) -> Result<(), Rejection> {
    if state == wanted { Ok(()) } else { Err(Rejection::PhaseClosed { state, wanted }) }
}

/// Whether a participant has a place that the round still waits for.
pub(super) fn place(state: Option<federation::round::AssignmentState>) -> Result<(), Rejection> {
    use federation::round::AssignmentState as State;
    let why = match state {
        Some(State::Assigned | State::Working) => return Ok(()),
        // Reported without an admitted input does not happen; the row is what counts.
        Some(State::Reported) => return Ok(()),
        // These were ended by the round itself; that the phase is closed says more.
        Some(State::Late | State::Released) => return Ok(()),
        Some(State::Abandoned) => "it gave its place up",
        Some(State::Excused) => "an operator excused it",
        Some(State::Revoked) => "its certificate was revoked",
        None => "it was not drawn",
    };
    Err(Rejection::NotAssigned { why })
}

impl From<secure_agg::rejection::Rejection> for Rejection {
    fn from(rejection: secure_agg::rejection::Rejection) -> Self {
        Self::Protocol { code: rejection.code(), problem: rejection.to_string() }
    }
}
