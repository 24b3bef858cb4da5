//! Plans: three distinct epsilons, solving for noise, and rejections.

use learning::privacy::plan::{largest_draw, smallest_draw};
use learning::privacy::{
    Goal, NoServerEpsilon, NoiseError, PlanError, PlanRequest, PlanSampling, SamplingRate, TaskFacts, plan,
};
use task_spec::{AdaptiveClip, Clip, PrivacyAccounting, PrivacyMechanism, PrivacySpec, Sampling};

fn rate(rate: f64) -> SamplingRate {
    SamplingRate::new(rate).unwrap()
}

/// The utility row of the project: MNIST, `linear`, 200 participants, cohort 50, 60 rounds.
fn request() -> PlanRequest {
    PlanRequest {
        mechanism: PrivacyMechanism::CentralGaussian,
        population: 200,
        cohort: 50,
        rounds: 60,
        delta: 1e-5,
        goal: Goal::Epsilon(8.0),
        sampling: PlanSampling::Poisson(rate(0.25)),
        parameters: 7850,
        modulus_bits: 32,
        smallest_cohort: 25,
        colluders: 0,
        participations: None,
        separation: None,
        adaptive: false,
        max_weight: 1,
        expected_weight: 1.0,
        accounting: PrivacyAccounting::General,
    }
}

#[test]
fn solves_for_the_noise_and_reports_three_epsilons() {
    let plan = plan(&request()).unwrap();
    println!("{plan:#?}");
    assert!(plan.epsilon.published <= 8.0 && plan.epsilon.published > 7.99, "{}", plan.epsilon.published);
    assert!(plan.epsilon.cohort_known > 1.5 * plan.epsilon.published);
    assert_eq!(plan.epsilon.server, None);
    assert_eq!(plan.epsilon.server_reason, Some(NoServerEpsilon::ServerTrusted));
    // The accountants of continuous noise are tighter than the bound that holds for discrete noise, and agree.
    let (rdp, pld) = (plan.accountant.rdp, plan.accountant.pld.unwrap());
    assert!(pld < rdp && rdp < plan.epsilon.published, "{pld} {rdp}");
    let given =
        learning::privacy::plan(&PlanRequest { goal: Goal::Noise(plan.noise_multiplier), ..request() }).unwrap();
    assert_eq!(given.epsilon, plan.epsilon);
    // One part in a thousand less noise is too little.
    let less = learning::privacy::plan(&PlanRequest { goal: Goal::Noise(0.999 * plan.noise_multiplier), ..request() });
    assert!(less.unwrap().epsilon.published > 8.0);
}

#[test]
fn distributed_noise_has_a_server_epsilon_and_costs_the_same() {
    // Sampling gains nothing where participants add the noise.
    let central = plan(&PlanRequest { sampling: PlanSampling::Anyhow, ..request() }).unwrap();
    for mechanism in [PrivacyMechanism::DistributedDiscreteGaussian, PrivacyMechanism::DistributedSkellam] {
        let distributed = plan(&PlanRequest { mechanism, colluders: 2, ..request() }).unwrap();
        assert_eq!(distributed.epsilon.server, Some(distributed.epsilon.cohort_known));
        assert_eq!(distributed.epsilon.published.to_bits(), distributed.epsilon.cohort_known.to_bits());
        assert_eq!(distributed.epsilon.server_reason, None);
        let ratio = distributed.noise_multiplier / central.noise_multiplier;
        assert!((ratio - 1.0).abs() < 0.01, "{mechanism:?} {ratio}");
    }
    let local = plan(&PlanRequest { mechanism: PrivacyMechanism::Local, goal: Goal::Noise(4.0), ..request() }).unwrap();
    assert_eq!(local.epsilon.server, Some(local.epsilon.cohort_known));
    // The same noise from each participant: sqrt(50) times as much in the mean.
    let same = plan(&PlanRequest { goal: Goal::Noise(4.0), ..request() }).unwrap();
    assert!((local.noise_to_signal / same.noise_to_signal / 50_f64.sqrt() - 1.0).abs() < 1e-3);
}

