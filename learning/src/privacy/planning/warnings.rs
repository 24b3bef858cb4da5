//! Warnings about valid plans with weak guarantees, or with models that may not learn.

use super::plan::{Plan, PlanRequest, WRAP_SIGMAS};
use crate::privacy::PrivateCodec;
use crate::quantize::MAX_COHORT;

/// Noise on the mean, in clipping norms, above which the plan warns.
pub const NOISE_TO_SIGNAL_MAX: f64 = 5.0;
/// Epsilon above which the guarantee is weak.
const EPSILON_MAX: f64 = 10.0;
/// Epsilon above which the guarantee is almost meaningless.
const EPSILON_VOID: f64 = 20.0;
/// Delta above which the guarantee is weak for a population of any size.
const DELTA_MAX: f64 = 1e-3;

/// Warnings about the promise of an epsilon and a delta to each member of a population, if it is known.
#[must_use]
pub fn promise_warnings(epsilon: f64, delta: f64, population: Option<u32>) -> Vec<String> {
    let mut warnings = Vec::new();
    let above_population = population.filter(|population| delta * f64::from(*population) > 1.0);
    if let Some(population) = above_population {
        warnings.push(format!(
            "delta {delta:e} is above one over the population: publishing one participant's data outright would be within it; \
             choose less than {:.0e}",
            1.0 / f64::from(population)
        ));
    } else if delta > DELTA_MAX {
        warnings.push(format!(
            "delta {delta:e} is above {DELTA_MAX:e}: it is the probability that the promise fails, and should be well below one \
             over the number of participants"
        ));
    }
    if epsilon > EPSILON_VOID {
        warnings.push(format!(
            "epsilon {epsilon:.1} is above {EPSILON_VOID} and promises next to nothing: whoever sees the models may become e^{epsilon:.0} \
             times as sure that somebody took part; up to 8 is usual"
        ));
    } else if epsilon > EPSILON_MAX {
        warnings.push(format!("epsilon {epsilon:.1} promises little"));
    }
    warnings
}

impl PlanRequest {
    /// Messages for the operator about a plan of this request.
    pub(in crate::privacy) fn warnings(&self, plan: &Plan, codec: &PrivateCodec) -> Vec<String> {
        let mut warnings = Vec::new();
        if plan.noise_to_signal > NOISE_TO_SIGNAL_MAX {
            let needed = (f64::from(self.cohort) * plan.noise_to_signal / NOISE_TO_SIGNAL_MAX).ceil();
            warnings.push(format!(
                "the noise on the mean is {:.1} times as long as a clipped update: the model may not learn; with this noise \
                 multiplier a cohort of {needed} would bring it to {NOISE_TO_SIGNAL_MAX} times{}",
                plan.noise_to_signal,
                if needed > f64::from(self.population) { ", more than are enrolled" } else { "" }
            ));
        }
        warnings.extend(promise_warnings(plan.epsilon.published, self.delta, Some(self.population)));
        if codec.inflation() > 1.05 {
            warnings.push(format!(
                "rounding lengthens updates by {:.0} % and the noise with them; more modulus_bits cost less",
                100.0 * (codec.inflation() - 1.0)
            ));
        }
        if codec.params().wrap_sigmas.is_some() {
            warnings.push(format!(
                "modulo 2^{} a sum has room for {WRAP_SIGMAS} standard deviations only: about one coordinate in 16000 wraps \
                 around and is wrong; more modulus_bits prevent it",
                self.modulus_bits
            ));
        }
        if self.largest_cohort() > MAX_COHORT {
            let largest = self.largest_cohort();
            warnings.push(format!(
                "a round has at most {MAX_COHORT} participants, and this one may draw {largest}: a task like this is refused"
            ));
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promise_warnings_name_weak_epsilon_and_delta() {
        let warned = |epsilon: f64, delta: f64, population| promise_warnings(epsilon, delta, population).join("\n");
        assert_eq!(warned(8.0, 1e-5, Some(200)), "");
        assert_eq!(warned(8.0, 1e-3, None), "");
        assert!(warned(12.0, 1e-5, None).ends_with("promises little"));
        let void = warned(1000.0, 0.5, Some(200));
        assert!(void.contains("epsilon 1000.0 is above 20") && void.contains("choose less than 5e-3"), "{void}");
        assert!(warned(8.0, 0.5, None).contains("is above 1e-3"));
        assert!(warned(8.0, 5.1e-3, Some(200)).contains("one over the population"));
    }
}
