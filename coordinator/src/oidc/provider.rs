//! HTTPS client of the provider: keys, endpoints, and token exchange. Each response is limited in size and time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use federation::time::{Clock, Timestamp};
use forward_proxy::Proxy;
use http::HeaderValue;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::uri::InvalidUri;
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use rustls_platform_verifier::BuilderVerifierExt as _;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::cached::{Cached, Missing};
use super::keys::KeySet;
use crate::config::{OidcConfig, SigningAlgorithm, is_safe};

/// Maximum response size; typical responses have some thousand bytes.
const ANSWER_MAX_BYTES: usize = 256 << 10;

/// Why the provider client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    #[error("oidc.ca_certificate_file: {path}: {problem}")]
    Authority { path: PathBuf, problem: String },
    #[error("oidc.client_secret_file: {path}: {problem}")]
    Secret { path: PathBuf, problem: String },
    #[error("oidc: {0}")]
    Setup(String),
}

/// The provider.
pub(super) struct Provider {
    issuer: String,
    jwks_url: Option<String>,
    client: Client,
    connect_timeout: Duration,
    keys: Arc<Cached<KeySet>>,
    endpoints: Arc<Cached<Endpoints>>,
}

/// The provider's metadata: OpenID Connect Discovery 1.0 §3, RFC 8414 §2, RFC 9207 §3.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    code_challenge_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// Endpoints of the authorization code flow.
pub(super) struct Endpoints {
    /// Authorization endpoint, for browsers.
    pub(super) authorization: Url,
    token: Url,
    /// Whether client secrets may be sent by HTTP Basic instead of the body.
    takes_basic: bool,
    /// Whether authorization responses name the issuer.
    pub(super) names_itself: bool,
}

/// Parameters of a code exchange.
pub(super) struct Exchange<'e> {
    pub(super) client_id: &'e str,
    pub(super) secret: Option<&'e Zeroizing<String>>,
    pub(super) redirect_url: &'e str,
    pub(super) code: &'e str,
    pub(super) verifier: &'e str,
}

