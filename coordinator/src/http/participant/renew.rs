//! `POST /v1/renew`: a new certificate for the same participant with a new key. The old certificate is valid until the new one is used,
//! since the answer may get lost. With an external authority, the holder of the current key names the next certificate from there; both
//! must name the same participant.

use std::sync::Arc;

use axum::extract::State;
use federation::event::Actor;
use wire::participant::{EnrollReply, RenewRequest};
use wire::route;

use super::enroll::{check_evidence, reply};
use crate::http::app::App;
use crate::http::auth::authenticate::{Participant, REPLACED};
use crate::http::extract::Json;
use crate::http::reply::problem::{Error, Result};
use crate::identity::Credential;

/// A thief of the key could use every certificate for it: a renewal must end that.
const SAME_KEY: &str = "the present certificate is for the same key: renew it for a new key";

/// Renew the certificate.
#[utoipa::path(
    post, path = route::RENEW, request_body = RenewRequest, security(("certificate" = [])),
    responses((status = 200, body = EnrollReply), (status = 409)),
)]
pub(in crate::http) async fn renew(
    participant: Participant,
    State(app): State<Arc<App>>,
    Json(request): Json<RenewRequest>,
) -> Result<Json<EnrollReply>> {
    check_evidence(request.evidence.as_ref())?;
    let credential =
        app.members.check(request.csr_pem, request.certificate_pem.as_deref(), request.evidence, app.now())?;
    if let Credential::PreIssued(next) = &credential
        && next.participant != participant.id
    {
        let (other, own) = (next.participant, participant.id);
        return Err(Error::InvalidValue(format!(
            "certificate_pem: it names participant {other}; yours must name {own}"
        )));
    }
    if credential.key() == participant.key.0 {
        return Err(Error::InvalidValue(SAME_KEY.to_owned()));
    }
    let lifetime = app.config.identity.certificate_lifetime();
    let issued = app.members.issue(credential, participant.id, lifetime, &app.random, app.now()).await?;
    let (fingerprint, expires_at, now) = (issued.fingerprint, issued.expires_at, app.now());
    let row = app
        .store
        .transact("renew", |tx| {
            Box::pin(async move {
                tx.act_for(Actor::Participant { participant: participant.id });
                let shown = participant.certificate;
                let renewed = tx.set_certificate(participant.id, shown, fingerprint, expires_at, now).await?;
                let row = tx.participant(participant.id).await?;
                let row = row.ok_or_else(|| Error::fault("a renewed participant is not there"))?;
                match (renewed, row.revoked_at) {
                    (true, _) => Ok(row),
                    (false, Some(_)) => Err(Error::Revoked),
                    // Another renewal replaced it just now.
                    (false, None) => Err(REPLACED),
                }
            })
        })
        .await?;
    app.identities.forget(participant.id);
    tracing::info!(participant = %participant.id, "certificate of participant {} renewed", participant.id);
    Ok(Json(reply(participant.id, row.name, issued)))
}
