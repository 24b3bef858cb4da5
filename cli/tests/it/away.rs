//! An S3 server that is unreachable for a while: participants retry, the log has it once, and all data are kept.

#![cfg(target_os = "linux")]

use std::time::{Duration, Instant};

use test_servers::s3::S3Server;

use crate::killed::{logs, rounds, three, wait, wait_for_round};
use crate::on_postgres::counters;
use crate::replicas::Site;
use crate::support::{Served, run};

#[test]
fn while_the_blobs_are_away_everybody_waits_and_the_log_is_told_once() {
    let (mut blobs, folder) = (S3Server::start(), tempfile::tempdir().unwrap());
    let task = folder.path().join("task.toml").display().to_string();
    let undisturbed =
        run(&["--format", "json", "demo", "--participants", "3", "--rounds", "8", "--seed", "5", "--task-file", &task]);
    assert_eq!(undisturbed.code, 0, "{undisturbed}");
    let newest =
        undisturbed.events().iter().rfind(|event| event["event"] == "round").unwrap()["model"]["sha256"].clone();

    let database = format!("sqlite:{}", folder.path().join("coordinator.db").display());
    let (site, log) = (Site::new(folder.path(), &database, &blobs), folder.path().join("coordinator.log"));
    let mut command = site.command("serve", 0);
    command.env("TRIBUTARY_HTTP_LISTEN", "127.0.0.1:0").stderr(std::fs::File::create(&log).unwrap());
    let served = Served::until_in_words(command, "serving");
    served.operate(&["task", "create", &task]).data();
    let mut participants = three(&served, folder.path());
    wait_for_round(&served, folder.path(), 3);
    blobs.kill();
    let count = |name: &str| -> u64 {
        counters(&served).iter().filter(|(counted, _)| counted.starts_with(name)).map(|(_, count)| count).sum()
    };
    // A model request is rejected in the same way as a participant's, whose turn may come later.
    let out = folder.path().join("model").display().to_string();
    let end = Instant::now() + Duration::from_secs(60);
    while count("tributary_rejections_total{code=\"unavailable\"}") < 4 {
        assert!(Instant::now() < end, "{:?}", counters(&served));
        served.operate(&["model", "fetch", "demo", "--model-version", "0", "--out", &out]);
    }
    assert!(count("tributary_blob_request_failures_total") > 0);
    blobs.restart();
    for child in &mut participants {
        assert_eq!(wait(&mut child.0), Some(0), "{:?}\n{}", rounds(&served).first(), logs(folder.path()));
    }
    let models = served.operate(&["model", "list", "demo"]).data();
    assert_eq!(models[0]["sha256"], newest);
    assert_eq!(count("tributary_faults_total"), 0);
    let told = std::fs::read_to_string(&log).unwrap();
    let unserved: Vec<_> = told.lines().filter(|line| line.contains("could not be served")).collect();
    assert!(unserved.len() == 1 && unserved[0].contains("the store of blobs does not serve"), "{told}");
}
