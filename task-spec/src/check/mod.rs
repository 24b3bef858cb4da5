//! Validation of a task: reports all problems at once, each with a valid alternative. `learning` checks the model's shapes and the headroom
//! of its sums, `secure-agg` the thresholds.

mod analytics;
mod batch_norm;
mod batches;
mod compression;
mod distribution;
mod fairness;
mod gate;
mod graph;
mod initial_model;
mod keep_best;
mod local;
mod optimizer;
mod personalization;
mod privacy;
mod robust;
mod schedule;
mod selection;
mod solver;
mod table;

use std::collections::BTreeSet;

use ::graph::GraphModel;

use crate::problem::Checks;
use crate::{
    Deployment, Initial, MAX_BATCH, MAX_COHORT, MAX_DEADLINE_MS, MAX_EPOCHS, MAX_METRICS, MAX_SECURE_COHORT, MAX_STEPS,
    MIN_SECURE_COHORT, SpecError, TaskSpec, is_name,
};

impl TaskSpec {
    /// Finds all problems, so that an operator can fix them in one go. `learning` checks the model's shapes and the
    /// headroom of its sums.
    ///
    /// # Errors
    /// All [`SpecError`]s, at least one.
    pub fn check(&self, deployment: &Deployment) -> Result<(), Vec<SpecError>> {
        let mut checks = Checks::default();
        self.check_names(&mut checks);
        if let Some(initial) = &self.model.initial {
            self.check_initial_model(initial, &mut checks);
        }
        let graph = graph::check(&self.model, &mut checks);
        self.check_batch_norm(graph.as_ref().map(GraphModel::graph), &mut checks);
        self.check_training(&mut checks);
        self.check_local_training(&mut checks);
        self.check_selection(&mut checks);
        self.check_rounds(&mut checks, deployment);
        self.check_schedule(&mut checks, deployment);
        self.check_aggregation(&mut checks);
        self.check_robust(&mut checks);
        self.check_gate(&mut checks);
        self.check_keep_best(&mut checks);
        if self.secure_aggregation.enabled {
            self.check_secure_aggregation(&mut checks, deployment);
            self.check_batches(&mut checks);
        }
        self.check_fairness(&mut checks);
        self.check_solver(&mut checks);
        self.check_adaptive_mu(&mut checks);
        self.check_personalization(&mut checks);
        if self.privacy.is_private() {
            self.check_privacy(&mut checks);
        }
        if let Some(analytics) = &self.analytics {
            self.check_analytics(analytics, &mut checks);
        }
        self.check_compression(&mut checks);
        if let Some(table) = &self.model.table {
            self.check_table(table, graph.as_ref(), &mut checks);
        }
        checks.found()
    }

    fn check_names(&self, checks: &mut Checks) {
        checks.require(
            is_name(&self.name),
            "name",
            "must be 1 to 64 letters, digits, '-', '_' or '.', and not of dots alone",
        );
        checks.require(self.description.len() <= 4096, "description", "must be at most 4096 bytes");
        checks.require(
            self.analyses_rows() || !self.model.tensors.is_empty(),
            "model.tensors",
            "must name at least one tensor (`tributary task create` fills this in for an architecture it knows)",
        );
        checks.require(self.model.personal.len() <= 256, "model.personal", "must be at most 256 patterns");
        for tensor in &self.model.tensors {
            match tensor.init {
                Initial::Zeros | Initial::Ones => (),
                Initial::Constant { value } => {
                    checks.require(value.is_finite(), "model.tensors.init.constant.value", "must be finite");
                }
                Initial::Uniform { bound } => checks.positive(f64::from(bound), "model.tensors.init.uniform.bound"),
                Initial::Normal { std } => checks.positive(f64::from(std), "model.tensors.init.normal.std"),
            }
        }
        let unique: BTreeSet<_> = self.metrics.iter().collect();
        checks.require(
            self.metrics.len() <= MAX_METRICS
                && unique.len() == self.metrics.len()
                && self.metrics.iter().all(|name| is_name(name)),
            "metrics",
            "must be at most 16 different names of letters, digits, '-', '_' or '.', and not of dots alone",
        );
        checks.require(
            self.retain.is_none_or(|retain| retain.last >= 1),
            "retain.last",
            "must be at least 1: rounds begin with the newest version",
        );
    }

    fn check_training(&self, checks: &mut Checks) {
        let plan = &self.training;
        checks.within(plan.epochs, 1..=MAX_EPOCHS, "training.epochs");
        checks.within_or_none(plan.steps, 1..=MAX_STEPS, "training.steps");
        checks.within(plan.batch_size, 1..=MAX_BATCH, "training.batch_size");
        checks.positive(plan.learning_rate, "training.learning_rate");
        checks.require((0.0..1.0).contains(&plan.momentum), "training.momentum", "must be at least 0 and below 1");
        for (field, value) in [("training.weight_decay", plan.weight_decay), ("training.proximal_mu", plan.proximal_mu)]
        {
            checks.require(value.is_finite() && value >= 0.0, field, "must be finite and at least 0");
        }
    }

