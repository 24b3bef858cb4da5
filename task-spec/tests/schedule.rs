//! `[schedule]`: opening times of rounds, weights of old updates, and rejections with their reasons.

use std::time::Duration;

use proptest::prelude::*;
use task_spec::{Ahead, Deployment, LEAST_WEIGHT, MAX_STALENESS, SpecError, Staleness, TaskSpec};

const DEPLOYMENT: Deployment = Deployment { poll_interval_ms: 1_000 };

fn spec(mode: &str, more: &str) -> TaskSpec {
    let text = format!(
        "name = \"ahead\"\n[model]\ntensors = [{{ name = \"w\", shape = [3] }}]\n[schedule]\nmode = \"{mode}\"\n{more}"
    );
    toml::from_str(&text).unwrap_or_else(|error| panic!("the test's own task file: {error}\n{text}"))
}

fn problems(spec: &TaskSpec) -> Vec<SpecError> {
    spec.check(&DEPLOYMENT).err().unwrap_or_default()
}

#[track_caller]
fn refuses(mode: &str, more: &str, fields: &[&str]) {
    let problems = problems(&spec(mode, more));
    let found: Vec<_> = problems.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(found, fields, "{problems:?}");
}

#[test]
fn a_task_trains_within_its_rounds_unless_it_says_otherwise() {
    let silent: TaskSpec = toml::from_str("name = \"t\"\n[model]\ntensors = [{ name = \"w\", shape = [3] }]").unwrap();
    assert_eq!(silent.ahead(), None);
    assert_eq!(spec("sync", "").ahead(), None);
    assert!(!serde_json::to_string(&silent).unwrap().contains("schedule"), "silence stays silent");
}

#[test]
fn what_is_left_out_is_filled_in() {
    let buffered = spec("buffered", "");
    assert_eq!(problems(&buffered), []);
    let expected = Ahead {
        period: None,
        concurrency: 20,
        staleness: Staleness { a: 1.0, p: 0.5, max: 10 },
        training_deadline: Duration::from_secs(600),
    };
    assert_eq!(buffered.ahead(), Some(expected));
    let all = "period_ms = 5000\nconcurrency = 17\nmax_staleness = 3\nstaleness_a = 2\nstaleness_p = 1\n\
               training_deadline_ms = 60000\n[selection]\ncohort = { fraction = 1.0 }";
    let semi = spec("semi_sync", all);
    assert_eq!(problems(&semi), []);
    let expected = Ahead {
        period: Some(Duration::from_secs(5)),
        concurrency: 17,
        staleness: Staleness { a: 2.0, p: 1.0, max: 3 },
        training_deadline: Duration::from_secs(60),
    };
    assert_eq!(semi.ahead(), Some(expected));
    let json = serde_json::to_string(&semi).unwrap();
    assert_eq!(serde_json::from_str::<TaskSpec>(&json).unwrap(), semi, "JSON keeps it whole");
}

/// 1/(1 + a s)^p by hand; a = 1, p = 1/2 is the paper's.
#[test]
fn weights_are_the_papers() {
    let fed_buff = Staleness { a: 1.0, p: 0.5, max: 10 };
    for (staleness, weight) in [
        (0, 1.0),
        (1, std::f64::consts::FRAC_1_SQRT_2),
        (2, 0.577_350_269_189_625_8),
        (3, 0.5),
        (8, 1.0 / 3.0),
        (99, 0.1),
    ] {
        assert!((fed_buff.weight(staleness) - weight).abs() < 1e-15, "{staleness}");
    }
    let steep = Staleness { a: 0.5, p: 2.0, max: 10 };
    for (staleness, weight) in [(0, 1.0), (1, 4.0 / 9.0), (2, 0.25), (6, 0.0625)] {
        assert!((steep.weight(staleness) - weight).abs() < 1e-15, "{staleness}");
    }
    assert_eq!(Staleness { a: 0.0, p: 3.0, max: 1 }.weight(9), 1.0);
    assert_eq!(Staleness { a: 3.0, p: 0.0, max: 1 }.weight(9), 1.0);
}

