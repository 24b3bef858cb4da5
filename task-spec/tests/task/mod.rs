//! Tasks: the operator's file, rejected mistakes, and derived limits.

mod batch_norm;
mod selection;
mod training;

use task_spec::{
    AdaptiveMu, Better, Budget, Compression, Deployment, Draw, Fairness, GateSpec, Initial, KeepBest, MAX_COHORT,
    MAX_DEADLINE_MS, MAX_STOP_AFTER, Over, Personalization, PrivacyMechanism, RobustRule, RobustSpec, Schedule,
    SecureAggregationSpec, ServerOptimizer, Solver, SpecError, Strategy, TaskSpec, Warmup, is_name,
};
use task_spec::{Cohort, Criterion, Oort, PowerOfChoice, Quotas, Stratified};

const DEPLOYMENT: Deployment = Deployment { poll_interval_ms: 1_000 };

const FULL: &str = r#"
    name = "mnist-mlp"
    description = "Digits."
    metrics = ["loss", "accuracy"]

    [model]
    personal = ["fc2.*"]
    seed = 7
    architecture = { kind = "mlp", inputs = 784, hidden = [200], classes = 10 }
    tensors = [
        { name = "fc1.weight", shape = [200, 784], init = { uniform = { bound = 0.0357 } } },
        { name = "fc1.bias", shape = [200] },
        { name = "fc2.weight", shape = [10, 200], init = "zeros" },
    ]

    [training]
    epochs = 2
    batch_size = 10
    learning_rate = 0.05
    momentum = 0.9

    [rounds]
    count = 30
    max_attempts = 5
    select_min = 8
    collect_min = 4
    collect_deadline_ms = 60000

    [selection]
    cohort = { fraction = 0.5 }
    over_selection = 0.25
    seed = 1
    require = { labels = { region = "eu" }, min_examples = 50, min_gap_rounds = 1 }

    [aggregation]
    optimizer = { name = "fed_avg", learning_rate = 0.5 }
    modulus_bits = 30
    clip_range = 0.5
    clip_norm = 4.0
    max_weight = 600

    [compression]
    codec = "low_rank"
    rank = 8

    [secure_aggregation]
    min_cohort = 4
    max_corrupt_fraction = 0.2
    max_dropout_fraction = 0.25
    modulus_bits = 31
    clip_range = 0.25
    unmask_deadline_ms = 30000
"#;

const SMALL: &str = r#"
    name = "small"
    [model]
    tensors = [{ name = "w", shape = [3] }]
"#;

fn parse(text: &str) -> TaskSpec {
    toml::from_str(text).expect("the test's own task file")
}

fn problems(change: impl FnOnce(&mut TaskSpec)) -> Vec<SpecError> {
    let mut spec = parse(SMALL);
    change(&mut spec);
    spec.check(&DEPLOYMENT).err().unwrap_or_default()
}

#[track_caller]
fn refuses(fields: &[&str], change: impl FnOnce(&mut TaskSpec)) {
    let problems = problems(change);
    let found: Vec<_> = problems.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(found, fields, "{problems:?}");
}

#[test]
fn a_full_task_file_is_read_and_sound() {
    let spec = parse(FULL);
    assert_eq!(spec.check(&DEPLOYMENT), Ok(()));
    assert_eq!(spec.selection.cohort, Cohort::Fraction(0.5));
    assert_eq!(spec.aggregation.optimizer, ServerOptimizer::FedAvg { learning_rate: 0.5 });
    assert_eq!(spec.model.tensors[0].init, Initial::Uniform { bound: 0.0357 });
    assert_eq!(spec.model.tensors[1].init, Initial::Zeros);
    assert_eq!(spec.compression, Some(Compression::LowRank { rank: 8, bits: 12, error_feedback: false }));
    let secure = &spec.secure_aggregation;
    assert_eq!((secure.max_corrupt_millionths(), secure.max_dropout_millionths()), (200_000, 250_000));
    assert_eq!((spec.modulus_bits(), spec.clip_range()), (31, 0.25), "secure aggregation has its own");
    let insecure =
        TaskSpec { secure_aggregation: SecureAggregationSpec { enabled: false, ..secure.clone() }, ..spec.clone() };
    assert_eq!((insecure.modulus_bits(), insecure.clip_range()), (30, 0.5));
    let json = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<TaskSpec>(&json).unwrap(), spec, "JSON keeps it whole");
}

