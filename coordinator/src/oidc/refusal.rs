//! Reasons for rejecting a token.

use federation::time::Timestamp;

/// Why a token is invalid. The texts do not quote the token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("it is no signed JSON Web Token that this coordinator can read: {0}")]
    Malformed(&'static str),
    #[error("it is signed in a way that is not accepted here, only {0}")]
    Algorithm(String),
    #[error("it does not name the key that signed it (kid)")]
    NoKeyNamed,
    #[error("its issuer publishes no such key as it names (kid) for the way in which it is signed")]
    UnknownKey,
    #[error("its signature is wrong")]
    Signature,
    #[error("it is of another issuer than the one that is trusted here")]
    Issuer,
    #[error("it is for another audience")]
    Audience,
    #[error("it does not answer the request that was begun in this browser (nonce)")]
    Nonce,
    #[error("its claim {0} is missing, or is not what it has to be")]
    Claim(&'static str),
    #[error("it expired at {0}; get a new one")]
    Expired(Timestamp),
    #[error("it counts from {0} only")]
    NotYet(Timestamp),
    #[error("it was issued at {0}, which is too long ago here; get a new one")]
    TooOld(Timestamp),
}
