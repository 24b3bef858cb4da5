//! The cookie of a sign-in: how it is set, read and looked up, and what has to come with it.
//!
//! A browser sends a cookie with whatever request a page makes, so a cookie alone never changes anything: the dashboard adds
//! a header that pages of other sites cannot.

use http::header::{COOKIE, HeaderMap, HeaderValue};
use store::entity::sign_in::SignIn;
use store::entity::token::OperatorToken;
use wire::headers::{REQUEST, REQUEST_OF_DASHBOARD, SIGN_IN_COOKIE};

use super::app::App;
use super::problem::{Error, Result};

/// Where a browser says which site a request comes from.
const SITE: &str = "sec-fetch-site";

/// The `set-cookie` of a secret that lasts `seconds`; 0 removes it. No script can read it, and no other site's page can send it.
pub(super) fn set_cookie(secret: &str, seconds: u64) -> Result<HeaderValue> {
    let text = format!("{SIGN_IN_COOKIE}={secret}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Strict");
    let mut value = HeaderValue::from_str(&text).map_err(Error::fault)?;
    value.set_sensitive(true);
    Ok(value)
}

/// The secret in a request's cookie.
pub(super) fn cookie(headers: &HeaderMap) -> Option<&str> {
    headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .find_map(|pair| pair.trim().strip_prefix(SIGN_IN_COOKIE)?.strip_prefix('='))
}

/// Refuses what another site's page could have sent.
///
/// # Errors
/// [`Error::Forbidden`].
pub(super) fn must_be_of_dashboard(headers: &HeaderMap) -> Result<()> {
    let is = |name: &str, wanted: &str| headers.get(name).is_some_and(|value| value == wanted);
    if !is(REQUEST, REQUEST_OF_DASHBOARD) {
        return Err(Error::Forbidden(format!(
            "a cookie changes nothing without the header `{REQUEST}: {REQUEST_OF_DASHBOARD}`, which other sites cannot send"
        )));
    }
    if headers.contains_key(SITE) && !is(SITE, "same-origin") {
        return Err(Error::Forbidden("the request comes from a page of another origin".to_owned()));
    }
    Ok(())
}

/// The sign-in that counts now, and the token that it stands for.
///
/// # Errors
/// [`Error::Unauthenticated`]; errors of the store.
pub(super) async fn find(app: &App, secret: &str) -> Result<(SignIn, OperatorToken)> {
    let (sha256, now) = (crate::digest(secret.as_bytes()), app.now());
    let found =
        app.store.read("find_sign_in", |tx| Box::pin(async move { tx.live_sign_in(sha256, now).await })).await?;
    found.ok_or(Error::Unauthenticated("you are signed in no more: sign in again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let found = |text: &str| cookie(&headers(&[("cookie", text)])).map(str::to_owned);
        assert_eq!(found("a=b; __Host-tributary=geheim; c=d").as_deref(), Some("geheim"));
        assert_eq!(found("__Host-tributary=").as_deref(), Some(""));
        for other in ["", "__Host-tributary2=x", "x__Host-tributary=x", "tributary=x", "__Host-tributary"] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn only_the_dashboard_changes_something_with_a_cookie() {
        let judged = |pairs: &[(&'static str, &str)]| must_be_of_dashboard(&headers(pairs)).is_ok();
        let ours = ("tributary-request", "dashboard");
        assert!(judged(&[ours]) && judged(&[ours, (SITE, "same-origin")]));
        assert!(!judged(&[]) && !judged(&[("tributary-request", "form")]) && !judged(&[(SITE, "same-origin")]));
        for site in ["cross-site", "same-site", "none", ""] {
            assert!(!judged(&[ours, (SITE, site)]), "{site}");
        }
    }
}