#[test]
fn the_smallest_task_file_gets_working_defaults() {
    let spec = parse(SMALL);
    assert_eq!(spec.check(&DEPLOYMENT), Ok(()));
    assert_eq!((spec.select_min(), spec.collect_min(), spec.collect_max()), (10, 5, 1024));
    assert!(spec.secure_aggregation.enabled, "updates are hidden unless somebody says otherwise");
    assert_eq!(spec.metrics, ["loss", "accuracy", "train_loss"]);
}

#[test]
fn unknown_keys_are_refused_wherever_they_stand() {
    for (section, key) in [
        ("", "nmae = 1"),
        ("[training]", "epoch = 1"),
        ("[rounds]", "cuont = 1"),
        ("[selection]", "fraction = 0.5"),
        ("[selection.require]", "label = 1"),
        ("[aggregation]", "optimiser = 1"),
        ("[secure_aggregation]", "min_chort = 3"),
        ("[aggregation.optimizer]", "name = \"fed_avg\"\nrate = 1.0"),
    ] {
        let text = if section.is_empty() { format!("{key}\n{SMALL}") } else { format!("{SMALL}\n{section}\n{key}") };
        let error = toml::from_str::<TaskSpec>(&text).unwrap_err().to_string();
        assert!(error.contains("unknown field") && error.contains("expected"), "{section} {key}: {error}");
    }
    assert!(toml::from_str::<TaskSpec>(&SMALL.replace("shape", "shapes")).is_err());
}

#[test]
fn names_and_the_model_are_checked() {
    refuses(&["name"], |t| t.name = "two words".into());
    refuses(&["name"], |t| t.name.clear());
    refuses(&["description"], |t| t.description = "x".repeat(4097));
    refuses(&["model.tensors"], |t| t.model.tensors.clear());
    refuses(&["model.personal"], |t| t.model.personal = vec!["x".into(); 257]);
    for bound in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        refuses(&["model.tensors.init.uniform.bound"], |t| t.model.tensors[0].init = Initial::Uniform { bound });
    }
    refuses(&["metrics"], |t| t.metrics = vec!["loss".into(), "loss".into()]);
    refuses(&["metrics"], |t| t.metrics = vec!["no blanks".into()]);
    refuses(&["metrics"], |t| t.metrics = (0..17).map(|i| format!("m{i}")).collect());
    assert!(problems(|t| t.metrics.clear()).is_empty());
    assert!([".", "..", "...."].iter().all(|dots| !is_name(dots)) && is_name(".a") && is_name("a.."));
    assert!(is_name("a-1_b.C") && !is_name(&"x".repeat(65)) && !is_name("ä"));
}

#[test]
fn a_configuration_that_can_starve_is_refused() {
    refuses(&["rounds.select_min"], |t| t.rounds.select_max = 9);
    refuses(&["rounds.collect_min"], |t| (t.rounds.collect_min, t.rounds.collect_max) = (Some(6), Some(5)));
    refuses(&["rounds.collect_min"], |t| t.rounds.collect_min = Some(11));
    // Over-selection makes it reachable, but not with as many as are there when selection closes.
    refuses(&["rounds.collect_min"], |t| (t.rounds.collect_min, t.selection.over_selection) = (Some(11), 0.5));
    assert!(
        problems(|t| {
            (t.rounds.collect_min, t.selection.over_selection, t.rounds.select_min) = (Some(11), 0.5, Some(15));
        })
        .is_empty()
    );
    refuses(&["rounds.select_deadline_ms"], |t| t.rounds.select_deadline_ms = 999);
    refuses(&["rounds.collect_deadline_ms"], |t| t.rounds.collect_deadline_ms = 999);
    refuses(&["rounds.collect_deadline_ms"], |t| t.rounds.collect_deadline_ms = MAX_DEADLINE_MS + 1);
    refuses(&["rounds.aggregate_deadline_ms"], |t| t.rounds.aggregate_deadline_ms = 0);
    refuses(&["rounds.count"], |t| t.rounds.count = 0);
    refuses(&["rounds.select_max"], |t| {
        t.rounds.select_max = MAX_COHORT + 1;
        t.secure_aggregation.enabled = false;
    });
    refuses(&["rounds.select_min", "rounds.collect_min"], |t| {
        (t.rounds.select_min, t.rounds.collect_min) = (Some(0), Some(0));
        t.secure_aggregation.enabled = false;
    });
}