/// Why a code exchange failed.
pub(super) enum NoToken {
    /// The provider rejected the code.
    Refused,
    /// The provider did not answer or sent an invalid response; details are in the log.
    Unavailable,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

/// Error response, RFC 6749 §5.2.
#[derive(Deserialize)]
struct TokenError {
    error: String,
}

impl Provider {
    /// # Errors
    /// [`OidcError`].
    pub(super) fn open(config: &OidcConfig, clock: &Arc<dyn Clock>) -> Result<Self, OidcError> {
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
        // Requests in TLS use the proxy of the environment. Plain HTTP stays on this machine.
        for url in [&config.issuer].into_iter().chain(&config.jwks_url) {
            let server = url.parse().map_err(|error: InvalidUri| setup(&error))?;
            Proxy::default().towards(&server).map_err(|error| setup(&error))?;
        }
        // Shorter than that of a whole request, so that a failure names the proxy.
        let connect_timeout = config.timeout() * 3 / 4;
        let client = Client::builder()
            .proxy(Proxy::default().for_reqwest())
            .tls_backend_preconfigured(tls.with_no_client_auth())
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(connect_timeout)
            .timeout(config.timeout())
            .user_agent(concat!("tributary-coordinator/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| setup(&error))?;
        Ok(Self {
            issuer: config.issuer.clone(),
            jwks_url: config.jwks_url.clone(),
            client,
            connect_timeout,
            keys: Cached::new(config.jwks_max_age(), Arc::clone(clock)),
            endpoints: Cached::new(config.jwks_max_age(), Arc::clone(clock)),
        })
    }

    /// A key set with a key of this id for this algorithm.
    ///
    /// # Errors
    /// [`Missing`].
    pub(super) async fn keys(
        self: &Arc<Self>,
        kid: &str,
        algorithm: SigningAlgorithm,
        now: Timestamp,
    ) -> Result<Arc<KeySet>, Missing> {
        let this = Arc::clone(self);
        self.keys.get(now, |keys| keys.has(kid, algorithm), || this.fetch_keys()).await
    }

    /// Endpoints of the authorization code flow.
    ///
    /// # Errors
    /// [`Missing`].
    pub(super) async fn endpoints(self: &Arc<Self>, now: Timestamp) -> Result<Arc<Endpoints>, Missing> {
        let this = Arc::clone(self);
        self.endpoints.get(now, |_| true, || this.fetch_endpoints()).await
    }

    /// Exchanges an authorization code for an ID token, RFC 6749 §4.1.3, RFC 7636 §4.5.
    ///
    /// # Errors
    /// [`NoToken`].
    pub(super) async fn exchange(&self, endpoints: &Endpoints, exchange: &Exchange<'_>) -> Result<String, NoToken> {
        let outcome = self.ask_for_token(endpoints, exchange).await;
        let label = match &outcome {
            Ok(Ok(_)) => "exchanged",
            Ok(Err(_)) => "refused",
            Err(_) => "failed",
        };
        metrics::describe_counter!(
            "tributary_oidc_code_exchanges_total",
            "Authorization codes brought to the identity provider"
        );
        metrics::counter!("tributary_oidc_code_exchanges_total", "outcome" => label).increment(1);
        match outcome {
            Ok(token) => token,
            Err(problem) => {
                tracing::warn!("the identity provider gives no token for a code: {problem}");
                Err(NoToken::Unavailable)
            }
        }
    }

    async fn ask_for_token(
        &self,
        endpoints: &Endpoints,
        exchange: &Exchange<'_>,
    ) -> Result<Result<String, NoToken>, String> {
        let Exchange { client_id, secret, redirect_url, code, verifier } = *exchange;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_url),
            ("code_verifier", verifier),
        ];
        let basic = secret.filter(|_| endpoints.takes_basic);
        if basic.is_none() {
            fields.push(("client_id", client_id));
            fields.extend(secret.map(|secret| ("client_secret", secret.as_str())));
        }
        let mut request = self.client.post(endpoints.token.clone());
        if let Some(secret) = basic {
            request = request.header(AUTHORIZATION, basic_of(client_id, secret)?);
        }
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(encoded(&fields)?);
        let url = endpoints.token.as_str();
        let (status, body) = self.answer(request, url).await?;
        if status == StatusCode::OK {
            let tokens: Tokens =
                serde_json::from_slice(&body).map_err(|error| format!("at {url}: no id_token: {}", place(&error)))?;
            return Ok(Ok(tokens.id_token));
        }
        match serde_json::from_slice::<TokenError>(&body) {
            Ok(TokenError { error }) if status == StatusCode::BAD_REQUEST && error == "invalid_grant" => {
                Ok(Err(NoToken::Refused))
            }
            // Error names are short ASCII; other content is not logged.
            Ok(TokenError { error }) if is_error_name(&error) => Err(format!("at {url}: {status}, {error}")),
            Ok(_) | Err(_) => Err(format!("at {url}: it answered {status}")),
        }
    }

    async fn fetch_keys(self: Arc<Self>) -> Option<KeySet> {
        let fetched = async {
            let url = match &self.jwks_url {
                Some(url) => url.clone(),
                None => self.discover().await?.jwks_uri,
            };
            KeySet::read(&self.get(&url).await?).map_err(|problem| format!("at {url}: {problem}"))
        };
        let fetched = fetched.await;
        let outcome = if fetched.is_ok() { "fetched" } else { "failed" };
        metrics::describe_counter!("tributary_oidc_key_fetches_total", "Fetches of the identity provider's keys");
        metrics::counter!("tributary_oidc_key_fetches_total", "outcome" => outcome).increment(1);
        fetched
            .inspect_err(|problem| tracing::warn!("the keys of the identity provider cannot be fetched: {problem}"))
            .ok()
    }

