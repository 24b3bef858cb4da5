//! Metrics transmitted as distributions.

use crate::distribution::distribution;
use crate::problem::Checks;
use crate::{QUANTILES, TaskSpec};

/// Maximum number of means in an update, points of distributions included.
const MAX_TRAVELLING: usize = 256;

impl TaskSpec {
    pub(super) fn check_distributions(&self, checks: &mut Checks) {
        for name in &self.metrics {
            let Some((metric, step)) = distribution(name) else { continue };
            checks.require_with(step.is_some() && !metric.is_empty(), "metrics", || {
                format!(
                    "{name:?} must be NAME{QUANTILES}, or end in the hundredths between two points, which must divide 100: \
                     \"accuracy{QUANTILES}.2\""
                )
            });
            checks.require_with(!self.privacy.is_private(), "metrics", || {
                format!("must not name {name:?} with [privacy]: it would be a release that no epsilon counts")
            });
        }
        let travelling = self.travelling_metrics().len();
        checks.require_with(travelling <= MAX_TRAVELLING, "metrics", || {
            format!("make {travelling} means travel with every update, at most {MAX_TRAVELLING} may: take larger steps")
        });
    }
}
