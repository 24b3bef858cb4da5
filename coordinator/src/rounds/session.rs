//! Secure aggregation sessions in rows: the stored phase, the positions in its roster, and the names of its messages. An attempt has one
//! session, or one for each group of its cohort; either way they are one row.
//!
//! Requests and background work both read sessions here; `secure-agg` defines the meaning of messages.

use std::sync::OnceLock;

use bytes::Bytes;
use federation::id::{Attempt, ParticipantId};
use federation::round::{FailureReason, Round};
use federation::time::Timestamp;
use secure_agg::codec::Message;
use secure_agg::messages::{self, Roster};
use secure_agg::rejection::{Abort, PhaseName};
use secure_agg::server::{Admitted, CollectUnmasking, Phase};
use secure_agg::{IdentityKey, IdentityRefused, IdentityVerifier, Index};
use store::entity::session_message::{MessageKind, SessionMessage};
use store::{StoreError, Transaction};

use crate::privacy::ledger;
use crate::privacy::seal::Sealer;
use crate::step_error::StepError;

/// A phase, and the positions of its participants.
pub(crate) struct Session {
    pub(crate) phase: Phase,
    /// By position, counted from 1. Ascending, since a roster is in the order of ids.
    members: Vec<ParticipantId>,
    /// Number of the cohort's group, from 0; `None` for the whole cohort.
    pub(crate) group: Option<u32>,
    roster: OnceLock<Bytes>,
    announcement: OnceLock<Bytes>,
}

impl Session {
    /// The session in `phase`.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if the roster contains other ids than participants'.
    pub(crate) fn new(phase: Phase) -> Result<Self, StoreError> {
        let members = phase.roster().map(members).transpose()?.unwrap_or_default();
        Ok(Self { phase, members, group: None, roster: OnceLock::new(), announcement: OnceLock::new() })
    }

    /// The encoded roster, as sent to every member.
    pub(crate) fn roster(&self) -> Option<Bytes> {
        let roster = self.phase.roster()?;
        Some(self.roster.get_or_init(|| roster.encode().into()).clone())
    }

    /// The phase's message to all members, if any.
    pub(crate) fn announcement(&self) -> Option<Bytes> {
        let encode: &dyn Fn() -> Bytes = match &self.phase {
            Phase::CollectConsistency(phase) => &|| phase.announcement().encode().into(),
            Phase::CollectUnmasking(phase) => &|| phase.agreement().encode().into(),
            Phase::CollectKeys(_) | Phase::CollectShares(_) | Phase::CollectMasked(_) => return None,
        };
        Some(self.announcement.get_or_init(encode).clone())
    }

    /// Restores a stored session.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] for invalid bytes.
    pub(crate) fn restore(stored: &[u8]) -> Result<Self, StoreError> {
        let phase = Phase::restore(stored).map_err(|error| StoreError::unreadable("the stored session", error))?;
        Self::new(phase)
    }

    /// The phase, and its members if they are not the whole cohort.
    pub(crate) fn into_parts(self) -> (Phase, Option<Vec<ParticipantId>>) {
        (self.phase, self.group.map(|_| self.members))
    }

    /// The members, in the roster's order.
    pub(crate) fn members(&self) -> &[ParticipantId] {
        &self.members
    }

    /// A participant's position in the roster, from 1; `None` if absent.
    pub(crate) fn index(&self, participant: ParticipantId) -> Option<Index> {
        let position = self.members.binary_search(&participant).ok()?;
        Index::try_from(position + 1).ok()
    }

    /// The participant at this position.
    pub(crate) fn participant(&self, index: Index) -> Option<ParticipantId> {
        self.members.get(usize::from(index).checked_sub(1)?).copied()
    }
}

/// The stored sessions of an attempt.
///
/// # Errors
/// Errors of the store; [`StoreError::Corrupt`] without a session.
pub(crate) async fn stored(tx: &mut Transaction<'_>, attempt: Attempt) -> Result<Bytes, StoreError> {
    let stored = tx.session(attempt).await?;
    let (number, round) = (attempt.attempt, attempt.round_key());
    stored.ok_or_else(|| StoreError::corrupt(format!("attempt {number} at {round} has no session")))
}

