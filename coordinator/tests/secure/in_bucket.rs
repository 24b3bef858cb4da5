//! Release keys in a bucket: remnants after a release, and rounds during an outage of the bucket.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coordinator::config::Config;
use coordinator::random::Random;
use coordinator::{Coordinator, Parts};
use federation::round::RoundState;
use federation::time::{Clock as _, MockClock};
use http::Method;
use test_servers::s3::{S3Server, Treatment};
use wire::participant::Answer;

use crate::support::secure::{World, keep_in_bucket};
use crate::support::{START, config};

/// The existing release keys, by their names in the bucket.
fn keys(server: &S3Server) -> Vec<(String, Vec<u8>)> {
    let names = server.keys().into_iter().filter(|name| name.starts_with("apart/releases/"));
    names.map(|name| (name.clone(), std::fs::read(server.object(&name)).unwrap())).collect()
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
    found
}

/// The models without faults of the bucket.
async fn undisturbed() -> Vec<String> {
    let server = S3Server::start();
    let mut world = World::in_bucket(4, &server, |_| {}).await;
    world.complete(1).await;
    world.digests().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_release_a_thief_of_every_disk_finds_no_key() {
    let server = S3Server::start();
    let mut world = World::in_bucket(4, &server, |_| {}).await;
    world.up_to(1, RoundState::Unmasking).await;
    for member in &mut world.members[..2] {
        member.unmask(&world.t).await;
    }
    let before = keys(&server);
    assert_eq!(before.len(), 1, "one of a process");
    let key = &before[0].1;
    assert_eq!(key.len(), 32);
    let disk = server.object("");
    let disk = disk.parent().unwrap();
    let holds = |(_, bytes): &(PathBuf, Vec<u8>)| bytes.windows(32).any(|window| window == key);
    assert!(files(disk).iter().any(holds), "so a thief would find it");

    // The key is destroyed before the version is published.
    let (object, is_early) = (server.object(&before[0].0), Arc::<AtomicBool>::default());
    let seen = Arc::clone(&is_early);
    server.treat(move |method, _| {
        if *method == Method::DELETE {
            seen.store(std::fs::read(&object).unwrap() == [0; 32], Ordering::SeqCst);
        }
        Treatment::Serve
    });
    world.act(RoundState::Unmasking, |at| at >= 2).await;
    assert_eq!(world.state(1).await, RoundState::Completed);
    assert!(is_early.load(Ordering::SeqCst), "it was overwritten, then deleted");
    assert_eq!(keys(&server), []);
    assert!(!files(disk).iter().any(holds));
    assert!(!world.files().iter().any(holds));
    let folder = world.folder.as_ref().unwrap().path();
    assert!(!folder.join("seal.releases").exists() && !folder.join("seal.ledgers").exists(), "there are no folders");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_bucket_is_away_answers_and_releases_wait_and_nothing_is_published() {
    let mut server = S3Server::start();
    let mut world = World::in_bucket(4, &server, |_| {}).await;
    world.up_to(1, RoundState::Unmasking).await;
    let first = world.members[0].reveal(&world.t).await;
    server.kill();
    let refused = world.members[0].say(&world.t, Answer::UnmaskShares, &first).await;
    assert_eq!(refused.status, 503, "{}", String::from_utf8_lossy(&refused.body));
    assert!(!String::from_utf8_lossy(&refused.body).contains("apart"), "peers are not told where it is");
    let ready = world.t.get(&world.t.viewer, "/readyz").await;
    let told = String::from_utf8(ready.body).unwrap();
    assert!(ready.status == 200 && told.contains("keys of releases and ends of ledgers cannot be used"), "{told}");
    server.restart();
    let taken = world.members[0].say(&world.t, Answer::UnmaskShares, &first).await;
    assert_eq!(taken.status, 204, "{}", String::from_utf8_lossy(&taken.body));
    for member in &mut world.members[1..] {
        member.unmask(&world.t).await;
    }

    // All have answered, but the keys cannot be destroyed.
    server.treat(|method, _| if *method == Method::DELETE { Treatment::Drop } else { Treatment::Serve });
    let error = world.t.inner.engine.step_all().await.unwrap_err();
    assert!(error.to_string().contains("it cannot be reached"), "{error}");
    assert_eq!(world.state(1).await, RoundState::Aggregating);
    assert_eq!(world.digests().await.len(), 1, "nothing is published");
    server.treat(|_, _| Treatment::Serve);
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Completed);
    assert_eq!(keys(&server), []);
    assert_eq!(world.digests().await, undisturbed().await);
}

/// Data sealed with a key whose creation seemed to fail would be lost with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_is_lost_with_the_answer_of_the_bucket() {
    let server = S3Server::start();
    let mut world = World::in_bucket(4, &server, |_| {}).await;
    world.up_to(1, RoundState::Unmasking).await;
    let mut puts = 0;
    server.treat(move |method, _| {
        puts += u32::from(*method == Method::PUT);
        if *method == Method::PUT && puts == 1 { Treatment::Unanswered } else { Treatment::Serve }
    });
    world.act(RoundState::Unmasking, |_| true).await;
    assert_eq!(world.state(1).await, RoundState::Completed);
    assert_eq!(world.digests().await, undisturbed().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_bucket_makes_a_round_slow_and_nothing_else() {
    let server = S3Server::start();
    let mut world = World::in_bucket(4, &server, |_| {}).await;
    server.treat(|_, _| Treatment::Delay(Duration::from_millis(100)));
    world.complete(1).await;
    assert_eq!(keys(&server), []);
    assert_eq!(world.digests().await, undisturbed().await);
}

/// A coordinator over other rows with the same bucket and the same sealing key, as for a recovery drill.
async fn drill(world: &World, rows: &str) -> Coordinator {
    let mut config = world.config.clone();
    config.database.url = rows.to_owned();
    config.blobs.url = "memory:".to_owned();
    let parts = Parts { clock: Arc::clone(&world.t.clock) as _, random: Random::from_seed(9) };
    Coordinator::assemble(&config, parts).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_what_a_database_does_not_know_wait_a_day() {
    let server = S3Server::start();
    let mut world = World::in_bucket(4, &server, |_| {}).await;
    world.up_to(1, RoundState::Collecting).await;
    // One copy is from before the first use of a key.
    let folder = world.folder.as_ref().unwrap().path();
    let copy = folder.join("copy.db").display().to_string();
    rusqlite::Connection::open(folder.join("rows.db")).unwrap().execute("VACUUM INTO ?1", [&copy]).unwrap();
    let drills = [drill(&world, &format!("sqlite:{copy}")).await, drill(&world, "sqlite::memory:").await];
    world.act(RoundState::Collecting, |_| true).await;
    world.act(RoundState::Confirming, |_| true).await;
    assert_eq!(world.state(1).await, RoundState::Unmasking);
    world.members[0].unmask(&world.t).await;
    let kept = keys(&server);
    assert_eq!(kept.len(), 1);
    for drill in &drills {
        assert_eq!(drill.engine.collect_garbage().await.unwrap().release_keys, 0);
    }
    assert_eq!(keys(&server), kept, "the federation still needs it");
    let start = world.t.clock.now();
    world.act(RoundState::Unmasking, |at| at > 0).await;
    assert_eq!(world.digests().await, undisturbed().await);

    world.up_to(2, RoundState::Unmasking).await;
    world.members[0].unmask(&world.t).await;
    assert_eq!(keys(&server).len(), 1);
    world.t.clock.set(start.plus(Duration::from_secs(3600)));
    assert_eq!(drills[0].engine.collect_garbage().await.unwrap().release_keys, 0, "another attempt than that before");
    world.t.clock.advance(Duration::from_secs(24 * 3600 - 1));
    assert_eq!(drills[0].engine.collect_garbage().await.unwrap().release_keys, 0);
    world.t.clock.advance(Duration::from_secs(1));
    assert_eq!(drills[0].engine.collect_garbage().await.unwrap().release_keys, 1, "so nothing is left for ever");
    assert_eq!(keys(&server), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_begins_to_keep_versions_is_not_used_until_it_keeps_none() {
    let server = S3Server::start();
    let mut world = World::in_bucket(4, &server, |_| {}).await;
    world.up_to(1, RoundState::Unmasking).await;
    let tell = |told: &'static str| {
        server.treat(move |_, uri| match uri.query() {
            Some(query) if query.contains("versioning") => Treatment::Answer(told),
            _ => Treatment::Serve,
        });
    };
    let (kept, none) = (
        "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>",
        "<VersioningConfiguration></VersioningConfiguration>",
    );
    tell(kept);
    world.t.inner.engine.collect_garbage().await.unwrap();
    let first = world.members[0].reveal(&world.t).await;
    let refused = world.members[0].say(&world.t, Answer::UnmaskShares, &first).await;
    assert_eq!(refused.status, 503, "{}", String::from_utf8_lossy(&refused.body));
    assert_eq!(keys(&server), [], "no key is made that would be kept");
    world.t.clock.advance(Duration::from_secs(2));
    let ready = world.t.get(&world.t.viewer, "/readyz").await;
    let told = String::from_utf8(ready.body).unwrap();
    assert!(told.contains("cannot be used") && told.contains("keeps, or kept, versions"), "{told}");

    tell(none);
    world.t.inner.engine.collect_garbage().await.unwrap();
    let taken = world.members[0].say(&world.t, Answer::UnmaskShares, &first).await;
    assert_eq!(taken.status, 204, "{}", String::from_utf8_lossy(&taken.body));
    for member in &mut world.members[1..] {
        member.unmask(&world.t).await;
    }
    tell(kept);
    world.t.inner.engine.collect_garbage().await.unwrap();
    let error = world.t.inner.engine.step_all().await.unwrap_err();
    assert!(error.to_string().contains("keeps, or kept, versions"), "{error}");
    assert_eq!(world.digests().await.len(), 1, "nothing is published whose key would be kept");
    // A failed check leaves the previous result.
    server.treat(|_, uri| match uri.query() {
        Some(query) if query.contains("versioning") => Treatment::Refuse(http::StatusCode::FORBIDDEN),
        _ => Treatment::Serve,
    });
    assert!(world.t.inner.engine.collect_garbage().await.is_err(), "the sum is released, so its key is garbage");
    assert!(world.t.inner.engine.step_all().await.is_err());
    assert_eq!((keys(&server).len(), world.digests().await.len()), (1, 1));
    tell(none);
    world.t.inner.engine.collect_garbage().await.unwrap();
    world.t.work().await;
    assert_eq!(keys(&server), []);
    assert_eq!(world.digests().await, undisturbed().await);
}

async fn start(config: &Config) -> String {
    let parts = Parts { clock: Arc::new(MockClock::new(START)), random: Random::from_seed(1) };
    Coordinator::assemble(config, parts).await.map_or_else(|error| error.to_string(), |_| "started".to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_where_nothing_can_be_destroyed_or_shared_is_refused() {
    let (mut server, folder) = (S3Server::start(), tempfile::tempdir().unwrap());
    let mut config = config();
    keep_in_bucket(&mut config, &server, folder.path());
    assert_eq!(start(&config).await, "started");
    assert_eq!(server.keys(), [""; 0], "nothing is left of the trial");

    server.treat(|_, uri| match uri.query() {
        Some(query) if query.contains("versioning") => {
            Treatment::Answer("<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
        }
        _ => Treatment::Serve,
    });
    let told = start(&config).await;
    assert!(told.contains("identity.seal_url") && told.contains("keeps, or kept, versions"), "{told}");

    let mut puts = 0;
    server.treat(move |method, _| {
        puts += u32::from(*method == Method::PUT);
        if *method == Method::PUT && puts == 2 { Treatment::Answer("") } else { Treatment::Serve }
    });
    let told = start(&config).await;
    assert!(told.contains("ignores the condition If-None-Match"), "{told}");

    server.treat(|_, _| Treatment::Serve);
    std::fs::remove_file(folder.path().join("seal.key")).unwrap();
    let told = start(&config).await;
    assert!(told.contains("there is no sealing key"), "{told}");
    assert!(!folder.path().join("seal.key").exists(), "none is made");
    std::fs::write(folder.path().join("seal.key"), [5; 32]).unwrap();
    server.kill();
    let told = start(&config).await;
    assert!(told.contains("it cannot be reached"), "{told}");
}
