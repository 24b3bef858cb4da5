//! The stored text about an abandoned place.

use wire::participant::{AbandonReason, RefusalCode};

/// The reason's code; for a refusal, also the code and meaning of the refusal.
pub(crate) fn detail(reason: AbandonReason, refusal: Option<RefusalCode>) -> String {
    match (reason, refusal) {
        (AbandonReason::Refused, Some(refusal)) => format!("{} {refusal}", prefix(refusal)),
        (AbandonReason::Refused, None) => "refused: it did not say what, but its own log does".to_owned(),
        (reason @ (AbandonReason::Conditions | AbandonReason::TrainingFailed | AbandonReason::ShuttingDown), _) => {
            reason.as_str().to_owned()
        }
    }
}

/// The prefix of the details of all refusals with this code, and of no others.
pub(crate) fn prefix(refusal: RefusalCode) -> String {
    format!("refused: {}:", refusal.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_finds_refusals_of_one_code() {
        for refusal in RefusalCode::ALL {
            let detail = detail(AbandonReason::Refused, Some(refusal));
            let found: Vec<_> =
                RefusalCode::ALL.into_iter().filter(|code| detail.starts_with(&prefix(*code))).collect();
            assert_eq!(found, [refusal], "{detail}");
        }
    }
}
