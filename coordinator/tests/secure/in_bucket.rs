//! Keys of releases in a bucket: what is left of them after a release, and what rounds do while the bucket is away.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coordinator::config::Config;
use coordinator::random::Random;
use coordinator::{Coordinator, Parts};
use federation::round::RoundState;
use federation::time::MockClock;
use http::Method;
use test_servers::s3::{S3Server, Treatment};
use wire::participant::Answer;

use crate::support::secure::{World, keep_in_bucket};
use crate::support::{START, config};

/// The keys of releases that there are, by their names in the bucket.
fn keys(server: &S3Server) -> Vec<(String, Vec<u8>)> {
    let names = server.keys().into_iter().filter(|name| name.starts_with("apart/releases/"));
    names.map(|name| (name.clone(), std::fs::read(server.object(&name)).unwrap())).collect()
}

/// Everything below a folder.
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

/// The models where nothing happens to the bucket.
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

    // It goes before the version is published.
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
    assert!(ready.status == 200 && told.contains("keys of releases and ends of ledgers cannot be read"), "{told}");
    server.restart();
    let taken = world.members[0].say(&world.t, Answer::UnmaskShares, &first).await;
    assert_eq!(taken.status, 204, "{}", String::from_utf8_lossy(&taken.body));
    for member in &mut world.members[1..] {
        member.unmask(&world.t).await;
    }

    // Everybody has answered, but the keys cannot be destroyed.
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

/// What was sealed with a key whose creation seemed to fail would be lost with it.
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
