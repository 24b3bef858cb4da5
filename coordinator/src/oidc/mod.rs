//! Identity providers: authenticates operators by tokens signed by the provider (OpenID Connect Core 1.0, RFC 7519).
//!
//! A token in a request is evaluated on each request, without storing it. A browser is sent to the provider and returns with a code; the
//! coordinator exchanges the code for a token. The sign-in keeps the token's relevant values. *ring* verifies signatures, and the
//! coordinator's clock determines validity.

mod cached;
mod claims;
mod code;
mod keys;
mod provider;
mod refusal;
mod token;
mod unambiguous;

use std::sync::Arc;

use federation::id::Digest;
use federation::time::{Clock, Timestamp};
use store::entity::sign_in::KnownIdentity;
use wire::admin::Role;

use crate::config::OidcConfig;
use cached::Missing;
use claims::{Claims, For};
pub(crate) use code::{CALLBACK, Proof};
use code::{CODE_MAX_BYTES, Client};
pub(crate) use provider::OidcError;
use provider::{NoToken, Provider, is_error_name};
use refusal::Refusal;
use token::Token;

/// Maximum size of a token; larger ones are rejected unread, since request headers are hardly longer.
const TOKEN_MAX_BYTES: usize = 16 << 10;

/// A token or code without a usable identity.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unidentified {
    /// The token is invalid.
    #[error("the identity token is refused: {0}")]
    Refused(#[from] Refusal),
    /// Valid identity without a role.
    #[error("the identity token counts, but none of the values of its claim {claim:?} has a role here")]
    NoRole { claim: String, issuer: String, subject_sha256: Digest },
    /// The token cannot be verified at present.
    #[error("the keys of the identity provider cannot be fetched at present; try again later")]
    Unavailable,
    /// The provider returned the browser without a code, for this reason.
    #[error("the identity provider did not sign you in: {0}")]
    Declined(String),
    /// The provider rejected the code.
    #[error("the identity provider does not take what this browser brought; sign in again")]
    Code,
    /// The response comes from another provider.
    #[error("the answer is not of the identity provider that is trusted here")]
    AnotherIssuer,
    /// The provider is unavailable, or does not support browser sign-ins.
    #[error(
        "the identity provider does not answer as it should at present; try again later, and the coordinator's log says why"
    )]
    Away,
}

impl From<Missing> for Unidentified {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::Unknown => Self::Refused(Refusal::UnknownKey),
            Missing::Unavailable => Self::Unavailable,
        }
    }
}

/// An account at the provider, with its permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The account and the claim values behind its permissions.
    pub(crate) known: KnownIdentity,
    pub(crate) role: Role,
    /// The tasks in scope, by id or name; `None` means all.
    pub(crate) tasks: Option<Vec<String>>,
    /// The token's expiry.
    pub(crate) until: Timestamp,
}

/// The parameters of the provider's redirect, RFC 6749 §4.1.2 and RFC 9207 §2.
pub(crate) struct BroughtBack<'b> {
    pub(crate) code: Option<&'b str>,
    pub(crate) error: Option<&'b str>,
    pub(crate) issuer: Option<&'b str>,
}

pub(crate) struct Oidc {
    config: OidcConfig,
    provider: Arc<Provider>,
    /// The client, if browser sign-in is configured.
    client: Option<Client>,
}

impl Oidc {
    /// Prepares the client, without contacting the provider.
    ///
    /// # Errors
    /// [`OidcError`].
    pub(crate) fn open(config: &OidcConfig, clock: &Arc<dyn Clock>) -> Result<Self, OidcError> {
        let client = config.client.as_ref().map(|client| Client::open(client, &config.issuer)).transpose()?;
        Ok(Self { provider: Arc::new(Provider::open(config, clock)?), config: config.clone(), client })
    }

    /// Whether this looks like a provider's token: our secrets contain no dots.
    pub(crate) fn is_meant(secret: &str) -> bool {
        secret.bytes().filter(|byte| *byte == b'.').count() == 2
    }

    /// Authenticates the bearer of this token at `now`.
    ///
    /// # Errors
    /// [`Unidentified`].
    pub(crate) async fn identify(&self, text: &str, now: Timestamp) -> Result<Identity, Unidentified> {
        self.identify_for(text, For::Service, now).await
    }

    /// The provider's name for its users; `None` without browser sign-in.
    pub(crate) fn name(&self) -> Option<&str> {
        self.client.as_ref().map(|client| client.name.as_str())
    }

