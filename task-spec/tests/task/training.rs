//! `[training]`: rejections, with valid alternatives.

use super::*;

#[test]
fn the_training_plan_is_checked() {
    refuses(&["training.epochs"], |t| t.training.epochs = 0);
    refuses(&["training.epochs"], |t| t.training.epochs = 10_001);
    refuses(&["training.steps"], |t| t.training.steps = Some(0));
    refuses(&["training.batch_size"], |t| t.training.batch_size = 0);
    for rate in [0.0, -0.1, f64::NAN, f64::INFINITY] {
        refuses(&["training.learning_rate"], |t| t.training.learning_rate = rate);
        refuses(&["aggregation.optimizer.learning_rate"], |t| {
            t.aggregation.optimizer = ServerOptimizer::FedAvg { learning_rate: rate };
        });
    }
    let tau = 1e-3;
    for beta in [1.0, -0.1, f64::NAN] {
        refuses(&["aggregation.optimizer.momentum"], |t| {
            t.aggregation.optimizer = ServerOptimizer::FedAvgM { learning_rate: 1.0, momentum: beta };
        });
        refuses(&["aggregation.optimizer.beta2"], |t| {
            t.aggregation.optimizer = ServerOptimizer::FedYogi { learning_rate: 0.1, beta1: 0.9, beta2: beta, tau };
        });
    }
    refuses(&["aggregation.optimizer.tau"], |t| {
        t.aggregation.optimizer = ServerOptimizer::FedAdagrad { learning_rate: 0.1, beta1: 0.0, tau: 0.0 };
    });
    refuses(&["training.momentum"], |t| t.training.momentum = 1.0);
    let fair = |t: &mut TaskSpec, q, loss_cap, lipschitz| {
        t.aggregation.clip_norm = Some(1.0);
        t.training.fairness = Some(Fairness { q, loss_cap, lipschitz });
    };
    refuses(&["training.fairness.q"], |t| fair(t, 10.5, 2.0, None));
    refuses(&["training.fairness.loss_cap", "training.fairness.lipschitz"], |t| fair(t, 1.0, 0.0, Some(f64::NAN)));
    refuses(&["aggregation.clip_norm", "metrics"], |t| {
        fair(t, 1.0, 2.0, None);
        t.aggregation.clip_norm = None;
        t.metrics = vec![];
    });
    refuses(&["training.weight_decay"], |t| t.training.weight_decay = -1.0);
    refuses(&["training.proximal_mu"], |t| t.training.proximal_mu = f64::NAN);
}

#[test]
fn local_training_is_checked() {
    refuses(&["training.accumulate"], |t| t.training.accumulate = 0);
    for norm in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        refuses(&["training.gradient_clip"], |t| t.training.gradient_clip = Some(norm));
    }
    let over = Over::Steps;
    for (fields, schedule) in [
        (&["training.schedule.every", "training.schedule.factor"][..], Schedule::Step { every: 0, factor: 1.5, over }),
        (&["training.schedule.factor"], Schedule::Exponential { factor: 0.0, over }),
        (&["training.schedule.length", "training.schedule.floor"], Schedule::Cosine { length: 0, floor: 0.0, over }),
    ] {
        refuses(fields, |t| t.training.schedule = Some(schedule));
    }
    refuses(&["training.warmup.length"], |t| t.training.warmup = Some(Warmup { length: 0, over }));
    refuses(&["training.budget"], |t| t.training.budget = Some(Budget::default()));
    refuses(&["training.budget.steps"], |t| t.training.budget = Some(Budget { steps: Some(0), time_ms: None }));
    refuses(&["training.budget.time_ms"], |t| {
        t.training.budget = Some(Budget { steps: None, time_ms: Some(t.rounds.collect_deadline_ms) });
    });
}