#[test]
fn secure_aggregation_is_checked() {
    for min_cohort in [0, 2, 1025] {
        let problems = problems(|t| t.secure_aggregation.min_cohort = Some(min_cohort));
        assert_eq!(problems[0].field, "secure_aggregation.min_cohort", "{problems:?}");
    }
    refuses(&["rounds.select_max"], |t| t.rounds.select_max = 1025);
    for fraction in [-0.1, 0.51, f64::NAN] {
        let field = ["secure_aggregation.max_corrupt_fraction"];
        refuses(&field, |t| t.secure_aggregation.max_corrupt_fraction = fraction);
    }
    for fraction in [-0.1, 1.0, f64::NAN] {
        let field = ["secure_aggregation.max_dropout_fraction"];
        refuses(&field, |t| t.secure_aggregation.max_dropout_fraction = fraction);
    }
    refuses(&["secure_aggregation.modulus_bits"], |t| t.secure_aggregation.modulus_bits = Some(33));
    refuses(&["secure_aggregation.clip_range"], |t| t.secure_aggregation.clip_range = Some(-1.0));
    refuses(&["secure_aggregation.share_deadline_ms"], |t| t.secure_aggregation.share_deadline_ms = 999);
    refuses(&["secure_aggregation.confirm_deadline_ms"], |t| t.secure_aggregation.confirm_deadline_ms = 0);
    refuses(&["secure_aggregation.unmask_deadline_ms"], |t| {
        t.secure_aggregation.unmask_deadline_ms = MAX_DEADLINE_MS + 1;
    });
    assert!(
        problems(|t| t.secure_aggregation =
            SecureAggregationSpec { enabled: false, min_cohort: Some(0), ..SecureAggregationSpec::default() })
        .is_empty()
    );
}

#[test]
fn two_participants_cannot_aggregate_securely_and_the_error_says_what_can_be_done() {
    let problems = problems(|t| t.selection.cohort = Cohort::Count(2));
    let text: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        text,
        [
            "secure_aggregation.min_cohort: is 3, but a cohort drawn from rounds.select_min = 2 participants has only 2: raise \
          the cohort or select_min, or switch secure aggregation off (secure_aggregation.enabled = false), which lets the \
          operator read every update"
        ]
    );
}

#[test]
fn a_fraction_waits_for_enough_to_make_a_secure_cohort() {
    let select_min = |fraction, secure| {
        let mut spec = parse(SMALL);
        spec.selection.cohort = Cohort::Fraction(fraction);
        spec.secure_aggregation.enabled = secure;
        assert_eq!(spec.check(&DEPLOYMENT), Ok(()));
        spec.select_min()
    };
    assert_eq!(select_min(0.5, false), 2);
    assert_eq!(select_min(0.5, true), 5, "half of five, rounded up, is three");
    assert_eq!(select_min(1.0, true), 3);
    assert_eq!(select_min(0.01, true), 201);
}

