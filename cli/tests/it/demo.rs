//! The demo: its output, that a seed decides every bit of every model version, and that drop-outs are survived.

use crate::support::{Ran, run};
use serde_json::Value;

fn demo(more: &[&str]) -> Ran {
    let mut args = vec!["--format", "json", "demo"];
    if !more.contains(&"--participants") {
        args.extend(["--participants", "5"]);
    }
    if !more.contains(&"--rounds") {
        args.extend(["--rounds", "3"]);
    }
    args.extend(more);
    let ran = run(&args);
    assert_eq!(ran.code, 0, "{args:?}: {ran}");
    ran
}

fn rounds(ran: &Ran) -> Vec<Value> {
    ran.events().into_iter().filter(|event| event["event"] == "round").collect()
}

fn versions(ran: &Ran) -> Vec<String> {
    rounds(ran).iter().map(|round| round["model"].to_string()).collect()
}

#[test]
fn events_have_the_fields_that_programs_rely_on() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("final.safetensors");
    let ran = demo(&["--out", out.to_str().unwrap(), "--centralized"]);
    let events = ran.events();
    assert_eq!(events[0]["event"], "started");
    let rounds = rounds(&ran);
    assert_eq!(rounds.len(), 3);
    for (number, round) in (1..).zip(&rounds) {
        assert_eq!(round["number"], number);
        assert_eq!(round["state"], "COMPLETED");
        assert_eq!((&round["cohort"], &round["reported"], &round["dropped"]), (&5.into(), &5.into(), &0.into()));
        assert!(round["metrics"]["accuracy"].as_f64().unwrap() > 0.2, "{round}");
        assert!(round["metrics"]["loss"].as_f64().unwrap() > 0.0);
        assert_eq!(round["model"]["version"], number);
        assert_eq!(round["model"]["sha256"].as_str().unwrap().len(), 64);
        assert!(round["bytes_up"].as_u64().unwrap() > 5 * 610 * 4);
        assert!(round["bytes_down"].as_u64().unwrap() > 5 * 610 * 4);
        assert!(round["seconds"].as_f64().unwrap() > 0.0);
        assert!(round["cohort_metrics"]["train_loss"].is_f64());
    }
    let finished = events.last().unwrap();
    assert_eq!(finished["event"], "finished");
    assert_eq!(finished["rounds"], 3);
    assert_eq!(finished["accuracy"], rounds[2]["metrics"]["accuracy"]);
    assert!(finished["centralized"]["accuracy"].as_f64().unwrap() > 0.2);
    assert_eq!(finished["model"]["path"], out.canonicalize().unwrap().to_str().unwrap());
    assert_eq!(finished["model"]["sha256"], rounds[2]["model"]["sha256"]);

    // The file is the model: evaluating it gives the demo's result.
    let evaluated =
        run(&["--format", "json", "model", "evaluate", out.to_str().unwrap(), "--participants", "5"]).data();
    assert_eq!(evaluated["accuracy"], finished["accuracy"]);
    assert_eq!(evaluated["loss"], finished["loss"]);
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let one = versions(&demo(&["--threads", "1"]));
    let two = versions(&demo(&["--threads", "2"]));
    assert_eq!(one, two);
    assert_ne!(one, versions(&demo(&["--threads", "2", "--seed", "43"])));
}

#[test]
fn the_server_optimizer_is_the_tasks() {
    let plain = versions(&demo(&["--threads", "2"]));
    assert_eq!(plain, versions(&demo(&["--threads", "2", "--server-optimizer", "fed_avg", "--server-lr", "1"])));
    let adam = demo(&["--threads", "2", "--server-optimizer", "fed_adam", "--server-lr", "0.1"]);
    assert_ne!(plain[1..], versions(&adam)[1..]);
    let refused = run(&["demo", "--participants", "3", "--server-optimizer", "fed_yogi", "--server-lr", "0"]);
    assert!(refused.stderr.contains("aggregation.optimizer.learning_rate"), "{refused}");
}

