//! Runs an audit.

use learning::privacy::accountant::SumMechanism;
use learning::privacy::audit::{AuditError, Correlation, Guesses, NoiseVariance};
use wire::inspect::PrivacyReport;

use super::canary::{CANARIES, place};
use super::federation::Federation;
use super::plan::{NOISE_ROUNDS, Plan, PrivacyAudit};
use super::report::{AuditReport, AuditStage, Finding, NoiseCorrelation, NoiseRatio};
use crate::SimulationError;
use crate::training::on_a_runtime;

impl PrivacyAudit {
    /// Runs the audit on the calling thread, which must not be one of an asynchronous runtime.
    ///
    /// # Errors
    /// [`SimulationError`].
    pub fn run(&self, progress: &mut dyn FnMut(AuditStage)) -> Result<AuditReport, SimulationError> {
        let plan = self.plan()?;
        on_a_runtime(self.run_plan(&plan, progress))
    }

    async fn run_plan(
        &self,
        plan: &Plan,
        progress: &mut dyn FnMut(AuditStage),
    ) -> Result<AuditReport, SimulationError> {
        let failed = |error: AuditError| SimulationError::Invalid(error.to_string());
        let confidence = self.test_confidence();
        let mut federation = Federation::new(self, plan, progress).await?;
        // Noise alone.
        let task = federation.create(&plan.task).await?;
        let mut models = vec![federation.model(task, 0).await?];
        for round in 1..=NOISE_ROUNDS {
            federation.complete(task, round).await?;
            models.push(federation.model(task, round).await?);
            progress(AuditStage::Round(round));
        }
        let scale = plan.codec.scale(plan.clip) * plan.codec.params().expected_cohort;
        let noise: Vec<Vec<f64>> = models.windows(2).map(|pair| differences(&pair[0], &pair[1], scale)).collect();
        let ledger = federation.ledger(task).await?;
        let charged = charged_sigma(&ledger, plan, self.participants)?;
        let variance = NoiseVariance::of(&noise.concat(), charged, confidence).map_err(failed)?;
        let has_noise = noise.iter().all(|round| round.iter().any(|value| *value != 0.0));
        let correlation = has_noise.then(|| Correlation::of(&noise[0], &noise[1])).transpose().map_err(failed)?;
        // Canaries.
        let mut canaries = plan.task.clone();
        (canaries.name, canaries.rounds.count) = (CANARIES.to_owned(), 1);
        let task = federation.create(&canaries).await?;
        let before = federation.model(task, 0).await?;
        federation.complete(task, 1).await?;
        progress(AuditStage::Round(NOISE_ROUNDS + 1));
        let after = federation.model(task, 1).await?;
        let scores = differences(&before, &after, scale);
        let places = (0..self.participants as usize).map(|index| place(index, self.participants, scores.len()));
        let scores: Vec<f64> = places.map(|place| scores[place]).collect();
        let each = plan.design.guesses_each as usize;
        let guesses = Guesses::from_scores(&scores, &federation.coins, each, each).map_err(failed)?;
        let bound = guesses.epsilon_at_least(plan.design.delta, confidence).map_err(failed)?;
        let epsilon = federation.ledger(task).await?.spent.cohort_known;
        federation.stop().await;
        let mut findings = Vec::new();
        let checks = [
            // More noise than charged is in order: nobody has dropped out.
            (Finding::NarrowNoise, variance.high < 1.0),
            (Finding::RepeatedNoise, correlation.is_some_and(|found| found.p_value < 1.0 - confidence)),
            (Finding::Canaries, bound > epsilon),
        ];
        findings.extend(checks.into_iter().filter(|(_, is_found)| *is_found).map(|(finding, _)| finding));
        Ok(AuditReport {
            noise: NoiseRatio { ratio: variance.ratio, low: variance.low, high: variance.high },
            correlation: correlation
                .map(|Correlation { coefficient, p_value }| NoiseCorrelation { coefficient, p_value }),
            correct: guesses.correct(),
            epsilon_at_least: bound,
            epsilon,
            delta: plan.design.delta,
            findings,
        })
    }
}

/// Differences between two models, in units of the grid of the sum.
fn differences(before: &[f32], after: &[f32], scale: f64) -> Vec<f64> {
    before.iter().zip(after).map(|(a, b)| (f64::from(*b) - f64::from(*a)) * scale).collect()
}

/// Standard deviation of the noise in a sum, by the ledger.
fn charged_sigma(ledger: &PrivacyReport, plan: &Plan, participants: u32) -> Result<f64, SimulationError> {
    let failed = |text: String| SimulationError::Coordinator(format!("the ledger of the copy: {text}"));
    let row = ledger.releases.first().ok_or_else(|| failed("it has no releases".to_owned()))?;
    let sum: SumMechanism =
        serde_json::from_value(row.parameters["sum"].clone()).map_err(|error| failed(error.to_string()))?;
    // The ledger charges the noise of one participant.
    let copies = if plan.is_local { f64::from(participants) } else { 1.0 };
    Ok(sum.sigma() * copies.sqrt())
}