#[test]
fn a_session_starts_with_ten_where_so_many_are_drawn() {
    let least = |change: &dyn Fn(&mut TaskSpec)| {
        let mut spec = parse(SMALL);
        change(&mut spec);
        assert_eq!(spec.check(&DEPLOYMENT), Ok(()));
        spec.session_min()
    };
    assert_eq!(least(&|spec| spec.selection.cohort = Cohort::Count(50)), 10);
    assert_eq!(least(&|spec| spec.selection.cohort = Cohort::Count(10)), 10);
    assert_eq!(least(&|spec| spec.selection.cohort = Cohort::Count(9)), 3);
    assert_eq!(
        least(&|spec| (spec.selection.cohort, spec.rounds.select_min) = (Cohort::Count(50), Some(7))),
        3,
        "of seven that are there all are drawn"
    );
    assert_eq!(
        least(&|spec| (spec.selection.cohort, spec.rounds.select_min) = (Cohort::Fraction(0.5), Some(20))),
        10,
        "half of twenty"
    );
    assert_eq!(least(&|spec| spec.selection.cohort = Cohort::Fraction(0.5)), 3, "whoever is there");
    assert_eq!(least(&|spec| spec.secure_aggregation.min_cohort = Some(5)), 5, "the task says so");
    let of = |cohort: u32| {
        move |spec: &mut TaskSpec| {
            spec.selection.cohort = Cohort::Count(cohort);
            spec.secure_aggregation.max_dropout_fraction = 0.4;
        }
    };
    assert_eq!(least(&of(5)), 4, "three of four are left for the sum");
    assert_eq!(least(&of(3)), 3);
}

#[test]
fn the_encoding_is_checked() {
    refuses(&["aggregation.modulus_bits"], |t| t.aggregation.modulus_bits = 15);
    refuses(&["aggregation.modulus_bits"], |t| t.aggregation.modulus_bits = 33);
    refuses(&["aggregation.clip_range"], |t| t.aggregation.clip_range = 0.0);
    refuses(&["aggregation.clip_norm"], |t| t.aggregation.clip_norm = Some(f32::NAN));
    refuses(&["aggregation.max_weight"], |t| t.aggregation.max_weight = 0);
}

#[test]
fn all_mistakes_are_named_at_once_with_what_would_be_right() {
    let problems = problems(|t| {
        t.name.clear();
        t.training.batch_size = 0;
        t.rounds.collect_min = Some(11);
        t.aggregation.modulus_bits = 64;
    });
    let text: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        text,
        [
            "name: must be 1 to 64 letters, digits, '-', '_' or '.', and not of dots alone",
            "training.batch_size: must be between 1 and 65536",
            "rounds.collect_min: is 11, but a cohort drawn from rounds.select_min = 10 participants has only 10: lower \
             collect_min, or raise select_min, the cohort or over_selection",
            "aggregation.modulus_bits: must be between 16 and 32",
        ]
    );
}

#[test]
fn a_draw_over_selects_within_what_is_there() {
    let draw = |over_selection: f64, eligible| {
        let mut spec = parse(SMALL);
        spec.selection.over_selection = over_selection;
        spec.rounds.select_max = 15;
        spec.draw(eligible)
    };
    assert_eq!(draw(0.0, 20), Draw { cohort: 10, collect_max: 10 });
    assert_eq!(draw(0.2, 20), Draw { cohort: 12, collect_max: 10 });
    assert_eq!(draw(0.1, 20), Draw { cohort: 11, collect_max: 10 }, "10 * 1.1 is a hair above 11 in binary");
    assert_eq!(draw(0.01, 20), Draw { cohort: 11, collect_max: 10 }, "a part of a participant is one");
    assert_eq!(draw(0.2, 11), Draw { cohort: 11, collect_max: 10 });
    assert_eq!(draw(9.0, 100), Draw { cohort: 15, collect_max: 10 }, "select_max holds");
    assert_eq!(draw(0.2, 4), Draw { cohort: 4, collect_max: 4 });
}

