//! Statements of a coordinator: JSON text with a signature, for verification without the coordinator.
//!
//! The signed text is sent and stored as it is, so verifiers need no canonical form. The signature is Ed25519 by the key of the audit log
//! over `context ‖ text`; each kind of statement has its own context. The text names the key; a verifier compares it with the key that it
//! trusts.

use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::audit::{AuditKey, Hex};

/// Reasons to reject a statement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadStatement {
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    #[error("it is of format {found}, and this program reads format {known}")]
    Format { found: u32, known: u32 },
    #[error("it is not signed by the key {0}, which it names: it was changed or cut off after it was exported")]
    Signature(AuditKey),
}

/// The text of a statement, and its signature by the coordinator that it names.
pub(crate) fn sign<T: Serialize>(context: &[u8], statement: &T, pair: &Ed25519KeyPair) -> (String, Hex<64>) {
    // Ids, numbers and text: this cannot fail.
    let text = serde_json::to_string(statement).unwrap_or_default();
    let mut signature = [0; 64];
    signature.copy_from_slice(pair.sign(&[context, text.as_bytes()].concat()).as_ref());
    (text, Hex(signature))
}

/// The statement, if the coordinator that it names signed it and it has this format.
///
/// # Errors
/// [`BadStatement`].
pub(crate) fn open<T: DeserializeOwned>(
    context: &[u8],
    known: u32,
    text: &str,
    signature: &Hex<64>,
) -> Result<T, BadStatement> {
    /// What every format has.
    #[derive(Deserialize)]
    struct Form {
        format: u32,
        coordinator: AuditKey,
    }
    let unreadable = |error: serde_json::Error| BadStatement::Unreadable(error.to_string());
    let Form { format: found, coordinator } = serde_json::from_str(text).map_err(unreadable)?;
    UnparsedPublicKey::new(&ED25519, coordinator.0)
        .verify(&[context, text.as_bytes()].concat(), &signature.0)
        .map_err(|_| BadStatement::Signature(coordinator))?;
    if found != known {
        return Err(BadStatement::Format { found, known });
    }
    serde_json::from_str(text).map_err(unreadable)
}
