//! A small federation from end to end: it learns, its time is virtual, and one seed yields one report, whatever the threads.

use std::sync::Arc;
use std::time::Duration;

use client_sdk::models::{Architecture, Linear};
use simulation::{
    DeviceModel, Experiment, Progress, RegionReport, Regions, Report, SimulationError, Synthetic, Trace, run,
};
use task_spec::TaskSpec;
use wire::RoundState;

const INPUTS: u32 = 60;
const CLASSES: u32 = 10;

fn experiment(population: u32, secure: bool) -> Experiment {
    let seed = 7;
    let architecture = Architecture::Linear(Linear { inputs: INPUTS, classes: CLASSES });
    let task = serde_json::json!({
        "name": "small",
        "model": {
            "architecture": architecture,
            "tensors": [{ "name": "fc.weight", "shape": [CLASSES, INPUTS] }, { "name": "fc.bias", "shape": [CLASSES] }],
            "seed": seed,
        },
        "training": { "batch_size": 10, "learning_rate": 0.01 },
        "rounds": { "count": 3, "select_min": 8, "select_max": 8, "collect_max": 6, "collect_deadline_ms": 120_000 },
        "selection": { "cohort": { "count": 6 }, "over_selection": 0.3, "seed": seed },
        "aggregation": { "clip_range": 4.0 },
        "secure_aggregation": { "enabled": secure },
        "metrics": ["train_loss"],
    });
    let task: TaskSpec = serde_json::from_value(task).unwrap();
    Experiment {
        population,
        devices: DeviceModel { trace: Trace::Always, ..DeviceModel::default() },
        data: Arc::new(Synthetic::new(0.5, 0.5, seed, population).unwrap()),
        architecture,
        task,
        seed,
        threads: 1,
        evaluate_every: 1,
        until_accuracy: None,
        limit: Duration::from_secs(24 * 3600),
        regions: None,
    }
}

fn simulate(experiment: &Experiment) -> Report {
    run(experiment, &mut |_| ()).unwrap()
}

fn json(report: &Report) -> String {
    serde_json::to_string(report).unwrap()
}

#[test]
fn rounds_complete_in_virtual_time_and_the_model_learns() {
    let mut told = Vec::new();
    let report = run(&experiment(24, false), &mut |progress| {
        if let Progress::Round(round) = progress {
            told.push(round.clone());
        }
    })
    .unwrap();
    assert_eq!((report.rounds_completed, report.stopped.as_deref()), (3, None));
    assert_eq!(told, report.rounds);
    let completed: Vec<_> = report.rounds.iter().filter(|round| round.state == RoundState::Completed).collect();
    assert!(completed.iter().all(|round| round.cohort == 8 && round.reported == 6), "{completed:?}");
    assert!(report.seconds > 3.0 && report.seconds < 3600.0, "{}", report.seconds);
    assert!(completed.windows(2).all(|pair| pair[0].ended_at < pair[1].ended_at));
    // The first model, and one for each round.
    assert_eq!(report.curve.len(), 4);
    assert!(report.curve[3].accuracy > report.curve[0].accuracy + 0.1, "{:?}", report.curve);
    assert!(report.curve.windows(2).all(|pair| pair[0].bytes < pair[1].bytes && pair[0].seconds < pair[1].seconds));
    // Six updates of 610 parameters and a weight are in each sum, and every device of the cohort fetches the model.
    assert!(report.bytes_up >= 3 * 6 * 611 * 4 && report.bytes_down >= 3 * 6 * 610 * 4);
    assert!(report.trainings >= 18 && report.updates >= 18, "{report:?}");
    assert!(report.participation.jain > 0.2 && report.participation.jain <= 1.0);
    assert!(report.waiting.idle_share > 0.0 && report.waiting.idle_share < 1.0);
}

#[test]
fn one_seed_yields_one_report_whatever_the_threads_and_another_seed_another() {
    let one = experiment(24, false);
    let first = json(&simulate(&one));
    assert_eq!(first, json(&simulate(&one)));
    assert_eq!(first, json(&simulate(&Experiment { threads: 2, ..one.clone() })));
    assert_ne!(first, json(&simulate(&Experiment { seed: 8, ..one })));
}

#[test]
fn updates_are_masked_where_the_task_says_so_and_the_report_is_repeatable_all_the_same() {
    let secure = experiment(12, true);
    let report = simulate(&secure);
    assert_eq!(report.rounds_completed, 3, "{report:?}");
    assert!(report.rounds.iter().any(|round| round.phases.contains_key(RoundState::Unmasking.as_str())));
    assert_eq!(json(&report), json(&simulate(&Experiment { threads: 2, ..secure })));
}

#[test]
fn devices_that_vanish_cost_updates_and_not_rounds() {
    let mut often = experiment(24, false);
    often.devices.dropout = 0.3;
    let report = simulate(&often);
    assert_eq!(report.rounds_completed, 3);
    assert!(report.vanished > 0, "{report:?}");
}