#[test]
fn whatever_passes_the_check_can_close_collection() {
    // With as few participants as selection closes with, and all of them reporting, collection must close.
    for count in 1..=12 {
        for over_selection in [0.0, 0.1, 0.3, 1.0] {
            for select_min in [None, Some(1), Some(5), Some(20)] {
                for collect_min in [None, Some(1), Some(5), Some(13)] {
                    let mut spec = parse(SMALL);
                    spec.selection.cohort = Cohort::Count(count);
                    spec.selection.over_selection = over_selection;
                    (spec.rounds.select_min, spec.rounds.collect_min) = (select_min, collect_min);
                    if spec.check(&DEPLOYMENT).is_ok() {
                        assert!(spec.collect_min() <= spec.draw(spec.select_min()).cohort, "{spec:?}");
                    }
                }
            }
        }
    }
}

const ANALYSIS: &str = r#"
    name = "ages"
    [analytics]
    kind = "statistics"
    max_rows = 1000
    columns = [{ type = "real", name = "age", low = 0, high = 120.5, quantiles = [0.5] }]
"#;

#[test]
fn an_analysis_takes_the_place_of_a_model() {
    let spec = parse(ANALYSIS);
    assert_eq!(spec.check(&DEPLOYMENT), Ok(()));
    let json = serde_json::to_string(&spec).unwrap();
    let back: TaskSpec = serde_json::from_str(&json).unwrap();
    assert_eq!(back, spec);
    let bytes = |spec: &TaskSpec| spec.analytics.as_ref().unwrap().to_bytes();
    assert_eq!(bytes(&back), bytes(&spec), "everybody finds the same digest");
    assert!(toml::from_str::<TaskSpec>("name = \"a\"\nanalytics = 3").is_err());
}

#[test]
fn what_means_nothing_beside_an_analysis_is_refused() {
    let refuses = |field: &str, more: &str| {
        let problems = parse(&format!("{ANALYSIS}{more}")).check(&DEPLOYMENT).unwrap_err();
        assert!(problems.iter().any(|problem| problem.field == field), "{field}: {problems:?}");
    };
    refuses("model", "[model]\ntensors = [{ name = \"w\", shape = [3] }]");
    refuses("compression", "[compression]\ncodec = \"random_k\"\nk = 3");
    refuses("model", "[model]\npersonal = [\"w\"]");
    refuses("training", "[training]\nepochs = 2");
    let private = "[privacy]\nepsilon = 1.0\ndelta = 1e-6\nmechanism = \"central_gaussian\"";
    assert_eq!(parse(&format!("{ANALYSIS}{private}\nclip = {{ fixed = 1.0 }}")).check(&DEPLOYMENT), Ok(()));
    for mechanism in ["tree", "banded_matrix"] {
        refuses("privacy.mechanism", &private.replace("central_gaussian", mechanism));
    }
    refuses("privacy.clip", &format!("{private}\nclip = {{ fixed = 2.0 }}"));
    refuses("privacy.clip", &format!("{private}\nclip = {{ adaptive = {{ initial = 1.0 }} }}"));
    refuses("privacy.max_weight", &format!("{private}\nmax_weight = 3"));
    refuses("privacy.expected_weight", &format!("{private}\nexpected_weight = 0.5"));
    refuses("selection.strategy", "[selection]\nstrategy = { oort = {} }\nreport_utility = true");
    refuses("aggregation.robust", "[aggregation]\nrobust = { rule = \"median\", attackers = 0.1 }");
    refuses("aggregation.gate", "[aggregation]\ngate = { metric = \"accuracy\", max_fall = 0.1 }");
    refuses("rounds.keep_best", "[rounds]\nkeep_best = { metric = \"accuracy\" }");
    let long = ["{}"; 400_000].join(",");
    refuses("analytics", &format!("[analytics.more]\nx = [{long}]"));
}

