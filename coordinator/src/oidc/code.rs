//! The authorization code flow (OpenID Connect Core 1.0 §3.1) with PKCE (RFC 7636): the request of a sign-in and the
//! callback.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Url;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use super::provider::{Endpoints, Exchange, OidcError, encoded};
use crate::config::ClientConfig;

/// Path of the callback, a page outside the documented API.
pub(crate) const CALLBACK: &str = "/sign-in/callback";
/// Maximum number of parallel code exchanges. Further ones are rejected, because each waits for the provider.
const EXCHANGES_MAX: usize = 32;
/// Maximum length of an authorization code.
pub(super) const CODE_MAX_BYTES: usize = 4096;

/// The client identity of this coordinator at the provider.
pub(super) struct Client {
    pub(super) id: String,
    secret: Option<Zeroizing<String>>,
    redirect_url: String,
    scope: String,
    /// The provider's name on the sign-in button.
    pub(super) name: String,
    pub(super) exchanges: Semaphore,
}

/// Values that bind a sign-in to its browser, each 256 bits in base64url.
pub(crate) struct Proof {
    /// `state`: returned with the code.
    pub(crate) state: String,
    /// `nonce`: returned in the token.
    pub(crate) nonce: String,
    /// PKCE verifier: required to exchange the code.
    pub(crate) verifier: Zeroizing<String>,
}

impl Client {
    /// # Errors
    /// The secret cannot be read.
    pub(super) fn open(config: &ClientConfig, issuer: &str) -> Result<Self, OidcError> {
        let secret = config.client_secret_file.as_deref().map(read).transpose()?;
        let host = Url::parse(issuer).ok().and_then(|url| url.host_str().map(str::to_owned));
        Ok(Self {
            id: config.client_id.clone(),
            secret,
            redirect_url: format!("{}{}", config.public_url.trim_end_matches('/'), CALLBACK),
            scope: config.scopes.join(" "),
            name: config.name.clone().or(host).unwrap_or_else(|| issuer.to_owned()),
            exchanges: Semaphore::new(EXCHANGES_MAX),
        })
    }

    /// The URL at the provider that starts a sign-in.
    ///
    /// # Errors
    /// A value cannot be encoded as a query.
    pub(super) fn authorization_url(&self, endpoints: &Endpoints, proof: &Proof) -> Result<String, String> {
        let challenge = URL_SAFE_NO_PAD.encode(crate::digest(proof.verifier.as_bytes()).0);
        let query = encoded(&[
            ("response_type", "code"),
            ("client_id", &self.id),
            ("redirect_uri", &self.redirect_url),
            ("scope", &self.scope),
            ("state", &proof.state),
            ("nonce", &proof.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ])?;
        let mut url = endpoints.authorization.clone();
        // The endpoint may have a query (RFC 6749 §3.1).
        let query = url.query().filter(|own| !own.is_empty()).map(|own| format!("{own}&{query}")).unwrap_or(query);
        url.set_query(Some(&query));
        url.set_fragment(None);
        Ok(url.into())
    }

    pub(super) fn exchange<'e>(&'e self, code: &'e str, proof: &'e Proof) -> Exchange<'e> {
        let Self { id, secret, redirect_url, .. } = self;
        Exchange { client_id: id, secret: secret.as_ref(), redirect_url, code, verifier: &proof.verifier }
    }
}

fn read(path: &Path) -> Result<Zeroizing<String>, OidcError> {
    let wrong = |problem: String| OidcError::Secret { path: path.to_owned(), problem };
    let text = std::fs::read_to_string(path).map(Zeroizing::new).map_err(|error| wrong(error.to_string()))?;
    match text.trim() {
        "" => Err(wrong("it is empty".to_owned())),
        secret => Ok(Zeroizing::new(secret.to_owned())),
    }
}
