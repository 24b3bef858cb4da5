//! Decides whether and when to retry a failed request.

use std::time::Duration;

use rand::Rng;
use wire::problem::{Problem, ProblemType};

use super::TransportError;

/// The meaning of an error for the participant, for any request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A retry may succeed, at the earliest after this time.
    Again(Option<Duration>),
    /// The round, or this participant's place in it, is gone.
    RoundOver,
    /// The participant was revoked.
    Revoked,
    /// The certificate has ended.
    Expired,
    /// The coordinator rejects the request itself: an identical one would fail again.
    Refused,
}

#[must_use]
pub fn judge(error: &TransportError) -> Verdict {
    match error {
        TransportError::Unreachable(_) | TransportError::Protocol(_) => Verdict::Again(None),
        TransportError::Problem { problem, retry_after } => judge_problem(problem, *retry_after),
    }
}

fn judge_problem(problem: &Problem, retry_after: Option<Duration>) -> Verdict {
    let Some(kind) = problem.problem_type() else {
        // A newer coordinator's problem type: its status suffices.
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
        | ProblemType::NotFound
        | ProblemType::VersionRemoved => Verdict::RoundOver,
        ProblemType::CertificateRevoked => Verdict::Revoked,
        ProblemType::CertificateExpired => Verdict::Expired,
        // It is signed anew each time.
        ProblemType::SignatureTime | ProblemType::SignatureReplayed => Verdict::Again(retry_after),
        // Damaged in transit: the same bytes may arrive intact next time.
        ProblemType::DigestMismatch => Verdict::Again(retry_after),
        // The manifest is sent again first.
        ProblemType::PartNotExpected => Verdict::Again(retry_after),
        _ => Verdict::Refused,
    }
}

/// Exponential back-off with full jitter: a wait is uniform between zero and a limit that doubles from `first` up to a
/// bound. Participants that lost the coordinator together therefore return spread out.
///
/// While the coordinator is unavailable the bound is `most`, which is then the time until all are back: n participants
/// make 2n / `most` requests per second, 670 for 5,000 with the default. A long `come_back` means many more participants, so the bound
/// between check-ins is longer: [`RetryPolicy::most_of_many`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// After the first failure.
    pub first: Duration,
    /// Maximum while the coordinator is unavailable, unless it requested a longer wait.
    pub most: Duration,
    /// Maximum after an answer that will not change for a while, so that waiting is harmless.
    pub most_in_vain: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { first: Duration::from_millis(500), most: Duration::from_secs(15), most_in_vain: Duration::from_secs(60) }
    }
}

/// A longer `come_back` means so many participants that the coordinator spreads their check-ins. The coordinator sends each one away
/// for at least a tenth of the interval in which it expects one check-in of each, however long the previous wait was. That interval is
/// some 10 s. If it is shorter, 2n / `most` is about the coordinator's target rate.
const SPREAD_FROM: Duration = Duration::from_secs(1);

/// Maximum `Retry-After` that is respected.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(3600);

impl RetryPolicy {
    /// The wait after failure number `failures` (from 1) in a row: at most `most`, at least the coordinator's `Retry-After`.
    #[must_use]
    pub fn delay(&self, failures: u32, most: Duration, retry_after: Option<Duration>, rng: &mut impl Rng) -> Duration {
        let doubled = self.first.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(most);
        let spread = doubled.mul_f64(unit(rng));
        match retry_after.map(|asked| asked.min(LONGEST_RETRY_AFTER)) {
            // All participants get the same time from the coordinator, so the spread is added to it.
            Some(asked) => asked + spread.min(asked.max(self.first) / 4),
            None => spread,
        }
    }

