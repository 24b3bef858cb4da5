//! Requirements of the gate on the rest of the task.

use crate::TaskSpec;
use crate::problem::Checks;

impl TaskSpec {
    pub(super) fn check_gate(&self, checks: &mut Checks) {
        let Some(gate) = &self.aggregation.gate else { return };
        checks.require_with(self.metrics.contains(&gate.metric), "aggregation.gate.metric", || {
            format!("is {:?}, which is none of the task's metrics: {}", gate.metric, self.metrics.join(", "))
        });
        checks.positive(gate.max_fall, "aggregation.gate.max_fall");
        checks.require(
            !self.privacy.is_private(),
            "aggregation.gate",
            "and [privacy] do not go together: no metrics travel where a privacy mechanism is at work",
        );
    }
}