    async fn fetch_endpoints(self: Arc<Self>) -> Option<Endpoints> {
        let fetched = async {
            let found = self.discover().await?;
            Endpoints::of(found).map_err(|problem| format!("of {}: {problem}", self.issuer))
        };
        fetched
            .await
            .inspect_err(|problem| tracing::warn!("the endpoints of the identity provider cannot be used: {problem}"))
            .ok()
    }

    /// Fetches the provider's metadata, OpenID Connect Discovery 1.0 §4.
    async fn discover(&self) -> Result<Discovery, String> {
        let url = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let found: Discovery =
            serde_json::from_slice(&self.get(&url).await?).map_err(|error| format!("at {url}: {error}"))?;
        if found.issuer != self.issuer {
            return Err(format!("at {url}: it is the configuration of another issuer, {:?}", found.issuer));
        }
        safe_url("jwks_uri", &found.jwks_uri).map_err(|problem| format!("at {url}: {problem}"))?;
        Ok(found)
    }

    async fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        match self.answer(self.client.get(url), url).await? {
            (StatusCode::OK, body) => Ok(body),
            (status, _) => Err(format!("at {url}: it answered {status}")),
        }
    }

    async fn answer(&self, request: RequestBuilder, url: &str) -> Result<(StatusCode, Vec<u8>), String> {
        let failed = |error: reqwest::Error| format!("at {url}: {}", chain(&error.without_url()));
        let mut response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Err(self.proxy_failure(&error, url).await.unwrap_or_else(|| failed(error))),
        };
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > ANSWER_MAX_BYTES {
                return Err(format!("at {url}: the answer is longer than {ANSWER_MAX_BYTES} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok((response.status(), body))
    }

    async fn proxy_failure(&self, error: &reqwest::Error, url: &str) -> Option<String> {
        let failed = Proxy::default().blame(error, &url.parse().ok()?, self.connect_timeout).await?;
        Some(format!("at {url}: {}", failed.report()))
    }
}

impl Endpoints {
    fn of(found: Discovery) -> Result<Self, String> {
        let named = |name: &str, url: Option<String>| {
            safe_url(name, &url.ok_or_else(|| format!("it has no {name}, which a sign-in with a browser needs"))?)
        };
        // Without the field, RFC 8414's default applies; PKCE has no default.
        let methods = found.token_endpoint_auth_methods_supported;
        let takes = |method: &str| methods.as_ref().is_none_or(|all| all.iter().any(|one| one == method));
        if found.code_challenge_methods_supported.is_some_and(|all| all.iter().all(|method| method != "S256")) {
            return Err("it does no PKCE with S256".to_owned());
        }
        Ok(Self {
            authorization: named("authorization_endpoint", found.authorization_endpoint)?,
            token: named("token_endpoint", found.token_endpoint)?,
            takes_basic: takes("client_secret_basic"),
            names_itself: found.authorization_response_iss_parameter_supported,
        })
    }
}

/// Whether this may be the name of an OAuth error.
pub(super) fn is_error_name(text: &str) -> bool {
    (1..=40).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// `name=value&…`
pub(super) fn encoded(fields: &[(&str, &str)]) -> Result<String, String> {
    serde_html_form::to_string(fields).map_err(|error| error.to_string())
}

/// RFC 6749 §2.3.1: both parts are form-encoded first.
fn basic_of(client_id: &str, secret: &str) -> Result<HeaderValue, String> {
    let part = |text: &str| encoded(&[("", text)]).map(|pair| Zeroizing::new(pair.trim_start_matches('=').to_owned()));
    let credentials = Zeroizing::new(format!("{}:{}", *part(client_id)?, *part(secret)?));
    let text = Zeroizing::new(format!("Basic {}", STANDARD.encode(credentials.as_bytes())));
    let mut value = HeaderValue::from_str(&text).map_err(|error| error.to_string())?;
    value.set_sensitive(true);
    Ok(value)
}

fn safe_url(name: &str, text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(is_safe);
    url.ok_or_else(|| format!("{name} is no https:// URL: {text:?}"))
}

/// The position of a JSON error, without its content.
fn place(error: &serde_json::Error) -> String {
    format!("line {}, column {}", error.line(), error.column())
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
