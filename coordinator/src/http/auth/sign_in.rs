//! Cookies: the cookie of a sign-in, with its lookup and checks, and the cookie of a browser during its sign-in at the identity provider.
//!
//! A browser attaches cookies to requests of any site. Changes therefore also need a header that only the dashboard can send, not other
//! sites.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use federation::id::Digest;
use federation::time::Timestamp;
use http::header::{COOKIE, HeaderMap, HeaderValue};
use store::StoreError;
use store::entity::sign_in::{Holder, SignIn};
use store::entity::token::OperatorToken;
use wire::headers::{REQUEST, REQUEST_OF_DASHBOARD, SIGN_IN_COOKIE};
use zeroize::Zeroizing;

use crate::http::app::App;
use crate::http::reply::problem::{Error, Result};
use crate::oidc::{Identity, Proof};
use crate::privacy::seal::Sealer;

/// The browser's header that names the site of a request's origin.
const SITE: &str = "sec-fetch-site";

/// The cookie of a browser during its sign-in at the identity provider.
const AWAY_COOKIE: &str = "__Host-tributary-away";
/// Maximum time at the provider.
const AWAY: Duration = Duration::from_secs(600);
const PLACE: &[u8; 16] = b"tributary signin";

/// Builds the `set-cookie` of a secret for `seconds`; 0 removes it. Scripts cannot read it, and requests from other sites do not carry it.
pub(in crate::http) fn set_cookie(secret: &str, seconds: u64) -> Result<HeaderValue> {
    guarded(SIGN_IN_COOKIE, secret, seconds, "Strict")
}

/// The `__Host-` prefix prevents other hosts and schemes from setting it.
fn guarded(name: &str, value: &str, seconds: u64, same_site: &str) -> Result<HeaderValue> {
    let text = format!("{name}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite={same_site}");
    let mut value = HeaderValue::from_str(&text).map_err(Error::fault)?;
    value.set_sensitive(true);
    Ok(value)
}

/// The secret in a request's cookie.
pub(in crate::http) fn cookie(headers: &HeaderMap) -> Option<&str> {
    cookie_named(headers, SIGN_IN_COOKIE)
}

fn cookie_named<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

/// A browser's redirect to the identity provider and back. The cookie contains a secret and its expiry; state, nonce and verifier are MACs
/// of it under the sealing key. The coordinator stores nothing until the browser returns, every coordinator with the same sealing key can
/// complete the sign-in, and a state is useless without our cookie.
pub(in crate::http) struct Away {
    text: Zeroizing<String>,
    until: Timestamp,
}

impl Away {
    pub(in crate::http) fn begin(secret: &str, now: Timestamp) -> Self {
        let until = now.plus(AWAY);
        Self { text: Zeroizing::new(format!("{secret}.{}", until.0)), until }
    }

    /// Verifies the request's cookie against the returned state and its expiry.
    pub(in crate::http) fn back(headers: &HeaderMap, state: &str, sealer: &Sealer, now: Timestamp) -> Option<Self> {
        let text = cookie_named(headers, AWAY_COOKIE)?;
        let state: Vec<u8> = URL_SAFE_NO_PAD.decode(state).ok()?;
        if !sealer.is_mac(PLACE, &labelled("state", text), &state) {
            return None;
        }
        // The MAC proves that the coordinator wrote the text.
        let until = text.rsplit_once('.').and_then(|(_, ms)| ms.parse().ok()).map(Timestamp)?;
        (now < until).then(|| Self { text: Zeroizing::new(text.to_owned()), until })
    }

    /// The `set-cookie` at the start. `Lax`, since another site starts the navigation back.
    pub(in crate::http) fn set(&self) -> Result<HeaderValue> {
        guarded(AWAY_COOKIE, &self.text, AWAY.as_secs(), "Lax")
    }

    /// The `set-cookie` at the end.
    pub(in crate::http) fn unset() -> Result<HeaderValue> {
        guarded(AWAY_COOKIE, "", 0, "Lax")
    }

    /// The state, nonce and verifier for the provider.
    pub(in crate::http) fn proof(&self, sealer: &Sealer) -> Proof {
        let made = |label: &str| URL_SAFE_NO_PAD.encode(sealer.mac(PLACE, &labelled(label, &self.text)));
        Proof { state: made("state"), nonce: made("nonce"), verifier: Zeroizing::new(made("verifier")) }
    }

