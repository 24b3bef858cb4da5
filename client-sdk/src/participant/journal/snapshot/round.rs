//! The record of the round: bytes to send again unchanged, and actions that must happen only once.

use std::sync::Arc;

use bytes::Bytes;
use secure_agg::client::Client;
use secure_agg::upload::PartTree;
use serde::{Deserialize, Serialize};
use wire::participant::SessionTerms;
use wire::{Attempt, Digest, ParticipantId, RoundKey};
use zeroize::Zeroizing;

use super::local_state::Lengths;
use super::{BEHIND, LocalState, PARTS, PLAIN, ROUND, SESSION, decode, encode, encode_before_body};
use crate::journal::JournalError;
use crate::participant::journal::round_end::AbandonCause;
use crate::participant::journal::session::{self, Session};

/// The journal's state of rounds.
pub(in crate::participant) struct RoundRecord {
    pub(in crate::participant) state: RoundState,
    /// The latest round of each task that a masked input was made for.
    pub(in crate::participant) released: Vec<RoundKey>,
    /// Number of updates charged to the privacy ledgers when the record was written.
    pub(in crate::participant) charges: u64,
}

/// The last round that this participant took part in.
pub(in crate::participant) enum RoundState {
    /// An update that must be sent, and resent, as exactly these bytes.
    Pending(Pending),
    /// A session before its input is made, or after the receipt, with the local state that will take effect.
    Session { session: Session, local_state: LocalState },
    /// The round was answered, continued without this participant, or was abandoned. The participant does not enter
    /// this attempt again.
    Done { place: Attempt, given_up: Option<AbandonCause> },
}

/// An update to be sent.
pub(in crate::participant) struct Pending {
    pub(in crate::participant) place: Attempt,
    /// SHA-256 of the body; the root of its parts where it has several.
    pub(in crate::participant) sha256: Digest,
    pub(in crate::participant) body: Bytes,
    /// The parts it is sent in; `None` if it is sent whole.
    pub(in crate::participant) parts: Option<Arc<PartTree>>,
    /// Local state of the same training.
    pub(in crate::participant) local_state: LocalState,
    /// Under secure aggregation: the session whose masks are on the body.
    pub(in crate::participant) session: Option<Session>,
    /// The record of another coordinator's version that the update comes from.
    pub(in crate::participant) below: Option<Digest>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    #[serde(flatten)]
    state: State,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    released: Vec<RoundKey>,
    #[serde(default, skip_serializing_if = "is_zero")]
    charges: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Counters in every record of a round.
#[derive(Clone, Copy)]
pub(in crate::participant) struct RoundCounters<'a> {
    pub(in crate::participant) released: &'a [RoundKey],
    pub(in crate::participant) charges: u64,
}

impl RoundCounters<'_> {
    fn header(self, state: State) -> Header {
        Header { state, released: self.released.to_vec(), charges: self.charges }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
enum State {
    Pending {
        place: Attempt,
        sha256: Digest,
        body_bytes: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        below: Option<Digest>,
        #[serde(flatten)]
        local_state: Lengths,
    },
    Session {
        place: Attempt,
        terms: SessionTerms,
        model: Option<Digest>,
        members: Vec<ParticipantId>,
        snapshot_bytes: usize,
        upload: Option<Upload>,
        #[serde(flatten)]
        local_state: Lengths,
    },
    Done {
        place: Attempt,
        #[serde(flatten)]
        given_up: Option<AbandonCause>,
    },
}

#[derive(Serialize, Deserialize)]
struct Upload {
    sha256: Digest,
    body_bytes: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    below: Option<Digest>,
}

impl RoundRecord {
    pub(in crate::participant) fn decode(record: &[u8]) -> Result<Self, JournalError> {
        let (Header { state, released, charges }, mut parts) = decode(ROUND, record)?;
        let state = match state {
            State::Done { place, given_up } => RoundState::Done { place, given_up },
            State::Pending { place, sha256, body_bytes, below, local_state } => {
                let body = Bytes::copy_from_slice(parts.body(body_bytes)?);
                let tree = parts.tree.take();
                let local_state = LocalState::read(&mut parts, local_state)?;
                RoundState::Pending(Pending { place, sha256, body, parts: tree, local_state, session: None, below })
            }
            State::Session { place, terms, model, members, snapshot_bytes, upload, local_state } => {
                let session = Session { place, terms, model, members, snapshot: parts.secret(snapshot_bytes)? };
                check(&session)?;
                let body = upload.as_ref().map(|upload| parts.body(upload.body_bytes)).transpose()?;
                let body = body.map(Bytes::copy_from_slice);
                let tree = parts.tree.take();
                let local_state = LocalState::read(&mut parts, local_state)?;
                match (upload, body) {
                    (Some(Upload { sha256, below, .. }), Some(body)) => {
                        let session = Some(session);
                        RoundState::Pending(Pending { place, sha256, body, parts: tree, local_state, session, below })
                    }
                    _ => RoundState::Session { session, local_state },
                }
            }
        };
        parts.end()?;
        Ok(Self { state, released, charges })
    }
}

/// Checks that a snapshot belongs to its attempt.
fn check(session: &Session) -> Result<(), JournalError> {
    let client = Client::restore(&session.snapshot).map_err(|error| JournalError::corrupt(ROUND, error))?;
    if *client.round() == session::round(session.place) {
        Ok(())
    } else {
        Err(JournalError::corrupt(ROUND, "the session in it is of another round"))
    }
}

impl Pending {
    /// Encodes the record up to the body, which follows it.
    pub(in crate::participant) fn encode(
        &self,
        counters: RoundCounters<'_>,
    ) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        let Self { place, sha256, body, parts, local_state, session, below } = self;
        let version = if parts.is_some() { PARTS } else { BEHIND };
        let body_bytes = body.len();
        let state = match session {
            Some(session) => {
                let upload = Upload { sha256: *sha256, body_bytes, below: *below };
                session_state(session, Some(upload), local_state)
            }
            None => {
                let local_state = local_state.lengths();
                State::Pending { place: *place, sha256: *sha256, body_bytes, below: *below, local_state }
            }
        };
        let snapshot = session.as_ref().map_or(&[][..], |session| &session.snapshot);
        let [personal, residual, own] = local_state.parts();
        let content = [snapshot, personal, residual, own];
        encode_before_body(ROUND, version, body_bytes, *sha256, &counters.header(state), &content)
    }
}

