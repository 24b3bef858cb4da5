//! The simulator for a person or a script: its output follows from the flags alone, its picture is valid, and
//! unsupported combinations are rejected.

use crate::support::{Ran, run};

fn simulate(more: &[&str]) -> Ran {
    let small = [["--population", "40"], ["--cohort", "8"], ["--rounds", "2"], ["--trace", "always"]];
    let small: Vec<_> = small.into_iter().filter(|[flag, _]| !more.contains(flag)).flatten().collect();
    run(&[&["--format", "json", "simulate", "--insecure-aggregation"], &small[..], more].concat())
}

#[test]
fn the_answer_follows_from_the_flags_and_not_from_threads() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("curves.svg");
    let first = simulate(&["--threads", "1", "--svg", svg.to_str().unwrap()]);
    let data = first.data();
    assert_eq!((&data["rounds_completed"], &data["population"], &data["cohort"]), (&2.into(), &40.into(), &8.into()));
    assert_eq!(data["curve"].as_array().unwrap().len(), 3, "{data}");
    assert!(data["seconds"].as_f64().unwrap() > 0.0 && data["rounds_per_hour"].as_f64().unwrap() > 0.0);
    assert!(data["participation"]["jain"].as_f64().unwrap() > 0.0);
    assert_eq!(data["model_sha256"].as_str().unwrap().len(), 64);
    assert!(first.stderr.contains("trainings"), "how fast this machine was: {first}");
    assert_eq!(first.stdout, simulate(&["--threads", "2"]).stdout);
    let other = simulate(&["--seed", "43"]).data();
    assert_ne!(data["model_sha256"], other["model_sha256"]);
    assert_ne!(data["seconds"], other["seconds"], "other devices");
    let drawn = std::fs::read_to_string(svg).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.matches("class=\"curve accuracy\"").count() == 2, "{drawn}");
}

#[test]
fn devices_train_ahead_of_rounds_and_the_answer_still_follows_from_the_flags() {
    for mode in [["--mode", "buffered"], ["--mode", "semi-sync"]] {
        let first = simulate(&[&mode[..], &["--threads", "1"]].concat());
        let data = first.data();
        assert_eq!(data["rounds_completed"], 2, "{mode:?}: {data}");
        assert!(data["rounds"][0]["staleness"].is_number(), "{mode:?}: {data}");
        assert_eq!(first.stdout, simulate(&[&mode[..], &["--threads", "2"]].concat()).stdout, "{mode:?}");
    }
}

#[test]
fn private_task_is_simulated_with_its_epsilon() {
    for (privacy, gains) in [("epsilon=8,delta=1e-5", true), ("epsilon=8,mechanism=banded_matrix", false)] {
        let args = ["--privacy", privacy, "--dropout", "0"];
        let first = simulate(&[&args[..], &["--threads", "1"]].concat());
        let data = first.data();
        assert_eq!(data["rounds_completed"], 2, "{privacy}: {data}");
        let epsilon = &data["privacy"]["epsilon"];
        let [published, known] = ["published", "cohort_known"].map(|field| epsilon[field].as_f64().unwrap());
        assert!(published > 1.0 && published <= 8.0 && (known > published) == gains, "{privacy}: {data}");
        assert!(epsilon["server"].is_null(), "the coordinator adds the noise: {data}");
        let last = data["rounds"].as_array().unwrap().iter().rfind(|round| round["state"] == "COMPLETED").unwrap();
        assert_eq!(last["epsilon"], *epsilon);
        assert_eq!(first.stdout, simulate(&[&args[..], &["--threads", "2"]].concat()).stdout, "{privacy}");
    }
    let args = "simulate --population 20 --cohort 10 --rounds 2 --trace always --dropout 0 --privacy epsilon=8";
    let ran = run(&args.split(' ').collect::<Vec<_>>());
    assert!(
        ran.code == 0 && ran.stdout.contains("EPSILON") && ran.stdout.contains("to the coordinator itself"),
        "{ran}"
    );
    assert!(ran.stdout.contains("published (distributed_discrete_gaussian"), "{ran}");
    let args = "--format json simulate --population 24 --cohort 8 --rounds 3 --trace always --dropout 0";
    let args = format!("{args} --privacy epsilon=1,participations=1");
    let data = run(&args.split(' ').collect::<Vec<_>>()).data();
    assert_eq!((&data["rounds_completed"], &data["participation"]["jain"]), (&3.into(), &1.0.into()), "{data}");
    let rounds = data["rounds"].as_array().unwrap();
    assert!(rounds.iter().all(|round| round["epsilon"] == data["privacy"]["epsilon"]), "{data}");
    assert!(data["privacy"]["epsilon"]["server"].as_f64().unwrap() <= 1.0, "{data}");
    let refused = simulate(&["--privacy", "epsilon=8,mechanism=tree", "--rounds", "20"]);
    assert!(refused.code == 2 && refused.stderr.contains("need 160 participants, not 40"), "{refused}");
}

