//! The dashboard at `/`: embedded pages for operators. They use the public routes, with the cookie of a sign-in.

mod assets;
mod callback;
mod reference;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap,
    HeaderValue, IF_NONE_MATCH, REFERRER_POLICY, VARY,
};
use http::{HeaderName, StatusCode};

use assets::{Asset, Assets};
use reference::Reference;

use super::app::App;
use super::auth::authenticate::AnyPeer;
use super::extract::Path;
use super::reply::encoding::accepts_gzip;
use super::reply::etag;
use super::reply::problem::{Error, Result};
use super::times::Times;
use crate::oidc::CALLBACK;

/// Forbids foreign sources, text as script or style, and framing by other pages.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
);
/// Swagger UI uses inline styles and data images; scripts and requests are limited to this origin.
const REFERENCE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
/// Revalidated on each use, usually with 304.
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");
/// For files whose URL changes with their content.
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// Routes of the page and its files. Data comes from the API routes.
pub(super) fn routes(times: Times) -> Router<Arc<App>> {
    Router::new()
        .route("/", times.short_undescribed(get(page)))
        .route("/assets/{version}/{*name}", times.short_undescribed(get(asset)))
        .route("/ca.pem", times.short_undescribed(get(authority)))
        .route(CALLBACK, times.short_undescribed(get(callback::callback)))
        .route("/docs/api", times.short_undescribed(get(reference_page)))
        .route("/docs/api/{name}", times.short_undescribed(get(reference_file)))
}

async fn page(_: AnyPeer, headers: HeaderMap) -> Result<Response> {
    Ok(answer(&headers, &assets().await?.page, REVALIDATE, POLICY))
}

async fn asset(_: AnyPeer, Path((version, name)): Path<(String, String)>, headers: HeaderMap) -> Result<Response> {
    let assets = assets().await?;
    let asset = assets.find(&name).ok_or_else(|| Error::NotFound("the dashboard has no such file".to_owned()))?;
    // During an upgrade, a page of another release may request a file from this one.
    let caching = if version == assets.version { FOR_EVER } else { REVALIDATE };
    Ok(answer(&headers, asset, caching, POLICY))
}

/// The certificate of our own authority; devices verify this coordinator by it. It is public: each handshake refers to it, and the browser
/// has already verified the connection.
async fn authority(_: AnyPeer, State(app): State<Arc<App>>) -> Result<Response> {
    let own = app.authority.as_ref().filter(|_| app.config.http.certificate_file.is_none());
    let own = own.ok_or_else(|| {
        Error::NotFound(
            "another authority issued this server's certificate (http.certificate_file): ask its operator".to_owned(),
        )
    })?;
    let headers = [(CONTENT_TYPE, "application/x-pem-file"), (CONTENT_DISPOSITION, "attachment; filename=\"ca.pem\"")];
    Ok((headers, own.certificate_pem().to_owned()).into_response())
}

async fn reference_page(_: AnyPeer, headers: HeaderMap) -> Result<Response> {
    Ok(answer(&headers, &reference().await?.page, REVALIDATE, REFERENCE_POLICY))
}

async fn reference_file(_: AnyPeer, Path(name): Path<String>, headers: HeaderMap) -> Result<Response> {
    let file = reference().await?.find(&name);
    let file = file.ok_or_else(|| Error::NotFound("the reference has no such file".to_owned()))?;
    Ok(answer(&headers, file, REVALIDATE, REFERENCE_POLICY))
}

/// The files of the API reference; unpacked at the first request.
async fn reference() -> Result<&'static Reference> {
    tokio::task::spawn_blocking(Reference::get).await.map_err(Error::fault)?.map_err(Error::fault)
}

/// The embedded files; compressed at the first request, within milliseconds.
async fn assets() -> Result<&'static Assets> {
    tokio::task::spawn_blocking(Assets::get).await.map_err(Error::fault)?.map_err(Error::fault)
}

fn answer(request: &HeaderMap, asset: &'static Asset, caching: HeaderValue, policy: HeaderValue) -> Response {
    let mut response = if etag::is_named(request, IF_NONE_MATCH, &asset.etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else if accepts_gzip(request) {
        ([(CONTENT_ENCODING, "gzip")], asset.gzip.clone()).into_response()
    } else {
        asset.plain.clone().into_response()
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.media));
    headers.insert(CACHE_CONTROL, caching);
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    if let Ok(etag) = HeaderValue::from_str(&asset.etag) {
        headers.insert(ETAG, etag);
    }
    response
}