#[test]
fn solvers_are_checked() {
    let nova = |t: &mut TaskSpec| t.training.solver = Some(Solver::FedNova { steps: Some(10) });
    let scaffold = |t: &mut TaskSpec| {
        t.training.solver = Some(Solver::Scaffold { population: 30, steps: Some(10) });
        t.aggregation.max_weight = 1;
    };
    for good in [nova, scaffold] {
        let mut task = parse(SMALL);
        good(&mut task);
        assert_eq!(task.check(&DEPLOYMENT), Ok(()));
        assert_eq!(task.training.solver(), task.training.solver);
    }
    let field = &["training.solver"];
    // The explicit number of steps is used, not the epochs.
    refuses(field, |t| t.training.solver = Some(Solver::FedNova { steps: None }));
    let mut task = parse(SMALL);
    (task.training.solver, task.training.steps) = (Some(Solver::FedNova { steps: None }), Some(7));
    assert_eq!(task.check(&DEPLOYMENT), Ok(()));
    assert_eq!(task.training.solver(), Some(Solver::FedNova { steps: Some(7) }));
    refuses(&["training.solver.population"], |t| {
        scaffold(t);
        t.training.solver = Some(Solver::Scaffold { population: 9, steps: Some(10) });
    });
    refuses(&["aggregation.max_weight"], |t| {
        scaffold(t);
        t.aggregation.max_weight = 100;
    });
    let proximal = |t: &mut TaskSpec| t.training.proximal_mu = 0.1;
    let codec = |t: &mut TaskSpec| t.compression = Some(Compression::RandomK { k: 1, bits: 12, error_feedback: false });
    let gate = |t: &mut TaskSpec| {
        t.aggregation.gate = Some(GateSpec { metric: "loss".into(), max_fall: 0.1, better: Better::Lower });
    };
    let personal = |t: &mut TaskSpec| t.model.personal = vec!["w".into()];
    for conflict in [proximal, codec, gate, personal] {
        refuses(field, |t| {
            scaffold(t);
            conflict(t);
        });
    }
    refuses(&["metrics"], |t| {
        nova(t);
        t.metrics = (0..16).map(|index| format!("m{index}")).collect();
    });
    for solver in [nova, scaffold] {
        let robust = |t: &mut TaskSpec| {
            t.secure_aggregation.enabled = false;
            let rule = RobustRule::Median;
            t.aggregation.robust = Some(RobustSpec { rule, attackers: 0.1, norm_factor: None, group_size: None });
        };
        refuses(field, |t| {
            solver(t);
            robust(t);
        });
        refuses(field, |t| {
            solver(t);
            t.aggregation.clip_norm = Some(1.0);
            t.training.fairness = Some(Fairness { q: 1.0, loss_cap: 2.0, lipschitz: None });
        });
    }
    let problem = |t: &mut TaskSpec| {
        nova(t);
        t.privacy.mechanism = PrivacyMechanism::CentralGaussian;
    };
    assert!(problems(problem).iter().any(|error| error.field == "training.solver"));
}

#[test]
fn an_adaptive_mu_is_checked() {
    let adaptive = |t: &mut TaskSpec| t.training.adaptive_mu = Some(AdaptiveMu::default());
    let mut task = parse(SMALL);
    adaptive(&mut task);
    assert_eq!(task.check(&DEPLOYMENT), Ok(()));
    refuses(&["training.adaptive_mu.step", "training.adaptive_mu.patience"], |t| {
        t.training.adaptive_mu = Some(AdaptiveMu { step: 0.0, patience: 0, ..AdaptiveMu::default() });
    });
    refuses(&["metrics"], |t| {
        adaptive(t);
        t.metrics = vec!["accuracy".into()];
    });
    refuses(&["training.adaptive_mu"], |t| {
        adaptive(t);
        t.training.solver = Some(Solver::FedNova { steps: Some(10) });
    });
}

#[test]
fn a_plan_that_says_nothing_new_is_written_as_before() {
    let json = serde_json::to_value(parse(SMALL).training).unwrap();
    let mut keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    let before = ["batch_size", "epochs", "learning_rate", "momentum", "proximal_mu", "steps", "weight_decay"];
    assert_eq!(keys, before, "an older SDK refuses keys that it does not know");
}
