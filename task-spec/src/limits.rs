//! Limits that hold for every task.

/// Largest cohort a round may have.
pub const MAX_COHORT: u32 = 65_536;
/// Longest deadline of a phase: 30 days.
pub const MAX_DEADLINE_MS: u64 = 30 * 24 * 3600 * 1000;
/// Largest cohort of a session of secure aggregation.
pub const MAX_SECURE_COHORT: u32 = 1024;
/// Smallest cohort of a session of secure aggregation: of two, each would learn the other's update from the sum.
pub const MIN_SECURE_COHORT: u32 = 3;
/// Fewest participants of a session of secure aggregation that apps take part in, and with which sessions start, unless they or
/// the task say otherwise: with the usual γ of 0.1 the smallest cohort in which one participant may collude with the coordinator.
pub const USUAL_SECURE_COHORT: u32 = 10;
/// Most metrics a task may name.
pub const MAX_METRICS: usize = 16;
/// The metric that strategies which follow the loss are about: the mean training loss of a participation.
pub const TRAINING_LOSS: &str = "train_loss";

/// Whether `text` is 1 to 64 letters, digits, `-`, `_` or `.`.
#[must_use]
pub fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