    /// Rejects settings under which rounds cannot complete.
    fn check_rounds(&self, checks: &mut Checks, deployment: &Deployment) {
        let rounds = &self.rounds;
        let (select_min, select_max) = (self.select_min(), rounds.select_max);
        let (collect_min, collect_max) = (self.collect_min(), self.collect_max());
        checks.within(rounds.count, 1..=1_000_000, "rounds.count");
        checks.within(rounds.select_max, 1..=MAX_COHORT, "rounds.select_max");
        checks.require(select_min >= 1, "rounds.select_min", "must be at least 1");
        checks.require_with(select_min <= select_max, "rounds.select_min", || {
            format!("is {}, above rounds.select_max = {}: no cohort could ever be drawn", select_min, select_max)
        });
        checks.require(collect_min >= 1, "rounds.collect_min", "must be at least 1");
        checks.require_with(collect_min <= collect_max, "rounds.collect_min", || {
            format!("is {}, above rounds.collect_max = {}: collection could never close", collect_min, collect_max)
        });
        let reachable = self.draw(select_min).cohort;
        checks.require_with(collect_min <= reachable, "rounds.collect_min", || {
            format!(
                "is {}, but a cohort drawn from rounds.select_min = {} participants has only {reachable}: lower \
                 collect_min, or raise select_min, the cohort or over_selection",
                collect_min, select_min
            )
        });
        for (field, deadline_ms) in [
            ("rounds.select_deadline_ms", rounds.select_deadline_ms),
            ("rounds.collect_deadline_ms", rounds.collect_deadline_ms),
        ] {
            checks.require_with((deployment.poll_interval_ms..=MAX_DEADLINE_MS).contains(&deadline_ms), field, || {
                format!(
                    "is {deadline_ms}; it must be at least the poll interval of this coordinator ({} ms), or participants \
                     would hear of the phase after it is over, and at most 30 days",
                    deployment.poll_interval_ms
                )
            });
        }
        checks.require(
            (1..=MAX_DEADLINE_MS).contains(&rounds.aggregate_deadline_ms),
            "rounds.aggregate_deadline_ms",
            "must be between 1 ms and 30 days",
        );
    }

    fn check_aggregation(&self, checks: &mut Checks) {
        let aggregation = &self.aggregation;
        aggregation.optimizer.check(checks);
        for (field, bits) in [
            ("aggregation.modulus_bits", Some(aggregation.modulus_bits)),
            ("secure_aggregation.modulus_bits", self.secure_aggregation.modulus_bits),
        ] {
            checks.within(bits, 16..=32, field);
        }
        for (field, range) in [
            ("aggregation.clip_range", Some(aggregation.clip_range)),
            ("secure_aggregation.clip_range", self.secure_aggregation.clip_range),
        ] {
            checks.positive(range.map(f64::from), field);
        }
        checks.require(
            aggregation.clip_norm.is_none_or(|norm| norm.is_finite() && norm > 0.0),
            "aggregation.clip_norm",
            "must be positive and finite, or left out",
        );
        checks.require(aggregation.max_weight >= 1, "aggregation.max_weight", "must be at least 1");
    }

    /// Checks without protocol parameters; `secure-agg` checks the thresholds.
    fn check_secure_aggregation(&self, checks: &mut Checks, deployment: &Deployment) {
        let secure = &self.secure_aggregation;
        let least = secure.min_cohort.unwrap_or(MIN_SECURE_COHORT);
        checks.require_with(
            (MIN_SECURE_COHORT..=MAX_SECURE_COHORT).contains(&least),
            "secure_aggregation.min_cohort",
            || format!("is {least}; it must be between 3 and 1024"),
        );
        checks.require_with(self.rounds.select_max <= MAX_SECURE_COHORT, "rounds.select_max", || {
            format!(
                "is {}; a cohort of secure aggregation has at most {MAX_SECURE_COHORT} participants: lower it, or switch secure \
                 aggregation off (secure_aggregation.enabled = false), which lets the operator read every update",
                self.rounds.select_max
            )
        });
        checks.within(secure.max_corrupt_fraction, 0.0..=0.5, "secure_aggregation.max_corrupt_fraction");
        checks.require(
            (0.0..1.0).contains(&secure.max_dropout_fraction),
            "secure_aggregation.max_dropout_fraction",
            "must be at least 0 and below 1",
        );
        let smallest = self.draw(self.select_min()).cohort;
        // The size of a sample follows from the population.
        let sampled = self.privacy.is_private() && self.privacy.sampling.is_some();
        checks.require_with(sampled || smallest >= least, "secure_aggregation.min_cohort", || {
            format!(
                "is {}, but a cohort drawn from rounds.select_min = {} participants has only {smallest}: raise the cohort or \
                 select_min, or switch secure aggregation off (secure_aggregation.enabled = false), which lets the operator \
                 read every update",
                least,
                self.select_min()
            )
        });
        for (field, deadline_ms) in [
            ("secure_aggregation.share_deadline_ms", secure.share_deadline_ms),
            ("secure_aggregation.confirm_deadline_ms", secure.confirm_deadline_ms),
            ("secure_aggregation.unmask_deadline_ms", secure.unmask_deadline_ms),
        ] {
            checks.require_with((deployment.poll_interval_ms..=MAX_DEADLINE_MS).contains(&deadline_ms), field, || {
                format!(
                    "is {deadline_ms}; it must be at least the poll interval of this coordinator ({} ms), or participants \
                     would hear of the phase after it is over, and at most 30 days",
                    deployment.poll_interval_ms
                )
            });
        }
    }
}
