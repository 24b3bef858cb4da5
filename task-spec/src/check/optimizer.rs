//! Hyperparameters of the server optimizer.

use crate::ServerOptimizer;
use crate::problem::Checks;

impl ServerOptimizer {
    pub(super) fn check(&self, checks: &mut Checks) {
        for (key, problem) in self.problems() {
            checks.require(false, &format!("aggregation.optimizer.{key}"), &problem);
        }
    }
}
