//! Identity providers: who somebody is, and what that allows, by a token that the provider signed (OpenID Connect Core 1.0, RFC 7519).
//!
//! A request with such a token is judged by what the token says now, and nothing of it is stored. A browser is sent to the provider
//! and comes back with a code, for which the provider gives a token; of that, a sign-in keeps the values that counted. Signatures
//! are verified by *ring*, times are judged by the coordinator's clock.

mod claims;
mod code;
mod kept;
mod keys;
mod provider;
mod refusal;
mod token;

use std::sync::Arc;

use federation::id::Digest;
use federation::time::{Clock, Timestamp};
use store::entity::sign_in::KnownIdentity;
use wire::admin::Role;

use crate::config::OidcConfig;
use claims::{Claims, For};
pub(crate) use code::{CALLBACK, Proof};
use code::{CODE_MAX_BYTES, Client};
use kept::Missing;
pub(crate) use provider::OidcError;
use provider::{NoToken, Provider, is_error_name};
use refusal::Refusal;
use token::Token;

/// A token beyond this is refused unread; headers of requests are hardly longer.
const TOKEN_MAX_BYTES: usize = 16 << 10;

/// The outcome of a token, or of a code, that says nothing of use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unidentified {
    /// It does not count.
    #[error("the identity token is refused: {0}")]
    Refused(#[from] Refusal),
    /// Somebody is known by it to whom nothing is allowed.
    #[error("the identity token counts, but none of the values of its claim {claim:?} has a role here")]
    NoRole { claim: String, issuer: String, subject_sha256: Digest },
    /// It cannot be judged at present.
    #[error("the keys of the identity provider cannot be fetched at present; try again later")]
    Unavailable,
    /// The provider sent the browser back without a code, for this reason.
    #[error("the identity provider did not sign you in: {0}")]
    Declined(String),
    /// The provider gives no token for the code.
    #[error("the identity provider does not take what this browser brought; sign in again")]
    Code,
    /// The answer that the browser brought is another provider's.
    #[error("the answer is not of the identity provider that is trusted here")]
    AnotherIssuer,
    /// The provider is away, or does not do what a sign-in with a browser needs.
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

/// Somebody whom the provider knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Who it is, and what allows it something.
    pub(crate) known: KnownIdentity,
    pub(crate) role: Role,
    /// The tasks that this is for, by id or name; `None`: everything.
    pub(crate) tasks: Option<Vec<String>>,
    /// From then on the token does not count.
    pub(crate) until: Timestamp,
}

/// What a browser brought back from the provider, RFC 6749 §4.1.2 and RFC 9207 §2.
pub(crate) struct BroughtBack<'b> {
    pub(crate) code: Option<&'b str>,
    pub(crate) error: Option<&'b str>,
    pub(crate) issuer: Option<&'b str>,
}

/// The provider whose tokens count.
pub(crate) struct Oidc {
    config: OidcConfig,
    provider: Arc<Provider>,
    /// If browsers may sign in.
    client: Option<Client>,
}

impl Oidc {
    /// Sets up what is needed to ask the provider; asks nothing yet.
    ///
    /// # Errors
    /// [`OidcError`].
    pub(crate) fn open(config: &OidcConfig, clock: &Arc<dyn Clock>) -> Result<Self, OidcError> {
        let client = config.client.as_ref().map(|client| Client::open(client, &config.issuer)).transpose()?;
        Ok(Self { provider: Arc::new(Provider::open(config, clock)?), config: config.clone(), client })
    }

    /// Whether this looks like a token of a provider: no secret of ours has a dot.
    pub(crate) fn is_meant(secret: &str) -> bool {
        secret.bytes().filter(|byte| *byte == b'.').count() == 2
    }

    /// Who shows this token at `now`.
    ///
    /// # Errors
    /// [`Unidentified`].
    pub(crate) async fn identify(&self, text: &str, now: Timestamp) -> Result<Identity, Unidentified> {
        self.identify_for(text, For::Service, now).await
    }

    /// The provider's name for whoever may sign in there; `None` if no browser may.
    pub(crate) fn name(&self) -> Option<&str> {
        self.client.as_ref().map(|client| client.name.as_str())
    }

    /// Where a browser signs in; `None` if none may.
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

    /// Who comes back with this from where [`Self::authorization_url`] has led.
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

    /// What is allowed now to somebody who signed in before, until then.
    ///
    /// # Errors
    /// [`Unidentified`], also if another provider is trusted by now.
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

    /// What somebody may do: the highest role that a value of the claim has, for the tasks of all values that have this role.
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
