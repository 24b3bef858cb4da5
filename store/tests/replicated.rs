//! Several copies of all blobs pass the suite, and a blob survives if one copy has it.

use std::collections::HashSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use federation::id::Digest;
use federation::time::{Clock, MockClock};
use http::{Method, StatusCode};
use store::conformance::NOW;
use store::{Blobs, Database, S3Config, S3Credentials, Store, StoreConfig, StoreError};
use tempfile::TempDir;
use test_servers::s3::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY, Treatment};

const ANY_AGE: Duration = Duration::ZERO;

fn s3(server: &S3Server, folder: &Path) -> Blobs {
    let credentials = folder.join("credentials");
    let keys = format!("aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n");
    std::fs::write(&credentials, keys).unwrap();
    Blobs::S3(S3Config {
        bucket: BUCKET.to_owned(),
        prefix: String::new(),
        endpoint: Some(server.endpoint()),
        region: "eu-central-1".to_owned(),
        virtual_host: false,
        credentials: S3Credentials::File(credentials),
        cache: folder.join("cache"),
        cache_bytes: 100 << 20,
        timeout: Duration::from_secs(5),
    })
}

async fn open_with(primary: Blobs, others: Vec<Blobs>, clock: Arc<dyn Clock>) -> Result<Store, StoreError> {
    let blobs = Blobs::Replicated { primary: Box::new(primary), others };
    Store::open(StoreConfig { database: Database::SqliteMemory, blobs, connections: 1, clock }).await
}

mod on_disks {
    use super::*;

    async fn open() -> Option<(Store, TempDir)> {
        let folder = tempfile::tempdir().unwrap();
        let other = |name: &str| Blobs::Disk(folder.path().join(name));
        let clock = Arc::new(MockClock::new(NOW));
        Some((open_with(other("a"), vec![Blobs::Memory, other("b")], clock).await.unwrap(), folder))
    }

    store::conformance_tests!(open);

    #[tokio::test]
    async fn ages_are_by_the_clock() {
        let (store, _keep) = open().await.unwrap();
        store::conformance::blob::ages_are_by_the_clock(&store).await;
    }
}

mod on_s3 {
    use super::*;

    async fn open() -> Option<(Store, (S3Server, TempDir))> {
        let (server, folder) = (S3Server::start(), tempfile::tempdir().unwrap());
        let other = Blobs::Disk(folder.path().join("copy"));
        let clock = Arc::new(MockClock::new(NOW));
        let store = open_with(s3(&server, folder.path()), vec![other], clock).await.unwrap();
        Some((store, (server, folder)))
    }

    store::conformance_tests!(open);
}

/// A folder as the primary, an S3 server as its copy.
struct World {
    folder: TempDir,
    server: S3Server,
    clock: Arc<MockClock>,
    store: Store,
}

impl World {
    async fn new() -> Self {
        let (folder, server) = (tempfile::tempdir().unwrap(), S3Server::start());
        let clock = Arc::new(MockClock::new(NOW));
        let primary = Blobs::Disk(folder.path().join("primary"));
        let others = vec![s3(&server, folder.path())];
        let store = open_with(primary, others, Arc::clone(&clock) as _).await.unwrap();
        Self { folder, server, clock, store }
    }

    async fn put(&self, text: &'static str) -> Digest {
        self.store.blobs().put_bytes(Bytes::from_static(text.as_bytes())).await.unwrap()
    }

    fn on_disk(&self, digest: Digest) -> PathBuf {
        let name = digest.to_string();
        self.folder.path().join("primary").join(&name[..2]).join(name)
    }

    fn on_s3(&self, digest: Digest) -> PathBuf {
        let name = digest.to_string();
        self.server.object(&format!("{}/{name}", &name[..2]))
    }

    async fn read(&self, digest: Digest) -> Result<String, StoreError> {
        let mut blob = self.store.blobs().open(digest).await?;
        let mut text = String::new();
        blob.read_to_string(&mut text).unwrap();
        Ok(text)
    }

    /// After a copy was passed over.
    fn later(&self) {
        self.clock.advance(Duration::from_secs(31));
    }
}