#[test]
fn robust_rules_are_read_and_checked() {
    let rule = |rule, attackers| RobustSpec { rule, attackers, norm_factor: None, group_size: None };
    let text =
        "[aggregation]\nrobust = { rule = \"multi_krum\", attackers = 0.2 }\n[secure_aggregation]\nenabled = false";
    let spec = parse(&format!("{SMALL}\n{text}"));
    assert_eq!(spec.aggregation.robust, Some(rule(RobustRule::MultiKrum, 0.2)));
    assert_eq!(spec.check(&DEPLOYMENT), Ok(()));

    let open = |robust: RobustSpec| {
        move |t: &mut TaskSpec| (t.aggregation.robust, t.secure_aggregation.enabled) = (Some(robust), false)
    };
    refuses(&[], open(RobustSpec { norm_factor: Some(3.0), ..rule(RobustRule::NormFilter, 0.4) }));
    for attackers in [0.0, -0.1, 0.5, f64::NAN] {
        refuses(&["aggregation.robust.attackers"], open(rule(RobustRule::Median, attackers)));
    }
    for factor in [0.9, f64::NAN, f64::INFINITY] {
        let robust = RobustSpec { norm_factor: Some(factor), ..rule(RobustRule::NormFilter, 0.2) };
        refuses(&["aggregation.robust.norm_factor"], open(robust));
    }
    let robust = RobustSpec { norm_factor: Some(2.0), ..rule(RobustRule::Krum, 0.2) };
    refuses(&["aggregation.robust.norm_factor"], open(robust));
    let grouped = |size, attackers| RobustSpec { group_size: Some(size), ..rule(RobustRule::Median, attackers) };
    refuses(&["aggregation.robust.group_size"], open(grouped(5, 0.05)));
    refuses(&["training.fairness"], |t| {
        open(rule(RobustRule::Median, 0.1))(t);
        t.aggregation.clip_norm = Some(1.0);
        t.training.fairness = Some(Fairness { q: 1.0, loss_cap: 5.0, lipschitz: None });
    });
    refuses(&["rounds.select_max"], |t| {
        open(rule(RobustRule::Median, 0.1))(t);
        t.rounds.select_max = 1025;
    });
    refuses(&["aggregation.robust"], |t| {
        open(rule(RobustRule::Median, 0.1))(t);
        t.privacy.mechanism = PrivacyMechanism::CentralGaussian;
    });
}

#[test]
fn behind_secure_aggregation_a_rule_needs_groups_and_most_of_them_must_be_clean() {
    let robust =
        |attackers, group_size| RobustSpec { rule: RobustRule::Median, attackers, norm_factor: None, group_size };
    let set = |robust| move |t: &mut TaskSpec| t.aggregation.robust = Some(robust);
    refuses(&["aggregation.robust"], set(robust(0.05, None)));
    // 0.95^5 = 0.77, 0.95^9 = 0.63, 0.95^10 = 0.599.
    refuses(&[], set(robust(0.05, Some(5))));
    refuses(&[], set(robust(0.05, Some(9))));
    refuses(&["aggregation.robust.group_size"], set(robust(0.05, Some(10))));
    refuses(&["aggregation.robust.group_size"], set(robust(0.2, Some(3))));
    refuses(&["aggregation.robust.group_size"], set(robust(0.05, Some(2))));
    let problems = problems(set(robust(0.05, Some(10))));
    assert!(problems[0].problem.contains("only 59.9 in 100 groups") && problems[0].problem.ends_with("at most 9"));
    let problems = self::problems(set(robust(0.2, Some(3))));
    assert!(problems[0].problem.contains("not even groups of 3"), "{problems:?}");
    let mut spec = parse(SMALL);
    set(robust(0.05, Some(3)))(&mut spec);
    assert_eq!((spec.draw(50).cohort, spec.draw(8).cohort), (9, 6), "whole groups");
    assert_eq!(spec.group_size(), Some(3));
}

#[test]
fn the_gate_is_read_and_checked() {
    let spec = parse(&format!("{SMALL}\n[aggregation]\ngate = {{ metric = \"accuracy\", max_fall = 0.05 }}"));
    let gate = GateSpec { metric: "accuracy".into(), max_fall: 0.05, better: Better::Higher };
    assert_eq!((spec.aggregation.gate.as_ref(), spec.check(&DEPLOYMENT)), (Some(&gate), Ok(())));
    let set = |gate: GateSpec| move |t: &mut TaskSpec| t.aggregation.gate = Some(gate);
    refuses(&["aggregation.gate.metric"], set(GateSpec { metric: "f1".into(), ..gate.clone() }));
    for max_fall in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        refuses(&["aggregation.gate.max_fall"], set(GateSpec { max_fall, ..gate.clone() }));
    }
    refuses(&["aggregation.gate"], |t| {
        set(gate.clone())(t);
        t.privacy.mechanism = PrivacyMechanism::CentralGaussian;
    });
}