#[test]
fn a_tree_needs_no_sampling_and_grows_with_the_logarithm() {
    let tree = PlanRequest {
        mechanism: PrivacyMechanism::Tree,
        // Each is in it once.
        population: 128 * 50,
        sampling: PlanSampling::Anyhow,
        goal: Goal::Noise(4.0),
        rounds: 128,
        delta: 1e-6,
        ..request()
    };
    let plan = plan(&tree).unwrap();
    // The oracle's row: z 4, 128 rounds, delta 1e-6; the optimal order is a little better than the table's.
    assert!(plan.epsilon.published <= 3.542_361_231_62 && plan.epsilon.published > 3.53, "{:?}", plan.epsilon);
    assert_eq!(plan.epsilon.published, plan.epsilon.cohort_known);
    assert_eq!(plan.epsilon.server_reason, Some(NoServerEpsilon::ServerTrusted));
}

#[test]
fn fixed_size_is_never_quoted_as_poisson() {
    let poisson = plan(&PlanRequest { goal: Goal::Noise(4.0), ..request() }).unwrap();
    let fixed = plan(&PlanRequest { goal: Goal::Noise(4.0), sampling: PlanSampling::FixedSize, ..request() }).unwrap();
    let none = plan(&PlanRequest { goal: Goal::Noise(4.0), sampling: PlanSampling::Anyhow, ..request() }).unwrap();
    assert!(fixed.epsilon.published > poisson.epsilon.published);
    assert!(fixed.epsilon.cohort_known > none.epsilon.cohort_known, "replacing one moves twice as much");
    assert_eq!(none.epsilon.published, none.epsilon.cohort_known);
    assert_eq!(none.epsilon.cohort_known, poisson.epsilon.cohort_known);
}

#[test]
fn participations_bound_what_those_see_who_know_the_cohorts() {
    let all = plan(&PlanRequest { goal: Goal::Noise(4.0), ..request() }).unwrap();
    let few = plan(&PlanRequest { goal: Goal::Noise(4.0), participations: Some(5), ..request() }).unwrap();
    assert!(few.epsilon.cohort_known < all.epsilon.cohort_known / 2.0);
    assert!(few.epsilon.published <= few.epsilon.cohort_known);
}

#[test]
fn more_rounds_cost_more_and_more_participants_less() {
    let plan = plan(&request()).unwrap();
    let curve = request().curve(plan.noise_multiplier, 12).unwrap();
    assert_eq!(curve.len(), 12);
    assert_eq!(curve.last().map(|&(rounds, _)| rounds), Some(60));
    assert!(curve.windows(2).all(|pair| pair[0].1.published < pair[1].1.published));
    assert_eq!(curve.last().unwrap().1, plan.epsilon);
    // With the noise on the mean as it is, twice the participants allow twice the noise on the sum.
    let large = PlanRequest { population: 20_000, sampling: PlanSampling::Poisson(rate(50.0 / 20_000.0)), ..request() };
    let plan = learning::privacy::plan(&PlanRequest { goal: Goal::Noise(1.0), ..large }).unwrap();
    let half = plan.epsilon.published / 2.0;
    let cohort = large.cohort_for(&plan, half).unwrap().unwrap();
    let at = |cohort: u32| {
        let request = PlanRequest {
            cohort,
            smallest_cohort: cohort / 2,
            sampling: PlanSampling::Poisson(rate(f64::from(cohort) / 20_000.0)),
            goal: Goal::Noise(f64::from(cohort) / 50.0),
            ..large
        };
        learning::privacy::plan(&request).unwrap().epsilon.published
    };
    assert!(at(cohort) <= half && at(cohort - 1) > half, "{cohort}: {} {}", at(cohort), at(cohort - 1));
    assert_eq!(large.cohort_for(&plan, 1e-9).unwrap(), None);
}

