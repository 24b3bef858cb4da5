//! A model and updates of more than 8 MiB over lines that are cut, to replicas of which one is killed: received parts
//! are not sent again, and the round publishes the model of an undisturbed one.

#![cfg(target_os = "linux")]

use std::time::{Duration, Instant};

use test_servers::line::CutLine;
use test_servers::postgres::{Cluster, Options};
use test_servers::s3::S3Server;

use crate::killed::{logs, participant, rounds, wait};
use crate::replicas::{Site, address, front};
use crate::support::undisturbed;

/// Bytes of all parts of an update but the last.
const PART: u64 = 8 << 20;
/// Where each participant's line is cut: within the model, and then while the second part of its update is on its way,
/// which is some 980 kB. The other uploads, polls and messages of a session, are far less than 200 kB.
const CUTS_DOWN: [u64; 1] = [7_000_000];
const CUTS_UP: [u64; 4] = [PART + 200_000, PART + 400_000, PART + 600_000, PART + 800_000];
/// Bytes of a model that the SDK lets a coordinator send before it has read them: a cut may cost them.
const WINDOW: u64 = 2 << 20;

#[test]
fn a_cut_line_or_a_lost_replica_costs_at_most_the_part_on_its_way() {
    let Some(cluster) = Cluster::start(Options { tcp: true, ..Options::default() }) else { return };
    let (database, blobs, folder) = (cluster.create_database(), S3Server::start(), tempfile::tempdir().unwrap());
    let task = folder.path().join("task.toml").display().to_string();
    let args =
        ["--participants", "3", "--rounds", "1", "--seed", "5", "--model", "mlp,hidden=[33000]", "--task-file", &task];
    let expected = undisturbed(&args);

    let site = Site::new(folder.path(), &cluster.url(&database), &blobs);
    // The first one to start has the operator's token.
    let (direct, lost) = (site.serve(0, "127.0.0.1:0"), site.serve(1, "127.0.0.1:0"));
    let _working = site.work(0);
    direct.operate(&["task", "create", &task]).data();
    let lines =
        [0, 1, 2].map(|_| CutLine::before([&direct, &lost].map(address).into(), CUTS_UP.into(), CUTS_DOWN.into()));
    let mut participants: Vec<_> = lines
        .iter()
        .enumerate()
        .map(|(index, line)| {
            let token = direct.operate(&["token", "create", "--enrollment"]).data();
            participant(&front(line.port(), &direct), folder.path(), index, token["token"].as_str())
        })
        .collect();
    let end = Instant::now() + Duration::from_secs(120);
    // All first parts are stored then, and the second ones are in transit.
    while lines.iter().any(|line| line.cuts_left_up() > CUTS_UP.len() / 2) {
        assert!(Instant::now() < end, "a line is not cut: {:?}\n{}", rounds(&direct).first(), logs(folder.path()));
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(lost);
    for child in &mut participants {
        assert_eq!(wait(&mut child.0), Some(0), "{:?}\n{}", rounds(&direct).first(), logs(folder.path()));
    }
    let models = direct.operate(&["model", "list", "demo"]).data();
    let models = models.as_array().unwrap();
    let published: Vec<_> = models.iter().rev().skip(1).map(|model| model["sha256"].clone()).collect();
    assert_eq!(published, expected);
    let round = &rounds(&direct)[0];
    assert_eq!((&round["state"], &round["reported"]), (&"COMPLETED".into(), &3.into()), "{round}");

    let (model, input) = (models[0]["bytes"].as_u64().unwrap(), round["bytes_up"].as_u64().unwrap() / 3);
    let last_part = input - PART;
    assert!(model > CUTS_DOWN[0] + WINDOW && (900_000..1_100_000).contains(&last_part), "{model} {input}");
    for line in &lines {
        assert_eq!((line.cuts_left_up(), line.cuts_left_down()), (0, 0));
        let (up, down) = (line.up(), line.down());
        // The base of the round, and its result: the last version, for the app.
        assert!(down < 2 * model + WINDOW + 500_000, "{down} bytes came of two models of {model}");
        // Four cuts at intervals of 200 kB, and a replica: all of them keep the stored parts.
        assert!(up < CUTS_UP[3] + 2 * last_part + 500_000, "{up} bytes left for an update of {input}");
    }
}
