//! A task's privacy ledger, signed by its coordinator, for verification without it.
//!
//! As with [`crate::provenance`], the signed text is sent as it is. The signature is Ed25519 by the key of the audit log over
//! `"tributary privacy ledger export 1\0" ‖ text`. The text names that key; a verifier compares it with the key that it trusts.

use federation::id::TaskId;
use federation::time::Timestamp;
use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use task_spec::PrivacySpec;

use crate::audit::{AuditKey, Hex};

/// Version of the format.
pub const FORMAT: u32 = 1;
const LEDGER: &[u8] = b"tributary privacy ledger export 1\0";

/// A coordinator's statement about the releases of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LedgerExport {
    /// [`FORMAT`].
    pub format: u32,
    /// The coordinator, by the key that signs its audit log and this ledger.
    pub coordinator: AuditKey,
    pub task: TaskId,
    /// Name of the task.
    pub name: String,
    /// As the operator wrote it, with the computed noise multiplier filled in.
    pub privacy: PrivacySpec,
    /// All releases, oldest first.
    pub rows: Vec<ExportedRow>,
    /// Time of the signature.
    pub signed_at: Timestamp,
    /// Name and version of the signing program.
    pub program: String,
}

/// A row of the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedRow {
    /// The row as charged (`learning::privacy::LedgerRow`). `release.participants` is absent where privacy relies on the secrecy of the
    /// number.
    pub row: serde_json::Value,
    /// False if the round failed after its sum may have been opened.
    pub published: bool,
    /// When it was charged, before any part of it left.
    pub at: Timestamp,
}

/// A ledger with its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SignedLedger {
    /// JSON of the ledger: exactly the text that was signed.
    pub ledger: String,
    /// Ed25519: 128 hexadecimal digits.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub signature: Hex<64>,
}

/// Reasons to reject an exported ledger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLedger {
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    #[error("it is of format {0}, and this program reads format {FORMAT}")]
    Format(u32),
    #[error("it is not signed by the key {0}, which it names: it was changed or cut off after it was exported")]
    Signature(AuditKey),
}

impl LedgerExport {
    /// Signs the ledger with the key of the coordinator that it names.
    #[must_use]
    pub fn sign(&self, pair: &Ed25519KeyPair) -> SignedLedger {
        // Ids, numbers and text: this cannot fail.
        let ledger = serde_json::to_string(self).unwrap_or_default();
        let mut signature = [0; 64];
        signature.copy_from_slice(pair.sign(&signed(&ledger)).as_ref());
        SignedLedger { ledger, signature: Hex(signature) }
    }
}

impl SignedLedger {
    /// Returns the ledger if the coordinator that it names signed it. The caller checks whether that coordinator is the expected one.
    ///
    /// # Errors
    /// [`BadLedger`].
    pub fn open(&self) -> Result<LedgerExport, BadLedger> {
        /// What every format has.
        #[derive(Deserialize)]
        struct Form {
            format: u32,
            coordinator: AuditKey,
        }
        let unreadable = |error: serde_json::Error| BadLedger::Unreadable(error.to_string());
        let Form { format, coordinator } = serde_json::from_str(&self.ledger).map_err(unreadable)?;
        UnparsedPublicKey::new(&ED25519, coordinator.0)
            .verify(&signed(&self.ledger), &self.signature.0)
            .map_err(|_| BadLedger::Signature(coordinator))?;
        if format != FORMAT {
            return Err(BadLedger::Format(format));
        }
        serde_json::from_str(&self.ledger).map_err(unreadable)
    }
}

fn signed(ledger: &str) -> Vec<u8> {
    [LEDGER, ledger.as_bytes()].concat()
}