#[test]
fn a_population_beyond_what_one_sum_can_hold_still_has_a_cohort() {
    let large = PlanRequest {
        population: 1_000_000,
        cohort: 1000,
        smallest_cohort: 500,
        sampling: PlanSampling::Poisson(rate(0.001)),
        goal: Goal::Noise(1.0),
        ..request()
    };
    let plan = learning::privacy::plan(&large).unwrap();
    let cohort = large.cohort_for(&plan, plan.epsilon.published / 2.0).unwrap();
    assert!(cohort.is_some_and(|cohort| (1001..50_000).contains(&cohort)), "{cohort:?}");
}

#[test]
fn a_cohort_beyond_what_a_round_can_have_is_planned_and_said_to_be_hypothetical() {
    let huge = PlanRequest {
        population: 10_000_000,
        cohort: 200_000,
        smallest_cohort: 200_000,
        sampling: PlanSampling::Poisson(rate(0.02)),
        parameters: 1000,
        goal: Goal::Epsilon(1.0),
        accounting: PrivacyAccounting::Pld,
        ..request()
    };
    let plan = plan(&huge).unwrap();
    assert!(plan.epsilon.published <= 1.0 && plan.epsilon.published > 0.99, "{plan:?}");
    assert!(plan.warnings.iter().any(|said| said.contains("at most 65536 participants")), "{:?}", plan.warnings);
}

#[test]
fn noise_is_measured_by_the_denominator_that_the_mean_has() {
    let ratio = |expected_weight| plan(&PlanRequest { expected_weight, ..request() }).unwrap().noise_to_signal;
    assert!((ratio(0.5) / ratio(1.0) - 2.0).abs() < 0.01);
}

#[test]
fn loss_distributions_are_charged_where_they_are_proven_and_the_distance_is_named() {
    assert_eq!(PrivacyAccounting::default(), PrivacyAccounting::Pld);
    let general = plan(&request()).unwrap();
    assert_eq!((general.epsilon.closeness, general.epsilon.rests_on()), (None, PrivacyAccounting::General));
    let charged = PlanRequest { accounting: PrivacyAccounting::Pld, ..request() };
    let plan_of = |mechanism| plan(&PlanRequest { mechanism, ..charged }).unwrap();
    let central = plan_of(PrivacyMechanism::CentralGaussian);
    // By loss distribution 1.415 is enough for the project's row; by the general bound 2.10 are needed.
    assert!((1.41..1.425).contains(&central.noise_multiplier), "{}", central.noise_multiplier);
    assert_eq!(central.epsilon.rests_on(), PrivacyAccounting::Pld);
    for named in [central.epsilon.closeness.unwrap(), central.epsilon.cohort_closeness.unwrap()] {
        assert!(named.epsilon > 0.0 && named.epsilon < 1e-6 && named.delta > 0.0, "{named:?}");
    }
    // Never below the textbook's value for that noise.
    let pld = central.accountant.pld.unwrap();
    assert!(
        central.epsilon.published > pld && central.epsilon.published < pld + 1e-2,
        "{} {pld}",
        central.epsilon.published
    );
    assert!(central.epsilon.published <= 8.0 && central.epsilon.published > 7.99);
    // Participants' own noise gains nothing from sampling: known cohorts are charged.
    let known = plan_of(PrivacyMechanism::DistributedDiscreteGaussian).epsilon;
    assert_eq!((known.published, known.rests_on()), (known.cohort_known, PrivacyAccounting::Pld));
    // Skellam noise and coarse grids lack such a proof; a cohort of fixed size does not benefit from sampling.
    let published = |request: PlanRequest| {
        let general = plan(&PlanRequest { accounting: PrivacyAccounting::General, ..request }).unwrap();
        let charged = plan(&request).unwrap();
        assert_eq!(
            (charged.epsilon.published, charged.noise_multiplier),
            (general.epsilon.published, general.noise_multiplier)
        );
        assert_eq!(charged.epsilon.rests_on(), PrivacyAccounting::General);
        (charged.epsilon.cohort_known, general.epsilon.cohort_known)
    };
    let (skellam, by_general) = published(PlanRequest { mechanism: PrivacyMechanism::DistributedSkellam, ..charged });
    assert_eq!(skellam, by_general);
    let (coarse, by_general) = published(PlanRequest { modulus_bits: 20, ..charged });
    assert_eq!(coarse, by_general);
    let (fixed, by_general) = published(PlanRequest { sampling: PlanSampling::FixedSize, ..charged });
    assert!(fixed < by_general, "{fixed} {by_general}");
}

