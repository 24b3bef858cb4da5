//! Whether a failed request may be tried again, and when.

use std::time::Duration;

use rand::Rng;
use wire::problem::{Problem, ProblemType};

use super::TransportError;

/// What an error means for the participant, whatever it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may work later, at the earliest after this time.
    Again(Option<Duration>),
    /// The round, or this participant's place in it, is gone.
    RoundOver,
    /// The participant was revoked.
    Revoked,
    /// The certificate has ended.
    Expired,
    /// The coordinator refuses the request itself: the same one will never be taken.
    Refused,
}

/// Judges an error.
#[must_use]
pub fn judge(error: &TransportError) -> Verdict {
    match error {
        TransportError::Unreachable(_) | TransportError::Protocol(_) => Verdict::Again(None),
        TransportError::Problem { problem, retry_after } => judge_problem(problem, *retry_after),
    }
}

fn judge_problem(problem: &Problem, retry_after: Option<Duration>) -> Verdict {
    let Some(kind) = problem.problem_type() else {
        // A kind from a newer coordinator: its status says enough.
        return match problem.status {
            408 | 425 | 429 | 500..=599 => Verdict::Again(retry_after),
            404 | 409 | 410 => Verdict::RoundOver,
            _ => Verdict::Refused,
        };
    };
    match kind {
        ProblemType::RateLimited | ProblemType::Unavailable | ProblemType::Internal | ProblemType::TooSlow => {
            Verdict::Again(retry_after)
        }
        ProblemType::PhaseClosed
        | ProblemType::NotAssigned
        | ProblemType::DifferentInput
        | ProblemType::DifferentMessage
        | ProblemType::TaskStatus
        | ProblemType::NotFound => Verdict::RoundOver,
        ProblemType::CertificateRevoked => Verdict::Revoked,
        ProblemType::CertificateExpired => Verdict::Expired,
        // Damaged on the way: the same bytes may arrive whole next time.
        ProblemType::DigestMismatch => Verdict::Again(retry_after),
        _ => Verdict::Refused,
    }
}

/// Exponential back-off: the wait doubles from `first` to `most`, each time spread over its upper half, so that
/// participants that lost the coordinator together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// After the first failure.
    pub first: Duration,
    /// Never longer, unless the coordinator asks for it.
    pub most: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { first: Duration::from_millis(500), most: Duration::from_secs(60) }
    }
}

/// Longest `Retry-After` that is obeyed.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(3600);

impl RetryPolicy {
    /// How long to wait after failure number `failures` (from 1) in a row; never shorter than the coordinator asked.
    #[must_use]
    pub fn delay(&self, failures: u32, retry_after: Option<Duration>, rng: &mut impl Rng) -> Duration {
        let doubled = self.first.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(self.most);
        let spread = doubled / 2 + (doubled / 2).mul_f64(unit(rng));
        match retry_after.map(|asked| asked.min(LONGEST_RETRY_AFTER)) {
            // The coordinator's moment is everybody's: the spread comes on top.
            Some(asked) => asked + spread.min(asked.max(self.first) / 4),
            None => spread,
        }
    }
}

/// Uniform in `[0, 1)`.
fn unit(rng: &mut impl Rng) -> f64 {
    f64::from(rng.next_u32()) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha20Rng;

    use super::*;

    fn problem(kind: ProblemType) -> TransportError {
        Problem::new(kind, "test").into()
    }

    #[test]
    fn every_kind_of_problem_has_its_verdict() {
        for (kind, verdict) in [
            (ProblemType::RateLimited, Verdict::Again(None)),
            (ProblemType::Unavailable, Verdict::Again(None)),
            (ProblemType::PhaseClosed, Verdict::RoundOver),
            (ProblemType::NotAssigned, Verdict::RoundOver),
            (ProblemType::DifferentInput, Verdict::RoundOver),
            (ProblemType::DifferentMessage, Verdict::RoundOver),
            (ProblemType::SessionRejected, Verdict::Refused),
            (ProblemType::CertificateRevoked, Verdict::Revoked),
            (ProblemType::CertificateExpired, Verdict::Expired),
            (ProblemType::WrongLength, Verdict::Refused),
            (ProblemType::EnrollmentRefused, Verdict::Refused),
        ] {
            assert_eq!(judge(&problem(kind)), verdict, "{kind:?}");
        }
        assert_eq!(judge(&TransportError::Unreachable("gone".into())), Verdict::Again(None));
    }

    #[test]
    fn kinds_from_the_future_are_judged_by_their_status() {
        for (status, verdict) in
            [(503, Verdict::Again(Some(Duration::from_secs(3)))), (409, Verdict::RoundOver), (422, Verdict::Refused)]
        {
            let problem =
                Problem { kind: "urn:tributary:problem:new".into(), status, ..Problem::new(ProblemType::Internal, "") };
            let error =
                TransportError::Problem { problem: Box::new(problem), retry_after: Some(Duration::from_secs(3)) };
            assert_eq!(judge(&error), verdict);
        }
    }

    #[test]
    fn waits_double_up_to_a_bound_and_are_spread() {
        let policy = RetryPolicy { first: Duration::from_secs(1), most: Duration::from_secs(10) };
        let mut rng = ChaCha20Rng::from_seed([3; 32]);
        for (failures, longest) in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 10.0), (1000, 10.0)] {
            for _ in 0..50 {
                let wait = policy.delay(failures, None, &mut rng).as_secs_f64();
                assert!((longest / 2.0..longest).contains(&wait), "{failures}: {wait}");
            }
        }
        assert_ne!(policy.delay(1, None, &mut rng), policy.delay(1, None, &mut rng));
    }

    #[test]
    fn the_coordinators_wish_is_obeyed_within_reason() {
        let policy = RetryPolicy::default();
        let mut rng = ChaCha20Rng::from_seed([3; 32]);
        let asked = Duration::from_secs(30);
        let wait = policy.delay(1, Some(asked), &mut rng);
        assert!(wait >= asked && wait < asked * 5 / 4, "{wait:?}");
        let wait = policy.delay(1, Some(Duration::from_secs(1 << 40)), &mut rng);
        assert!(wait < LONGEST_RETRY_AFTER * 5 / 4, "{wait:?}");
    }
}
