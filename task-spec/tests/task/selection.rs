//! `[selection]`: rejections, with valid alternatives.

use super::*;

#[test]
fn the_selection_is_checked() {
    refuses(&["selection.cohort.count", "rounds.select_min", "rounds.collect_min"], |t| {
        t.selection.cohort = Cohort::Count(0);
        t.secure_aggregation.enabled = false;
    });
    for fraction in [0.0, -0.5, 1.01, f64::NAN] {
        let problems = problems(|t| t.selection.cohort = Cohort::Fraction(fraction));
        assert_eq!(problems[0].field, "selection.cohort.fraction");
    }
    for over_selection in [-0.1, 10.1, f64::NAN] {
        refuses(&["selection.over_selection"], |t| t.selection.over_selection = over_selection);
    }
}

#[test]
fn strategies_are_read_and_their_parameters_checked() {
    let read = |text: &str| parse(&format!("{SMALL}\n[selection]\nstrategy = {text}")).selection.strategy;
    assert_eq!(read("\"uniform\""), Strategy::Uniform);
    assert_eq!(read("\"round_robin\""), Strategy::RoundRobin);
    let stratified = |label: &str| Strategy::Stratified(Stratified { label: label.into(), quotas: Quotas::Equal });
    assert_eq!(read("{ stratified = { label = \"region\", quotas = \"equal\" } }"), stratified("region"));
    let power = |candidates| Strategy::PowerOfChoice(PowerOfChoice { candidates });
    assert_eq!(read("{ power_of_choice = { candidates = 30 } }"), power(30));
    assert_eq!(read("{ oort = {} }"), Strategy::Oort(Oort::default()));
    assert_eq!(read("{ oort = { alpha = 1.0 } }"), Strategy::Oort(Oort { alpha: 1.0, ..Oort::default() }));

    let memory =
        |at_least, at_most| Criterion { attribute: "memory".into(), at_least, at_most, ..Criterion::default() };
    refuses(&[], |t| t.selection.on_device = vec![memory(Some(4.0), None); 16]);
    refuses(&["selection.on_device"], |t| t.selection.on_device = vec![memory(Some(4.0), None); 17]);
    refuses(&["selection.on_device[1]"], |t| t.selection.on_device = vec![memory(None, Some(4.0)), memory(None, None)]);
    refuses(&["selection.on_device"], |t| {
        t.privacy.mechanism = PrivacyMechanism::CentralGaussian;
        t.selection.on_device = vec![memory(Some(4.0), None)];
    });
    refuses(&["selection.strategy.stratified.label"], |t| t.selection.strategy = stratified(""));
    let reporting = |strategy| {
        move |t: &mut TaskSpec| {
            (t.selection.strategy, t.selection.report_utility, t.selection.over_selection) = (strategy, true, 0.2);
            t.rounds.select_min = Some(12);
        }
    };
    refuses(&["selection.strategy.power_of_choice.candidates"], reporting(power(11)));
    refuses(&[], reporting(power(12)));
    for (field, oort) in [
        ("exploration", Oort { exploration: 1.1, ..Oort::default() }),
        ("exploration_decay", Oort { exploration_decay: 0.0, ..Oort::default() }),
        ("exploration_min", Oort { exploration_min: 0.95, ..Oort::default() }),
        ("alpha", Oort { alpha: f64::NAN, ..Oort::default() }),
        ("pacer_window", Oort { pacer_window: 0, ..Oort::default() }),
        ("pacer_start", Oort { pacer_start: 0, ..Oort::default() }),
        ("pacer_step", Oort { pacer_step: 101, ..Oort::default() }),
        ("clip_quantile", Oort { clip_quantile: 0.0, ..Oort::default() }),
        ("cutoff", Oort { cutoff: 1.01, ..Oort::default() }),
    ] {
        refuses(&[&format!("selection.strategy.oort.{field}")], reporting(Strategy::Oort(oort)));
    }
}

#[test]
fn losses_of_single_participants_are_not_followed_behind_secure_aggregation_unless_asked_for() {
    let following = [Strategy::Oort(Oort::default()), Strategy::PowerOfChoice(PowerOfChoice { candidates: 20 })];
    for strategy in following {
        let with = |secure, report_utility| {
            let mut spec = parse(SMALL);
            (spec.selection.strategy, spec.selection.report_utility) = (strategy.clone(), report_utility);
            spec.secure_aggregation.enabled = secure;
            spec
        };
        let problems = with(true, false).check(&DEPLOYMENT).unwrap_err();
        assert_eq!(problems[0].field, "selection.strategy");
        assert!(problems[0].problem.contains("selection.report_utility = true"), "{problems:?}");
        for (secure, report_utility) in [(true, true), (false, false), (false, true)] {
            let spec = with(secure, report_utility);
            assert_eq!((spec.check(&DEPLOYMENT), spec.reports_utility()), (Ok(()), true));
        }
        refuses(&["metrics"], |t| {
            *t = with(true, true);
            t.metrics = vec!["loss".into()];
        });
    }
    refuses(&["selection.report_utility"], |t| t.selection.report_utility = true);
    let problems = problems(|t| {
        (t.selection.strategy, t.selection.report_utility) = (Strategy::Oort(Oort::default()), true);
        t.privacy.mechanism = PrivacyMechanism::CentralGaussian;
    });
    assert_eq!(problems[0].field, "selection.strategy");
    assert!(problems[0].problem.contains("epsilon does not cover"), "{problems:?}");
    assert!(!parse(SMALL).reports_utility());
}

#[test]
fn only_a_draw_that_knows_nothing_amplifies_privacy() {
    assert!(Strategy::Uniform.allows_amplification());
    let stratified = Stratified { label: "region".into(), quotas: Quotas::Proportional };
    for strategy in [
        Strategy::RoundRobin,
        Strategy::Stratified(stratified),
        Strategy::PowerOfChoice(PowerOfChoice { candidates: 9 }),
        Strategy::Oort(Oort::default()),
    ] {
        assert!(!strategy.allows_amplification(), "{}", strategy.as_str());
    }
}

#[test]
fn a_cohort_above_the_declared_population_is_refused() {
    let declare = |population| {
        move |t: &mut TaskSpec| {
            t.privacy.mechanism = PrivacyMechanism::CentralGaussian;
            t.privacy.population = Some(population);
        }
    };
    refuses(&["selection.cohort"], declare(9));
    refuses(&[], declare(10));
    refuses(&["rounds.select_min"], |t| {
        declare(11)(t);
        t.rounds.select_min = Some(12);
    });
}