    /// The bound while the coordinator is unavailable, for a participant that last waited up to `wait` for work and then received
    /// `come_back`. If the coordinator spreads check-ins, the bound is twice the time between them: the mean draw is half of that, so
    /// the total rate is the coordinator's target rate.
    #[must_use]
    pub fn most_of_many(&self, wait: Duration, come_back: Duration) -> Duration {
        if come_back < SPREAD_FROM {
            return self.most;
        }
        wait.saturating_add(come_back).saturating_mul(2).clamp(self.most, LONGEST_RETRY_AFTER)
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
            (ProblemType::VersionRemoved, Verdict::RoundOver),
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
        assert_eq!(judge(&TransportError::unreachable("gone")), Verdict::Again(None));
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
    fn waits_double_up_to_a_bound_and_are_spread_over_all_of_it() {
        let policy = RetryPolicy { first: Duration::from_secs(1), ..RetryPolicy::default() };
        let most = Duration::from_secs(10);
        let mut rng = ChaCha20Rng::from_seed([3; 32]);
        for (failures, longest) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (1000, 10)] {
            let longest = Duration::from_secs(longest);
            let waits: Vec<_> = (0..400).map(|_| policy.delay(failures, most, None, &mut rng)).collect();
            for quarter in 0..4 {
                let range = longest / 4 * quarter..longest / 4 * (quarter + 1);
                let count = waits.iter().filter(|wait| range.contains(*wait)).count();
                assert!((70..130).contains(&count), "{failures}: {count} in {range:?}");
            }
            assert!(waits.iter().all(|wait| *wait < longest), "{failures}: {waits:?}");
        }
    }

    /// First request of each participant after an outage, relative to its end. `wait` and `pause` are as before the outage, with the
    /// pause spread by half of it either way.
    fn returns(participants: u64, outage: Duration, wait: Duration, pause: Duration) -> Vec<Duration> {
        let policy = RetryPolicy::default();
        let first = |seed| {
            let mut rng = ChaCha20Rng::seed_from_u64(seed);
            let most = policy.most_of_many(wait, pause.mul_f64(0.5 + unit(&mut rng)));
            let (mut now, mut failures) = (Duration::ZERO, 0);
            while now < outage {
                failures += 1;
                now += policy.delay(failures, most, None, &mut rng);
            }
            now - outage
        };
        (0..participants).map(first).collect()
    }

    /// Maximum number of requests within one second.
    fn busiest_second(returns: &[Duration]) -> usize {
        let mut seconds = std::collections::BTreeMap::<_, usize>::new();
        returns.iter().for_each(|at| *seconds.entry(at.as_secs()).or_default() += 1);
        seconds.into_values().max().unwrap_or_default()
    }

    #[test]
    fn after_an_outage_all_are_back_soon_and_not_together() {
        let wait = Duration::from_secs(25);
        for outage in [60, 600, 6000].map(Duration::from_secs) {
            let back = returns(5000, outage, wait, Duration::from_millis(500));
            assert!(back.iter().all(|after| after.as_secs() < 15), "{outage:?}");
            let busiest = busiest_second(&back);
            assert!(busiest < 800, "{outage:?}: {busiest} in one second");
            // A fleet that the coordinator spreads returns at most at its rate, a thousand per second.
            for (participants, pause_ms) in
                [(7_500, 750), (10_000, 1000), (15_000, 1500), (25_000, 2500), (50_000, 25_000)]
            {
                let pause = Duration::from_millis(pause_ms);
                let back = returns(participants, outage, wait, pause);
                let longest = 2 * (wait + pause * 3 / 2);
                assert!(back.iter().all(|after| *after < longest), "{participants}, {outage:?}");
                let busiest = busiest_second(&back);
                assert!(busiest < 1200, "{participants}, {outage:?}: {busiest} in one second");
            }
        }
    }

    #[test]
    fn the_coordinators_wish_is_obeyed_within_reason() {
        let policy = RetryPolicy::default();
        let mut rng = ChaCha20Rng::from_seed([3; 32]);
        let asked = Duration::from_secs(30);
        let wait = policy.delay(1, policy.most, Some(asked), &mut rng);
        assert!(wait >= asked && wait < asked * 5 / 4, "{wait:?}");
        let wait = policy.delay(1, policy.most, Some(Duration::from_secs(1 << 40)), &mut rng);
        assert!(wait < LONGEST_RETRY_AFTER * 5 / 4, "{wait:?}");
    }
}