fn told(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blob_is_everywhere_before_it_is_stored() {
    let world = World::new().await;
    let whole = world.put("abc").await;
    let mut writer = world.store.blobs().writer().await.unwrap();
    writer.write(Bytes::from_static(b"de")).await.unwrap();
    writer.write(Bytes::from_static(b"f")).await.unwrap();
    let (piecewise, _) = writer.finish(None).await.unwrap();
    for (digest, text) in [(whole, "abc"), (piecewise, "def")] {
        assert_eq!((told(&world.on_disk(digest)), told(&world.on_s3(digest))), (text.to_owned(), text.to_owned()));
    }
    assert_eq!(world.store.blobs().troubles(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_or_missing_copy_is_read_from_the_next_and_mended() {
    let world = World::new().await;
    let digest = world.put("abc").await;
    std::fs::write(world.on_disk(digest), "abd").unwrap();
    assert_eq!(world.read(digest).await.unwrap(), "abc");
    assert_eq!(told(&world.on_disk(digest)), "abc", "mended");
    std::fs::remove_file(world.on_disk(digest)).unwrap();
    assert_eq!(world.store.blobs().get(digest).await.unwrap(), "abc");
    assert_eq!(told(&world.on_disk(digest)), "abc", "stored again");
    // Without the other copy it is read where it was mended.
    std::fs::remove_file(world.on_s3(digest)).unwrap();
    assert_eq!(world.store.blobs().get(digest).await.unwrap(), "abc");

    std::fs::write(world.on_disk(digest), "abd").unwrap();
    world.clock.advance(Duration::from_secs(61));
    assert!(matches!(world.read(digest).await, Err(StoreError::Corrupt(_))), "no copy is whole");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_a_copy_is_away() {
    let mut world = World::new().await;
    let digest = world.put("abc").await;
    std::fs::remove_file(world.on_disk(digest)).unwrap();
    world.server.kill();
    assert!(matches!(world.read(digest).await, Err(StoreError::BlobsAway(_))), "the other copy may have it");
    world.server.restart();
    world.later();
    assert_eq!(world.read(digest).await.unwrap(), "abc");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_was_away_gets_what_it_lacks() {
    let mut world = World::new().await;
    let before = world.put("before").await;
    assert_eq!(world.store.blobs().even_out(&HashSet::from([before])).await.unwrap(), 0);
    world.server.kill();
    let owed = world.put("owed").await;
    let garbage = world.put("garbage").await;
    let troubles = world.store.blobs().troubles();
    assert!(troubles.len() == 1 && troubles[0].contains("s3://blobs is away"), "{troubles:?}");
    assert!(world.store.blobs().collect(before, ANY_AGE).await.unwrap());
    world.server.restart();

    let needed = HashSet::from([owed]);
    assert_eq!(world.store.blobs().even_out(&needed).await.unwrap(), 0, "passed over for a while");
    world.later();
    assert_eq!(world.store.blobs().even_out(&needed).await.unwrap(), 1);
    assert_eq!(told(&world.on_s3(owed)), "owed");
    assert!(!world.on_s3(garbage).exists(), "no row names it");
    assert_eq!(world.store.blobs().troubles(), [""; 0]);
    // A copy that was away during the collection still has the garbage.
    let listed: HashSet<_> = world.store.blobs().list(ANY_AGE).await.unwrap().into_iter().collect();
    assert_eq!(listed, HashSet::from([before, owed, garbage]));
    assert!(world.store.blobs().collect(before, ANY_AGE).await.unwrap());
    assert!(!world.on_s3(before).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_owed_while_lists_are_compared_is_not_forgotten() {
    let world = World::new().await;
    world.server.treat(|method, _| match *method {
        Method::PUT => Treatment::Refuse(StatusCode::FORBIDDEN),
        _ => Treatment::Serve,
    });
    let first = world.put("first").await;
    world.later();
    let second = world.store.blobs().put_bytes(Bytes::from_static(b"second"));
    // It is stored while the list is on its way.
    let (tell, told) = tokio::sync::oneshot::channel();
    let mut tell = Some(tell);
    let put =
        format!("{}", Digest(*ring::digest::digest(&ring::digest::SHA256, b"second").as_ref().first_chunk().unwrap()));
    world.server.treat(move |method, uri| match *method {
        Method::PUT if uri.path().ends_with(&put) => Treatment::Refuse(StatusCode::FORBIDDEN),
        Method::GET => {
            if let Some(tell) = tell.take() {
                let _ = tell.send(());
            }
            Treatment::Delay(Duration::from_millis(500))
        }
        _ => Treatment::Serve,
    });
    let needed = HashSet::from([first]);
    let (filled, second) = tokio::join!(world.store.blobs().even_out(&needed), async {
        told.await.unwrap();
        second.await.unwrap()
    });
    assert_eq!(filled.unwrap(), 1);
    assert!(world.on_s3(first).exists() && !world.on_s3(second).exists());
    assert_eq!(world.store.blobs().troubles(), ["blobs are owed to s3://blobs"]);

    world.server.treat(|_, _| Treatment::Serve);
    world.later();
    // Its row came after rows were looked at.
    assert_eq!(world.store.blobs().even_out(&needed).await.unwrap(), 0);
    world.later();
    let needed = HashSet::from([first, second]);
    assert_eq!(world.store.blobs().even_out(&needed).await.unwrap(), 1);
    assert!(world.on_s3(second).exists());
    let before = world.server.requests();
    assert_eq!(world.store.blobs().even_out(&needed).await.unwrap(), 0);
    assert_eq!(world.server.requests(), before, "nothing is owed, so nothing is looked for");
}

/// Simulates a process that serves requests and skips background work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_compares_no_lists_does_not_tell_of_debts_for_ever() {
    let world = World::new().await;
    world.server.treat(|_, _| Treatment::Refuse(StatusCode::FORBIDDEN));
    let owed = world.put("owed").await;
    world.server.treat(|_, _| Treatment::Serve);
    world.later();
    world.put("present").await;
    assert_eq!(world.store.blobs().troubles(), ["blobs are owed to s3://blobs"]);
    // Another process works on rounds.
    let other = world.folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let others = vec![s3(&world.server, &other)];
    let primary = Blobs::Disk(world.folder.path().join("primary"));
    let works = open_with(primary, others, Arc::clone(&world.clock) as _).await.unwrap();
    assert_eq!(works.blobs().even_out(&HashSet::from([owed])).await.unwrap(), 1);
    assert!(world.on_s3(owed).exists());
    world.clock.advance(Duration::from_secs(1800));
    assert_eq!(world.store.blobs().troubles(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_fails_in_the_middle_of_an_upload_does_not_end_it() {
    let world = World::new().await;
    let mut writer = world.store.blobs().writer().await.unwrap();
    writer.write(Bytes::from(vec![1; 1 << 20])).await.unwrap();
    world.server.treat(|_, _| Treatment::Refuse(StatusCode::FORBIDDEN));
    writer.write(Bytes::from(vec![2; 1 << 20])).await.unwrap();
    let (digest, _) = writer.finish(None).await.unwrap();
    assert!(world.on_disk(digest).exists() && !world.on_s3(digest).exists());
    world.server.treat(|_, _| Treatment::Serve);
    world.later();
    assert_eq!(world.store.blobs().even_out(&HashSet::from([digest])).await.unwrap(), 1);
    assert_eq!(std::fs::read(world.on_s3(digest)).unwrap(), std::fs::read(world.on_disk(digest)).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_primary_blobs_are_read_and_not_stored() {
    let (folder, mut server) = (tempfile::tempdir().unwrap(), S3Server::start());
    let copy = Blobs::Disk(folder.path().join("copy"));
    let clock = Arc::new(MockClock::new(NOW));
    let store = open_with(s3(&server, folder.path()), vec![copy], clock).await.unwrap();
    let digest = store.blobs().put_bytes(Bytes::from_static(b"abc")).await.unwrap();
    server.kill();
    assert_eq!(store.blobs().get(digest).await.unwrap(), "abc");
    assert!(store.blobs().put_bytes(Bytes::from_static(b"def")).await.is_err());
    server.restart();
    store.blobs().put_bytes(Bytes::from_static(b"def")).await.unwrap();
    assert_eq!(server.keys().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_may_be_away_at_the_start_and_the_primary_may_not() {
    let (folder, mut server) = (tempfile::tempdir().unwrap(), S3Server::start());
    let (disk, bucket) = (Blobs::Disk(folder.path().join("disk")), s3(&server, folder.path()));
    let clock = Arc::new(MockClock::new(NOW));
    server.kill();
    assert!(open_with(bucket.clone(), vec![disk.clone()], Arc::clone(&clock) as _).await.is_err());
    let store = open_with(disk, vec![bucket], Arc::clone(&clock) as _).await.unwrap();
    let digest = store.blobs().put_bytes(Bytes::from_static(b"abc")).await.unwrap();
    assert_eq!(store.blobs().troubles().len(), 1);
    server.restart();
    clock.advance(Duration::from_secs(31));
    assert_eq!(store.blobs().even_out(&HashSet::from([digest])).await.unwrap(), 1);
    assert_eq!(server.keys().len(), 1);
}