#[test]
fn regions_are_simulated_and_reported() {
    let args = "simulate --population 31 --regions 3 --regional-rounds 2 --cohort 4 --rounds 2 --trace always --over-selection 0.5";
    let args: Vec<_> = args.split(' ').collect();
    let data = run(&[&["--format", "json"], &args[..]].concat()).data();
    assert_eq!((&data["rounds_completed"], &data["population"], &data["updates"]), (&2.into(), &31.into(), &6.into()));
    let regions = data["regions"].as_array().unwrap();
    assert!(regions.iter().map(|region| region["population"].as_u64().unwrap()).eq([11, 10, 10]), "{data}");
    assert!(regions.iter().all(|region| region["rounds_completed"] == 4 && region["tasks"] == 2), "{data}");
    let said = run(&args);
    for words in ["from regions", "within regions", "Regions      3, with 12 rounds", "updates of a region: 2 to 2"] {
        assert!(said.stdout.contains(words), "{words}: {said}");
    }
    assert!(said.stderr.contains("This machine: 3 regions in"), "{said}");
    let two = run(&["simulate", "--regions", "2", "--cohort", "4", "--trace", "always"]);
    assert!(two.code == 2 && two.stderr.contains("masks among regions need three"), "{two}");
}

#[test]
fn people_see_a_row_for_each_round_and_a_summary() {
    let args = "simulate --population 30 --cohort 6 --rounds 2 --trace day --insecure-aggregation";
    let ran = run(&args.split(' ').collect::<Vec<_>>());
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(ran.stdout.matches("COMPLETED").count(), 2, "{ran}");
    for words in ["Rounds ", "Waiting ", "Fairness ", "Digest "] {
        assert!(ran.stdout.contains(words), "{words}: {ran}");
    }
}

#[test]
fn what_cannot_be_simulated_is_refused_with_what_can() {
    for (args, words) in [
        (&["--mode", "whenever"][..], "`semi_sync`, `buffered`"),
        (&["--concurrency", "5"], "schedule.concurrency: is for schedule.mode"),
        (&["--set", "selection.strategi=\"uniform\""], "unknown field `strategi`"),
        (&["--mode", "buffered", "--selector", "oort"], "selection.strategy"),
        (&["--selector", "dowsing"], "uniform"),
        (&["--trace", "never"], "always and day"),
        (&["--data", "text"], "synthetic, mnist"),
        (&["--model", "gru"], "no text"),
        (&["--cohort", "50"], "above --population"),
        (&["--regions", "6"], "draws 11, above --population 40 in 6 regions"),
        (&["--regional-rounds", "2"], "--regions"),
        (&["--regions", "3", "--privacy", "epsilon=8", "--over-selection", "0"], "privacy: the budget"),
        (&["--regions", "2", "--set", "model.personal=[\"fc.*\"]"], "model.personal"),
        (&["--dropout", "0.9"], "between 0 and 0.8"),
        (&["--until-accuracy", "2"], "between 0 and 1"),
    ] {
        let ran = simulate(args);
        assert_eq!(ran.code, 2, "{args:?}: {ran}");
        assert!(ran.stderr.contains(words), "{args:?}: {ran}");
    }
}
