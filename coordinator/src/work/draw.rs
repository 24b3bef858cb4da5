//! A noised sum that cannot be drawn a second time, stored before anything else sees it.
//!
//! Noise without a seed (OpenDP's) is another one whenever it is drawn, and two noised sums of one exact sum are two releases:
//! their mean has half the variance. So the noised sum itself is stored, sealed with the key of its release, in one transaction
//! that the first worker wins, and whatever leaves memory is made from what that transaction stored. Whoever dies before it has
//! shown its draw to nobody: not to the database, not to a blob (blobs are written after it), not to the log or a metric (none
//! tells of values), and in a log of writes or a freed page lies at most what a key seals that is destroyed before a version
//! is published. Whoever dies after it finds it again. Then each attempt has one draw that anybody can see, thieves of the
//! data folder included, and a repeated step releases the same bits.
//!
//! It is the noised sum and not the noise that is kept, so that the sum without noise cannot be had from it.

use std::sync::Arc;

use federation::id::Attempt;
use federation::round::Round;
use learning::NoisedSum;
use store::{StoreError, Transaction};
use zeroize::Zeroizing;

use super::lease::Lease;
use super::noise::{must_be_open, opened, place};
use super::sums::blocking;
use super::{Environment, StepError};
use crate::ledger::piece_of_a_draw;

/// Bytes of a piece: sealed they fit into a secret, which has room for 4096.
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

/// All pieces of the first draw; these if there is none.
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
