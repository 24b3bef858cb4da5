//! Authentication of participants: by client certificate, or by the signature of each request, see `signed`. For operators see `operators`.
//! A certificate must be the newest of its participant, or the previous one until the newest is used; a signature of our authority alone is
//! insufficient.
//!
//! Each extractor also applies the peer's rate limit. Unauthenticated peers are counted by address, to slow down guessing of tokens.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use federation::id::{Digest, ParticipantId};
use federation::time::Timestamp;
use http::request::Parts;
use listener::{Connection, ConnectionGuard, Key, Members, NotMember, Peer};
use secure_agg::IdentityKey;
use store::StoreError;
use store::entity::participant::Certificates;
use wire::signature::is_signed;

use super::identities::CertificateOwner;
use super::signed_request::{Signed, SignedAlone};
use crate::http::app::App;
use crate::http::reply::problem::{Error, Result};

pub(in crate::http) fn connection(parts: &Parts) -> Connection {
    parts.extensions.get::<Connection>().copied().unwrap_or_default()
}

/// Which participants a request may come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Allowed {
    /// Those that are not revoked.
    Active,
    /// Revoked ones, too.
    Any,
}

/// Judges whether the certificate is valid at `now`.
fn judge(owner: CertificateOwner, peer: Peer, allowed: Allowed, now: Timestamp) -> Result<()> {
    if owner.revoked && allowed == Allowed::Active {
        return Err(Error::Revoked);
    }
    if peer.expires_at <= now {
        return Err(Error::Expired(peer.expires_at));
    }
    Ok(())
}

/// The error for an unknown or replaced certificate.
pub(in crate::http) const REPLACED: Error =
    Error::Unauthenticated("this certificate was replaced or is not known; enrol anew");

/// An enrolled participant with a valid certificate.
pub(in crate::http) struct Participant {
    pub(in crate::http) id: ParticipantId,
    /// SHA-256 of its certificate.
    pub(in crate::http) certificate: Digest,
    pub(in crate::http) key: IdentityKey,
}

impl Participant {
    /// Checks that the participant acts for itself. `rule` is the error message.
    pub(in crate::http) fn must_be(&self, participant: ParticipantId, rule: &str) -> Result<()> {
        if participant == self.id { Ok(()) } else { Err(Error::Forbidden(rule.to_owned())) }
    }
}

impl FromRequestParts<Arc<App>> for Participant {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self> {
        Claimant::from_request_parts(parts, app).await?.look_up(app).await
    }
}

/// As [`Participant`], or one that is revoked.
pub(in crate::http) struct EvenRevoked(pub(in crate::http) Participant);

impl FromRequestParts<Arc<App>> for EvenRevoked {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self> {
        let claimant = Claimant::from_request_parts(parts, app).await?;
        let now = app.now();
        let found = find(app, claimant.peer, now).await;
        claimant.enter(app, found, Allowed::Any, now).await.map(Self)
    }
}

/// A peer with the key of a certificate of a participant. The certificate's validity is unchecked.
pub(in crate::http) struct Claimant {
    connection: Connection,
    peer: Peer,
    guard: Option<Arc<ConnectionGuard>>,
    /// The signature, if the request has one.
    signed: Option<Signed>,
}

impl FromRequestParts<Arc<App>> for Claimant {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self> {
        let connection = connection(parts);
        let peer = refuse_vain_signature(parts).and_then(|()| {
            connection.peer.ok_or(Error::Unauthenticated(match parts.extensions.get::<SignedAlone>() {
                Some(SignedAlone) => {
                    "a balancer ends TLS here, so participants sign requests with the key of their certificate"
                }
                None => "this needs the client certificate that enrolment gave",
            }))
        });
        let peer = peer.map_err(|error| stranger(app, connection, error))?;
        let guard = parts.extensions.get::<Arc<ConnectionGuard>>().map(Arc::clone);
        Ok(Self { connection, peer, guard, signed: parts.extensions.get::<Signed>().copied() })
    }
}

impl Claimant {
    /// The participant named by the certificate.
    pub(in crate::http) fn participant(&self) -> ParticipantId {
        self.peer.participant
    }

    /// Looks up the participant, if its certificate is valid.
    pub(in crate::http) async fn look_up(self, app: &App) -> Result<Participant> {
        let now = app.now();
        let found = find(app, self.peer, now).await;
        self.enter(app, found, Allowed::Active, now).await
    }

    /// Looks up the participant through `read`, whose result includes the valid certificates. `read` always runs.
    pub(in crate::http) async fn look_up_by<T>(
        self,
        app: &App,
        read: impl Future<Output = Result<(Option<Certificates>, T), StoreError>>,
    ) -> Result<(Participant, T)> {
        let (now, peer) = (app.now(), self.peer);
        let generation = match app.identities.find(peer.fingerprint, now) {
            (Some(owner), _) => {
                let participant = self.enter(app, Ok((owner, Usage::Later)), Allowed::Active, now).await?;
                return Ok((participant, read.await?.1));
            }
            (None, generation) => generation,
        };
        let (certificates, found) = read.await?;
        let owner = owner(app, peer, certificates, generation, now);
        Ok((self.enter(app, owner, Allowed::Active, now).await?, found))
    }

