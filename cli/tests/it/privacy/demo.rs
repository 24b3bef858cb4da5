//! Promises of privacy kept by a federation, its ledger shown, and its budget at its end.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::{number, well_formed};
use crate::support::{Background, Served, run, tributary};

/// A small private federation, played to its end.
fn demo(more: &[&str]) -> Vec<Value> {
    let participants: &[&str] = if more.contains(&"--participants") { &[] } else { &["--participants", "8"] };
    let ran = run(&[&["--format", "json", "demo", "--rounds", "2"], participants, more].concat());
    assert_eq!(ran.code, 0, "{more:?}: {ran}");
    ran.events()
}

fn rounds(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| event["event"] == "round" && event["state"] == "COMPLETED").collect()
}

/// Output of every private demo, with any mechanism.
fn keeps_its_promise(events: &[Value]) {
    let promised = &events[0]["privacy"];
    assert!(promised["spec"]["noise_multiplier"].as_f64().unwrap() > 0.1, "it was solved for: {promised}");
    let made = rounds(events);
    assert_eq!(made.len(), 2, "{events:?}");
    let spent: Vec<f64> = made.iter().map(|round| number(round, "/epsilon/published")).collect();
    assert!(0.0 < spent[0] && spent[0] < spent[1] && spent[1] <= 8.0, "{spent:?}");
    for round in made {
        assert!(round["cohort_metrics"].as_object().unwrap().is_empty(), "no metrics travel: {round}");
        // After one round of noise the accuracy may be 0; the loss is always positive.
        let (accuracy, loss) = (number(round, "/metrics/accuracy"), number(round, "/metrics/loss"));
        assert!((0.0..=1.0).contains(&accuracy) && loss > 0.0, "the demo measures by itself: {round}");
        assert!(number(round, "/epsilon/cohort_known") >= number(round, "/epsilon/published"));
    }
    let finished = events.last().unwrap();
    assert_eq!(number(finished, "/privacy/epsilon/published"), spent[1]);
    assert_eq!((number(finished, "/privacy/budget"), number(finished, "/privacy/delta")), (8.0, 1e-5));
}

#[test]
fn a_demo_with_central_noise_shows_epsilon_beside_accuracy() {
    let privacy = "epsilon=8,delta=1e-5,mechanism=central_gaussian,clip=adaptive";
    let events = demo(&["--privacy", privacy, "--insecure-aggregation", "--participants", "24"]);
    keeps_its_promise(&events);
    let finished = events.last().unwrap();
    assert_eq!(finished["privacy"]["epsilon"]["server"], Value::Null);
    assert_eq!(finished["privacy"]["epsilon"]["server_reason"], "server_trusted");
    assert_ne!(number(finished, "/privacy/clip"), 1.0, "the norm has adapted");
}

/// Participants take part once, so the second round needs new ones.
#[test]
fn a_demo_along_a_tree_goes_on_with_those_who_are_left() {
    let privacy = "noise=2,delta=1e-3,mechanism=tree";
    let events = demo(&["--privacy", privacy, "--insecure-aggregation", "--participants", "9", "--cohort", "3"]);
    let made = rounds(&events);
    assert_eq!(made.len(), 2, "{events:?}");
    assert!(number(made[0], "/epsilon/published") <= number(made[1], "/epsilon/published"));
}

/// Nine in turns of three, more rounds than turns: participants return three rounds later, also under masks.
#[test]
fn a_demo_along_a_banded_matrix_goes_round_and_round() {
    let usual = ["--format", "json", "demo", "--participants", "9", "--rounds", "6", "--cohort", "3"];
    for more in [&["--insecure-aggregation"][..], &[]] {
        let ran = run(&[&usual[..], &["--privacy", "epsilon=8,delta=1e-5,mechanism=banded_matrix"], more].concat());
        assert_eq!(ran.code, 0, "{ran}");
        let events = ran.events();
        assert_eq!(events[0]["privacy"]["spec"]["separation"], 3, "{ran}");
        let spent: Vec<f64> = rounds(&events).iter().map(|round| number(round, "/epsilon/cohort_known")).collect();
        assert_eq!(spent.len(), 6, "{ran}");
        assert!(spent.windows(2).all(|pair| pair[0] < pair[1]) && spent[5] <= 8.0 && spent[5] > 7.99, "{spent:?}");
        // A participant's second participation costs more than the remaining budget.
        assert!(spent[3] - spent[2] > spent[2] - spent[1], "{spent:?}");
    }
}