/// Restores the sessions of an attempt, by group; an undivided cohort has one. `None` for excluded groups.
///
/// # Errors
/// [`StoreError::Corrupt`] for invalid bytes.
pub(crate) fn restore_all(round: &Round, stored: &[u8]) -> Result<Vec<Option<Session>>, StoreError> {
    if round.limits.groups.is_none() {
        return Ok(vec![Some(Session::restore(stored)?)]);
    }
    let corrupt = || StoreError::corrupt(format!("the stored sessions of {} are cut off", round.key.round_key()));
    let (mut sessions, mut rest, mut group) = (Vec::new(), stored, 0);
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<4>().ok_or_else(corrupt)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| corrupt())?;
        let (one, after) = after.split_at_checked(length).ok_or_else(corrupt)?;
        let session =
            if one.is_empty() { None } else { Some(Session { group: Some(group), ..Session::restore(one)? }) };
        sessions.push(session);
        (rest, group) = (after, group + 1);
    }
    Ok(sessions)
}

/// Encodes sessions for [`restore_all`].
///
/// # Errors
/// [`StoreError`] if the number of phases differs from the round's number of sessions.
pub(crate) fn encode_all(round: &Round, phases: &[Option<Phase>]) -> Result<Vec<u8>, StoreError> {
    let fault = || StoreError::fault(format!("{} has another number of sessions", round.key.round_key()));
    match (round.limits.groups, phases) {
        (None, [Some(phase)]) => Ok(phase.encode()),
        (Some(groups), _) if groups.count as usize == phases.len() => {
            let mut encoded = Vec::new();
            for phase in phases {
                let one = phase.as_ref().map(Phase::encode).unwrap_or_default();
                encoded.extend(u32::try_from(one.len()).map_err(|_| fault())?.to_be_bytes());
                encoded.extend(one);
            }
            Ok(encoded)
        }
        _ => Err(fault()),
    }
}

fn members(roster: &Roster) -> Result<Vec<ParticipantId>, StoreError> {
    let id = |entry: &messages::RosterEntry| participant(entry.client_id.as_slice());
    let members: Option<Vec<_>> = roster.entries.iter().map(id).collect();
    members.ok_or_else(|| StoreError::corrupt("a roster names somebody who is no participant"))
}

/// The participant with this client id.
pub(crate) fn participant(client_id: &[u8]) -> Option<ParticipantId> {
    uuid::Uuid::from_slice(client_id).ok().map(ParticipantId)
}

/// `secure-agg`'s id of an attempt.
pub(crate) fn round_name(attempt: Attempt) -> messages::RoundId {
    messages::RoundId::new(attempt.task.0.as_bytes(), u64::from(attempt.round), attempt.attempt)
}

/// The context for sealing an unmasking answer.
pub(crate) fn seal_context(attempt: Attempt, participant: ParticipantId) -> Vec<u8> {
    let mut place = b"tributary/unmasking/1".to_vec();
    place.extend(attempt.task.0.as_bytes());
    place.extend(attempt.round.to_be_bytes());
    place.extend(attempt.attempt.to_be_bytes());
    place.extend(participant.0.as_bytes());
    place
}

/// Accepts certificates verified when stored, while they are valid. Members refuse a roster with an expired one, so the round would fail.
pub(crate) struct StoredCertificates {
    pub(crate) now: Timestamp,
}

impl IdentityVerifier for StoredCertificates {
    fn verify(&self, client_id: &[u8], certificate: &[u8]) -> Result<IdentityKey, IdentityRefused> {
        let holder = wire::certificate::holder(certificate).ok_or(IdentityRefused)?;
        let holds = Some(holder.participant) == participant(client_id) && self.now < holder.expires_at;
        if holds { Ok(holder.key) } else { Err(IdentityRefused) }
    }
}

/// The stored messages of one kind, of all members or of a group.
///
/// # Errors
/// Errors of the store; [`StoreError::Corrupt`] for an unreadable message.
pub(crate) async fn admitted<M: Message>(
    tx: &mut Transaction<'_>,
    attempt: Attempt,
    kind: MessageKind,
    group: Option<&[ParticipantId]>,
) -> Result<Vec<Admitted<M>>, StoreError> {
    let stored = messages_of(tx, attempt, kind, group).await?;
    stored.iter().map(|message| decode(message).map(Admitted::from_store)).collect()
}

/// The messages of one kind of all members, or of a group, in the order of ids.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn messages_of(
    tx: &mut Transaction<'_>,
    attempt: Attempt,
    kind: MessageKind,
    group: Option<&[ParticipantId]>,
) -> Result<Vec<SessionMessage>, StoreError> {
    let Some(group) = group else { return tx.messages(attempt, kind).await };
    let mut messages = Vec::with_capacity(group.len());
    for &member in group {
        messages.extend(tx.message(attempt, kind, member).await?);
    }
    Ok(messages)
}

