//! All output of a coordinator or a participant is searched for secrets: updates, seeds, keys, shares,
//! tokens, cookies.
//!
//! The coordinator is a process of its own with its log, and that of all its dependencies, at TRACE. Real participants,
//! one of them such a process, too, run a secure task and a private one over HTTPS; their journals have the secrets.

mod outside;
mod participants;
mod process;
mod provider;
pub(crate) mod search;
mod servers;

use std::fs::File;
use std::path::Path;

use serde_json::json;

use self::outside::Outside;
use self::participants::{EACH, Secrets, play};
use self::process::Alone;
use self::search::{Search, spellings};
use crate::collector::Collector;
use crate::support::{Served, tributary};

/// Starts a coordinator whose log, all of it, goes to a file.
fn serve(folder: &Path, log: &Path, collector: &Collector) -> Served {
    let mut command = tributary();
    command.args(["--format", "json", "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder);
    command.env("TRIBUTARY_TELEMETRY_LEVEL", "trace").stderr(File::create(log).unwrap());
    command.env("TRIBUTARY_TRACES_ENDPOINT", &collector.endpoint).env("TRIBUTARY_TRACES_SAMPLE_RATIO", "1.0");
    Served::until_in_words(command, "serving")
}

/// A task of a few values, whose name the task is known by.
fn task(name: &str) -> serde_json::Value {
    json!({
        "name": name,
        "model": { "tensors": [{ "name": "w", "shape": [participants::VALUES] }], "seed": 7 },
        "rounds": { "count": 2, "select_min": EACH, "collect_min": EACH },
        "selection": { "cohort": { "count": EACH }, "seed": 1 },
        "secure_aggregation": { "max_dropout_fraction": 0.3 },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_leaves_the_coordinator_holds_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let collector = Collector::start();
    let served = serve(&data, &log, &collector);
    let mut hidden = task("hidden");
    hidden["metrics"] = json!(["secret_loss"]);
    let mut private = task("private");
    private["privacy"] = json!({
        "mechanism": "distributed_discrete_gaussian", "noise_multiplier": 1.0, "delta": 1e-5, "clip": { "fixed": 5.0 },
        "population": EACH,
    });
    private["secure_aggregation"] = json!({ "max_dropout_fraction": 0.0 });
    let mut secrets = Secrets::of_coordinator(&data, &served.token);
    let outside = Outside::new(&served);
    let cookie = outside.sign_in().await;
    secrets.add("the secret of a sign-in", cookie.as_bytes());
    outside.create(&hidden).await;
    let alone = Alone::start(&served, &folder.path().join("alone"), "hidden", &collector);
    let alone = tokio::task::spawn_blocking(move || alone.run());
    secrets.join(play(&served, "hidden", EACH - 1).await);
    let (of_process, told_by_process) = alone.await.unwrap();
    secrets.join(of_process);
    outside.create(&private).await;
    secrets.join(play(&served, "private", EACH).await);
    let refused = outside.refusals("hidden", &mut secrets).await;
    let exports = folder.path().join("exports");
    let mut places = outside.collect(&["hidden", "private"], &log, &exports).await;
    places.extend(told_by_process.into_iter().chain(refused));
    // Two participants' rounds at least, with the actions on their updates.
    places.push(("the traces".to_owned(), published(&collector).await));
    assert!(secrets.len() > 200 && places.len() > 50, "{} secrets, {} places", secrets.len(), places.len());

    let search = Search::of(secrets.all());
    for (place, bytes) in &places {
        assert_eq!(search.find(bytes), None, "{place}");
    }
    assert_planted_is_found(&search, &secrets, &places);
}

/// All spans, once they include the end of a round, and a participant's output.
async fn published(collector: &Collector) -> Vec<u8> {
    for _ in 0..600 {
        let spans = collector.spans();
        if ["publish", "clip and mask"].iter().all(|name| spans.iter().any(|told| told.span.name == *name)) {
            return collector.bodies();
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("no version is in the traces");
}

/// Every secret is found in every channel, in every spelling.
fn assert_planted_is_found(search: &Search, secrets: &Secrets, places: &[(String, Vec<u8>)]) {
    let mut kinds: Vec<_> = secrets.all().iter().map(|(what, _)| *what).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert!(kinds.len() >= 8, "{kinds:?}");
    for (place, bytes) in places {
        let bytes = &bytes[..bytes.len().min(16 << 10)];
        for kind in &kinds {
            let (what, secret) = secrets.all().iter().find(|(what, _)| what == kind).unwrap();
            for (turn, spelling) in spellings(secret).into_iter().enumerate() {
                let mut planted = bytes.to_vec();
                let at = planted.len() * turn / 11;
                planted.splice(at..at, spelling);
                assert!(search.find(&planted).is_some(), "{place} with {what}, spelling {turn}");
            }
        }
    }
}

/// A planted secret does leak: in the place of a name it goes wherever names go, and is found there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_is_told_is_found_in_every_channel_that_tells_it() {
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let collector = Collector::start();
    let served = serve(&data, &log, &collector);
    let secrets = Secrets::of_coordinator(&data, &served.token);
    let (what, key) = secrets.all().iter().find(|(what, _)| *what == "the sealing key").unwrap();
    let name = hex::encode(&key[..15]);
    let outside = Outside::new(&served);
    outside.create(&task(&name)).await;
    outside.create_token(&name).await;
    let places = outside.collect(&[&name], &log, &folder.path().join("exports")).await;
    let search = Search::of(secrets.all());
    let leaks: Vec<_> =
        places.iter().filter(|(_, bytes)| search.find(bytes) == Some(*what)).map(|(place, _)| place.as_str()).collect();
    let channels = ["/v1/tasks", "/v1/events", "/v1/audit", "/v1/audit/export", "/v1/operator-tokens", "the log"];
    let exports = ["export csv", "export parquet", "export tensorboard", "export mlflow"];
    for told in channels.into_iter().chain(exports) {
        assert!(leaks.iter().any(|place| place.starts_with(told)), "{told} is not in {leaks:?}");
    }
    // Paths without names cannot leak one.
    for silent in ["/metrics", "/assets/"] {
        assert!(!leaks.iter().any(|place| place.starts_with(silent)), "{leaks:?}");
    }
}
