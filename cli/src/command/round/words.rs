//! Texts about rounds, shared by all displays.

use wire::DeviceReason;
use wire::inspect::{CompressionView, RoundView};

use crate::output::{bytes, figure};

/// A round's state, and the reason if it failed.
pub(super) fn state(round: &RoundView) -> String {
    match round.failure {
        Some(reason) => format!("{}({reason})", round.state),
        None => round.state.to_string(),
    }
}

/// The metrics of its participants.
pub(super) fn metrics(round: &RoundView) -> String {
    let words: Vec<_> = round.metrics.iter().map(|(name, metric)| format!("{name} {}", figure(metric.value))).collect();
    words.join(", ")
}

/// Why a device did a part of the work on a sum.
pub(super) fn because(reason: DeviceReason) -> &'static str {
    match reason {
        DeviceReason::AskedFor => "the configuration names it",
        DeviceReason::BestPresent => "the first GPU that passed its self-test",
        DeviceReason::NoGpu => "no GPU passed a self-test",
        DeviceReason::TransferCostsMore => "the way to the GPU costs more",
        DeviceReason::ChosenFailed => "the chosen one failed",
    }
}

/// Size and distortion of compressed updates.
pub(crate) fn uploads(view: &CompressionView) -> String {
    let error = match (view.added_error, view.norm) {
        (Some(error), Some(norm)) => {
            format!("; it changed an update of length {norm:.3} by {:.1} % on average", 100.0 * error)
        }
        _ => String::new(),
    };
    format!("{}, {} an update, {:.1} × smaller than in floats{error}", view.codec, bytes(view.upload_bytes), view.ratio)
}
