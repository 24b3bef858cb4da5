//! Validation of `[privacy]` by itself.

use crate::{
    AdaptiveClip, Clip, NoisedBy, PrivacyMechanism, PrivacySampler, PrivacySpec, PrivacyView, Sampling, SpecError,
};

/// Range of valid noise multipliers.
pub const NOISE_RANGE: std::ops::RangeInclusive<f64> = 0.01..=10_000.0;
/// The smallest sampling rate: 2^-60.
pub const SAMPLING_RATE_MIN: f64 = 1.0 / (1_u64 << 60) as f64;

impl PrivacySpec {
    /// Validates the settings independently of the task.
    ///
    /// # Errors
    /// All [`SpecError`]s, at least one.
    pub fn check(&self) -> Result<(), Vec<SpecError>> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, field: &'static str, problem: &str| {
            if !holds {
                problems.push(SpecError { field: format!("privacy.{field}"), problem: problem.to_owned() });
            }
        };
        if let Some(Sampling::Poisson(rate)) = self.sampling {
            let holds = (SAMPLING_RATE_MIN..=1.0).contains(&rate);
            require(holds, "sampling.poisson", "must be at least 2^-60 and at most 1");
        }
        if self.sampler == PrivacySampler::OpenDp {
            let problem = self.mechanism.no_opendp();
            require(problem.is_none(), "sampler", problem.unwrap_or_default());
        }
        if self.mechanism == PrivacyMechanism::None {
            let nothing = self.noise_multiplier.is_none() && self.epsilon.is_none();
            require(
                nothing,
                "mechanism",
                "is \"none\", so no budget can be kept: choose a mechanism, or drop the budget",
            );
        } else {
            self.check_noise(&mut require);
            self.check_rest(&mut require);
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn check_noise(&self, require: &mut impl FnMut(bool, &'static str, &str)) {
        let delta = self.delta.unwrap_or(f64::NAN);
        require(
            delta > 0.0 && delta < 1.0,
            "delta",
            "must be above 0 and below 1; below one over the population is usual",
        );
        if let Some(epsilon) = self.epsilon {
            require(epsilon > 0.0 && epsilon.is_finite(), "epsilon", "must be finite and above 0");
        }
        if let Some(z) = self.noise_multiplier {
            let some = z > 0.0 || self.epsilon.is_none();
            require(some, "noise_multiplier", "is 0: without noise every budget is exceeded at once");
            require(
                NOISE_RANGE.contains(&z) || z == 0.0 && self.epsilon.is_some(),
                "noise_multiplier",
                "must be between 0.01 and 10000",
            );
        } else {
            require(self.epsilon.is_some(), "noise_multiplier", "must be given, or an epsilon to solve it for");
            require(
                self.rounds.is_some_and(|rounds| rounds > 0),
                "rounds",
                "must say for how many rounds epsilon is to last",
            );
        }
        require(self.rounds.is_none_or(|n| (1..=1_000_000).contains(&n)), "rounds", "must be between 1 and 1000000");
    }

    fn check_rest(&self, require: &mut impl FnMut(bool, &'static str, &str)) {
        match &self.clip {
            None => require(false, "clip", "must be given: without a bound on updates noise hides nothing"),
            Some(Clip::Fixed(norm)) => {
                require(norm.is_normal() && *norm > 0.0, "clip.fixed", "must be a normal number above 0");
            }
            Some(Clip::Adaptive(adaptive)) => {
                require(problem(adaptive).is_none(), "clip.adaptive", problem(adaptive).unwrap_or_default());
                let possible = self.mechanism.noised_by() != NoisedBy::EachParticipant;
                require(possible, "clip.adaptive", "cannot adapt to a count that local noise drowns: use a fixed clip");
            }
        }
        if let Some(Sampling::FixedSize(size)) = self.sampling {
            require(size > 0, "sampling.fixed_size", "must be at least 1");
        }
        require(
            self.sampling.is_none() || self.population.is_some_and(|population| population > 0),
            "population",
            "must say how many are enrolled, at least: sampling hides participants among them",
        );
        require(self.max_weight != Some(0), "max_weight", "must be at least 1");
        require(
            self.expected_weight.is_none_or(|weight| weight > 0.0 && weight <= 1.0),
            "expected_weight",
            "must be above 0 and at most 1: the mean weight of a participant over max_weight",
        );
        let by_coordinator = [NoisedBy::Coordinator, NoisedBy::CoordinatorOverRounds];
        let trusted = by_coordinator.contains(&self.mechanism.noised_by());
        require(
            self.against != PrivacyView::Server || !trusted,
            "against",
            "cannot be \"server\": the coordinator adds the noise, so it sees the sum without it",
        );
        require(
            !self.mechanism.is_correlated() || self.sampling.is_none(),
            "sampling",
            "gains nothing with a tree or a banded matrix, whose promise holds for any order of participants: leave it out",
        );
        self.check_participations(require);
    }

    fn check_participations(&self, require: &mut impl FnMut(bool, &'static str, &str)) {
        if !self.mechanism.counts_participations() {
            let elsewhere = "is for mechanism \"banded_matrix\" or distributed noise: leave it out";
            require(self.participations.is_none(), "participations", elsewhere);
            require(self.separation.is_none(), "separation", elsewhere);
            return;
        }
        require(self.participations != Some(0), "participations", "must be at least 1");
        require(self.separation != Some(0), "separation", "must be at least 1: the next round");
        if self.mechanism != PrivacyMechanism::BandedMatrix {
            require(
                self.participations.is_some() || self.separation.is_none(),
                "participations",
                "must be given with a separation: distributed noise is charged for that many releases, however far apart",
            );
            require(
                self.participations.is_none() || self.sampling.is_none(),
                "sampling",
                "gains nothing where participations are counted, since a limit on them makes draws depend on earlier ones: leave \
                 it out",
            );
            return;
        }
        require(
            self.separation.is_some() || self.participations == Some(1),
            "separation",
            "must say how many rounds are from one participation of a participant to its next, at least; or participations must be 1",
        );
    }
}

/// The problem of the settings, if any.
fn problem(adaptive: &AdaptiveClip) -> Option<&'static str> {
    if !(adaptive.quantile > 0.0 && adaptive.quantile < 1.0) {
        Some("the quantile must be above 0 and below 1")
    } else if !(adaptive.initial.is_normal() && adaptive.initial > 0.0) {
        Some("the initial norm must be a normal number above 0")
    } else if !(adaptive.learning_rate > 0.0 && adaptive.learning_rate <= 1.0) {
        Some("the learning rate must be above 0 and at most 1")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OnBudgetEnd;

    fn spec() -> PrivacySpec {
        PrivacySpec {
            mechanism: PrivacyMechanism::CentralGaussian,
            epsilon: Some(8.0),
            delta: Some(1e-5),
            rounds: Some(60),
            clip: Some(Clip::Fixed(1.0)),
            sampling: Some(Sampling::Poisson(0.25)),
            population: Some(200),
            ..PrivacySpec::default()
        }
    }

    fn fields(spec: &PrivacySpec) -> Vec<String> {
        let field = |error: SpecError| error.field.strip_prefix("privacy.").unwrap().to_owned();
        spec.check().unwrap_err().into_iter().map(field).collect()
    }

    #[test]
    fn is_written_as_people_write_it() {
        let json = r#"{"mechanism":"distributed_skellam","epsilon":8,"delta":1e-5,"rounds":60,
            "clip":{"adaptive":{"initial":0.5}},"sampling":{"poisson":0.25},"population":200,"on_budget_end":"complete"}"#;
        let spec: PrivacySpec = serde_json::from_str(json).unwrap();
        assert_eq!(spec.check(), Ok(()));
        let Clip::Adaptive(clip) = spec.clip.unwrap() else { panic!() };
        assert_eq!((clip.quantile, clip.learning_rate, clip.initial), (0.5, 0.2, 0.5));
        assert_eq!(spec.on_budget_end, OnBudgetEnd::Complete);
        let again = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<PrivacySpec>(&again).unwrap(), spec);
        assert!(!again.contains("sampler"), "whoever knows no samplers reads it: {again}");
        let drawn: PrivacySpec =
            serde_json::from_str(r#"{"mechanism":"central_gaussian","sampler":"opendp"}"#).unwrap();
        assert_eq!(drawn.sampler, PrivacySampler::OpenDp);
        assert!(serde_json::from_str::<PrivacySpec>(r#"{"sampler":"other"}"#).is_err());
        assert!(serde_json::from_str::<PrivacySpec>(r#"{"epsilom":8}"#).is_err());
        for mechanism in PrivacyMechanism::ALL {
            assert_eq!(serde_json::to_string(&mechanism).unwrap(), format!("\"{}\"", mechanism.as_str()));
        }
    }

    #[test]
    fn finds_what_is_wrong() {
        assert_eq!(spec().check(), Ok(()));
        assert_eq!(PrivacySpec::default().check(), Ok(()));
        for delta in [None, Some(0.0), Some(1.0), Some(2.0), Some(f64::NAN)] {
            assert_eq!(fields(&PrivacySpec { delta, ..spec() }), ["delta"]);
        }
        for epsilon in [0.0, -1.0, f64::INFINITY, f64::NAN] {
            assert_eq!(fields(&PrivacySpec { epsilon: Some(epsilon), ..spec() }), ["epsilon"]);
        }
        for norm in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(fields(&PrivacySpec { clip: Some(Clip::Fixed(norm)), ..spec() }), ["clip.fixed"]);
        }
        assert_eq!(fields(&PrivacySpec { clip: None, ..spec() }), ["clip"]);
        assert_eq!(fields(&PrivacySpec { rounds: None, ..spec() }), ["rounds"]);
        assert_eq!(fields(&PrivacySpec { epsilon: None, ..spec() }), ["noise_multiplier"]);
        let silent = PrivacySpec { noise_multiplier: Some(0.0), ..spec() }.check().unwrap_err();
        assert!(silent[0].to_string().contains("without noise every budget is exceeded"), "{silent:?}");
        assert_eq!(silent.len(), 1);
        assert_eq!(fields(&PrivacySpec { noise_multiplier: Some(f64::NAN), ..spec() }).len(), 2);
        assert_eq!(fields(&PrivacySpec { against: PrivacyView::Server, ..spec() }), ["against"]);
        assert_eq!(fields(&PrivacySpec { mechanism: PrivacyMechanism::Tree, ..spec() }), ["sampling"]);
        let banded = PrivacySpec { mechanism: PrivacyMechanism::BandedMatrix, sampling: None, ..spec() };
        assert_eq!(fields(&banded), ["separation"]);
        let with = |participations, separation| PrivacySpec { participations, separation, ..banded.clone() };
        assert_eq!(fields(&with(Some(2), None)), ["separation"]);
        assert_eq!(fields(&with(Some(0), Some(0))), ["participations", "separation"]);
        for (participations, separation) in [(Some(2), Some(3)), (None, Some(3)), (Some(1), None)] {
            assert_eq!(with(participations, separation).check(), Ok(()));
        }
        let sampled = PrivacySpec { sampling: spec().sampling, ..with(Some(1), None) };
        assert_eq!(fields(&sampled), ["sampling"]);
        assert_eq!(fields(&PrivacySpec { participations: Some(1), ..spec() }), ["participations"]);
        for mechanism in [PrivacyMechanism::DistributedDiscreteGaussian, PrivacyMechanism::DistributedSkellam] {
            let counted = |participations, separation| PrivacySpec {
                mechanism,
                sampling: None,
                participations,
                separation,
                ..spec()
            };
            for (participations, separation) in [(None, None), (Some(1), None), (Some(4), Some(3)), (Some(1), Some(9))]
            {
                assert_eq!(counted(participations, separation).check(), Ok(()));
                let limits = (separation.map_or(0, |rounds| rounds - 1), participations.unwrap_or_default());
                assert_eq!(counted(participations, separation).limits(), limits);
            }
            assert_eq!(fields(&counted(None, Some(3))), ["participations"]);
            assert_eq!(fields(&counted(Some(0), Some(0))), ["participations", "separation"]);
            let sampled = PrivacySpec { sampling: spec().sampling, ..counted(Some(1), None) };
            assert_eq!(fields(&sampled), ["sampling"]);
        }
        assert_eq!(fields(&PrivacySpec { mechanism: PrivacyMechanism::None, ..spec() }), ["mechanism"]);
        assert_eq!(fields(&PrivacySpec { population: None, ..spec() }), ["population"]);
        assert_eq!(fields(&PrivacySpec { max_weight: Some(0), ..spec() }), ["max_weight"]);
        for weight in [0.0, 1.5, f64::NAN] {
            assert_eq!(fields(&PrivacySpec { expected_weight: Some(weight), ..spec() }), ["expected_weight"]);
        }
        for mechanism in PrivacyMechanism::ALL {
            let drawn = PrivacySpec { mechanism, sampler: PrivacySampler::OpenDp, sampling: None, ..spec() };
            let is_refused =
                drawn.check().is_err_and(|problems| problems.iter().any(|it| it.field == "privacy.sampler"));
            assert_eq!(is_refused, mechanism != PrivacyMechanism::CentralGaussian, "{mechanism:?}");
        }
        let sampling = Some(Sampling::FixedSize(0));
        assert_eq!(fields(&PrivacySpec { sampling, ..spec() }), ["sampling.fixed_size"]);
        for rate in [0.0, 1e-19, 1.5, f64::NAN] {
            let sampling = Some(Sampling::Poisson(rate));
            assert_eq!(fields(&PrivacySpec { sampling, ..spec() }), ["sampling.poisson"]);
            assert_eq!(fields(&PrivacySpec { sampling, ..PrivacySpec::default() }), ["sampling.poisson"]);
        }
    }

    const CLIP: AdaptiveClip = AdaptiveClip { quantile: 0.5, initial: 1.0, learning_rate: 0.2 };

    #[test]
    fn an_adaptive_norm_is_one_that_can_move() {
        assert_eq!(problem(&CLIP), None);
        for quantile in [0.0, 1.0, f64::NAN] {
            assert!(problem(&AdaptiveClip { quantile, ..CLIP }).unwrap().contains("quantile"));
        }
        for initial in [0.0, -1.0, f64::INFINITY, f64::NAN] {
            assert!(problem(&AdaptiveClip { initial, ..CLIP }).unwrap().contains("norm"));
        }
        assert!(problem(&AdaptiveClip { learning_rate: 0.0, ..CLIP }).unwrap().contains("rate"));
    }
}
