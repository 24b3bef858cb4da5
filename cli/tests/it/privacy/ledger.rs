//! A ledger that is exported, verified offline, and edited.

use serde_json::{Value, json};

use super::number;
use crate::support::{Ran, Served, run};

/// A federation that has played two rounds with this promise.
fn played(folder: &std::path::Path, privacy: &str, more: &[&str]) -> Served {
    let usual = ["--rounds", "2", "--participants", "8", "--privacy", privacy];
    Served::demo(folder, &[&usual[..], more].concat())
}

fn verify(file: &str, flags: &[&str]) -> Ran {
    run(&[&["--format", "json", "privacy", "verify", file][..], flags].concat())
}

#[test]
fn exported_ledger_is_verified_offline() {
    let folder = tempfile::tempdir().unwrap();
    let served = played(folder.path(), "epsilon=8,delta=1e-5", &[]);
    let at = |name: &str| folder.path().join(name).display().to_string();
    let file = at("ledger.json");
    let shown = served.operate(&["privacy", "show", "demo"]).data();
    let exported = served.operate(&["privacy", "export", "demo", &file]).data();
    assert_eq!(exported["rows"], 2);
    let key = served.operate(&["audit", "head"]).data()["key"].as_str().unwrap().to_owned();
    assert_eq!(exported["key"], key.as_str());
    drop(served);

    let verdict = verify(&file, &["--key", &key]).data();
    assert_eq!(
        (&verdict["key_was_given"], &verdict["neighbours"]),
        (&json!(true), &json!("one participant more or less"))
    );
    let total = &verdict["total"];
    assert_eq!(number(total, "/epsilons/0/delta"), 1e-5);
    assert_eq!(number(total, "/epsilons/0/published"), number(&shown, "/spent/published"));
    assert_eq!(number(total, "/epsilons/0/cohort_known"), number(&shown, "/spent/cohort_known"));
    let deltas: Vec<f64> = (0..4).map(|place| number(total, &format!("/epsilons/{place}/delta"))).collect();
    assert_eq!(deltas, [1e-5, 1e-6, 1e-7, 1e-8]);
    let growing = |figure: &str| {
        (0..3).all(|place| {
            let at = |place| number(total, &format!("/epsilons/{place}/{figure}"));
            at(place) < at(place + 1)
        })
    };
    assert!(growing("published") && growing("cohort_known"), "{total}");
    assert!(total["mu"].is_null(), "shares of noise have no figure of Gaussian DP: {total}");
    // Two equal releases: every additive figure is twice that of one.
    let row = &verdict["rows"][0];
    for place in [10, 99, 130] {
        let path = format!("/rdp_cohort_known/{place}");
        let (one, both) = (number(row, &path), number(total, &path));
        assert!((both - 2.0 * one).abs() <= 1e-9 * both, "order {}: {one}, {both}", total["orders"][place]);
    }
    let words = run(&["privacy", "verify", &file, "--delta", "1e-9"]);
    let parts = ["All 2 releases of task demo are charged rightly", "Delta 1e-9", "Compare the key"];
    assert!(parts.iter().all(|part| words.stdout.contains(part)), "{words}");

    // Edited, cut, and signed by another key.
    let text = std::fs::read_to_string(&file).unwrap();
    let changed = text.replacen("\\\"published\\\":true", "\\\"published\\\":false", 1);
    assert_ne!(changed, text);
    std::fs::write(at("changed.json"), changed).unwrap();
    let mut cut: Value = serde_json::from_str(&text).unwrap();
    let mut ledger: Value = serde_json::from_str(cut["ledger"].as_str().unwrap()).unwrap();
    ledger["rows"].as_array_mut().unwrap().pop();
    cut["ledger"] = ledger.to_string().into();
    std::fs::write(at("cut.json"), cut.to_string()).unwrap();
    for name in ["changed.json", "cut.json"] {
        let ran = verify(&at(name), &[]);
        assert!(ran.code == 17 && ran.stdout.contains("it was changed or cut off after it was exported"), "{ran}");
    }
    let ran = verify(&file, &["--key", &"0".repeat(64)]);
    assert!(ran.code == 17 && ran.stdout.contains("it is signed by the key"), "{ran}");
    std::fs::write(at("half.json"), &text[..text.len() / 2]).unwrap();
    let ran = verify(&at("half.json"), &[]);
    assert!(ran.code == 4 && ran.stdout.contains("is no exported privacy ledger"), "{ran}");
    let ran = verify(&file, &["--delta", "1"]);
    assert!(ran.code == 2 && ran.to_string().contains("a delta is above 0 and below 1"), "{ran}");
}

/// A secret draw hides the number of participants; the costs follow without it.
#[test]
fn exported_ledger_of_a_secret_draw_omits_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let sampled = ["--insecure-aggregation", "--participants", "24", "--cohort", "12"];
    let privacy = "noise=2,delta=1e-5,mechanism=central_gaussian,sampling=poisson";
    let served = Served::demo(folder.path(), &[&["--rounds", "2", "--privacy", privacy][..], &sampled].concat());
    let file = folder.path().join("ledger.json").display().to_string();
    served.operate(&["privacy", "export", "demo", &file]).data();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("poisson") && !text.contains("participants\\\":"), "{text}");
    let total = &verify(&file, &[]).data()["total"];
    assert!(number(total, "/epsilons/0/published") < number(total, "/epsilons/0/cohort_known"), "{total}");
    // Two releases with a noise multiplier of 2, rounded up to the grid: mu is the root of 2/4.
    let mu = number(total, "/mu");
    assert!(mu <= 0.5_f64.sqrt() && mu > 0.999 * 0.5_f64.sqrt(), "{total}");
}

#[test]
fn task_without_a_mechanism_has_no_ledger_to_export() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::demo(folder.path(), &["--rounds", "1", "--participants", "3"]);
    let file = folder.path().join("ledger.json").display().to_string();
    let ran = served.operate(&["privacy", "export", "demo", &file]);
    assert!(ran.code == 7 && ran.stdout.contains("no privacy mechanism"), "{ran}");
    assert!(!std::path::Path::new(&file).exists());
}