/// Encodes a session without a pending update.
pub(in crate::participant) fn encode_session(
    session: &Session,
    local_state: &LocalState,
    counters: RoundCounters<'_>,
) -> Result<Zeroizing<Vec<u8>>, JournalError> {
    let version = local_state.lengths().version(SESSION);
    let [personal, residual, own] = local_state.parts();
    let state = session_state(session, None, local_state);
    encode(ROUND, version, &counters.header(state), &[&session.snapshot, personal, residual, own])
}

fn session_state(session: &Session, upload: Option<Upload>, local_state: &LocalState) -> State {
    State::Session {
        place: session.place,
        terms: session.terms.clone(),
        model: session.model,
        members: session.members.clone(),
        snapshot_bytes: session.snapshot.len(),
        upload,
        local_state: local_state.lengths(),
    }
}

/// Encodes that a round is over.
pub(in crate::participant) fn encode_done(
    place: Attempt,
    given_up: Option<AbandonCause>,
    counters: RoundCounters<'_>,
) -> Result<Zeroizing<Vec<u8>>, JournalError> {
    encode(ROUND, PLAIN, &counters.header(State::Done { place, given_up }), &[])
}

#[cfg(test)]
mod tests {
    use wire::participant::{AbandonReason, RefusalCode};

    use super::*;
    use crate::participant::journal::snapshot::MAGIC;
    use recipe::digest::sha256;

    fn place() -> Attempt {
        Attempt { task: "00000000-0000-0000-0000-000000000001".parse().unwrap(), round: 3, attempt: 1 }
    }

    const NOTHING: RoundCounters<'static> = RoundCounters { released: &[], charges: 0 };

    /// As the journal keeps it.
    fn whole(pending: &Pending, counters: RoundCounters<'_>) -> Vec<u8> {
        [&pending.encode(counters).unwrap()[..], &pending.body].concat()
    }

    fn pending() -> Pending {
        let body = Bytes::from_static(b"masked input");
        let local_state = LocalState { personal: Some(Zeroizing::new(b"stays".to_vec())), ..LocalState::NOTHING };
        Pending {
            place: place(),
            sha256: sha256(&body),
            body,
            parts: None,
            local_state,
            session: None,
            below: Some(Digest([6; 32])),
        }
    }

    #[test]
    fn updates_come_back() {
        let released = [RoundKey { task: place().task, number: 2 }];
        let record =
            RoundRecord::decode(&whole(&pending(), RoundCounters { released: &released, charges: 7 })).unwrap();
        let RoundState::Pending(back) = record.state else { panic!("another record") };
        assert_eq!((back.place, &back.body[..]), (place(), &b"masked input"[..]));
        assert_eq!(back.local_state.personal.unwrap().as_slice(), b"stays");
        assert!(back.local_state.residual.is_none());
        assert_eq!(back.below, Some(Digest([6; 32])), "it is sent again");
        assert_eq!((&record.released[..], record.charges), (&released[..], 7));
    }