    async fn enter(
        self,
        app: &App,
        found: Result<(CertificateOwner, Usage)>,
        allowed: Allowed,
        now: Timestamp,
    ) -> Result<Participant> {
        let admitted = async {
            let (owner, usage) = found?;
            judge(owner, self.peer, allowed, now)?;
            match usage {
                Usage::First => end_previous(app, owner.participant, self.peer.fingerprint).await?,
                Usage::Later => {}
            }
            app.limiter.admit(Key::Participant(owner.participant), now).map_err(Error::RateLimited)?;
            if let Some(signed) = self.signed {
                signed.use_once(app).await?;
            }
            Ok(owner)
        };
        let CertificateOwner { participant: id, revoked, .. } = admitted.await.map_err(|error| match self.signed {
            Some(_) => of_signer(app, self.peer, error),
            None => stranger(app, self.connection, error),
        })?;
        // The participant may have enrolled on this connection, or the lookup at connection start failed.
        if let Some(guard) = self.guard.as_ref().filter(|_| !revoked) {
            guard.promote_to_member(id);
        }
        Ok(Participant { id, certificate: self.peer.fingerprint, key: self.peer.key })
    }
}

/// Rejects signed requests on listeners where the handshake authenticates: the signature would be ignored.
fn refuse_vain_signature(parts: &Parts) -> Result<()> {
    if is_signed(&parts.headers) && parts.extensions.get::<Signed>().is_none() {
        return Err(Error::Unauthenticated(
            "signatures of requests count at http.signed_listen alone: here, the certificate in the TLS handshake says who you are",
        ));
    }
    Ok(())
}

/// The participant with this valid certificate. Changes neither certificates nor rate limits, since a connection is not a request yet.
///
/// # Errors
/// The certificate is unknown or was replaced; errors of the store.
async fn member(app: &App, peer: Peer) -> Result<ParticipantId> {
    let now = app.now();
    let (owner, _) = find(app, peer, now).await?;
    judge(owner, peer, Allowed::Active, now).map(|()| owner.participant)
}

impl Members for App {
    async fn find(&self, peer: Peer) -> std::result::Result<ParticipantId, NotMember> {
        member(self, peer).await.map_err(|error| NotMember {
            is_certain: matches!(error, Error::Unauthenticated(_) | Error::Revoked | Error::Expired(_)),
            reason: format!("{error:?}"),
        })
    }
}

/// How a certificate is used.
enum Usage {
    /// The first use of the newest certificate: the previous one is still valid.
    First,
    Later,
}

/// The owner of a certificate, possibly from the cache.
async fn find(app: &App, peer: Peer, now: Timestamp) -> Result<(CertificateOwner, Usage)> {
    let generation = match app.identities.find(peer.fingerprint, now) {
        (Some(owner), _) => return Ok((owner, Usage::Later)),
        (None, generation) => generation,
    };
    let certificates = app
        .store
        .read("find_participant", |tx| Box::pin(async move { tx.certificates(peer.participant).await }))
        .await?;
    owner(app, peer, certificates, generation, now)
}

/// The owner of a certificate, from its participant's certificates as read at `now`. Caches the result unless the cache was invalidated
/// since `generation`.
fn owner(
    app: &App,
    peer: Peer,
    certificates: Option<Certificates>,
    generation: u64,
    now: Timestamp,
) -> Result<(CertificateOwner, Usage)> {
    let Certificates { participant, newest, previous, revoked_at } = certificates.ok_or(REPLACED)?;
    if peer.fingerprint != newest && Some(peer.fingerprint) != previous {
        return Err(REPLACED);
    }
    let owner = CertificateOwner { participant, revoked: revoked_at.is_some(), read_at: now };
    if peer.fingerprint == newest && previous.is_some() {
        // Not cached: each use must look it up until the previous certificate has ended.
        return Ok((owner, Usage::First));
    }
    app.identities.remember(peer.fingerprint, owner, generation);
    Ok((owner, Usage::Later))
}

/// Ends the previous certificate, since use of the newest one proves its receipt.
async fn end_previous(app: &App, id: ParticipantId, newest: Digest) -> Result<()> {
    app.store
        .transact("end_previous_certificate", |tx| {
            Box::pin(async move { tx.end_previous_certificate(id, newest).await })
        })
        .await?;
    app.identities.forget(id);
    Ok(())
}

/// Counts a failure against the peer's address.
pub(in crate::http) fn stranger(app: &App, connection: Connection, error: Error) -> Error {
    count(app, Key::address(connection.address), error)
}

/// Counts a failure against the signer's certificate: the address belongs to a balancer shared with others.
pub(super) fn of_signer(app: &App, signer: Peer, error: Error) -> Error {
    count(app, Key::Signer(signer.fingerprint), error)
}

fn count(app: &App, key: Key, error: Error) -> Error {
    if matches!(error, Error::RateLimited(_) | Error::Store(_)) {
        return error;
    }
    match app.limiter.admit(key, app.now()) {
        Ok(()) => error,
        Err(after_ms) => Error::RateLimited(after_ms),
    }
}

/// Any peer; counted by address.
pub(in crate::http) struct AnyPeer {
    /// The holder of the certificate in the handshake or signature; enrolled or not.
    pub(in crate::http) peer: Option<Peer>,
    /// Whether a TLS-terminating proxy can read the request.
    pub(in crate::http) is_overheard: bool,
}

impl FromRequestParts<Arc<App>> for AnyPeer {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self> {
        let Connection { address, peer } = connection(parts);
        app.limiter.admit(Key::address(address), app.now()).map_err(Error::RateLimited)?;
        refuse_vain_signature(parts)?;
        if let Some(signed) = parts.extensions.get::<Signed>() {
            signed.use_once(app).await?;
        }
        Ok(Self { peer, is_overheard: parts.extensions.get::<SignedAlone>().is_some() })
    }
}
