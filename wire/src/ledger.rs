//! A task's privacy ledger, as a signed [statement].

use federation::id::TaskId;
use federation::time::Timestamp;
use ring::signature::Ed25519KeyPair;
use serde::{Deserialize, Serialize};
use task_spec::PrivacySpec;

use crate::audit::{AuditKey, Hex};
use crate::statement::{self, BadStatement};

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

impl LedgerExport {
    /// Signs the ledger with the key of the coordinator that it names.
    #[must_use]
    pub fn sign(&self, pair: &Ed25519KeyPair) -> SignedLedger {
        let (ledger, signature) = statement::sign(LEDGER, self, pair);
        SignedLedger { ledger, signature }
    }
}

impl SignedLedger {
    /// Returns the ledger if the coordinator that it names signed it. The caller checks whether that coordinator is the expected one.
    ///
    /// # Errors
    /// [`BadStatement`].
    pub fn open(&self) -> Result<LedgerExport, BadStatement> {
        statement::open(LEDGER, FORMAT, &self.ledger, &self.signature)
    }
}