#[test]
fn keep_best_is_read_and_checked() {
    let spec = parse(&format!("{SMALL}\n[rounds]\nkeep_best = {{ metric = \"accuracy\" }}\nstop_after = 5"));
    let best = KeepBest { metric: "accuracy".into(), better: Better::Higher };
    assert_eq!((spec.rounds.keep_best.as_ref(), spec.rounds.stop_after), (Some(&best), Some(5)));
    assert_eq!(spec.check(&DEPLOYMENT), Ok(()));
    let set = |best: KeepBest| move |t: &mut TaskSpec| t.rounds.keep_best = Some(best);
    for metric in ["f1", "train_loss", "personal_accuracy"] {
        refuses(&["rounds.keep_best.metric"], |t| {
            t.metrics = ["accuracy", "train_loss", "personal_accuracy"].map(str::to_owned).to_vec();
            set(KeepBest { metric: metric.into(), ..best.clone() })(t);
        });
    }
    for stop_after in [0, MAX_STOP_AFTER + 1] {
        refuses(&["rounds.stop_after"], |t| {
            set(best.clone())(t);
            t.rounds.stop_after = Some(stop_after);
        });
    }
    refuses(&["rounds.stop_after"], |t| t.rounds.stop_after = Some(5));
    refuses(&["rounds.keep_best"], |t| {
        set(best.clone())(t);
        t.privacy.mechanism = PrivacyMechanism::CentralGaussian;
    });
}

#[test]
fn codecs_that_need_the_clear_are_refused_under_masks_and_all_of_them_under_privacy() {
    let codec = |text: &str| Some(toml::from_str::<Compression>(text).unwrap());
    let summable = ["codec = \"random_k\"\nk = 3", "codec = \"low_rank\"\nrank = 2"];
    let clear = ["codec = \"top_k\"\nk = 3", "codec = \"int8\""];
    for text in summable {
        assert!(problems(|spec| spec.compression = codec(text)).is_empty(), "{text}");
    }
    for text in clear {
        refuses(&["compression.codec"], |spec| spec.compression = codec(text));
        let problems = problems(|spec| {
            spec.compression = codec(text);
            spec.secure_aggregation.enabled = false;
        });
        assert!(problems.is_empty(), "{text}: {problems:?}");
    }
    let rotated = "codec = \"rotated\"";
    assert_eq!(codec(rotated), Some(Compression::Rotated { bits: 2, keep: 1.0 }));
    refuses(&["aggregation.clip_norm"], |spec| spec.compression = codec(rotated));
    for text in summable.into_iter().chain(clear) {
        let problems = problems(|spec| {
            spec.compression = codec(text);
            spec.secure_aggregation.enabled = false;
            spec.privacy.mechanism = PrivacyMechanism::CentralGaussian;
        });
        let found = problems.iter().find(|problem| problem.field == "compression.codec");
        assert!(found.unwrap().problem.contains("privacy mechanism"), "{problems:?}");
    }
    for bad in ["codec = \"zip\"", "codec = \"int8\"\nk = 3", "codec = \"top_k\"", "k = 3"] {
        assert!(toml::from_str::<Compression>(bad).is_err(), "{bad}");
    }
}