#[test]
fn a_demo_whose_participants_add_the_noise_has_a_figure_for_the_coordinator() {
    let events = demo(&["--privacy", "epsilon=8,delta=1e-5", "--cohort", "8"]);
    keeps_its_promise(&events);
    let finished = events.last().unwrap();
    assert_eq!(finished["privacy"]["epsilon"]["server"], finished["privacy"]["epsilon"]["cohort_known"]);
    let session = &rounds(&events)[0]["secure_aggregation"];
    assert_eq!(session["included"], 8, "nothing but a sum was ever open: {session}");
}

/// Eight participants, four in each of two rounds, each in one of them: the second round adds nothing to the charge.
#[test]
fn demo_of_counted_participations_is_charged_for_one_release() {
    for mechanism in ["distributed_discrete_gaussian", "distributed_skellam"] {
        let privacy = format!("epsilon=8,delta=1e-5,participations=1,mechanism={mechanism}");
        let events = demo(&["--privacy", &privacy, "--cohort", "4"]);
        assert_eq!(events[0]["privacy"]["spec"]["participations"], 1, "{events:?}");
        let spent: Vec<_> = rounds(&events).iter().map(|round| &round["epsilon"]).collect();
        assert!(spent.len() == 2 && spent[0] == spent[1], "{spent:?}");
        let [published, server] = ["published", "server"].map(|view| spent[0][view].as_f64().unwrap());
        assert!(published == server && published > 4.0 && published <= 8.0, "{spent:?}");
    }
    let privacy = "noise=4,delta=1e-5,participations=1";
    let said = run(&["demo", "--rounds", "2", "--participants", "8", "--cohort", "4", "--privacy", privacy]);
    assert!(
        said.code == 0 && said.stdout.contains("Each is in 1 release at most, and is charged for no more"),
        "{said}"
    );
}

#[test]
fn a_demo_whose_participants_train_ahead_keeps_its_promise_without_amplification() {
    let buffered = ["--mode", "buffered", "--participants", "16", "--cohort", "8"];
    for privacy in ["epsilon=8,delta=1e-5", "epsilon=8,delta=1e-5,mechanism=central_gaussian"] {
        keeps_its_promise(&demo(&[&["--privacy", privacy], &buffered[..]].concat()));
    }
}

#[test]
fn people_are_told_what_is_promised_and_what_was_spent() {
    let args =
        ["--privacy", "noise=4,delta=1e-5,mechanism=distributed_skellam", "--participants", "6", "--rounds", "1"];
    let ran = run(&[&["demo"], &args[..]].concat());
    assert_eq!(ran.code, 0, "{ran}");
    for words in [
        "EPSILON",
        "TEST ACC",
        "distributed_skellam, noise multiplier 4",
        "no limit on epsilon",
        "Participants report no",
        "to the coordinator itself",
        "may tell the coordinator their share",
    ] {
        assert!(ran.stdout.contains(words), "no {words:?}: {ran}");
    }
    assert!(!ran.stdout.contains("TRAIN LOSS"), "nothing of that travels: {ran}");
}

