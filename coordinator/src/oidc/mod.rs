//! Identity providers: who somebody is, and what that allows, by a token that the provider signed (OpenID Connect Core 1.0, RFC 7519).
//!
//! Nothing of it is stored: each request is judged by what its token says now. Signatures are verified by *ring*, times are judged
//! by the coordinator's clock.

mod claims;
mod keys;
mod provider;
mod refusal;
mod token;

use std::sync::Arc;

use federation::id::Digest;
use federation::time::{Clock, Timestamp};
use wire::admin::Role;

use crate::config::OidcConfig;
use claims::Claims;
pub(crate) use provider::OidcError;
use provider::{NoKey, Provider};
use refusal::Refusal;
use token::Token;

/// A token beyond this is refused unread; headers of requests are hardly longer.
const TOKEN_MAX_BYTES: usize = 16 << 10;

/// The outcome of a token that says nothing of use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unidentified {
    /// It does not count.
    #[error("the identity token is refused: {0}")]
    Refused(#[from] Refusal),
    /// Somebody is known by it to whom nothing is allowed.
    #[error("the identity token counts, but none of the values of its claim {0:?} has a role here")]
    NoRole(String),
    /// It cannot be judged at present.
    #[error("the keys of the identity provider cannot be fetched at present; try again later")]
    Unavailable,
}

impl From<NoKey> for Unidentified {
    fn from(none: NoKey) -> Self {
        match none {
            NoKey::Unknown => Self::Refused(Refusal::UnknownKey),
            NoKey::Unavailable => Self::Unavailable,
        }
    }
}

/// Somebody whom the provider knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) issuer: String,
    /// SHA-256 of the issuer, a line feed, and the token's `sub`.
    pub(crate) subject_sha256: Digest,
    pub(crate) role: Role,
    /// The tasks that this is for, by id or name; `None`: everything.
    pub(crate) tasks: Option<Vec<String>>,
    /// From then on the token does not count.
    pub(crate) until: Timestamp,
}

/// The provider whose tokens count.
pub(crate) struct Oidc {
    config: OidcConfig,
    provider: Arc<Provider>,
}

impl Oidc {
    /// Sets up what is needed to ask the provider; asks nothing yet.
    ///
    /// # Errors
    /// [`OidcError`].
    pub(crate) fn open(config: &OidcConfig, clock: Arc<dyn Clock>) -> Result<Self, OidcError> {
        Ok(Self { provider: Arc::new(Provider::open(config, clock)?), config: config.clone() })
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
        if text.len() > TOKEN_MAX_BYTES {
            return Err(Refusal::Malformed("it is too long").into());
        }
        let token = Token::read(text, &self.config.algorithms)?;
        let keys = self.provider.keys(&token.kid, token.algorithm, now).await?;
        if !keys.verify(&token) {
            return Err(Refusal::Signature.into());
        }
        let claims = Claims::judge(&token.payload, &self.config, now)?;
        self.allow(claims)
    }

    /// What somebody may do: the highest role that a value of the claim has, for the tasks of all values that have this role.
    fn allow(&self, claims: Claims) -> Result<Identity, Unidentified> {
        let OidcConfig { issuer, claim, roles, .. } = &self.config;
        let granted: Vec<_> = claims.values.iter().filter_map(|value| roles.get(value)).collect();
        let role = granted.iter().map(|grant| grant.role).max();
        let role = role.ok_or_else(|| Unidentified::NoRole(claim.clone()))?;
        let of_role = granted.into_iter().filter(|grant| grant.role == role).map(|grant| grant.tasks.clone());
        let tasks: Option<Vec<_>> = of_role.collect();
        let subject_sha256 = crate::digest(format!("{issuer}\n{}", claims.subject).as_bytes());
        let (issuer, tasks) = (issuer.clone(), tasks.map(|tasks| tasks.concat()));
        Ok(Identity { issuer, subject_sha256, role, tasks, until: claims.until })
    }
}
