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
            Self::Abandoned { .. } => "abandoned",
            Self::RoundOver { .. } => "round_over",
            Self::Unopened { .. } => "unopened",
            Self::FinalModel { .. } => "final_model",
            Self::NoFinalModel { .. } => "no_final_model",
            Self::Span(_) => "span",
            Self::Retry { .. } => "retry",
        }
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
            Self::Invited { place } | Self::Unopened { place } | Self::Paused { place } | Self::Resumed { place } => {
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
