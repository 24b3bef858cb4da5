//! Limits for every task.

/// Maximum cohort of a round.
pub const MAX_COHORT: u32 = 65_536;
/// Maximum deadline of a phase: 30 days.
pub const MAX_DEADLINE_MS: u64 = 30 * 24 * 3600 * 1000;
/// Maximum cohort of a secure aggregation session.
pub const MAX_SECURE_COHORT: u32 = 1024;
/// Minimum cohort of a secure aggregation session: with two participants, each would learn the other's update from the
/// sum.
pub const MIN_SECURE_COHORT: u32 = 3;
/// Default minimum cohort of secure aggregation sessions, for starting one and for taking part: with the usual γ of
/// 0.1, the smallest cohort in which one participant may collude with the coordinator.
pub const USUAL_SECURE_COHORT: u32 = 10;
/// Maximum number of metrics of a task.
pub const MAX_METRICS: usize = 16;
/// Maximum of `rounds.stop_after`.
pub const MAX_STOP_AFTER: u32 = 1000;
/// The metric used by strategies that follow the loss: the mean training loss of a participation.
pub const TRAINING_LOSS: &str = "train_loss";

/// Whether `text` is 1 to 64 letters, digits, `-`, `_` or `.`, and not of dots alone: names become folders, and `..` leads out of one.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let is_of_dots = text.bytes().all(|byte| byte == b'.');
    (1..=64).contains(&text.len())
        && !is_of_dots
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
