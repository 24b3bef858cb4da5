//! The weight of an update: by examples, by loss (q-FFL), by steps (FedNova), or 1 with a control variate in the
//! second half of the vector (SCAFFOLD).

use learning::contribution::fed_nova::{Reach, reach};
use learning::{Fairness, FedNova, QFfl, QuantizationParams, Scaffold};
use task_spec::{MAX_STEPS, Solver, TrainingPlan};

use crate::{AssignmentTerms, RecipeError, UpdateCodec};

/// How updates are weighed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weighting {
    /// The number of examples, up to the task's cap.
    Examples,
    /// By the loss of the received model.
    Loss(QFfl),
    /// By examples; the update is divided by the distance its steps cover.
    Steps(FedNova),
    /// Weight 1; the input also changes the control variate.
    Controlled(Scaffold),
}

impl Weighting {
    pub(crate) fn new(
        terms: &AssignmentTerms<'_>,
        codec: &UpdateCodec,
        round: Option<u32>,
    ) -> Result<Self, RecipeError> {
        let asks = terms.training.fairness.is_some() || terms.encoding.solver.is_some();
        match codec {
            UpdateCodec::Plain(codec) if asks => Self::of_plain(terms, codec.params(), round),
            UpdateCodec::Plain(_) | UpdateCodec::Private(_) | UpdateCodec::Sums(_) if !asks => Ok(Self::Examples),
            UpdateCodec::Plain(_) | UpdateCodec::Sums(_) => Err(RecipeError::WeighedAnalysis),
            UpdateCodec::Private(_) => Err(RecipeError::FairAndPrivate),
        }
    }

    fn of_plain(
        terms: &AssignmentTerms<'_>,
        params: &QuantizationParams,
        round: Option<u32>,
    ) -> Result<Self, RecipeError> {
        let (plan, encoding) = (terms.training, terms.encoding);
        let unsound = |problem: &dyn std::fmt::Display| RecipeError::Solver(problem.to_string());
        if let Some(fair) = &plan.fairness {
            if encoding.solver.is_some() {
                return Err(unsound(&"updates are to be weighed by loss as well"));
            }
            let lipschitz = fair.lipschitz(plan.learning_rate);
            return Ok(Self::Loss(QFfl::new(Fairness { q: fair.q, lipschitz, loss_cap: fair.loss_cap }, params)?));
        }
        let Some(solver) = encoding.solver else { return Ok(Self::Examples) };
        if encoding.staleness.is_some() {
            return Err(unsound(&"it does not go with updates that are trained ahead of rounds"));
        }
        let steps = solver.steps().filter(|steps| (1..=MAX_STEPS).contains(steps));
        let steps = steps.ok_or_else(|| unsound(&format!("it must say steps, 1 to {MAX_STEPS}")))?;
        match solver {
            // Measured against this round's plan: a participant that completes it sends the same update as without FedNova.
            Solver::FedNova { .. } => {
                let reference = match round.map(|round| plan.in_round(round)) {
                    Some(plan) => reference(&plan, steps, |step| plan.step_factor(step))?,
                    None => reference(plan, steps, |_| 1.0)?,
                };
                FedNova::new(reference, params).map(Self::Steps).map_err(|error| unsound(&error))
            }
            // The same in every round: stored control variates keep their unit.
            Solver::Scaffold { .. } => {
                let whole = encoding.personalization.is_none() && terms.model.personal.is_empty();
                let exact = encoding.compression.is_none() && plan.proximal_mu == 0.0;
                if !whole || !exact {
                    return Err(unsound(&"scaffold does not go with personal tensors, a codec or a proximal term"));
                }
                let reference = reference(plan, steps, |_| 1.0)?;
                Scaffold::new(reference, params).map(Self::Controlled).map_err(|error| unsound(&error))
            }
        }
    }

    /// Whether a participant keeps a control variate.
    #[must_use]
    pub fn keeps_control(&self) -> bool {
        matches!(self, Self::Controlled(_))
    }
}

/// The distance covered by this many steps of a plan, each at its learning rate.
fn reference(plan: &TrainingPlan, steps: u32, factor: impl Fn(u32) -> f64) -> Result<f64, RecipeError> {
    reach(steps, plan.momentum, plan.learning_rate * plan.proximal_mu)
        .map_err(|error| RecipeError::Solver(error.to_string()))?;
    let mut reach = Reach::new(plan.momentum, plan.proximal_mu);
    (0..steps).for_each(|step| reach.step(plan.learning_rate * factor(step)));
    Ok(reach.distance())
}
