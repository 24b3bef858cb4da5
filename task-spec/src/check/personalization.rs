//! Parameters of personalization methods, and their requirements on the rest of the task.

use crate::problem::Checks;
use crate::{AdapterScope, Over, PERSONAL_PREFIX, Personalization, Schedule, TaskSpec, below};

impl Personalization {
    /// `learning_rate` is that of `[training]`.
    fn check(&self, learning_rate: f64, checks: &mut Checks) {
        match *self {
            Self::FedPer {} | Self::FedBn {} => {}
            Self::FedRep { head_epochs } => count("head_epochs", Some(head_epochs), checks),
            Self::FineTune { epochs, learning_rate } => {
                count("epochs", epochs, checks);
                positive("learning_rate", learning_rate, checks);
            }
            Self::Ditto { lambda, epochs } => {
                count("epochs", epochs, checks);
                check_pull(lambda, learning_rate, checks);
            }
            Self::PFedMe { lambda, local_rounds, steps, rate } => {
                count("local_rounds", Some(local_rounds), checks);
                count("steps", Some(steps), checks);
                check_pull(lambda, learning_rate, checks);
                check_envelope(lambda, rate, checks);
            }
            Self::Apfl { alpha, alpha_rate } => check_mixture(alpha, alpha_rate, checks),
            Self::Elastic { alpha } => check_spring(alpha, checks),
            Self::Lora { ref layers, rank, alpha, adapters, epochs, base_sha256 } => {
                check_adapters(layers, rank, alpha, checks);
                count("epochs", epochs, checks);
                check_home(adapters, epochs.is_some(), base_sha256.is_some(), checks);
            }
        }
    }
}

/// Checks a number of passes, rounds or steps.
fn count(name: &str, value: Option<u32>, checks: &mut Checks) {
    checks.within(value, 1..=10_000, &format!("personalization.{name}"));
}

fn positive(name: &str, value: Option<f64>, checks: &mut Checks) {
    checks.positive(value, &format!("personalization.{name}"));
}

/// A step moves the personalized model learning_rate λ of the distance to the shared one: beyond twice the distance it
/// diverges.
fn check_pull(lambda: f64, learning_rate: f64, checks: &mut Checks) {
    positive("lambda", Some(lambda), checks);
    let step = lambda * learning_rate;
    checks.require_with(step < 2.0 || !step.is_finite(), "personalization.lambda", || {
        format!(
            "is {lambda}; times training.learning_rate = {learning_rate} it must be below 2, or the personalized model diverges"
        )
    });
}

/// A step moves the shared model η λ of the distance to the personalized one.
fn check_envelope(lambda: f64, rate: f64, checks: &mut Checks) {
    positive("rate", Some(rate), checks);
    let step = lambda * rate;
    checks.require_with(step <= 1.0 || !step.is_finite(), "personalization.rate", || {
        format!("is {rate}; times lambda = {lambda} it must be at most 1, or the shared model overshoots")
    });
}

fn check_mixture(alpha: f64, alpha_rate: f64, checks: &mut Checks) {
    checks.require(
        (0.05..=0.95).contains(&alpha),
        "personalization.alpha",
        "must be between 0.05 and 0.95: at 0 the personalized model never learns, at 1 nothing is shared",
    );
    let holds = alpha_rate.is_finite() && alpha_rate >= 0.0;
    checks.require(holds, "personalization.alpha_rate", "must be finite and at least 0");
}

fn check_spring(alpha: f64, checks: &mut Checks) {
    checks.require(
        alpha > 0.0 && alpha <= 1.0,
        "personalization.alpha",
        "must be above 0 and at most 1: at 0 nothing would be shared, above 1 the models swing past each other",
    );
}

/// `learning` checks whether the model has such layers of sufficient size.
fn check_adapters(layers: &[String], rank: u32, alpha: Option<f64>, checks: &mut Checks) {
    let named = (1..=256).contains(&layers.len());
    checks.require(named, "personalization.layers", "must be 1 to 256 patterns of the layers with adapters");
    checks.within(rank, 1..=4096, "personalization.rank");
    positive("alpha", alpha, checks);
}

/// Rejects settings of local adapters for shared ones, and the reverse.
fn check_home(adapters: AdapterScope, has_epochs: bool, has_base: bool, checks: &mut Checks) {
    let shared = adapters == AdapterScope::Shared;
    checks.require(
        !(shared && has_epochs),
        "personalization.epochs",
        "is of adapters that stay local; shared ones are trained as [training] says",
    );
    checks.require(
        shared || !has_base,
        "personalization.base_sha256",
        "is of shared adapters; local ones are added to the received model",
    );
}

impl TaskSpec {
    /// Checks a method against the rest of the task. `learning` checks whether the patterns split the model.
    pub(super) fn check_personalization(&self, checks: &mut Checks) {
        for name in &self.metrics {
            if let Some((_, None)) = below(name) {
                checks.require_with(false, "metrics", || {
                    format!("{name:?} must end in a whole number of hundredths, 1 to 100, as in \"accuracy.below.50\"")
                });
            }
        }
        self.check_distributions(checks);
        let Some(method) = &self.personalization else { return };
        if self.analytics.is_some() {
            checks.require(false, "personalization", "must be left out: an analysis has no model");
            return;
        }
        method.check(self.training.learning_rate, checks);
        if matches!(method, Personalization::PFedMe { .. }) {
            let plan = &self.training;
            let by_steps = plan.schedule.as_ref().and_then(Schedule::over) == Some(Over::Steps)
                || plan.warmup.as_ref().is_some_and(|warmup| warmup.over == Over::Steps);
            for (field, given) in [("training.budget", plan.budget.is_some()), ("training.schedule", by_steps)] {
                checks.require(
                    !given,
                    field,
                    "counts steps of one training; personalization.method \"pfedme\" trains many times a few steps: leave it out, \
                     or let a schedule go over rounds",
                );
            }
        }
        let name = method.as_str();
        if method.parts_the_model() {
            checks.require_with(!self.model.personal.is_empty(), "model.personal", || {
                format!("must name the tensors that stay local with personalization.method = {name:?}")
            });
        } else {
            checks.require_with(self.model.personal.is_empty(), "model.personal", || {
                format!(
                    "must be left out with personalization.method = {name:?}, whose personalized model has every tensor"
                )
            });
        }
        let is_reported = self.metrics.iter().any(|name| name.starts_with(PERSONAL_PREFIX));
        checks.require(
            is_reported || method.shares_adapters() || self.privacy.is_private(),
            "metrics",
            "must name a metric of the personalized models beside the shared one's, such as \"personal_accuracy\"",
        );
    }
}