#[test]
fn numbers_out_of_range_are_refused() {
    for (more, field) in [
        ("concurrency = 0", "concurrency"),
        ("concurrency = 9", "concurrency"),
        ("concurrency = 65537", "concurrency"),
        ("max_staleness = 1001", "max_staleness"),
        // 1 / (1 + 100)^0.5 is just below a tenth.
        ("max_staleness = 100", "max_staleness"),
        ("staleness_a = -0.1", "staleness_a"),
        ("staleness_a = nan", "staleness_a"),
        ("staleness_a = inf", "staleness_a"),
        ("staleness_p = -1", "staleness_p"),
        ("staleness_p = 10.5", "staleness_p"),
        ("training_deadline_ms = 999", "training_deadline_ms"),
        ("training_deadline_ms = 99999999999", "training_deadline_ms"),
        ("period_ms = 5000", "period_ms"),
    ] {
        refuses("buffered", more, &[&format!("schedule.{field}")]);
    }
    refuses("semi_sync", "", &["schedule.period_ms"]);
    refuses("semi_sync", "period_ms = 0", &["schedule.period_ms"]);
    refuses("sync", "concurrency = 5", &["schedule.concurrency"]);
    refuses("sync", "staleness_a = 1.0\nperiod_ms = 9", &["schedule.period_ms", "schedule.staleness_a"]);
    refuses("buffered", "[selection]\ncohort = { fraction = 0.5 }", &["selection.cohort"]);
    assert!(toml::from_str::<TaskSpec>("name = \"t\"\n[schedule]\nmode = \"whenever\"").is_err());
    assert!(toml::from_str::<TaskSpec>("name = \"t\"\n[schedule]\nbuffer = 3").is_err());
}

#[test]
fn what_needs_everybody_at_the_same_version_is_refused_with_the_reason() {
    let clear = "[secure_aggregation]\nenabled = false\n";
    for (more, field, reason) in [
        ("[selection.strategy.oort]", "selection.strategy", "durations"),
        ("[selection.strategy.power_of_choice]\ncandidates = 30", "selection.strategy", "one version"),
        ("[aggregation.robust]\nrule = \"median\"\nattackers = 0.2", "aggregation.robust", "start from one version"),
        (
            "[aggregation.gate]\nmetric = \"accuracy\"\nbetter = \"higher\"\nmax_fall = 0.1",
            "aggregation.gate",
            "measured older ones",
        ),
        ("[rounds]\nkeep_best = { metric = \"accuracy\" }", "rounds.keep_best", "measured several"),
        (
            "[aggregation]\nclip_norm = 1.0\n[training.fairness]\nq = 1.0\nloss_cap = 3.0",
            "training.fairness",
            "nobody in a buffer has measured",
        ),
    ] {
        for (mode, period) in [("buffered", ""), ("semi_sync", "period_ms = 5000\n")] {
            let problems = problems(&spec(mode, &format!("{period}{clear}{more}")));
            let [problem] = &problems[..] else { panic!("{mode}, {more}: {problems:?}") };
            assert_eq!(problem.field, field);
            assert!(problem.problem.contains(reason), "{problem}");
        }
        assert_eq!(problems(&spec("sync", &format!("{clear}{more}"))), [], "{more}");
    }
}

#[test]
fn epsilon_is_promised_for_nothing_it_is_not_proven_for() {
    let private = |more: &str| format!("[privacy]\nmechanism = \"central_gaussian\"\nnoise_multiplier = 1.0\n{more}");
    refuses("buffered", &private("delta = 1e-5\nclip = { fixed = 1.0 }"), &[]);
    let poisson = private("clip = { fixed = 1.0 }\nsampling = { poisson = 0.1 }\npopulation = 100");
    let found = problems(&spec("buffered", &poisson));
    assert!(
        found
            .iter()
            .any(|problem| problem.field == "privacy.sampling" && problem.problem.contains("without amplification")),
        "{found:?}"
    );
    refuses("buffered", &private("clip = { fixed = 1.0 }\nsampling = { fixed_size = 10 }"), &["privacy.sampling"]);
    refuses("buffered", &private("clip = { adaptive = { initial = 1.0 } }"), &["privacy.clip"]);
}

proptest! {
    /// Weights never grow with age, never exceed one, and never vanish.
    #[test]
    fn weights_fall_with_age(a in 0.0..=1000.0_f64, p in 0.0..=10.0_f64, s in 0..MAX_STALENESS) {
        let rule = Staleness { a, p, max: MAX_STALENESS };
        prop_assert_eq!(rule.is_sound(), rule.weight(MAX_STALENESS) >= LEAST_WEIGHT);
        let (now, older) = (rule.weight(s), rule.weight(s + 1));
        prop_assert!(now <= 1.0 && older <= now && older > 0.0, "{now} {older}");
        prop_assert_eq!(rule.weight(0), 1.0);
    }
}