fn decode<M: Message>(stored: &SessionMessage) -> Result<M, StoreError> {
    let (kind, sender, round) = (stored.kind, stored.participant, stored.attempt.round_key());
    let what = || format!("the {kind} message of {sender} in {round}");
    let bytes = stored.message.as_ref();
    let bytes = bytes.ok_or_else(|| StoreError::unreadable(what(), "it is not kept any more"))?;
    M::decode(bytes).map_err(|error| StoreError::unreadable(what(), error))
}

/// Reasons why a phase of a session cannot be closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CloseError {
    /// The protocol aborts the session.
    #[error(transparent)]
    Aborted(#[from] Abort),
    /// The step failed earlier.
    #[error(transparent)]
    Step(#[from] StepError),
}

impl From<StoreError> for CloseError {
    fn from(error: StoreError) -> Self {
        Self::Step(error.into())
    }
}

/// Reconstructs the masks of a round from its sealed answers.
///
/// # Errors
/// [`CloseError`], with [`StoreError::Corrupt`] for answers sealed elsewhere.
pub(crate) fn open_masks(
    phase: CollectUnmasking,
    answers: &[SessionMessage],
    sealer: &Sealer,
) -> Result<secure_agg::server::Unmasked, CloseError> {
    let mut admitted = Vec::with_capacity(answers.len());
    let mut opener = None;
    for answer in answers {
        let what = || format!("the answer of {} in {}", answer.participant, answer.attempt.round_key());
        let sealed = answer.message.as_ref();
        let sealed = sealed.ok_or_else(|| StoreError::unreadable(what(), "it is not kept any more"))?;
        let place = seal_context(answer.attempt, answer.participant);
        // All answers belong to one attempt.
        let opener = opener.get_or_insert_with(|| sealer.opener(answer.attempt));
        let plain = opener.open(&place, sealed).map_err(|error| error.of(what()))?;
        let message = messages::Unmasking::decode(&plain).map_err(|error| StoreError::unreadable(what(), error))?;
        admitted.push(Admitted::from_store(message));
    }
    Ok(phase.close(admitted)?)
}

/// The failure reason of a round whose session aborts.
pub(crate) fn failure(abort: &Abort) -> FailureReason {
    match abort {
        Abort::TooFew { phase, .. } => match phase {
            PhaseName::Advertise => FailureReason::TooFewParticipants,
            PhaseName::Share => FailureReason::TooFewShares,
            PhaseName::Mask => FailureReason::TooFewInputs,
            PhaseName::Consistency => FailureReason::TooFewConfirmations,
            PhaseName::Unmask => FailureReason::TooFewUnmaskShares,
        },
        Abort::Isolated { .. } => FailureReason::QuorumLost,
        Abort::Complaint { .. } | Abort::RepeatedKey { .. } => FailureReason::BadShares,
        Abort::Config(_) | Abort::TooMany { .. } => FailureReason::TooFewParticipants,
        Abort::InconsistentShares { .. } | Abort::PairKey { .. } => FailureReason::UnmaskingFailed,
    }
}

/// Deletes the data of a finished or released attempt: its session and messages, the seed that could remove its noise, and the sampled
/// participants.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn forget(tx: &mut Transaction<'_>, attempt: Attempt) -> Result<(), StoreError> {
    tx.clear_messages(attempt, &MessageKind::ALL).await?;
    tx.delete_session(attempt).await?;
    ledger::forget_noise(tx, attempt).await?;
    tx.forget_sampled(attempt).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use federation::id::TaskId;

    use super::*;

    #[test]
    fn sealed_answers_and_names_of_rounds_are_made_of_the_bytes_they_always_were() {
        let task = TaskId("00112233-4455-6677-8899-aabbccddeeff".parse().unwrap());
        let attempt = Attempt { task, round: 258, attempt: 3 };
        let of_the_task = b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff";
        let place = seal_context(attempt, ParticipantId(uuid::Uuid::from_u128(7)));
        let known = [&b"tributary/unmasking/1"[..], of_the_task, b"\0\0\x01\x02\0\0\0\x03", &[0; 15], b"\x07"];
        assert_eq!(place, known.concat());
        assert_eq!(round_name(attempt), messages::RoundId::new(of_the_task, 258, 3));
    }
}