/// Sums of Gaussians are one Gaussian: all participants in every round, and along a tree, cost exactly what one release does.
#[test]
fn without_sampling_the_exact_figure_is_charged() {
    let all = PlanRequest {
        cohort: 200,
        rounds: 30,
        sampling: PlanSampling::Anyhow,
        accounting: PrivacyAccounting::Pld,
        goal: Goal::Noise(0.652_935_384_358_216 * 30_f64.sqrt()),
        delta: 1e-6,
        ..request()
    };
    // The oracle's analytic row: epsilon 8 at delta 1e-6 for z = 0.6529.
    let plan = plan(&all).unwrap();
    assert!(plan.epsilon.published > 8.0 && plan.epsilon.published < 8.001, "{:?}", plan.epsilon);
    assert_eq!(plan.epsilon.published, plan.epsilon.cohort_known);
    let tree = PlanRequest {
        mechanism: PrivacyMechanism::Tree,
        population: 7 * 200,
        rounds: 7,
        goal: Goal::Noise(0.652_935_384_358_216 * 3_f64.sqrt()),
        ..all
    };
    let plan = learning::privacy::plan(&tree).unwrap();
    assert!(plan.epsilon.published > 8.0 && plan.epsilon.published < 8.001, "{:?}", plan.epsilon);
}

/// Rounds in which each participant takes part `60 / 4` times, every four rounds.
fn banded(participations: Option<u32>, separation: Option<u32>) -> PlanRequest {
    PlanRequest {
        mechanism: PrivacyMechanism::BandedMatrix,
        population: 1000,
        sampling: PlanSampling::Anyhow,
        accounting: PrivacyAccounting::Pld,
        participations,
        separation,
        ..request()
    }
}

/// Three columns of the matrix that share no row are one Gaussian, too, whose exact figure is known.
#[test]
fn a_banded_matrix_costs_a_participants_columns() {
    // 1 + 1/4 + 9/64 + 25/256, three times.
    let square = 3.0 * 1.488_281_25;
    let three = PlanRequest {
        goal: Goal::Noise(0.652_935_384_358_216 * f64::sqrt(square)),
        delta: 1e-6,
        ..banded(Some(3), Some(4))
    };
    for request in [three, PlanRequest { participations: None, rounds: 12, ..three }] {
        // The oracle's analytic row: epsilon 8 at delta 1e-6 for z = 0.6529.
        let plan = plan(&request).unwrap();
        assert!(plan.epsilon.published > 8.0 && plan.epsilon.published < 8.001, "{:?}", plan.epsilon);
        assert_eq!(plan.epsilon.published, plan.epsilon.cohort_known);
        assert_eq!(plan.epsilon.server_reason, Some(NoServerEpsilon::ServerTrusted));
        // Rényi bounds alone say a little more.
        let general =
            learning::privacy::plan(&PlanRequest { accounting: PrivacyAccounting::General, ..request }).unwrap();
        assert!(general.epsilon.published > plan.epsilon.published && general.epsilon.published < 9.0);
    }
    let curve = three.curve(three.codec(3.0).unwrap().params().noise_multiplier, 60).unwrap();
    assert!(curve[..12].windows(2).all(|pair| pair[0].1.published < pair[1].1.published));
    assert!(curve[11..].windows(2).all(|pair| pair[0].1 == pair[1].1), "nobody takes part a fourth time");
    // A participant counts whole columns, so rounds that end in the middle of one are planned as if they did not.
    let of = |rounds| plan(&PlanRequest { participations: None, rounds, ..three }).unwrap().epsilon.published;
    assert_eq!((of(10), of(9)), (of(12), of(12)));
    assert!(of(8) < of(12));
    let solved = plan(&PlanRequest { goal: Goal::Epsilon(8.0), ..three }).unwrap();
    assert!((solved.noise_multiplier / 0.652_935_384_358_216 / square.sqrt() - 1.0).abs() < 1e-4);
}

