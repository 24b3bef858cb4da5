//! Configuration of a task's sessions of secure aggregation.

use secure_agg::SUITE_CHACHA20;
use secure_agg::params::{InvalidConfig, SessionConfig, USUAL_MIN_INCLUDED, VectorShape};
use task_spec::{SpecError, TaskSpec};

use super::PrivateTask;
use super::field::wrong;
use crate::{AssignmentTerms, UpdateCodec};

/// The session's configuration. Each participant derives it from its assignment and rejects any difference.
pub(super) fn config(
    spec: &TaskSpec,
    terms: &AssignmentTerms<'_>,
    codec: &UpdateCodec,
    private: Option<&PrivateTask>,
) -> Result<Option<SessionConfig>, Vec<SpecError>> {
    let secure = &spec.secure_aggregation;
    if !secure.enabled {
        return Ok(None);
    }
    let small = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
    // A group has exactly its declared size.
    let least = spec.session_min();
    let privacy = private.map(|private| private.terms(private.initial_clip()));
    let config = SessionConfig {
        suite: SUITE_CHACHA20,
        min_cohort: small(private.map_or(least, |private| least.max(private.least_cohort()))),
        max_cohort: small(terms.encoding.max_cohort),
        max_corrupt: secure.max_corrupt_millionths(),
        max_dropout: secure.max_dropout_millionths(),
        min_included: private.map_or(0, |private| small(private.smallest_cohort())).max(USUAL_MIN_INCLUDED),
        model: codec.shape(),
        scalars: VectorShape::NONE,
        application: AssignmentTerms { privacy: privacy.as_ref(), ..*terms }.application().0,
    };
    match config.validate() {
        Ok(()) => Ok(Some(config)),
        Err(error) => Err(wrong(field_of(&error), error)),
    }
}

fn field_of(error: &InvalidConfig) -> &'static str {
    match error {
        InvalidConfig::Cohort { .. } | InvalidConfig::Included { .. } => "secure_aggregation.min_cohort",
        InvalidConfig::Corrupt { .. } => "secure_aggregation.max_corrupt_fraction",
        InvalidConfig::Dropout { .. } => "secure_aggregation.max_dropout_fraction",
        InvalidConfig::Modulus { .. } | InvalidConfig::Headroom { .. } => "secure_aggregation.modulus_bits",
        InvalidConfig::Batch { .. } => "secure_aggregation.batch_size",
        InvalidConfig::Suite { .. } | InvalidConfig::Words { .. } => "secure_aggregation",
    }
}