#[test]
fn personalization_that_cannot_work_is_refused() {
    let parse_method = |text: &str| -> Personalization { toml::from_str(text).expect("the test's own method") };
    let personal = |t: &mut TaskSpec, method: Personalization| {
        t.personalization = Some(method);
        t.metrics.push("personal_accuracy".to_owned());
        if t.personalization.as_ref().is_some_and(Personalization::parts_the_model) {
            t.model.personal = vec!["w".to_owned()];
        }
    };
    for good in [
        "method = \"fed_per\"",
        "method = \"fed_rep\"",
        "method = \"fed_bn\"",
        "method = \"fine_tune\"",
        "method = \"ditto\"\nlambda = 0.5",
        "method = \"pfedme\"\nlambda = 15.0\nrate = 0.005",
        "method = \"apfl\"",
        "method = \"elastic\"\nalpha = 0.5",
        "method = \"lora\"\nlayers = [\"w\"]\nrank = 4",
        "method = \"lora\"\nlayers = [\"w\"]\nrank = 4\nalpha = 8.0\nadapters = \"shared\"",
    ] {
        let method = parse_method(good);
        refuses(&[], |t| personal(t, method.clone()));
        assert!(good.contains(method.as_str()));
        assert_ne!(method.to_bytes(), parse_method("method = \"ditto\"\nlambda = 1").to_bytes());
    }
    assert!(toml::from_str::<Personalization>("method = \"fed_per\"\nlambda = 1.0").is_err(), "an unknown key");
    assert!(toml::from_str::<Personalization>("method = \"ditto\"").is_err(), "a number without a sensible default");

    let ditto = |lambda, epochs| Personalization::Ditto { lambda, epochs };
    let pfedme = |local_rounds, rate| Personalization::PFedMe { lambda: 10.0, local_rounds, steps: 5, rate };
    refuses(&["personalization.head_epochs"], |t| personal(t, Personalization::FedRep { head_epochs: 0 }));
    refuses(&["personalization.lambda"], |t| personal(t, ditto(f64::NAN, None)));
    refuses(&["personalization.epochs"], |t| personal(t, ditto(1.0, Some(0))));
    refuses(&["personalization.lambda"], |t| personal(t, ditto(20.0, None)));
    refuses(&["personalization.local_rounds"], |t| personal(t, pfedme(0, 0.1)));
    refuses(&["personalization.rate"], |t| personal(t, pfedme(1, 0.2)));
    refuses(&["personalization.alpha"], |t| personal(t, Personalization::Apfl { alpha: 1.0, alpha_rate: 0.0 }));
    refuses(&["personalization.alpha_rate"], |t| personal(t, Personalization::Apfl { alpha: 0.5, alpha_rate: -1.0 }));
    let lora = |text: &str| parse_method(&format!("method = \"lora\"\nlayers = [\"w\"]\n{text}"));
    let digest = "0".repeat(64);
    for (field, text) in [
        ("rank", "rank = 0"),
        ("alpha", "rank = 1\nalpha = 0.0"),
        ("epochs", "rank = 1\nadapters = \"shared\"\nepochs = 2"),
        ("base_sha256", &format!("rank = 1\nbase_sha256 = \"{digest}\"")),
    ] {
        refuses(&[&format!("personalization.{field}")], |t| personal(t, lora(text)));
    }
    assert_ne!(lora("rank = 1").to_bytes(), lora("rank = 1\nadapters = \"shared\"").to_bytes());
    let other = parse_method("method = \"lora\"\nlayers = [\"v\"]\nrank = 1");
    assert_ne!(lora("rank = 1").to_bytes(), other.to_bytes(), "layers are agreed on as well");
    for alpha in [0.0, 1.1, f64::NAN] {
        refuses(&["personalization.alpha"], |t| personal(t, Personalization::Elastic { alpha }));
    }
    refuses(&["personalization.learning_rate"], |t| {
        personal(t, Personalization::FineTune { epochs: None, learning_rate: Some(0.0) });
    });
    refuses(&["model.personal"], |t| {
        personal(t, Personalization::FedPer {});
        t.model.personal.clear();
    });
    refuses(&["model.personal"], |t| {
        personal(t, ditto(1.0, None));
        t.model.personal = vec!["w".to_owned()];
    });
    refuses(&["metrics"], |t| t.personalization = Some(ditto(1.0, None)));
    refuses(&["metrics"], |t| t.metrics.push("accuracy.below.101".to_owned()));
    refuses(&[], |t| t.metrics.push("accuracy.below.50".to_owned()));
}
