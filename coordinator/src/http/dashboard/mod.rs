//! The dashboard at `/`: pages for operators, embedded in the program. They call the same routes as everybody else, with the
//! cookie of a sign-in.

mod assets;
mod callback;
mod reference;

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue,
    IF_NONE_MATCH, REFERRER_POLICY, VARY,
};
use http::{HeaderName, StatusCode};

use assets::{Asset, Assets};
use reference::Reference;

use super::app::App;
use super::authenticate::AnyPeer;
use super::encoding::accepts_gzip;
use super::etag;
use super::extract::Path;
use super::problem::{Error, Result};
use super::times::Times;
use crate::oidc::CALLBACK;

/// Nothing comes from elsewhere, no text becomes a script or a style, and no other page frames ours.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
);
/// Swagger UI writes attributes `style` and has pictures in its styles; scripts and requests are our own alone.
const REFERENCE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
/// Asked for again each time, and mostly answered with 304.
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");
/// Its address changes with its content.
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// The page and what it loads. Whatever it shows is at other routes.
pub(super) fn routes(times: Times) -> Router<Arc<App>> {
    Router::new()
        .route("/", times.short_undescribed(get(page)))
        .route("/assets/{version}/{*name}", times.short_undescribed(get(asset)))
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
    // A page of another release, from a coordinator beside this one, may ask for what this one has.
    let caching = if version == assets.version { FOR_EVER } else { REVALIDATE };
    Ok(answer(&headers, asset, caching, POLICY))
}

async fn reference_page(_: AnyPeer, headers: HeaderMap) -> Result<Response> {
    Ok(answer(&headers, &reference().await?.page, REVALIDATE, REFERENCE_POLICY))
}

async fn reference_file(_: AnyPeer, Path(name): Path<String>, headers: HeaderMap) -> Result<Response> {
    let file = reference().await?.find(&name);
    let file = file.ok_or_else(|| Error::NotFound("the reference has no such file".to_owned()))?;
    Ok(answer(&headers, file, REVALIDATE, REFERENCE_POLICY))
}

/// The files of the reference, which are unpacked at the first request.
async fn reference() -> Result<&'static Reference> {
    tokio::task::spawn_blocking(Reference::get).await.map_err(Error::fault)?.map_err(Error::fault)
}

/// The files. They are compressed at the first request, which takes some milliseconds.
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