    /// The digest to use once, and its expiry.
    pub(in crate::http) fn used(&self) -> (Digest, Timestamp) {
        (crate::digest(&labelled("used", &self.text)), self.until)
    }
}

/// Separates labels by a NUL byte, so that no label is a prefix of another.
fn labelled(label: &str, text: &str) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(format!("{label}\0{text}").into_bytes())
}

/// Rejects requests from other sites' pages.
///
/// # Errors
/// [`Error::Forbidden`].
pub(in crate::http) fn must_be_of_dashboard(headers: &HeaderMap) -> Result<()> {
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

/// The current owner of a sign-in.
pub(in crate::http) enum Found {
    /// An operator token, valid or not.
    Token(OperatorToken),
    /// An account with its current permissions.
    Identity(Identity),
}

/// The valid sign-in with this secret, and its owner.
///
/// # Errors
/// [`Error::Unauthenticated`]; [`Error::Unidentified`]; errors of the store.
pub(in crate::http) async fn find(app: &App, secret: &str) -> Result<(SignIn, Found)> {
    const OVER: Error = Error::Unauthenticated("you are signed in no more: sign in again");
    let (sha256, now) = (crate::digest(secret.as_bytes()), app.now());
    let found = app
        .store
        .read("find_sign_in", |tx| {
            Box::pin(async move {
                let Some(sign_in) = tx.live_sign_in(sha256, now).await? else { return Ok(None) };
                let token = match &sign_in.holder {
                    Holder::Token(token) => tx.operator_token(*token).await?,
                    Holder::Identity(_) => None,
                };
                Ok::<_, StoreError>(Some((sign_in, token)))
            })
        })
        .await?;
    let (sign_in, token) = found.ok_or(OVER)?;
    let holder = match &sign_in.holder {
        Holder::Token(_) => Found::Token(token.ok_or(OVER)?),
        Holder::Identity(known) => {
            let oidc = app.oidc.as_ref().ok_or(OVER)?;
            Found::Identity(oidc.recall(known, sign_in.expires_at)?)
        }
    };
    Ok((sign_in, holder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

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
    fn what_comes_back_fits_what_left_until_it_is_too_late() {
        let sealer = Sealer::in_memory(&Random::from_seed(1));
        let other = Sealer::in_memory(&Random::from_seed(2));
        let now = Timestamp(1_750_000_000_000);
        let last = now.plus(AWAY).0 - 1;
        let away = Away::begin("geheim", now);
        let proof = away.proof(&sealer);
        let sent = |text: &str| headers(&[("cookie", &format!("__Host-tributary=x; __Host-tributary-away={text}"))]);
        let back = Away::back(&sent(&away.text), &proof.state, &sealer, Timestamp(last)).unwrap();
        assert_eq!(back.used(), away.used());
        let again = back.proof(&sealer);
        assert_eq!((&again.state, &again.nonce, &*again.verifier), (&proof.state, &proof.nonce, &*proof.verifier));
        assert_eq!([&proof.state, &proof.nonce, &*proof.verifier].map(String::len), [43; 3]);
        assert!(proof.state != proof.nonce && proof.nonce != *proof.verifier && proof.state != *proof.verifier);
        let fits = |cookie: &str, state: &str, sealer: &Sealer, at: i64| {
            Away::back(&sent(cookie), state, sealer, Timestamp(at)).is_some()
        };
        assert!(!fits(&away.text, &proof.state, &sealer, last + 1), "too late");
        assert!(!fits(&away.text.replace("1750", "1950"), &proof.state, &sealer, last), "its time is no longer ours");
        assert!(!fits(&away.text, &proof.nonce, &sealer, last) && !fits(&away.text, "", &sealer, last));
        assert!(!fits(&away.text, &proof.state, &other, last), "another sealing key");
        let stranger = Away::begin("fremd", now);
        assert!(!fits(&away.text, &stranger.proof(&sealer).state, &sealer, last), "another browser's");
        assert!(Away::back(&HeaderMap::new(), &proof.state, &sealer, now).is_none());
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
