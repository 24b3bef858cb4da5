//! The encoding of a task's updates, as sent in assignments.

use task_spec::TaskSpec;
use wire::participant::{CodecTerms, Encoding, GroupTerms};

use super::PrivateTask;

pub(super) fn of(spec: &TaskSpec, private: Option<&PrivateTask>) -> Encoding {
    Encoding {
        modulus_bits: spec.modulus_bits(),
        clip_range: spec.clip_range(),
        clip_norm: spec.aggregation.clip_norm,
        max_weight: private.map_or(spec.aggregation.max_weight, |private| private.quantizer.request.max_weight),
        max_cohort: private.map_or_else(|| largest_cohort(spec), PrivateTask::largest_cohort),
        compression: spec.compression.map(|codec| CodecTerms { codec, seed: spec.model.seed }),
        analytics: spec.analytics.clone(),
        personalization: spec.personalization.clone(),
        staleness: spec.ahead().map(|ahead| ahead.staleness),
        groups: spec.group_size().map(|size| GroupTerms { size }),
        solver: spec.training.solver(),
    }
}

/// Maximum number of updates in a sum. As small as possible: each costs bits in every coordinate.
fn largest_cohort(spec: &TaskSpec) -> u32 {
    if let Some(size) = spec.group_size() {
        return size;
    }
    if spec.compression.is_some() { spec.draw(u32::MAX).cohort } else { spec.rounds.select_max }
}