/// The planned noise is not a limit: later rounds are charged, too.
#[test]
fn a_banded_matrix_costs_on_beyond_the_rounds_that_were_planned_for() {
    let facts =
        TaskFacts { cohort: 50, parameters: 7850, modulus_bits: 32, smallest_cohort: 25, colluders: 0, rounds: 100 };
    let spec = |participations| PrivacySpec {
        mechanism: PrivacyMechanism::BandedMatrix,
        noise_multiplier: Some(4.0),
        delta: Some(1e-5),
        clip: Some(Clip::Fixed(1.0)),
        rounds: Some(4),
        separation: Some(3),
        participations,
        ..PrivacySpec::default()
    };
    for (participations, columns) in [(None, 30.0), (Some(10), 10.0)] {
        let request = PlanRequest::of(&spec(participations), &facts).unwrap();
        plan(&request).unwrap();
        let release = request.release(&request.codec(4.0).unwrap()).unwrap();
        assert_eq!(release.bands.unwrap().whole(90).weight(), columns * 1.390_625);
    }
}

/// The same epsilon, rounds and cohort: less noise in the models than by a tree, and than by independent noise.
#[test]
fn a_banded_matrix_leaves_less_noise_in_models_than_a_tree() {
    let once = PlanRequest { population: 3000, ..banded(Some(1), None) };
    let of = |request: &PlanRequest| plan(request).unwrap();
    let (tree, banded_once) =
        (of(&PlanRequest { mechanism: PrivacyMechanism::Tree, participations: None, ..once }), of(&once));
    assert!(
        banded_once.noise_on_sums < 0.7 * tree.noise_on_sums,
        "{} {}",
        banded_once.noise_on_sums,
        tree.noise_on_sums
    );
    assert!(banded_once.noise_to_signal < tree.noise_to_signal);
    // Fifteen times each, beyond any tree. Independent noise may count only a participant's own rounds.
    let often = of(&banded(None, Some(4)));
    let independent = of(&PlanRequest {
        mechanism: PrivacyMechanism::CentralGaussian,
        participations: Some(15),
        ..banded(None, None)
    });
    assert!((often.epsilon.published - 8.0).abs() < 0.01 && (independent.epsilon.published - 8.0).abs() < 0.01);
    let ratio = often.noise_on_sums / independent.noise_on_sums;
    assert!(ratio < 0.75, "{ratio}");
    assert!(often.noise_on_sums > banded_once.noise_on_sums);
}

