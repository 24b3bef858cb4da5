//! How a participant joins a session: the terms it accepts, the keys it creates, the shares it deals.

use bytes::Bytes;
use secure_agg::client::{Release, Setup, advertise_keys};
use secure_agg::codec::Message as _;
use secure_agg::messages::Roster;
use secure_agg::params::SessionConfig;
use secure_agg::rejection::Refusal;
use wire::certificate::{self, Authority};
use wire::participant::{Assignment, SessionTerms};
use wire::{Attempt, Digest};
use zeroize::Zeroizing;

use crate::clock::Now;
use crate::identity;
use crate::participant::checks::graphs::check_graph;
use crate::participant::journal::session::{Session, SessionError, round};
use crate::participant::states::core::Core;

/// Checks that this participant accepts these terms, or, without terms, a round without secure aggregation.
pub(in crate::participant) fn accept(core: &Core, terms: Option<&SessionTerms>) -> Result<(), SessionError> {
    let Some(terms) = terms else {
        return if core.settings.security.required { Err(SessionError::Uncovered) } else { Ok(()) };
    };
    core.settings.security.floors().accept(&SessionConfig::from(terms))?;
    core.settings.security.objection_to_batches(terms).map_or(Ok(()), Err)?;
    core.max_model_bytes().check_values("an encoded update", terms.words)?;
    own_certificate(core).map(drop)
}

/// Checks that the app accepts the task's graph, and its limit on staleness. The limit is irrelevant where the
/// coordinator can read every update.
pub(in crate::participant) fn accept_task(core: &Core, assignment: &Assignment) -> Result<(), SessionError> {
    check_graph(&core.settings.accepted_graphs, assignment.model.architecture.as_ref())?;
    let is_secure = assignment.secure_aggregation.is_some();
    let asked = assignment.encoding.staleness.map_or(0, |rule| rule.max);
    core.settings.security.objection_to_staleness(asked).filter(|_| is_secure).map_or(Ok(()), |error| Err(error.into()))
}

/// Makes keys for an attempt.
pub(super) fn advertise(core: &mut Core, place: Attempt, terms: SessionTerms) -> Result<Session, SessionError> {
    core.check_fresh(place)?;
    core.account.is_closed(place)?;
    core.settings.security.objection_to_batches(&terms).map_or(Ok(()), Err)?;
    core.max_model_bytes().check_values("an encoded update", terms.words)?;
    let size = core.batch.size();
    if size < terms.batch_size {
        let needed = terms.batch_size;
        return Err(match core.batch.member() {
            Some(batch) => SessionError::OtherBatch { batch: Digest(batch.id), size, needed },
            None => SessionError::NoBatch { needed },
        });
    }
    let identity = core.identity.as_deref().ok_or(SessionError::NotEnrolled)?;
    let config = SessionConfig::from(&terms);
    let setup = Setup {
        round: round(place),
        client_id: identity.certified.participant.0.as_bytes().to_vec(),
        certificate: own_certificate(core)?,
        config,
        policy: core.settings.security.floors(),
        // Also in tasks that do not require it: a batch is unmasked as a whole in every task.
        batch: core.batch.member().map(|batch| batch.id),
    };
    let signer = core.key.signer()?;
    let same_round = |session: &&Session| (session.place.task, session.place.round) == (place.task, place.round);
    let step = match core.session.as_ref().filter(same_round) {
        // The only path into a later attempt at a round, so an update is released at most once.
        Some(before) => before.client()?.retry(setup, Release::SameUpdate, &signer, core.secrets.as_mut())?,
        None => advertise_keys(setup, &signer, core.secrets.as_mut())?,
    };
    let snapshot = Zeroizing::new(step.persist.expose().to_vec());
    Ok(Session { place, terms, model: None, members: Vec::new(), snapshot })
}

/// Checks the roster and deals shares of both seeds to all members. Returns the message to send.
pub(in crate::participant) fn deal(
    core: &mut Core,
    session: Session,
    roster: &[u8],
    model: Digest,
    now: Now,
) -> Result<(Session, Bytes), SessionError> {
    let roster = Roster::decode(roster)?;
    // The app chooses the authority of members: a coordinator with that choice could invent members.
    let authority = Authority::any_of(core.settings.members.clone(), now.wall);
    let signer = core.key.signer()?;
    let client = session.client()?.waiting_for_roster()?;
    // The keys may be older than the batch.
    if client.batch() != core.batch.member().map(|batch| &batch.id) {
        return Err(SessionError::NoKeys);
    }
    let min_batch = session.terms.batch_size.max(core.settings.security.min_batch);
    let step = client.share_keys(&roster, &model.0, min_batch, &authority, &signer, core.secrets.as_mut())?;
    // Every certificate was verified against its client id.
    let holders = roster.entries.iter().map(|entry| certificate::holder(entry.certificate.as_slice()));
    let members = holders.map(|holder| holder.map(|holder| holder.participant)).collect::<Option<_>>();
    let members = members.ok_or(Refusal::Certificate { entry: 0 })?;
    Ok((Session { model: Some(model), members, ..session.advance(&step.persist) }, step.send.encode().into()))
}

/// The participant's own certificate (DER), if members that trust the same authorities accept it.
pub(super) fn own_certificate(core: &Core) -> Result<Vec<u8>, SessionError> {
    let identity = core.identity.as_deref().ok_or(SessionError::NotEnrolled)?;
    Ok(identity::holder(&identity.certified.certificate_pem, &core.settings.members)?.1)
}