#[test]
fn a_budget_that_ends_early_ends_the_demo_with_the_last_model_and_the_ledger_stays() {
    // Planned for one round, started for three.
    let privacy = "epsilon=8,delta=1e-5,mechanism=central_gaussian,rounds=1";
    let mut child = tributary()
        .args(["--format", "json", "demo", "--participants", "4", "--rounds", "3", "--privacy", privacy])
        .args(["--insecure-aggregation", "--inspect"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let process = Background(child);
    let mut events: Vec<Value> = Vec::new();
    for line in lines {
        events.push(serde_json::from_str(&line.unwrap()).unwrap());
        if events.last().unwrap()["event"] == "inspecting" {
            break;
        }
    }
    let finished = &events[events.len() - 2];
    assert_eq!((&finished["event"], &finished["rounds"]), (&"finished".into(), &1.into()), "{finished}");
    assert_eq!(rounds(&events).len(), 1);
    let inspecting = events.last().unwrap();
    let text = |key: &str| inspecting[key].as_str().unwrap().to_owned();
    let served = Served {
        process,
        url: text("url"),
        ca: text("ca"),
        token: text("token"),
        signed: String::new(),
        health: String::new(),
    };

    let task = served.operate(&["task", "show", "demo"]).data();
    assert_eq!(task["status"], "BUDGET_EXHAUSTED");
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("spent.svg");
    let ledger = served.operate(&["privacy", "show", "demo", "--svg", svg.to_str().unwrap()]).data();
    assert_eq!(ledger["rounds_left"], 0);
    let releases = ledger["releases"].as_array().unwrap();
    assert_eq!((releases.len(), &releases[0]["round"], &releases[0]["participants"]), (1, &1.into(), &4.into()));
    assert_eq!(releases[0]["total"], ledger["spent"]);
    well_formed(&std::fs::read_to_string(svg).unwrap()).unwrap();
    let round = served.operate(&["round", "show", "demo", "1"]).data();
    assert_eq!(round["epsilon"], ledger["spent"]);

    let words = |args: &[&str]| served.read(args);
    assert!(words(&["task", "show", "demo"]).contains("Another round would spend more than the privacy budget"));
    let shown = words(&["privacy", "show", "demo"]);
    assert!(shown.contains("room for 0 more rounds") && shown.contains("\nMechanism   "), "{shown}");
    let all = words(&["privacy", "show"]);
    assert!(all.contains("central_gaussian") && all.contains("All together, on a participant of each: "), "{all}");
    assert!(words(&["round", "list", "demo"]).contains("EPSILON"));
    assert!(words(&["round", "show", "demo", "1"]).contains("published"));
}

#[test]
fn a_promise_that_is_none_is_refused_before_anything_starts() {
    for (privacy, words) in [
        ("epsilon=0", "privacy.epsilon: must be finite and above 0"),
        ("epsilon=-1", "privacy.epsilon: must be finite and above 0"),
        ("epsilon=8,delta=1", "privacy.delta: must be above 0 and below 1"),
        ("epsilon=8,noise=0", "without noise every budget is exceeded at once"),
        ("epsilon=8,clip=0", "privacy.clip.fixed: must be a normal number above 0"),
        ("epsilon=8,clip=NaN", "clip=NaN: a norm is expected"),
        ("epsilon=8,mechanism=magic", "central_gaussian"),
        ("epsilon=8,mechanism=tree", "each in one round at most, need 200 participants, not 20"),
        ("delta=1e-5", "privacy.noise_multiplier: must be given, or an epsilon to solve it for"),
        ("epsilon=8,clip=wide", "`adaptive`"),
        ("epsilon=inf", "privacy.epsilon: invalid type: string \"inf\""),
        ("epsilon=much", "privacy.epsilon: invalid type: string \"much\""),
        ("epsilon", "`epsilon` is no KEY=VALUE, such as epsilon=8"),
        ("epsilon=8,sigma=2", "privacy.sigma: unknown field `sigma`"),
        ("epsilon=8,mechanism=none", "privacy.mechanism: is \"none\", so no budget can be kept"),
        ("epsilon=8,accounting=exact", "unknown variant `exact`"),
        ("epsilon=8,sampling=often", "poisson, fixed or none"),
        ("epsilon=8,mechanism=tree,sampling=poisson", "each in one round at most, need 200 participants"),
        ("epsilon=8,mechanism=banded_matrix,separation=5", "one of any 5 rounds, need 100 participants, not 20"),
        ("epsilon=8,mechanism=banded_matrix,participations=1", "need 200 participants"),
        ("epsilon=8,mechanism=local,separation=4", "is for mechanism \"banded_matrix\" or distributed noise"),
        ("epsilon=8,separation=4", "privacy.participations: must be given with a separation"),
        (
            "epsilon=8,participations=1",
            "need 200 participants, not 20: with these, cohorts of at most 2, or 10 participations",
        ),
        ("epsilon=8,mechanism=local,clip=adaptive", "local noise drowns"),
    ] {
        let ran = run(&["--format", "json", "demo", "--privacy", privacy]);
        assert_eq!(ran.code, 2, "{privacy}: {ran}");
        assert!(ran.stderr.contains(words), "{privacy}: {ran}");
    }
    // An error that only the coordinator can detect: the cohort is so small that the noise on its count takes up
    // everything.
    let ran = run(&["demo", "--participants", "8", "--privacy", "epsilon=8,clip=adaptive"]);
    assert_eq!(ran.code, 9, "{ran}");
    assert!(ran.stderr.contains("privacy.clip.adaptive") && ran.stderr.contains("a larger cohort"), "{ran}");
    let participant = ["--server", "https://localhost:1", "--ca", "/no/ca.pem", "--journal", "/no/such"];
    let ran = run(&[&["participant", "run", "--max-epsilon", "NaN"], &participant[..]].concat());
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("--max-epsilon must be finite and above 0"), "{ran}");
    let ran = run(&[&["participant", "run", "--lifetime-epsilon", "0"], &participant[..]].concat());
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("--lifetime-epsilon must be finite and above 0"), "{ran}");
}
