//! Stores an unrepeatable noised sum before any other use of it.
//!
//! Noise without a seed (OpenDP's) differs at every draw, and two noised sums of one exact sum are two releases: their mean has half the
//! variance. So the noised sum itself is stored, sealed with the key of its release, in one transaction won by the first worker, and
//! everything that leaves memory derives from the stored value. A worker that dies earlier has disclosed its draw to nothing: not to the
//! database, not to a blob (written later), not to the log or metrics (without values). A write-ahead log or a freed page contains at most
//! data sealed by a key that is destroyed before publication. A worker that dies later finds the stored draw again. So each attempt has one
//! visible draw, even for thieves of the data folder, and a repeated step releases the same bits.
//!
//! The noised sum is stored instead of the noise, since the noise would reveal the exact sum.

use std::sync::Arc;

use federation::id::Attempt;
use federation::round::Round;
use learning::NoisedSum;
use store::{StoreError, Transaction};
use zeroize::Zeroizing;

use super::noise::{must_be_open, opened, place};
use crate::privacy::ledger::piece_of_a_draw;
use crate::work::engine::lease::Lease;
use crate::work::summing::sums::blocking;
use crate::work::{Environment, StepError};

/// Bytes of a piece: sealed it fits into a secret of at most 4096 bytes.
const PIECE: usize = 4000;

/// Stores a draw unless the attempt has one; returns the stored one.
pub(super) async fn keep_draw(
    env: &Environment,
    lease: &Lease,
    round: &Round,
    drawn: NoisedSum,
) -> Result<NoisedSum, StepError> {
    let (attempt, sealer) = (round.key, Arc::clone(&env.sealer));
    let sealed = blocking(move || {
        let bytes = Zeroizing::new(drawn.to_bytes());
        let seal =
            |(n, piece): (usize, &[u8])| sealer.seal_for_release(attempt, &place(attempt, &piece_of_a_draw(n)), piece);
        let sealed: Result<Vec<_>, StoreError> = bytes.chunks(PIECE).enumerate().map(seal).collect();
        Ok::<_, StepError>(sealed?)
    })
    .await?;
    env.fail_point.reached("release_sum: before the draw")?;
    let sealed = &sealed;
    let kept = env
        .store
        .transact("keep a draw", |tx| {
            Box::pin(async move {
                must_be_open(env, lease, round, tx).await?;
                Ok::<_, StepError>(first_of(tx, attempt, sealed).await?)
            })
        })
        .await?;
    env.fail_point.reached("release_sum: after the draw")?;
    let sealer = Arc::clone(&env.sealer);
    blocking(move || {
        let mut bytes = Zeroizing::new(Vec::new());
        for (n, piece) in kept.iter().enumerate() {
            let purpose = piece_of_a_draw(n);
            bytes.extend_from_slice(&opened(&sealer, attempt, &purpose, piece)?);
        }
        let sum = NoisedSum::from_bytes(&bytes);
        sum.map_err(|error| StepError::unworkable(format!("the draw that is kept of {}: {error}", attempt.round_key())))
    })
    .await
}

/// All pieces of the first draw; otherwise these.
async fn first_of(tx: &mut Transaction<'_>, attempt: Attempt, pieces: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut there = Vec::new();
    while let Some(piece) = tx.secret(attempt, &piece_of_a_draw(there.len())).await? {
        there.push(piece);
    }
    if !there.is_empty() {
        return Ok(there);
    }
    for (n, piece) in pieces.iter().enumerate() {
        there.push(tx.put_secret_if_absent(attempt, &piece_of_a_draw(n), piece).await?);
    }
    Ok(there)
}