#[test]
fn plans_keep_to_turns_that_the_population_has() {
    let all = PlanRequest { population: 200, ..banded(None, Some(4)) };
    assert!(plan(&all).is_ok());
    let crowded = PlanRequest { cohort: 200, rounds: 15, ..all };
    let refused = plan(&crowded).unwrap_err();
    assert!(matches!(&refused, PlanError::Turns(turns) if turns.needed == 800), "{refused}");
    assert!(crowded.choices(6000).is_err() && crowded.curve(4.0, 1).is_err());
    // Comparisons and the cohort for a smaller epsilon stay within the limits.
    let choices = all.choices(6000).unwrap();
    assert!(choices.iter().any(|choice| choice.cohort == 200));
    for choice in choices {
        assert!(choice.cohort * choice.separation.unwrap().min(choice.rounds) <= 200, "{choice:?}");
    }
    let planned = plan(&all).unwrap();
    assert_eq!(all.cohort_for(&planned, planned.epsilon.published / 2.0).unwrap(), None);
    // A plan without a population assumes a sufficient one.
    let spec = PrivacySpec {
        mechanism: PrivacyMechanism::Tree,
        noise_multiplier: Some(4.0),
        delta: Some(1e-5),
        clip: Some(Clip::Fixed(1.0)),
        ..PrivacySpec::default()
    };
    let facts =
        TaskFacts { cohort: 50, parameters: 7850, modulus_bits: 32, smallest_cohort: 25, colluders: 0, rounds: 60 };
    assert_eq!(PlanRequest::of(&spec, &facts).unwrap().population, 3000);
}

#[test]
fn other_cohorts_and_rounds_for_the_same_epsilon_are_compared() {
    let asked = PlanRequest { accounting: PrivacyAccounting::Pld, ..request() };
    let choices = asked.choices(6000).unwrap();
    let of = |cohort: u32, rounds: u32| choices.iter().find(|at| (at.cohort, at.rounds) == (cohort, rounds)).unwrap();
    let best = choices[0];
    // All participants in half the rounds: least noise, and the same promise against observers of the cohorts.
    assert_eq!((best.cohort, best.rounds, best.uploads), (200, 30, 6000), "{choices:#?}");
    assert!((best.epsilon.cohort_known / best.epsilon.published - 1.0).abs() < 1e-9);
    let planned = of(50, 60);
    assert!(best.noise_in_all < 0.9 * planned.noise_in_all && best.noise_to_signal < planned.noise_to_signal);
    assert!(choices.iter().all(|at| at.uploads <= 6000 && at.epsilon.published <= 8.0));
    assert!(asked.choices(40).unwrap().is_empty(), "not even one round");
}

#[test]
fn warns_where_the_noise_drowns_the_mean() {
    let quiet = plan(&PlanRequest { population: 20_000, cohort: 5000, ..request() }).unwrap();
    assert!(quiet.warnings.is_empty(), "{:?}", quiet.warnings);
    let loud = plan(&PlanRequest { parameters: 1_000_000, ..request() }).unwrap();
    assert!(loud.noise_to_signal > 5.0);
    assert!(loud.warnings[0].contains("times as long as a clipped update"), "{:?}", loud.warnings);
    let needed = (50.0 * loud.noise_to_signal / 5.0).ceil();
    assert!(loud.warnings[0].contains(&format!("a cohort of {needed}")), "{:?}", loud.warnings);
    let careless = plan(&PlanRequest { delta: 0.01, ..request() }).unwrap();
    assert!(careless.warnings[0].contains("delta"), "{:?}", careless.warnings);
}

#[test]
fn refuses_what_makes_no_sense() {
    let refused = |request: PlanRequest| plan(&request).unwrap_err().to_string();
    for delta in [0.0, 1.0, f64::NAN] {
        assert!(refused(PlanRequest { delta, ..request() }).contains("delta must be above 0 and below 1"));
    }
    for epsilon in [0.0, -1.0, f64::INFINITY] {
        assert!(refused(PlanRequest { goal: Goal::Epsilon(epsilon), ..request() }).contains("epsilon"));
    }
    for z in [0.0, -1.0, f64::NAN, 1e9] {
        assert!(refused(PlanRequest { goal: Goal::Noise(z), ..request() }).contains("noise must be"));
    }
    assert!(refused(PlanRequest { cohort: 201, ..request() }).contains("cohort"));
    assert!(refused(PlanRequest { rounds: 0, ..request() }).contains("rounds"));
    assert!(refused(PlanRequest { smallest_cohort: 51, ..request() }).contains("smallest_cohort"));
    assert!(refused(PlanRequest { participations: Some(61), ..request() }).contains("participations"));
    assert_eq!(plan(&PlanRequest { mechanism: PrivacyMechanism::None, ..request() }), Err(PlanError::NoMechanism));
    let tiny = plan(&PlanRequest { goal: Goal::Epsilon(1e-7), ..request() }).unwrap_err();
    assert!(matches!(tiny, PlanError::Unreachable { .. }), "{tiny}");
}

