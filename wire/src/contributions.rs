//! The sums that contain a participant's updates, as a signed [statement] for a participant that withdraws.

use federation::id::{ParticipantId, TaskId};
use federation::time::Timestamp;
use ring::signature::Ed25519KeyPair;
use serde::{Deserialize, Serialize};

use crate::audit::{AuditKey, Hex};
use crate::inspect::EpsilonView;
use crate::statement::{self, BadStatement};

/// Version of the format.
pub const FORMAT: u32 = 1;
const CONTEXT: &[u8] = b"tributary contributions 1\0";

/// A coordinator's statement about the contributions of a participant to all its tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contributions {
    /// [`FORMAT`].
    pub format: u32,
    /// The coordinator, by the key that signs its audit log and this statement.
    pub coordinator: AuditKey,
    pub participant: ParticipantId,
    /// Since when it may not take part.
    pub revoked_at: Option<Timestamp>,
    /// The tasks that it contributed to, oldest first.
    pub tasks: Vec<TaskContributions>,
    /// Time of the signature.
    pub signed_at: Timestamp,
    /// Name and version of the signing program.
    pub program: String,
}

/// The contributions to one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskContributions {
    pub task: TaskId,
    /// Name of the task.
    pub name: String,
    /// The completed rounds that accepted an update of the participant, by number. Under secure aggregation an accepted update may be
    /// missing from the sum.
    pub rounds: Vec<ContributedRound>,
    /// The rounds in progress that have accepted an update of the participant: the versions that they publish may depend on it.
    #[serde(default)]
    pub open_rounds: Vec<OpenRound>,
    /// The last version without a contribution of the participant. All later ones may depend on one.
    pub version_before: u32,
    /// Whether the file of that version is kept, so that it can be restored.
    #[serde(default = "yes")]
    pub version_before_is_kept: bool,
    /// The newest version.
    pub newest_version: u32,
    /// What the releases of all rounds reveal about a participant at most; absent without a privacy mechanism, and if the ledger is damaged.
    pub privacy: Option<SpentOn>,
}

fn yes() -> bool {
    true
}

/// A round in progress with an update of the participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRound {
    pub round: u32,
    pub attempt: u32,
}

/// A round with an update of the participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContributedRound {
    pub round: u32,
    pub attempt: u32,
    /// The version that it published.
    pub version: u32,
}

/// Privacy spent on a participant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpentOn {
    pub epsilon: EpsilonView,
    pub delta: Option<f64>,
}

/// The statement with its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SignedContributions {
    /// JSON of the statement: exactly the text that was signed.
    pub statement: String,
    /// Ed25519: 128 hexadecimal digits.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub signature: Hex<64>,
}

impl Contributions {
    /// Signs the statement with the key of the coordinator that it names.
    #[must_use]
    pub fn sign(&self, pair: &Ed25519KeyPair) -> SignedContributions {
        let (statement, signature) = statement::sign(CONTEXT, self, pair);
        SignedContributions { statement, signature }
    }
}

impl SignedContributions {
    /// Returns the statement if the coordinator that it names signed it. The caller checks whether that coordinator is the expected one.
    ///
    /// # Errors
    /// [`BadStatement`].
    pub fn open(&self) -> Result<Contributions, BadStatement> {
        statement::open(CONTEXT, FORMAT, &self.statement, &self.signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_statement_is_rejected() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let statement = Contributions {
            format: FORMAT,
            coordinator: crate::provenance::key_of(&pair),
            participant: "00000000-0000-4000-8000-000000000001".parse().unwrap(),
            revoked_at: Some(Timestamp(5)),
            tasks: Vec::new(),
            signed_at: Timestamp(6),
            program: "a test".to_owned(),
        };
        let signed = statement.sign(&pair);
        assert_eq!(signed.open(), Ok(statement.clone()));
        let changed = SignedContributions { statement: signed.statement.replace(":5", ":4"), ..signed.clone() };
        assert_eq!(changed.open(), Err(BadStatement::Signature(statement.coordinator)));
        let later = Contributions { format: 2, ..statement }.sign(&pair);
        assert_eq!(later.open(), Err(BadStatement::Format { found: 2, known: FORMAT }));
        let cut = SignedContributions { statement: signed.statement[..9].to_owned(), ..signed };
        assert!(matches!(cut.open(), Err(BadStatement::Unreadable(_))));
    }
}
