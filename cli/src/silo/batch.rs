//! How a batch is divided.

use serde::Serialize;

use super::WrongRequest;
use super::figure::Figure;
use super::request::Request;
use super::rules::{REFERENCE_BATCH, REFERENCE_RATE, WARMUP_EPOCHS};

/// The batch of one step, and the learning rate for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Batch {
    pub(crate) target: Figure<u64>,
    pub(crate) per_gpu: Figure<u64>,
    /// Batches of all GPUs whose gradients make one step.
    pub(crate) accumulation: Figure<u64>,
    pub(crate) learning_rate: Figure<f64>,
    pub(crate) warmup_epochs: Figure<u64>,
}

/// Divides the target over GPUs of which each has room for so many examples; one at least.
pub(super) fn divide(request: &Request, room: u64) -> Result<Batch, WrongRequest> {
    let gpus = request.all_gpus();
    let target = Figure::given_or(request.target_batch, || {
        // Of a few hundred, and the same on each GPU.
        let together = gpus.saturating_mul(request.batch_per_gpu.unwrap_or(1));
        let value = REFERENCE_BATCH.next_multiple_of(together);
        Figure::assumed(
            value,
            format!("the least multiple of {together} (GPUs × per GPU, if given) from {REFERENCE_BATCH} on"),
        )
    });
    if target.value % gpus != 0 {
        let below = (target.value / gpus * gpus).max(gpus);
        let above = target.value.next_multiple_of(gpus);
        return Err(WrongRequest::Uneven { target: target.value, gpus, below, above });
    }
    let share = target.value / gpus;
    let per_gpu = Figure::given_or(request.batch_per_gpu, || {
        let value = largest_divisor(share, room);
        Figure::computed(value, format!("the most examples that fit ({room}) and divide target / GPUs ({share})"))
    });
    if !share.is_multiple_of(per_gpu.value) {
        let together = per_gpu.value.saturating_mul(gpus);
        let nearest = largest_divisor(share, per_gpu.value);
        return Err(WrongRequest::Accumulation {
            per_gpu: per_gpu.value,
            gpus,
            together,
            target: target.value,
            nearest,
        });
    }
    #[expect(clippy::cast_precision_loss, reason = "a batch is far below 2^53")]
    let rate = REFERENCE_RATE * target.value as f64 / REFERENCE_BATCH as f64;
    Ok(Batch {
        accumulation: Figure::computed(share / per_gpu.value, "target / (per GPU × GPUs)"),
        learning_rate: Figure::given_or(request.learning_rate, || {
            Figure::computed(rate, format!("in proportion to the batch: {REFERENCE_RATE} for {REFERENCE_BATCH}"))
        }),
        warmup_epochs: Figure::assumed(WARMUP_EPOCHS, "large batches begin with small steps"),
        target,
        per_gpu,
    })
}

/// The largest divisor up to a limit; 1 at least.
fn largest_divisor(of: u64, limit: u64) -> u64 {
    (1..=limit.min(of)).rev().find(|divisor| of.is_multiple_of(*divisor)).unwrap_or(1)
}
