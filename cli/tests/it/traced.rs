//! One update, from the draw over the participant's training to the published version, is one trace. Its spans come
//! from the participant, the coordinators that it met and those that took the steps, all of them processes over one
//! PostgreSQL database.

#![cfg(target_os = "linux")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use test_servers::postgres::{Cluster, Options};
use test_servers::s3::S3Server;

use crate::collector::{Collector, Told};
use crate::killed::{logs, participant_of, wait};
use crate::replicas::{Balancer, Site};
use crate::support::{Background, tributary, undisturbed};

const UPLOAD: &str = "PUT /v1/tasks/{task}/rounds/{round}/masked-inputs/{participant}";

/// The spans of each trace.
fn traces(collector: &Collector) -> BTreeMap<Vec<u8>, Vec<Told>> {
    let mut traces = BTreeMap::<_, Vec<_>>::new();
    for told in collector.spans() {
        traces.entry(told.span.trace_id.clone()).or_default().push(told);
    }
    traces
}

fn names(trace: &[Told]) -> BTreeSet<&str> {
    trace.iter().map(|told| told.span.name.as_str()).collect()
}

#[test]
fn one_update_is_followed_from_the_draw_to_the_version() {
    let Some(cluster) = Cluster::start(Options { tcp: true, ..Options::default() }) else { return };
    let (database, blobs, folder) = (cluster.create_database(), S3Server::start(), tempfile::tempdir().unwrap());
    let task = folder.path().join("task.toml").display().to_string();
    undisturbed(&["--participants", "3", "--rounds", "2", "--seed", "5", "--task-file", &task]);

    let collector = Collector::start();
    let site = Site::new(folder.path(), &cluster.url(&database), &blobs)
        .with("TRIBUTARY_TRACES_ENDPOINT", &collector.endpoint)
        .with("TRIBUTARY_TRACES_SAMPLE_RATIO", "1.0");
    let serving: Vec<_> = (0..2).map(|index| site.serve(index, "127.0.0.1:0")).collect();
    let _working: Vec<_> = (0..2).map(|index| site.work(index)).collect();
    let everybody = Balancer::before(&serving.iter().collect::<Vec<_>>()).front(&serving[0]);
    everybody.operate(&["task", "create", &task]).data();
    let start = |index| {
        let token = everybody.enrollment_token();
        let mut command = participant_of(tributary(), &everybody, folder.path(), index, Some(&token));
        Background(command.args(["--traces-endpoint", &collector.endpoint]).spawn().unwrap())
    };
    let mut participants: Vec<_> = (0..3).map(start).collect();
    for child in &mut participants {
        assert_eq!(wait(&mut child.0), Some(0), "{}", logs(folder.path()));
    }

    // The coordinators' last spans come a moment later.
    let wanted = ["draw", "round", "download", "train", "clip and mask", "upload", UPLOAD, "release", "publish"];
    let is_whole = |trace: &[Told]| wanted.iter().all(|name| names(trace).contains(name));
    let end = Instant::now() + Duration::from_secs(60);
    let whole = loop {
        let whole: Vec<_> = traces(&collector).into_values().filter(|trace| is_whole(trace)).collect();
        if whole.len() == 6 {
            break whole;
        }
        let told: Vec<_> = traces(&collector).values().map(|trace| format!("{:?}", names(trace))).collect();
        assert!(Instant::now() < end, "{} of 6 updates: {told:#?}", whole.len());
        std::thread::sleep(Duration::from_millis(100));
    };
    for trace in &whole {
        follows_one_update(trace);
    }
    // The rounds that these link to are there as well, with phases and steps.
    let rounds: BTreeSet<_> =
        whole.iter().flatten().flat_map(|told| &told.span.links).map(|link| link.trace_id.clone()).collect();
    assert_eq!(rounds.len(), 2);
    let wanted = ["COLLECTING", "AGGREGATING", "close_phase", "release_sum", "publish_version"];
    for round in rounds {
        // The round's trace may come from another process than the last spans of the updates' traces.
        loop {
            let all = traces(&collector);
            let names = all.get(&round).map(|trace| names(trace)).unwrap_or_default();
            if wanted.iter().all(|name| names.contains(name)) {
                break;
            }
            assert!(Instant::now() < end, "{wanted:?} are not all in {names:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    // Traces are free of names.
    let bodies = collector.bodies();
    let says = |text: &str| bodies.windows(text.len()).any(|window| window == text.as_bytes());
    let known = everybody.operate(&["participant", "list"]).data();
    for participant in known.as_array().unwrap() {
        for key in ["id", "name"] {
            let text = participant[key].as_str().unwrap();
            assert!(!says(text), "{key} {text} is in the traces");
        }
    }
    assert!(says("masked-inputs") && says("tributary.round"));
}

/// A complete trace is connected, and each process exports its part of it.
fn follows_one_update(trace: &[Told]) {
    let one = |name: &str| trace.iter().find(|told| told.span.name == name).unwrap();
    let (draw, round) = (one("draw"), one("round"));
    assert!(draw.span.parent_span_id.is_empty());
    assert_eq!(round.span.parent_span_id, draw.span.span_id);
    for name in ["train", "clip and mask", "upload", UPLOAD] {
        assert_eq!(one(name).span.parent_span_id, round.span.span_id, "{name}");
    }
    for name in ["release", "publish"] {
        assert_eq!(one(name).span.parent_span_id, draw.span.span_id, "{name}");
    }
    let ids: BTreeSet<_> = trace.iter().map(|told| &told.span.span_id).collect();
    assert_eq!(ids.len(), trace.len(), "every span has an id of its own");
    assert!(trace.iter().all(|told| told.span.start_time_unix_nano <= told.span.end_time_unix_nano));
    assert_eq!((round.service.as_str(), draw.service.as_str()), ("tributary-participant", "tributary-coordinator"));
    assert_ne!(one(UPLOAD).instance, one("publish").instance, "who serves takes no steps");
}
