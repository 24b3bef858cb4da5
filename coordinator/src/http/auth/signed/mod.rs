//! The listener for participants whose TLS ends at a balancer. The signature of each request authenticates its sender
//! ([`wire::signature`]). This listener ignores handshakes and the balancer's headers, and only this listener accepts signatures.
//!
//! The balancer can read, delay and repeat requests. It cannot change or redate them, or make one take effect twice. This listener rejects
//! operators' tokens, since the balancer could read them.

mod body;
mod gate;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use federation::id::Digest;
use http::request::Parts;
use http::{HeaderValue, header};
use wire::headers::TIME;
use wire::route;
use wire::signature::is_signed;

use super::authenticate::{of_signer, stranger};
use super::signed_request::{Signed, SignedAlone};
use crate::http::reply::problem::Error;

pub(in crate::http) use body::is_other_body;
pub(in crate::http) use gate::Gate;
use gate::check_host;
use listener::{COME_BACK_S, Connection, ConnectionGuard};

/// Verifies a request's signature; passes unsigned requests on as unauthenticated.
pub(in crate::http) async fn admit(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let address = request.extensions().get::<Connection>().copied().unwrap_or_default().address;
    let unknown = Connection { address, peer: None };
    let (mut parts, mut body) = request.into_parts();
    if let Err(error) = check_host(&parts.headers) {
        return stranger(gate.app(), unknown, error).into_response();
    }
    let judged = is_signed(&parts.headers).then(|| gate.judge(&parts, hyper::body::Body::is_end_stream(&body)));
    let signer = judged.as_ref().and_then(|judged| Some(judged.as_ref().ok()?.0.fingerprint));
    if !begin(&parts, signer) {
        return Error::Crowded(COME_BACK_S).into_response();
    }
    if parts.headers.contains_key(header::AUTHORIZATION) {
        let detail = "operators' tokens are not taken where a balancer can read them: use the address of http.listen";
        return stranger(gate.app(), unknown, Error::Forbidden(detail.to_owned())).into_response();
    }
    let mut connection = unknown;
    let mut is_dated_by_us = false;
    if let Some(judged) = judged {
        let (peer, claim) = match judged {
            Ok(judged) => judged,
            Err(error) => return stranger(gate.app(), unknown, error).into_response(),
        };
        if let Err(error) = gate.check_time(&claim) {
            return of_signer(gate.app(), peer, error).into_response();
        }
        connection.peer = Some(peer);
        is_dated_by_us = claim.time.is_some();
        if let Some(sha256) = claim.content_digest {
            body = body::with_digest(body, sha256);
        }
        let signed = Signed::new(peer.fingerprint, &claim, &parts);
        parts.extensions.insert(signed);
    }
    parts.extensions.insert(SignedAlone);
    parts.extensions.insert(connection);
    let mut response = next.run(Request::from_parts(parts, body)).await;
    if is_dated_by_us && let Ok(time) = HeaderValue::try_from(gate.time()) {
        response.headers_mut().insert(TIME, time);
    }
    response
}

/// Whether a slot is free for the request. The balancer's health checks are exempt.
fn begin(parts: &Parts, signer: Option<Digest>) -> bool {
    let guard = parts.extensions.get::<Arc<ConnectionGuard>>();
    let is_of_health = [route::HEALTHZ, route::READYZ].contains(&parts.uri.path());
    is_of_health || guard.is_none_or(|guard| guard.begin_request(signer))
}