#[test]
fn a_night_is_waited_for() {
    let mut nightly = experiment(24, false);
    nightly.devices.trace = Trace::Day;
    let report = simulate(&nightly);
    assert_eq!(report.rounds_completed, 3, "{report:?}");
    // Those that are there at first are too few for a cohort: the rounds wait for others to be put to their chargers.
    let always = simulate(&experiment(24, false));
    assert!(report.seconds > 10.0 * always.seconds, "{} against {}", report.seconds, always.seconds);
    let short = simulate(&Experiment { limit: Duration::from_secs(1), ..nightly });
    assert_eq!((short.rounds_completed, short.seconds), (0, 1.0));
    assert!(short.stopped.is_some());
}

/// Three regions of eight devices, with two regional rounds in each of two rounds.
fn regional() -> Experiment {
    let mut experiment = experiment(24, true);
    let mut upper = experiment.task.clone();
    upper.rounds = serde_json::from_value(serde_json::json!({ "count": 2, "collect_deadline_ms": 3_600_000 })).unwrap();
    upper.selection = serde_json::from_value(serde_json::json!({ "cohort": { "count": 3 } })).unwrap();
    upper.secure_aggregation.max_corrupt_fraction = 0.0;
    experiment.task.rounds.count = 2;
    let links = DeviceModel { trace: Trace::Always, dropout: 0.0, ..DeviceModel::default() };
    experiment.regions = Some(Regions { count: 3, task: upper, links });
    experiment
}

#[test]
fn regions_train_by_tasks_of_their_own_with_masks_on_both_levels() {
    let regional = regional();
    let report = simulate(&regional);
    assert_eq!((report.rounds_completed, report.updates, report.regions.len()), (2, 6, 3), "{report:?}");
    assert!(report.rounds.iter().all(|round| round.phases.contains_key(RoundState::Unmasking.as_str())));
    let done = report.regions.iter().map(|region| (region.population, region.tasks, region.rounds_completed));
    assert!(done.eq([(8, 2, 4); 3]), "{report:?}");
    // A round among regions takes as long as the slowest region, and not as long as all of them.
    let longest = report.regions.iter().map(|region| region.longest).fold(0.0, f64::max);
    let all: f64 = report.regions.iter().map(|region| region.longest).sum();
    let collecting = report.rounds[0].phases[RoundState::Collecting.as_str()];
    assert!(collecting < all && report.seconds > longest, "{collecting}, {longest} and {all}: {report:?}");
    let (first, last) = (report.curve[0], report.curve[2]);
    assert!(last.accuracy > first.accuracy + 0.1, "{:?}", report.curve);
    // Updates of six devices a round stay in their regions, of which three send one each.
    let below: u64 = report.regions.iter().map(|region| region.bytes_up).sum();
    assert!(below > 3 * report.bytes_up, "{below} and {}", report.bytes_up);
    assert_eq!(json(&report), json(&simulate(&Experiment { threads: 3, ..regional })));
}

#[test]
fn a_region_answers_before_the_deadline_with_the_rounds_that_it_has() {
    let mut late = regional();
    late.task.rounds.count = 100;
    late.task.secure_aggregation.enabled = false;
    late.limit = Duration::from_secs(900);
    late.regions.as_mut().unwrap().task.rounds.collect_deadline_ms = 60_000;
    let report = simulate(&late);
    let cut = |region: &RegionReport| region.tasks == 2 && (2..200).contains(&region.rounds_completed);
    assert!(report.rounds_completed == 2 && report.regions.iter().all(cut), "{:?}", report.regions);
    late.devices.examples_per_second = 0.01;
    late.limit = Duration::from_secs(200);
    let report = simulate(&late);
    assert_eq!((report.rounds_completed, report.updates), (0, 0), "no region completes a round in time");
}

#[test]
fn it_ends_when_the_model_is_good_enough() {
    let enough = Experiment { until_accuracy: Some(0.0), ..experiment(24, false) };
    let report = simulate(&enough);
    assert_eq!(report.reached.unwrap().round, 0);
    assert!(report.rounds_completed < 3, "{report:?}");
}

#[test]
fn nonsense_is_refused_with_its_reason() {
    let refused = |change: fn(&mut Experiment)| {
        let mut experiment = experiment(8, false);
        change(&mut experiment);
        run(&experiment, &mut |_| ()).unwrap_err()
    };
    assert!(matches!(refused(|e| e.population = 0), SimulationError::Invalid(_)));
    assert!(matches!(refused(|e| e.devices.examples_per_second = 0.0), SimulationError::Invalid(_)));
    let crowded = |e: &mut Experiment| e.regions = Some(Regions { count: 9, ..regional().regions.unwrap() });
    assert!(refused(crowded).to_string().contains("9 regions of 8 devices"));
    // The regional task is created in the middle of the simulation.
    let wrong = |e: &mut Experiment| {
        *e = regional();
        e.task.rounds.collect_max = Some(0);
    };
    assert!(matches!(refused(wrong), SimulationError::Refused(_)));
    let error = refused(|e| e.task.rounds.collect_max = Some(0));
    assert!(matches!(error, SimulationError::Refused(_)) && error.to_string().contains("collect_m"), "{error}");
}
