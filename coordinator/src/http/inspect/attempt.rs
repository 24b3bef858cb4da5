//! Selects the attempt for a view.

use federation::id::RoundKey;
use store::entity::round::RoundRow;
use store::{StoreError, Transaction};

/// An attempt at a round; the latest by default.
pub(super) async fn attempt_at(
    tx: &mut Transaction<'_>,
    round: RoundKey,
    attempt: Option<u32>,
) -> Result<Option<RoundRow>, StoreError> {
    match attempt {
        Some(attempt) => tx.round_attempt(round.attempt(attempt)).await,
        None => tx.round(round).await,
    }
}
