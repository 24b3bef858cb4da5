//! A provider's keys as they are published: fetched when they are needed, and kept for when they cannot be.
//!
//! A request whose key is there never waits, even while keys are fetched. Whoever names a key that is not there makes this coordinator
//! ask the provider once in a while, however often that is.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use federation::time::{Clock, Timestamp};
use reqwest::{Client, StatusCode, Url};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use rustls_platform_verifier::BuilderVerifierExt as _;
use serde::Deserialize;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::keys::KeySet;
use crate::config::{OidcConfig, SigningAlgorithm, is_safe};
use crate::guarded::Guarded;

/// The provider is asked no more often than this, whoever wants it.
const PAUSE: Duration = Duration::from_secs(10);
/// Keys of this age are fetched again on the side, so that one that the provider withdraws counts no longer.
const REFRESH: Duration = Duration::from_secs(300);
/// Providers' answers have some thousand bytes.
const ANSWER_MAX_BYTES: usize = 256 << 10;

/// Why the provider cannot be asked at all.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    #[error("oidc.ca_certificate_file: {path}: {problem}")]
    Authority { path: PathBuf, problem: String },
    #[error("oidc: {0}")]
    Setup(String),
}

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoKey {
    /// The provider does not publish it.
    Unknown,
    /// What the provider publishes is not known at present.
    Unavailable,
}

/// The provider.
pub(super) struct Provider {
    issuer: String,
    jwks_url: Option<String>,
    max_age: Duration,
    client: Client,
    clock: Arc<dyn Clock>,
    known: Guarded<Known>,
    /// Whoever has it asks.
    turn: Arc<Mutex<()>>,
}

/// What is known of the provider.
#[derive(Default)]
struct Known {
    keys: Option<Arc<KeySet>>,
    /// When these keys were asked for.
    fetched_at: Option<Timestamp>,
    /// When keys were asked for last, whatever came of it.
    asked_at: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Provider {
    /// # Errors
    /// [`OidcError`].
    pub(super) fn open(config: &OidcConfig, clock: Arc<dyn Clock>) -> Result<Self, OidcError> {
        let setup = |error: &dyn std::fmt::Display| OidcError::Setup(error.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| setup(&error))?;
        let tls = match &config.ca_certificate_file {
            Some(path) => {
                let wrong = |problem: String| OidcError::Authority { path: path.clone(), problem };
                let certificate = CertificateDer::from_pem_file(path).map_err(|error| wrong(error.to_string()))?;
                let mut roots = RootCertStore::empty();
                roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
                tls.with_root_certificates(roots)
            }
            None => tls.with_platform_verifier().map_err(|error| setup(&error))?,
        };
        let client = Client::builder()
            .tls_backend_preconfigured(tls.with_no_client_auth())
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(config.timeout())
            .timeout(config.timeout())
            .user_agent(concat!("tributary-coordinator/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| setup(&error))?;
        Ok(Self {
            issuer: config.issuer.clone(),
            jwks_url: config.jwks_url.clone(),
            max_age: config.jwks_max_age(),
            client,
            clock,
            known: Guarded::default(),
            turn: Arc::default(),
        })
    }

    /// Keys among which is one of this name that may sign so.
    ///
    /// # Errors
    /// [`NoKey`].
    pub(super) async fn keys(
        self: &Arc<Self>,
        kid: &str,
        algorithm: SigningAlgorithm,
        now: Timestamp,
    ) -> Result<Arc<KeySet>, NoKey> {
        if let Some(keys) = self.usable(now).filter(|keys| keys.has(kid, algorithm)) {
            self.refresh_aside(now);
            return Ok(keys);
        }
        let turn = Arc::clone(&self.turn).lock_owned().await;
        if self.may_ask(now) {
            // Whoever asked may go away; what was asked for is for all.
            let asking = tokio::spawn(Arc::clone(self).ask(turn));
            if let Err(error) = asking.await {
                tracing::error!(%error, "keys of the identity provider were not fetched: {error}");
            }
        }
        let is_current = self.known.with(|known| known.asked_at.is_some() && known.asked_at == known.fetched_at);
        match self.usable(now) {
            Some(keys) if keys.has(kid, algorithm) => Ok(keys),
            Some(_) if is_current => Err(NoKey::Unknown),
            Some(_) | None => Err(NoKey::Unavailable),
        }
    }

    /// The keys, unless they are too old.
    fn usable(&self, now: Timestamp) -> Option<Arc<KeySet>> {
        self.known.with(|known| {
            let is_good = known.fetched_at.is_some_and(|at| now < at.plus(self.max_age));
            known.keys.clone().filter(|_| is_good)
        })
    }

    fn may_ask(&self, now: Timestamp) -> bool {
        self.known.with(|known| known.asked_at.is_none_or(|at| at.plus(PAUSE) <= now))
    }

    /// Has keys fetched that are no longer fresh, unless somebody does already.
    fn refresh_aside(self: &Arc<Self>, now: Timestamp) {
        let is_fresh = self.known.with(|known| known.fetched_at.is_some_and(|at| now < at.plus(REFRESH)));
        if is_fresh || !self.may_ask(now) {
            return;
        }
        if let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() {
            tokio::spawn(Arc::clone(self).ask(turn));
        }
    }

    /// Asks for the keys, and keeps what comes.
    async fn ask(self: Arc<Self>, turn: OwnedMutexGuard<()>) {
        let now = self.clock.now();
        self.known.with(|known| known.asked_at = Some(now));
        let fetched = self.fetch().await;
        let outcome = if fetched.is_ok() { "fetched" } else { "failed" };
        metrics::describe_counter!("tributary_oidc_key_fetches_total", "Fetches of the identity provider's keys");
        metrics::counter!("tributary_oidc_key_fetches_total", "outcome" => outcome).increment(1);
        match fetched {
            Ok(keys) => self.known.with(|known| {
                known.keys = Some(Arc::new(keys));
                known.fetched_at = Some(now);
            }),
            Err(problem) => tracing::warn!("the keys of the identity provider cannot be fetched: {problem}"),
        }
        drop(turn);
    }

    async fn fetch(&self) -> Result<KeySet, String> {
        let url = match &self.jwks_url {
            Some(url) => url.clone(),
            None => self.discover().await?,
        };
        KeySet::read(&self.get(&url).await?).map_err(|problem| format!("at {url}: {problem}"))
    }

    /// Where the provider says that its keys are, OpenID Connect Discovery 1.0 §4.
    async fn discover(&self) -> Result<String, String> {
        let url = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let found: Discovery =
            serde_json::from_slice(&self.get(&url).await?).map_err(|error| format!("at {url}: {error}"))?;
        if found.issuer != self.issuer {
            return Err(format!("at {url}: it is the configuration of another issuer, {:?}", found.issuer));
        }
        match Url::parse(&found.jwks_uri) {
            Ok(jwks) if is_safe(&jwks) => Ok(found.jwks_uri),
            Ok(_) | Err(_) => Err(format!("at {url}: jwks_uri is no https:// URL: {:?}", found.jwks_uri)),
        }
    }

    async fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        let failed = |error: reqwest::Error| format!("at {url}: {}", chain(&error.without_url()));
        let mut response = self.client.get(url).send().await.map_err(failed)?;
        if response.status() != StatusCode::OK {
            return Err(format!("at {url}: it answered {}", response.status()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > ANSWER_MAX_BYTES {
                return Err(format!("at {url}: the answer is longer than {ANSWER_MAX_BYTES} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// An error with what caused it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
