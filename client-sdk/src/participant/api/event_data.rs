//! Events as data, for programs that are not written in Rust.

use learning::{Clipping, MetricValue};
use serde_json::{Map, Value, json};
use wire::Attempt;

use super::event::{Event, Span};

impl Event {
    /// The event's name, in snake case.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Lowered { .. } => "lowered",
            Self::Enrolled { .. } => "enrolled",
            Self::AuthorityReplaced { .. } => "authority_replaced",
            Self::Renewed => "renewed",
            Self::CheckedIn { .. } => "checked_in",
            Self::Asked { .. } => "asked",
            Self::InBatch { .. } => "in_batch",
            Self::Invited { .. } => "invited",
            Self::Assigned { .. } => "assigned",
            Self::ToTrain { .. } => "to_train",
            Self::Discarded { .. } => "discarded",
            Self::Shared { .. } => "shared",
            Self::Delivered { .. } => "delivered",
            Self::Complained { .. } => "complained",
            Self::Confirmed { .. } => "confirmed",
            Self::Unmasked { .. } => "unmasked",
            Self::KeyPinned { .. } => "key_pinned",
            Self::Unproven { .. } => "unproven",
            Self::Equivocation { .. } => "equivocation",
            Self::Rebased { .. } => "rebased",
            Self::Refused { .. } => "refused",
            Self::Fetched { .. } => "fetched",
            Self::Evaluated { .. } => "evaluated",
            Self::Trained { .. } => "trained",
            Self::Clipped { .. } => "clipped",
            Self::HeldUp { .. } => "held_up",
            Self::Paused { .. } => "paused",
            Self::Resumed { .. } => "resumed",
            Self::TrainingFailed { .. } => "training_failed",
            Self::Uploaded { .. } => "uploaded",
            Self::TookPart { .. } => "took_part",
            Self::Abandoned { .. } => "abandoned",
            Self::RoundOver { .. } => "round_over",
            Self::FinalModel { .. } => "final_model",
            Self::NoFinalModel { .. } => "no_final_model",
            Self::Span(_) => "span",
            Self::Retry { .. } => "retry",
        }
    }

    /// A line of text for events that explain a wait: enrolment, the coordinator's reason for waiting, conditions of the device, refusals
    /// and failed requests. `None` for other events.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        if let Self::Enrolled { participant, name } = self {
            return Some(format!("enrolled as {name} ({participant})"));
        }
        if let Self::CheckedIn { waiting_for, .. } = self {
            let reasons: Vec<_> = waiting_for.iter().map(ToString::to_string).collect();
            return (!reasons.is_empty()).then(|| format!("waiting: {}", reasons.join("; ")));
        }
        if let Self::HeldUp { unmet } = self {
            return Some(format!("waiting: {unmet}"));
        }
        if let Self::Refused { place, reason } = self {
            return Some(format!("refused round {} of task {}: {reason}", place.round, place.task));
        }
        if let Self::Retry { what, error, .. } = self {
            return Some(format!("{what} failed and is tried again: {error}"));
        }
        None
    }

    /// Its fields as a JSON object: ids as text, durations in seconds, metrics by name; `task`, `round` and `attempt`
    /// where it belongs to a round.
    #[must_use]
    pub fn data(&self) -> Value {
        match self {
            Self::Lowered { floor } => json!({ "floor": floor.to_string() }),
            Self::Enrolled { participant, name } => json!({ "participant": participant, "name": name }),
            Self::AuthorityReplaced { before, left } => {
                let data = json!({ "before": before });
                match left {
                    Some(place) => at(place, data),
                    None => data,
                }
            }
            Self::Renewed => json!({}),
            Self::CheckedIn { come_back, waiting_for } => {
                json!({ "come_back_s": come_back.as_secs_f64(), "waiting_for": waiting_for })
            }
            Self::Asked { task, eligible } => json!({ "task": task, "eligible": eligible }),
            Self::InBatch { batch, size } => json!({ "batch": batch, "size": size }),
            Self::Invited { place } | Self::Paused { place } | Self::Resumed { place } | Self::TookPart { place } => {
                at(place, json!({}))
            }
            Self::Assigned { place, cohort, remaining, is_secure } => {
                let left = remaining.as_secs_f64();
                at(place, json!({ "cohort": cohort, "remaining_s": left, "secure_aggregation": is_secure }))
            }
            Self::ToTrain { place, version, remaining, is_secure } => {
                let left = remaining.as_secs_f64();
                at(place, json!({ "version": version, "remaining_s": left, "secure_aggregation": is_secure }))
            }
            Self::Discarded { task, serial, reason } => {
                json!({ "task": task, "serial": serial, "reason": reason })
            }
            Self::Shared { place, participants } => at(place, json!({ "participants": participants })),
            Self::Delivered { place, dealers } => at(place, json!({ "dealers": dealers })),
            Self::Complained { place, dealer } => at(place, json!({ "dealer": dealer })),
            Self::Confirmed { place, survivors } => at(place, json!({ "survivors": survivors })),
            Self::Unmasked { place, signers } => at(place, json!({ "signers": signers })),
            Self::KeyPinned { key } => json!({ "key": key }),
            Self::Unproven { place, error } => at(place, json!({ "error": error.to_string() })),
            Self::Equivocation { task, taken, refused } => {
                json!({ "task": task, "taken": taken, "refused": refused })
            }
            Self::Rebased { place, version } => at(place, json!({ "version": version })),
            Self::Refused { place, reason } | Self::RoundOver { place, reason } => {
                at(place, json!({ "reason": reason }))
            }
            Self::Fetched { place, version, bytes } => at(place, json!({ "version": version, "bytes": bytes })),
            Self::Evaluated { place, metrics } => at(place, json!({ "metrics": by_name(metrics) })),
            Self::Trained { place, metrics, examples } => {
                at(place, json!({ "metrics": by_name(metrics), "examples": examples }))
            }
            Self::Clipped { place, clipping: Clipping { norm, bound, outside, range } } => {
                at(place, json!({ "norm": norm, "norm_bound": bound, "coordinates": outside, "range": range }))
            }
            Self::HeldUp { unmet } => json!({ "condition": unmet.name(), "reason": unmet.to_string() }),
            Self::TrainingFailed { place, error } => at(place, json!({ "error": error })),
            Self::Uploaded { place, bytes, sha256 } => at(place, json!({ "bytes": bytes, "sha256": sha256 })),
            Self::Abandoned { place, reason, refusal } => at(place, json!({ "reason": reason, "refusal": refusal })),
            Self::FinalModel { task, version, bytes } => json!({ "task": task, "version": version, "bytes": bytes }),
            Self::NoFinalModel { task, version, reason } => {
                json!({ "task": task, "version": version, "reason": reason })
            }
            Self::Span(Span { name, began, took, .. }) => {
                json!({ "name": name, "began_ms": began.0, "took_s": took.as_secs_f64() })
            }
            Self::Retry { what, error, after } => {
                json!({ "what": what, "error": error, "after_s": after.as_secs_f64() })
            }
        }
    }
}

