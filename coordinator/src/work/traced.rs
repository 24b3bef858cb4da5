//! Traces of steps on a round's sum, within the traces of its updates.

use federation::id::Attempt;
use federation::round::AssignmentState;
use federation::time::Timestamp;

use super::Environment;
use crate::observe::{COHORT_MAX, During};

/// Records work on the sum, from `began` until now. Best effort: unreadable data is omitted.
pub(super) async fn trace_sum(env: &Environment, attempt: Attempt, name: &'static str, began: Timestamp) {
    let whose = env.traces.followed_of(attempt);
    if whose.as_ref().is_some_and(Vec::is_empty) {
        return;
    }
    let during = During { began, ended: env.clock.now() };
    let whose = whose.as_deref();
    let cohort = env.store.read("traced cohort", |tx| {
        Box::pin(async move {
            match whose {
                Some(whose) => tx.assignments_of(attempt, whose).await,
                None => tx.assignments(attempt, None, COHORT_MAX).await,
            }
        })
    });
    match cohort.await {
        Ok(cohort) => {
            let reported = cohort.into_iter().filter(|place| place.state == AssignmentState::Reported);
            env.traces.updates(attempt, reported.map(|place| place.participant), name, during);
        }
        Err(error) => tracing::debug!(round = %attempt.round_key(), %error, "a step is not traced: {error}"),
    }
}