#[test]
fn a_useless_discrete_bound_says_which_sigma_would_do() {
    let small = PlanRequest {
        mechanism: PrivacyMechanism::DistributedDiscreteGaussian,
        population: 1000,
        cohort: 400,
        smallest_cohort: 400,
        sampling: PlanSampling::Anyhow,
        modulus_bits: 16,
        parameters: 1000,
        goal: Goal::Noise(0.2),
        ..request()
    };
    let error = plan(&small).unwrap_err();
    let PlanError::Noise(NoiseError::ShareTooSmall { sigma, needed }) = error else { panic!("{error}") };
    assert!(sigma < 2.0 && (needed - 40.0).abs() < 1e-9, "{sigma} {needed}");
    assert!(error.to_string().contains("40.0 units in all would do"), "{error}");
    assert!(plan(&PlanRequest { modulus_bits: 24, ..small }).is_ok());
    assert!(plan(&PlanRequest { mechanism: PrivacyMechanism::DistributedSkellam, ..small }).is_ok());
    let nobody = plan(&PlanRequest { colluders: 400, ..small }).unwrap_err();
    assert!(nobody.to_string().contains("at least one honest participant, but 400 of 400 may collude"), "{nobody}");
}

#[test]
fn a_spec_becomes_a_request() {
    let spec = PrivacySpec {
        mechanism: PrivacyMechanism::CentralGaussian,
        epsilon: Some(8.0),
        delta: Some(1e-5),
        rounds: Some(60),
        clip: Some(Clip::Adaptive(AdaptiveClip { quantile: 0.5, initial: 1.0, learning_rate: 0.2 })),
        sampling: Some(Sampling::Poisson(0.25)),
        population: Some(200),
        ..PrivacySpec::default()
    };
    let facts =
        TaskFacts { cohort: 50, parameters: 7850, modulus_bits: 32, smallest_cohort: 25, colluders: 0, rounds: 10 };
    let asked = PlanRequest::of(&spec, &facts).unwrap();
    let fixed = PlanRequest { accounting: PrivacyAccounting::Pld, ..request() };
    assert_eq!(asked, PlanRequest { adaptive: true, ..fixed });
    // The count's coordinate takes its part of the noise; the cost is the same.
    let (adaptive, fixed) = (plan(&asked).unwrap(), plan(&fixed).unwrap());
    assert!((adaptive.noise_multiplier / fixed.noise_multiplier - 1.0).abs() < 1e-3);
    assert!(adaptive.noise_to_signal > fixed.noise_to_signal);
    assert_eq!(learning::privacy::Budget::of(&spec).unwrap().epsilon, Some(8.0));
    let sampling = Some(Sampling::FixedSize(40));
    let problems = PlanRequest::of(&PrivacySpec { sampling, ..spec }, &facts).unwrap_err();
    assert!(problems[0].to_string().contains("40") && problems[0].to_string().contains("50"), "{problems:?}");
}

#[test]
fn cohorts_that_a_draw_can_be_counted_on_for() {
    let q = rate(0.25);
    // Binomial(200, 0.25): P(X < 37) = 0.0101 > 0.01 >= P(X < 36).
    assert_eq!(smallest_draw(200, q, 0.0, 0.01), 36);
    assert_eq!(smallest_draw(200, q, 0.3, 0.01), 25);
    let largest = largest_draw(200, q);
    assert!((90..=100).contains(&largest), "{largest}");
    assert_eq!((smallest_draw(5, SamplingRate::ALL, 0.0, 0.01), largest_draw(5, SamplingRate::ALL)), (5, 5));
}