/// Adds the place of an event.
fn at(Attempt { task, round, attempt }: &Attempt, data: Value) -> Value {
    let mut all = json!({ "task": task, "round": round, "attempt": attempt });
    if let (Some(all), Value::Object(data)) = (all.as_object_mut(), data) {
        all.extend(data);
    }
    all
}

fn by_name(metrics: &[(String, MetricValue)]) -> Map<String, Value> {
    metrics.iter().map(|(name, metric)| (name.clone(), metric.value.into())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wire::participant::WaitingFor;

    use super::*;

    #[test]
    fn a_line_explains_a_wait_and_nothing_else() {
        let task = serde_json::from_value(json!("0190b5a0-0000-7000-8000-000000000001")).unwrap();
        let place = Attempt { task, round: 3, attempt: 1 };
        let waits = |waiting_for| Event::CheckedIn { come_back: Duration::from_secs(1), waiting_for };
        let waiting_for = vec![WaitingFor::AnyTask, WaitingFor::Device { task: "digits".to_owned() }];
        let line = waits(waiting_for).line().unwrap();
        assert_eq!(
            line,
            "waiting: no task is open to this participant; this device does not meet the criteria of task digits"
        );
        assert_eq!(waits(Vec::new()).line(), None);
        let refused = Event::Refused { place, reason: "cohort of 2".to_owned() }.line().unwrap();
        assert!(refused.starts_with("refused round 3 of task ") && refused.ends_with(": cohort of 2"), "{refused}");
        let retry = Event::Retry { what: "check in", error: "refused".to_owned(), after: Duration::from_secs(1) };
        assert_eq!(retry.line().unwrap(), "check in failed and is tried again: refused");
        assert_eq!(Event::Invited { place }.line(), None);
    }
}
