//! What a codec asks of the rest of the task.

use crate::problem::Checks;
use crate::{Compression, TaskSpec};

impl TaskSpec {
    /// What a codec asks of the rest of the task.
    pub(super) fn check_compression(&self, checks: &mut Checks) {
        let Some(compression) = &self.compression else { return };
        let name = compression.name();
        checks.require(
            self.analytics.is_none(),
            "compression",
            "must be left out of an analysis, whose sums are exact: a codec would round them",
        );
        checks.require(
            !self.metrics.iter().any(|metric| metric.starts_with("codec.")),
            "metrics",
            "must not begin with \"codec.\" in a task with a codec: these say what it does to updates",
        );
        checks.require_with(
            compression.is_summable() || !self.secure_aggregation.enabled,
            "compression.codec",
            || {
                format!(
                    "{name} depends on what one update holds, so its uploads cannot be added under masks: take rotated, random_k or \
                     low_rank, or switch secure aggregation off (secure_aggregation.enabled = false), which lets the \
                     operator read every update"
                )
            },
        );
        checks.require_with(self.aggregation.robust.is_none(), "compression.codec", || {
            format!(
                "{name} cannot be combined with aggregation.robust: its rules compare updates coordinate by coordinate, and what \
                 a codec leaves out or rounds up would look like an attack"
            )
        });
        checks.require_with(!self.privacy.is_private(), "compression.codec", || {
            format!(
                "{name} cannot be combined with a privacy mechanism: its promise is proven for the grid that the mechanism rounds \
                 to, and what error feedback carries over would be charged to no round; a smaller aggregation.modulus_bits makes \
                 private updates smaller"
            )
        });
        if matches!(compression, Compression::Rotated { .. }) {
            checks.require(
                self.aggregation.clip_norm.is_some(),
                "aggregation.clip_norm",
                "must be given for the rotated codec, whose range follows from it: about the L2 norm of a typical update",
            );
        }
    }
}