#[test]
fn drop_outs_are_survived_and_follow_from_the_seed() {
    let first = demo(&["--drop", "0.3", "--rounds", "4", "--threads", "1"]);
    let again = demo(&["--drop", "0.3", "--rounds", "4", "--threads", "2"]);
    assert_eq!(versions(&first), versions(&again));
    let dropped = |ran: &Ran| rounds(ran).iter().map(|round| round["dropped"].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(dropped(&first), dropped(&again));
    assert!(dropped(&first).iter().sum::<u64>() > 0, "nobody vanished: choose another seed");
    for round in rounds(&first).iter().filter(|round| round["state"] == "COMPLETED") {
        assert_eq!(round["reported"].as_u64().unwrap() + round["dropped"].as_u64().unwrap(), 5, "{round}");
    }
}

#[test]
fn a_round_that_everybody_leaves_fails_and_is_tried_again() {
    // With this seed all vanish from some attempt, but not from every one.
    let args = ["--participants", "2", "--insecure-aggregation", "--rounds", "3", "--drop", "0.6", "--seed", "1"];
    let ran = demo(&args);
    let states: Vec<_> = rounds(&ran).iter().map(|round| round["state"].as_str().unwrap().to_owned()).collect();
    assert!(states.contains(&"FAILED".to_owned()), "{states:?}");
    assert_eq!(states.iter().filter(|state| *state == "COMPLETED").count(), 3, "{states:?}");
    let failed = rounds(&ran).into_iter().find(|round| round["state"] == "FAILED").unwrap();
    assert_eq!((&failed["failure"], &failed["model"]), (&"quorum_lost".into(), &Value::Null));
}

#[test]
fn a_demo_that_cannot_go_on_says_so() {
    let ran = run(&["--format", "json", "demo", "--participants", "4", "--rounds", "2", "--drop", "0.999"]);
    assert_eq!(ran.code, 14, "{ran}");
    assert_eq!(rounds(&ran).len(), 3, "three attempts: {ran}");
    let failed = ran.events().pop().unwrap();
    assert_eq!((&failed["event"], &failed["exit_code"]), (&"failed".into(), &14.into()));
    assert!(ran.stderr.contains("PAUSED"), "{ran}");
}

#[test]
fn every_codec_learns_and_says_what_it_saves() {
    let summable = ["rotated,norm=0.5", "random_k,k=30%", "low_rank,rank=4"];
    let in_the_clear = ["top_k,k=10%", "int8"];
    let codecs = summable.iter().map(|codec| (codec, true)).chain(in_the_clear.iter().map(|codec| (codec, false)));
    for (codec, secure) in codecs {
        let mut args = vec!["--codec", codec, "--rounds", "4"];
        if !secure {
            args.push("--insecure-aggregation");
        }
        let ran = demo(&args);
        for round in rounds(&ran) {
            let view = &round["compression"];
            assert_eq!(view["codec"], codec.split(',').next().unwrap(), "{round}");
            assert!(view["ratio"].as_f64().unwrap() > 2.0, "{round}");
            assert!(view["added_error"].as_f64().unwrap() > 0.0, "{round}");
            assert_eq!(round["cohort_metrics"].as_object().unwrap().len(), 3, "{round}");
        }
        let finished = ran.events().pop().unwrap();
        assert!(finished["accuracy"].as_f64().unwrap() > 0.3, "{codec}: {finished}");
        assert_eq!(versions(&ran), versions(&demo(&args)), "{codec}: a seed decides every bit");
    }
}

/// The order of training ahead is a matter of time. So all have data of one kind, which makes the model almost
/// independent of the order.
#[test]
fn updates_that_were_trained_ahead_learn_through_codecs_that_remember() {
    for (codec, secure) in [("top_k,k=10%", false), ("random_k,k=30%,feedback=yes", true)] {
        let mut args = vec!["--mode", "buffered", "--participants", "9", "--partition", "iid", "--rounds", "20"];
        args.extend(["--codec", codec]);
        if !secure {
            args.push("--insecure-aggregation");
        }
        let ran = demo(&args);
        assert_eq!(rounds(&ran).iter().filter(|round| round["state"] == "COMPLETED").count(), 20, "{ran}");
        let finished = ran.events().pop().unwrap();
        assert!(finished["accuracy"].as_f64().unwrap() > 0.5, "{codec}: {finished}");
    }
}

#[test]
fn every_way_to_a_model_of_ones_own_is_compared_with_one_for_all_and_with_training_alone() {
    let ways = [
        "fedper",
        "fedrep",
        "fedbn",
        "ditto:lambda=0.5",
        "pfedme",
        "apfl",
        "fine_tune",
        "elastic:alpha=0.3",
        "lora:rank=2",
        "lora:rank=2,adapters=shared",
    ];
    let mut args = vec!["--rounds", "2", "--threads", "2"];
    ways.iter().for_each(|way| args.extend(["--personalize", way]));
    let ran = demo(&args);
    let finished = ran.events().pop().unwrap();
    let served = finished["personalization"]["served"].as_array().unwrap().clone();
    let names: Vec<_> = served.iter().map(|served| served["way"].as_str().unwrap()).collect();
    assert_eq!(names, [&["fed_avg", "local_only"], &ways[..]].concat());
    for one in &served {
        let accuracies: Vec<_> =
            one["accuracies"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
        assert_eq!((accuracies.len(), &one["participants"]), (5, &5.into()), "{one}");
        let mean = accuracies.iter().sum::<f64>() / 5.0;
        assert!((one["mean"].as_f64().unwrap() - mean).abs() < 1e-9, "{one}");
        let lowest = one["lowest"].as_f64().unwrap();
        assert!(lowest <= one["p10"].as_f64().unwrap() && one["p10"].as_f64() <= one["median"].as_f64(), "{one}");
        assert!(lowest < mean, "participants differ: {one}");
    }
    // Adapters of rank 2 for 10 by 60 are a quarter of the 610 parameters, and only they are sent.
    let shared: Vec<_> = ran.events().into_iter().filter(|event| event["event"] == "started").collect();
    assert_eq!(shared[9]["parameters"], 2 * (60 + 10));
    let mean = |way: &str| served[names.iter().position(|name| *name == way).unwrap()]["mean"].as_f64().unwrap();
    assert!(mean("ditto:lambda=0.5") > mean("fed_avg"), "{served:?}");
    // A federation for each method; the one of ditto makes the model of FedAvg.
    let started: Vec<_> = ran.events().into_iter().filter(|event| event["event"] == "started").collect();
    assert_eq!(started.len(), ways.len());
    assert_eq!(started[3]["personalization"]["lambda"], 0.5);
    let plain = demo(&["--rounds", "2", "--personalize", "elastic:alpha=0.3"]);
    let plain = plain.events();
    assert!(plain.iter().filter(|event| event["event"] == "started").count() == 2, "FedAvg and the method");
    assert_eq!(plain.last().unwrap()["model"]["sha256"], finished["model"]["sha256"], "the same FedAvg");
}

#[test]
fn adapters_learn_at_home_and_together() {
    let args = ["--rounds", "6", "--personalize", "lora:rank=4,epochs=5"];
    let ran = demo(&[&args[..], &["--personalize", "lora:rank=4,adapters=shared"]].concat());
    let finished = ran.events().pop().unwrap();
    let mean = |at: usize| finished["personalization"]["served"][at]["mean"].as_f64().unwrap();
    assert!(mean(2) > 0.85 && mean(2) > mean(1), "beside the shared model, and better than alone: {finished}");
    assert!(mean(3) > 0.4, "beside a model of zeros that nobody trains: {finished}");
}

#[test]
fn every_solver_learns() {
    let plain = versions(&demo(&["--rounds", "4"]));
    for solver in [&["--solver", "fed_nova"][..], &["--solver", "scaffold"], &["--proximal-mu", "0.5", "--adaptive-mu"]]
    {
        let ran = demo(&[&["--rounds", "4"], solver].concat());
        let finished = ran.events().pop().unwrap();
        assert!(finished["accuracy"].as_f64().unwrap() > 0.5, "{solver:?}: {finished}");
        assert_ne!(versions(&ran), plain, "{solver:?} changes what is learned");
    }
}

#[test]
fn every_round_tells_how_both_accuracies_are_distributed_and_nobodys_own() {
    let args = ["--rounds", "2", "--personalize", "ditto"];
    let secure = demo(&args);
    let last = rounds(&secure).pop().unwrap();
    for name in ["accuracy", "personal_accuracy"] {
        let spread = &last["distributions"][name];
        assert_eq!((&spread["participants"], &spread["resolution"]), (&5.into(), &0.05.into()), "{last}");
        assert!(last["cohort_metrics"].as_object().unwrap().keys().all(|name| !name.contains(".below.")), "{last}");
    }
    // The personalized models of the last round were compared: each quantile is within its resolution.
    let finished = secure.events().pop().unwrap();
    let served = finished["personalization"]["served"].as_array().unwrap();
    let ditto = served.iter().find(|served| served["way"] == "ditto").unwrap();
    let accuracies: Vec<_> = ditto["accuracies"].as_array().unwrap().iter().map(|a| a.as_f64().unwrap()).collect();
    for (name, part) in [("p10", 0.1), ("p25", 0.25), ("p50", 0.5), ("p75", 0.75), ("p90", 0.9)] {
        let quantile = last["distributions"]["personal_accuracy"][name].as_f64().unwrap();
        let below = |bound: f64| accuracies.iter().filter(|accuracy| **accuracy < bound).count() as f64 / 5.0;
        assert!(below(quantile - 0.05) < part + 1e-9, "{name} is {quantile}: {accuracies:?}");
        assert!(quantile + 0.05 > 1.0 || below(quantile + 0.05) > part - 1e-9, "{name} is {quantile}: {accuracies:?}");
    }
    let insecure = demo(&[&args[..], &["--insecure-aggregation"]].concat());
    assert_eq!(rounds(&insecure).pop().unwrap()["distributions"], last["distributions"], "the sum is exact");
    assert!(rounds(&demo(&["--rounds", "1"]))[0].get("distributions").is_none(), "only where it is asked for");
}

#[test]
fn ways_that_cannot_be_are_refused_with_the_reason() {
    for (way, reason) in [
        ("ditto:lambda=0", "personalization.lambda"),
        ("fedper:personal=fc3.*", "matches no tensor"),
        ("fedper:personal=*", "match every tensor"),
        ("fedbn:personal=fc.weight", "no normalisation"),
        ("lora:rank=11", "rank 11 is above 10"),
        ("lora:layers=fc.bias", "matches no linear layer"),
        ("lora:layers=*", "match every tensor"),
        ("dito", "unknown variant"),
    ] {
        let ran = run(&["--format", "json", "demo", "--participants", "5", "--rounds", "1", "--personalize", way]);
        assert_ne!(ran.code, 0, "{way}");
        assert!(ran.stderr.contains(reason) || ran.stdout.contains(reason), "{way}: {ran}");
    }
}

#[test]
fn nothing_is_played_before_every_way_can_be() {
    let ways = ["--personalize", "fedper", "--personalize", "ditto:lambda=0"];
    let ran = run(&[&["--format", "json", "demo", "--participants", "5", "--rounds", "1"][..], &ways].concat());
    assert_ne!(ran.code, 0, "{ran}");
    assert!(ran.stderr.contains("--personalize ditto:lambda=0\n  personalization.lambda: "), "{ran}");
    assert!(!ran.stdout.contains("started"), "{ran}");
}

#[test]
fn codecs_that_cannot_be_are_refused_with_the_reason() {
    for (codec, reason) in [
        ("top_k,k=1%", "cannot be added under masks"),
        ("int8", "cannot be added under masks"),
        ("random_k,k=611", "k must be 1 to 610"),
        ("low_rank,rank=100", "rank 100 is not below the longer side of any matrix"),
        ("rotated,bits=17,norm=2", "bits must be 1 to 16"),
    ] {
        let ran = run(&["--format", "json", "demo", "--participants", "5", "--rounds", "1", "--codec", codec]);
        assert_ne!(ran.code, 0, "{codec}");
        assert!(ran.stderr.contains(reason) || ran.stdout.contains(reason), "{codec}: {ran}");
    }
}

#[test]
fn a_part_of_the_participants_is_drawn_by_the_seed() {
    let first = demo(&["--cohort", "3"]);
    assert_eq!(versions(&first), versions(&demo(&["--cohort", "3"])));
    assert!(rounds(&first).iter().all(|round| round["cohort"] == 3));
}

#[test]
fn secure_aggregation_is_on_and_changes_no_bit_of_any_model() {
    let secure = demo(&["--drop", "0.2", "--participants", "8", "--seed", "3"]);
    let insecure = demo(&["--drop", "0.2", "--participants", "8", "--seed", "3", "--insecure-aggregation"]);
    assert_eq!(versions(&secure), versions(&insecure), "a sum of masked updates is the sum of the updates");
    let started = |ran: &Ran| ran.events()[0]["protection"].clone();
    assert_eq!(started(&insecure), serde_json::json!({ "updates": "readable_by_coordinator" }));
    assert_eq!(started(&secure)["updates"], "hidden_in_sums");
    assert_eq!(started(&secure)["across_rounds"], serde_json::json!({ "kind": "not_protected" }));
    for round in rounds(&secure).iter().filter(|round| round["state"] == "COMPLETED") {
        let session = &round["secure_aggregation"];
        assert_eq!((&session["advertised"], &session["threshold"]), (&8.into(), &5.into()), "{round}");
        assert_eq!(session["included"], round["reported"], "opened for exactly the survivors: {round}");
        assert!(session["unmasked"].as_u64() >= Some(5) && session["unmasked"].as_u64() <= session["signed"].as_u64());
        assert!(round["work"]["keystream_bytes"].as_u64().unwrap() > 0, "{round}");
    }
    assert!(rounds(&insecure).iter().all(|round| round.get("secure_aggregation").is_none()));
}

#[test]
fn a_hundred_participants_of_whom_a_third_vanish_complete_every_round() {
    let args = ["--participants", "100", "--rounds", "2", "--drop", "0.3", "--seed", "5"];
    let secure = demo(&args);
    let all = rounds(&secure);
    assert_eq!(all.len(), 2, "every round completes: {secure}");
    let mut phases = std::collections::BTreeSet::new();
    for round in &all {
        assert_eq!((&round["state"], &round["secure_aggregation"]["threshold"]), (&"COMPLETED".into(), &56.into()));
        let dropped: u64 = round["dropped_in"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        assert!((15..45).contains(&dropped), "{round}");
        phases.extend(round["dropped_in"].as_object().unwrap().keys().cloned());
    }
    assert!(phases.len() >= 3, "they vanish in every phase: {phases:?}");
    let insecure = demo(&[&args[..], &["--insecure-aggregation"]].concat());
    assert_eq!(versions(&secure), versions(&insecure), "the sum is exact");
}

#[test]
fn two_participants_are_told_what_secure_aggregation_takes() {
    let ran = run(&["demo", "--participants", "2"]);
    assert_eq!(ran.code, 2, "{ran}");
    for words in ["at least 3", "--insecure-aggregation"] {
        assert!(ran.stderr.contains(words), "{ran}");
    }
}

#[test]
fn people_see_a_table_and_what_to_do_next() {
    let ran = run(&["demo", "--participants", "3", "--rounds", "2"]);
    assert_eq!(ran.code, 0, "{ran}");
    for words in [
        "ROUND",
        "STATE",
        "COHORT",
        "TEST ACC",
        "COMPLETED",
        "Model: ",
        ".safetensors",
        "--inspect",
        "INCLUDED/UNMASKED",
        "3 / 3",
        "each hidden inside each opened sum, of at least 3 updates",
        "across rounds: not protected",
    ] {
        assert!(ran.stdout.contains(words), "no {words:?}: {ran}");
    }
    assert_eq!(ran.stderr, "", "a demo that goes well is quiet");
}

#[test]
fn mnist_runs_as_it_comes() {
    let ran = demo(&["--data", "mnist", "--model", "linear", "--rounds", "1", "--epochs", "1", "--lr", "0.01"]);
    assert!(ran.events().last().unwrap()["accuracy"].as_f64().unwrap() > 0.6, "{ran}");
}

#[test]
fn a_rule_over_groups_is_played_and_shown() {
    let groups = ["--robust", "median,attackers=0.05,group_size=3", "--attack", "0.1"];
    let ran = demo(&[&groups[..], &["--participants", "9", "--rounds", "2"]].concat());
    for round in rounds(&ran) {
        assert_eq!((&round["state"], &round["reported"]), (&"COMPLETED".into(), &9.into()), "{round}");
        let groups = round["groups"].as_array().unwrap();
        assert_eq!(groups.iter().map(|group| &group["members"]).collect::<Vec<_>>(), [3, 3, 3]);
        assert!(groups.iter().all(|group| group["anomaly"].is_f64()), "{round}");
    }
    let refused = run(&["demo", "--participants", "9", "--robust", "median,attackers=0.2,group_size=3"]);
    assert!(refused.stderr.contains("not even groups of 3 are"), "{refused}");
    let alone = run(&["demo", "--participants", "9", "--robust", "median"]);
    assert!(alone.stderr.contains("give group_size"), "{alone}");
}