    /// The URL for browser sign-in; `None` without it.
    ///
    /// # Errors
    /// [`Unidentified`].
    pub(crate) async fn authorization_url(
        &self,
        proof: &Proof,
        now: Timestamp,
    ) -> Result<Option<String>, Unidentified> {
        let Some(client) = &self.client else { return Ok(None) };
        let endpoints = self.provider.endpoints(now).await.map_err(|_| Unidentified::Away)?;
        client.authorization_url(&endpoints, proof).map(Some).map_err(|problem| {
            tracing::warn!("the identity provider cannot be told who asks: {problem}");
            Unidentified::Away
        })
    }

    /// Authenticates a browser returning from [`Self::authorization_url`].
    ///
    /// # Errors
    /// [`Unidentified`].
    pub(crate) async fn identify_by_code(
        &self,
        brought: &BroughtBack<'_>,
        proof: &Proof,
        now: Timestamp,
    ) -> Result<Identity, Unidentified> {
        let client = self.client.as_ref().ok_or(Unidentified::Code)?;
        if brought.issuer.is_some_and(|issuer| issuer != self.config.issuer) {
            return Err(Unidentified::AnotherIssuer);
        }
        if let Some(error) = brought.error {
            let told = if is_error_name(error) { error } else { "it gives no reason that can be shown" };
            return Err(Unidentified::Declined(told.to_owned()));
        }
        let code = brought.code.filter(|code| (1..=CODE_MAX_BYTES).contains(&code.len())).ok_or(Unidentified::Code)?;
        let endpoints = self.provider.endpoints(now).await.map_err(|_| Unidentified::Away)?;
        if endpoints.names_itself && brought.issuer.is_none() {
            return Err(Unidentified::AnotherIssuer);
        }
        let turn = client.exchanges.try_acquire().map_err(|_| Unidentified::Away)?;
        let token = self.provider.exchange(&endpoints, &client.exchange(code, proof)).await;
        drop(turn);
        let token = token.map_err(|none| match none {
            NoToken::Refused => Unidentified::Code,
            NoToken::Unavailable => Unidentified::Away,
        })?;
        self.identify_for(&token, For::Client { id: &client.id, nonce: &proof.nonce }, now).await
    }

    /// The current permissions of an earlier sign-in, with its expiry.
    ///
    /// # Errors
    /// [`Unidentified`], also if the trusted provider has changed.
    pub(crate) fn recall(&self, known: &KnownIdentity, until: Timestamp) -> Result<Identity, Unidentified> {
        if known.issuer != self.config.issuer {
            return Err(Refusal::Issuer.into());
        }
        self.allow(known.subject_sha256, &known.claim_values, until)
    }

    async fn identify_for(&self, text: &str, of: For<'_>, now: Timestamp) -> Result<Identity, Unidentified> {
        if text.len() > TOKEN_MAX_BYTES {
            return Err(Refusal::Malformed("it is too long").into());
        }
        let token = Token::read(text, &self.config.algorithms)?;
        let keys = self.provider.keys(&token.kid, token.algorithm, now).await?;
        if !keys.verify(&token) {
            return Err(Refusal::Signature.into());
        }
        let Claims { subject, values, until } = Claims::judge(&token.payload, &self.config, of, now)?;
        let subject_sha256 = crate::digest(format!("{}\n{subject}", self.config.issuer).as_bytes());
        self.allow(subject_sha256, &values, until)
    }

    /// The permissions of an account: the highest role of its claim values, for the tasks of all values with this role.
    fn allow(&self, subject_sha256: Digest, values: &[String], until: Timestamp) -> Result<Identity, Unidentified> {
        let OidcConfig { issuer, claim, roles, .. } = &self.config;
        let granted: Vec<_> = values.iter().filter_map(|value| roles.get_key_value(value)).collect();
        let role = granted.iter().map(|(_, grant)| grant.role).max();
        let role =
            role.ok_or_else(|| Unidentified::NoRole { claim: claim.clone(), issuer: issuer.clone(), subject_sha256 })?;
        let of_role = granted.iter().filter(|(_, grant)| grant.role == role).map(|(_, grant)| grant.tasks.clone());
        let tasks: Option<Vec<_>> = of_role.collect();
        let claim_values = granted.into_iter().map(|(value, _)| value.clone()).collect();
        let known = KnownIdentity { issuer: issuer.clone(), subject_sha256, claim_values };
        Ok(Identity { known, role, tasks: tasks.map(|tasks| tasks.concat()), until })
    }
}