    #[test]
    fn updates_in_parts_come_back_in_records_that_older_ones_do_not_read() {
        let body: Bytes = vec![7; secure_agg::upload::PART_BYTES + 1].into();
        let tree = PartTree::of(&body);
        let in_parts = |tree: &PartTree| Pending {
            sha256: Digest(tree.name()),
            body: body.clone(),
            parts: Some(Arc::new(tree.clone())),
            ..pending()
        };
        let mut record = whole(&in_parts(&tree), NOTHING);
        assert_eq!(record[MAGIC.len()], 9);
        let RoundState::Pending(back) = RoundRecord::decode(&record).unwrap().state else { panic!("another record") };
        assert_eq!((back.sha256, back.parts.as_deref()), (Digest(tree.root()), Some(&tree)));
        assert_eq!(back.body, body);
        *record.last_mut().unwrap() ^= 1;
        assert!(matches!(RoundRecord::decode(&record), Err(JournalError::Corrupt { .. })));
        // As an older SDK wrote it: it is sent whole.
        let old = Pending { sha256: sha256(&body), parts: None, ..in_parts(&tree) };
        let record = whole(&old, NOTHING);
        assert_eq!(record[MAGIC.len()], 8);
        let RoundState::Pending(back) = RoundRecord::decode(&record).unwrap().state else { panic!("another record") };
        assert_eq!((back.sha256, back.parts), (sha256(&body), None));
    }

    #[test]
    fn residuals_come_back_in_records_that_older_ones_do_not_read() {
        let mut pending = pending();
        pending.local_state.residual = Some(Zeroizing::new(b"left out".to_vec()));
        let record = whole(&pending, NOTHING);
        assert_eq!(record[MAGIC.len()], 8);
        let RoundState::Pending(back) = RoundRecord::decode(&record).unwrap().state else { panic!("another record") };
        assert_eq!(back.local_state.personal.as_ref().unwrap().as_slice(), b"stays");
        assert_eq!(back.local_state.residual.as_ref().unwrap().as_slice(), b"left out");
        let names =
            |local_state: LocalState| local_state.records(place().task).map(|record| record.name).collect::<Vec<_>>();
        assert_eq!(
            names(back.local_state),
            [format!("personal-{}", place().task), format!("residual-{}", place().task)]
        );
        assert_eq!(names(pending.local_state.not_sent()), [format!("personal-{}", place().task)]);
    }

    #[test]
    fn the_own_model_comes_back_and_takes_effect_however_the_round_ends() {
        let mut pending = pending();
        pending.local_state.own = Some(Zeroizing::new(b"own model".to_vec()));
        let record = whole(&pending, NOTHING);
        let RoundState::Pending(back) = RoundRecord::decode(&record).unwrap().state else { panic!("another record") };
        assert_eq!(back.local_state.own.as_ref().unwrap().as_slice(), b"own model");
        let names: Vec<_> = back.local_state.not_sent().records(place().task).map(|record| record.name).collect();
        assert_eq!(names, [format!("personal-{}", place().task), format!("own-{}", place().task)]);
    }

    #[test]
    fn ends_come_back() {
        let why = [AbandonReason::Conditions.into(), RefusalCode::Policy.into()];
        for reason in why.map(Some).into_iter().chain([None]) {
            let record = encode_done(place(), reason, NOTHING).unwrap();
            let RoundState::Done { given_up, .. } = RoundRecord::decode(&record).unwrap().state else {
                panic!("another record")
            };
            assert_eq!(given_up, reason);
        }
    }

    #[test]
    fn every_damage_is_found() {
        let record = whole(&pending(), NOTHING);
        for length in 0..record.len() {
            assert!(RoundRecord::decode(&record[..length]).is_err(), "cut at {length}");
        }
        for position in 0..record.len() {
            let mut damaged = record.clone();
            damaged[position] ^= 1;
            assert!(RoundRecord::decode(&damaged).is_err(), "bit flipped at {position}");
        }
        let error = RoundRecord::decode(&[&record[..], b"x"].concat()).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("enrol anew"), "{error}");
    }

    #[test]
    fn a_record_of_a_newer_sdk_is_not_taken_for_damage() {
        let mut record = encode_done(place(), None, NOTHING).unwrap().to_vec();
        record[MAGIC.len()] = 10;
        let error = RoundRecord::decode(&record).map(|_| ()).unwrap_err();
        assert!(matches!(error, JournalError::TooNew { version: 10, newest: 9, .. }), "{error}");
    }
}
