//! Blobs in a real S3 server pass the suite, through faults of the server and damage to its data.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use federation::id::Digest;
use federation::time::{Clock, MockClock, Timestamp};
use http::{Method, StatusCode};
use store::conformance::NOW;
use store::{Blobs, Database, S3Config, S3Credentials, Store, StoreConfig, StoreError};
use tempfile::TempDir;
use test_servers::s3::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY, Treatment};

const ANY_AGE: Duration = Duration::ZERO;

/// Keys for the server, in a file.
fn config(server: &S3Server, folder: &Path) -> S3Config {
    let credentials = folder.join("credentials");
    let keys = format!("[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n");
    std::fs::write(&credentials, keys).unwrap();
    S3Config {
        bucket: BUCKET.to_owned(),
        prefix: "some/where".to_owned(),
        endpoint: Some(server.endpoint()),
        region: "eu-central-1".to_owned(),
        virtual_host: false,
        credentials: S3Credentials::File(credentials),
        cache: folder.join("cache"),
        cache_bytes: 100 << 20,
        timeout: Duration::from_secs(20),
    }
}

async fn open_with(config: S3Config, clock: Arc<dyn Clock>) -> Result<Store, StoreError> {
    Store::open(StoreConfig { database: Database::SqliteMemory, blobs: Blobs::S3(config), connections: 1, clock }).await
}

async fn open() -> Option<(Store, (S3Server, TempDir))> {
    let (server, folder) = (S3Server::start(), tempfile::tempdir().unwrap());
    let store = open_with(config(&server, folder.path()), Arc::new(MockClock::new(NOW))).await.unwrap();
    Some((store, (server, folder)))
}

store::conformance_tests!(open);

/// More than two parts.
fn large() -> Bytes {
    (0..20_000_003_u32).map(|n| (n ^ (n >> 8) ^ (n >> 16)).to_le_bytes()[0]).collect::<Vec<_>>().into()
}

fn key(digest: Digest) -> String {
    let name = digest.to_string();
    format!("some/where/{}/{name}", &name[..2])
}

async fn upload(store: &Store, bytes: &Bytes) -> Result<Digest, StoreError> {
    let mut writer = store.blobs().writer().await?;
    for start in (0..bytes.len()).step_by(1 << 20) {
        writer.write(bytes.slice(start..bytes.len().min(start + (1 << 20)))).await?;
    }
    writer.finish(None).await.map(|(digest, _)| digest)
}

fn is_part(method: &Method, uri: &http::Uri) -> bool {
    *method == Method::PUT && uri.query().is_some_and(|query| query.contains("partNumber"))
}

/// Message of an error, with its causes.
fn told(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_blob_goes_in_parts_and_comes_back_in_pieces() {
    let (store, (server, folder)) = open().await.unwrap();
    let bytes = large();
    let address = upload(&store, &bytes).await.unwrap();
    assert_eq!(server.keys(), [key(address)]);
    assert_eq!(std::fs::read(server.object(&key(address))).unwrap(), bytes);
    assert_eq!(server.requests()["POST"], 2, "begun and completed");
    assert_eq!(store.blobs().put_bytes(bytes.clone()).await.unwrap(), address);
    assert_eq!(server.unfinished_parts(), 0);
    assert_eq!(store.blobs().get(address).await.unwrap(), bytes);
    assert_eq!(store.blobs().len(address).await.unwrap(), Some(20_000_003));

    let mut reader = store.blobs().open(address).await.unwrap();
    let (reader, piecewise) = tokio::task::spawn_blocking(move || {
        let mut whole = Vec::new();
        reader.read_to_end(&mut whole).unwrap();
        (reader, whole)
    })
    .await
    .unwrap();
    assert_eq!(piecewise, bytes);
    let mut reader = reader;
    let there_and_back = tokio::task::spawn_blocking(move || {
        [19_000_000_u64, 3, 10_000_000].map(|at| {
            let mut piece = [0; 100_000];
            reader.seek(SeekFrom::Start(at)).unwrap();
            reader.read_exact(&mut piece).unwrap();
            (at, piece.to_vec())
        })
    });
    for (at, piece) in there_and_back.await.unwrap() {
        let at = usize::try_from(at).unwrap();
        assert_eq!(piece, bytes[at..at + 100_000]);
    }
    let left = std::fs::read_dir(folder.path().join("cache/tmp")).unwrap().count();
    assert_eq!(left, 0, "nothing is left of uploads");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_outlives_a_restart_of_the_server() {
    let (store, (mut server, _folder)) = open().await.unwrap();
    let (tell, reached) = std::sync::mpsc::channel();
    let mut parts = 0;
    server.treat(move |method, uri| {
        parts += u32::from(is_part(method, uri));
        match parts {
            2 if is_part(method, uri) => {
                tell.send(()).unwrap();
                Treatment::Delay(Duration::from_secs(600))
            }
            _ => Treatment::Serve,
        }
    });
    let bytes = large();
    let uploading = tokio::spawn({
        let (store, bytes) = (store.clone(), bytes.clone());
        async move { upload(&store, &bytes).await }
    });
    let server = tokio::task::spawn_blocking(move || {
        reached.recv().unwrap();
        server.restart();
        server
    });
    let server = server.await.unwrap();
    let address = uploading.await.unwrap().unwrap();
    assert_eq!(std::fs::read(server.object(&key(address))).unwrap(), bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_loses_its_server_is_no_blob() {
    let (store, (mut server, _folder)) = open().await.unwrap();
    let (tell, reached) = std::sync::mpsc::channel();
    server.treat(move |method, uri| {
        if is_part(method, uri) && uri.query().unwrap().contains("partNumber=2") {
            // Later repetitions find the receiver gone.
            let _ = tell.send(());
            return Treatment::Delay(Duration::from_secs(600));
        }
        Treatment::Serve
    });
    let bytes = large();
    let uploading = tokio::spawn({
        let (store, bytes) = (store.clone(), bytes.clone());
        async move { upload(&store, &bytes).await }
    });
    let server = tokio::task::spawn_blocking(move || {
        reached.recv().unwrap();
        server.kill();
        server
    });
    let mut server = server.await.unwrap();
    let error = told(&uploading.await.unwrap().unwrap_err());
    assert!(error.contains("cannot be reached"), "{error}");
    server.treat(|_, _| Treatment::Serve);
    server.restart();
    assert_eq!(store.blobs().list(ANY_AGE).await.unwrap(), []);
    let address = upload(&store, &bytes).await.unwrap();
    assert_eq!(store.blobs().list(ANY_AGE).await.unwrap(), [address]);
    assert_eq!(store.blobs().get(address).await.unwrap(), bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torn_upload_is_aborted_and_a_dropped_one_sends_nothing() {
    let (store, (server, folder)) = open().await.unwrap();
    server.treat(|method, uri| match is_part(method, uri) && uri.query().unwrap().contains("partNumber=3") {
        true => Treatment::Refuse(StatusCode::FORBIDDEN),
        false => Treatment::Serve,
    });
    let bytes = large();
    let error = told(&upload(&store, &bytes).await.unwrap_err());
    assert!(error.contains("may not do this"), "{error}");
    assert_eq!((server.keys(), server.unfinished_parts()), (vec![], 0));

    let before = server.requests();
    let mut writer = store.blobs().writer().await.unwrap();
    writer.write(bytes.clone()).await.unwrap();
    drop(writer);
    let mut wrong = store.blobs().writer().await.unwrap();
    wrong.write(bytes).await.unwrap();
    assert!(matches!(wrong.finish(Some(Digest([7; 32]))).await, Err(StoreError::Conflict(_))));
    assert_eq!(server.requests(), before);
    assert_eq!(std::fs::read_dir(folder.path().join("cache/tmp")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_that_may_pass_are_tried_again_a_few_times() {
    let (store, (server, _folder)) = open().await.unwrap();
    let asked = Arc::new(AtomicU64::new(0));
    let refuse = |first: u64, status: StatusCode| {
        let asked = Arc::clone(&asked);
        asked.store(0, Ordering::SeqCst);
        server.treat(move |_, _| match asked.fetch_add(1, Ordering::SeqCst) < first {
            true => Treatment::Refuse(status),
            false => Treatment::Serve,
        });
    };
    refuse(3, StatusCode::SERVICE_UNAVAILABLE);
    let address = store.blobs().put_bytes(Bytes::from_static(b"abc")).await.unwrap();
    for status in [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::TOO_MANY_REQUESTS] {
        refuse(2, status);
        assert_eq!(store.blobs().get(address).await.unwrap(), "abc");
    }
    refuse(u64::MAX, StatusCode::SERVICE_UNAVAILABLE);
    let error = told(&store.blobs().put_bytes(Bytes::from_static(b"def")).await.unwrap_err());
    assert!(error.contains("503") && !error.contains('\n'), "{error}");
    assert_eq!(asked.load(Ordering::SeqCst), 5, "one attempt and four more");
    refuse(u64::MAX, StatusCode::INSUFFICIENT_STORAGE);
    assert!(matches!(store.blobs().put_bytes(Bytes::from_static(b"def")).await, Err(StoreError::Full)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_outlives_cuts_and_a_restart() {
    let (store, (mut server, _folder)) = open().await.unwrap();
    let bytes = large();
    let address = upload(&store, &bytes).await.unwrap();
    let mut gets = 0;
    server.treat(move |method, _| {
        gets += u32::from(*method == Method::GET);
        match gets {
            1 | 3 => Treatment::Cut(100_000),
            2 => Treatment::Drop,
            _ => Treatment::Serve,
        }
    });
    assert_eq!(store.blobs().get(address).await.unwrap(), bytes);

    let mut reader = store.blobs().open(address).await.unwrap();
    let rest = tokio::task::spawn_blocking(move || {
        let mut whole = vec![0; 1_000_000];
        reader.read_exact(&mut whole).unwrap();
        server.restart();
        reader.read_to_end(&mut whole).unwrap();
        whole
    });
    assert_eq!(rest.await.unwrap(), bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_server_is_waited_for_within_bounds() {
    let (store, (server, folder)) = open().await.unwrap();
    server.treat(|_, _| Treatment::Delay(Duration::from_millis(300)));
    let address = store.blobs().put_bytes(Bytes::from_static(b"abc")).await.unwrap();
    assert_eq!(store.blobs().get(address).await.unwrap(), "abc");

    let hasty = S3Config { timeout: Duration::from_millis(100), ..config(&server, folder.path()) };
    let error = told(&open_with(hasty, Arc::new(MockClock::new(NOW))).await.err().unwrap());
    assert!(error.contains("cannot be reached") && error.contains(&server.endpoint()), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_configured_wrongly_is_told_in_one_line() {
    let (server, folder) = (S3Server::start(), tempfile::tempdir().unwrap());
    let right = config(&server, folder.path());
    let keys = |id: &str, secret: &str| {
        let path = folder.path().join("other");
        std::fs::write(&path, format!("aws_access_key_id = {id}\naws_secret_access_key = {secret}\n")).unwrap();
        S3Config { credentials: S3Credentials::File(path), ..right.clone() }
    };
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let wrong = [
        (S3Config { bucket: "other".to_owned(), ..right.clone() }, "no such bucket"),
        (S3Config { endpoint: Some(format!("http://{nobody}")), ..right.clone() }, "cannot be reached"),
        (
            S3Config { credentials: S3Credentials::File("/no/where".into()), ..right.clone() },
            "credentials file /no/where",
        ),
        (keys("nobody", SECRET_KEY), "not accepted"),
        (keys(ACCESS_KEY, "a-wrong-secret"), "not accepted"),
    ];
    for (config, expected) in wrong {
        let error = told(&open_with(config, Arc::new(MockClock::new(NOW))).await.err().unwrap());
        assert!(error.contains(expected) && !error.contains('\n'), "{expected}: {error}");
        assert!(!error.contains(SECRET_KEY) && !error.contains("a-wrong-secret"), "{error}");
    }
    let incomplete = folder.path().join("incomplete");
    std::fs::write(&incomplete, "aws_access_key_id = x\n").unwrap();
    let config = S3Config { credentials: S3Credentials::File(incomplete), ..right.clone() };
    let error = told(&open_with(config, Arc::new(MockClock::new(NOW))).await.err().unwrap());
    assert!(error.contains("aws_secret_access_key"), "{error}");
    assert!(open_with(right, Arc::new(MockClock::new(NOW))).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ages_are_told_by_the_servers_clock_whatever_ours_is() {
    let (server, folder, clock) = (S3Server::start(), tempfile::tempdir().unwrap(), Arc::new(MockClock::new(NOW)));
    let store = open_with(config(&server, folder.path()), Arc::clone(&clock) as _).await.unwrap();
    let old = store.blobs().put_bytes(Bytes::from_static(b"old")).await.unwrap();
    let young = store.blobs().put_bytes(Bytes::from_static(b"young")).await.unwrap();
    let object = std::fs::File::options().write(true).open(server.object(&key(old))).unwrap();
    object.set_modified(object.metadata().unwrap().modified().unwrap() - Duration::from_secs(3600)).unwrap();
    let ago = |minutes: u64| Duration::from_secs(minutes * 60);
    assert_eq!(store.blobs().list(ago(30)).await.unwrap(), [old]);
    assert_eq!(store.blobs().list(ago(90)).await.unwrap(), []);
    for hours in [-48, 48] {
        clock.set(Timestamp(NOW.0 + hours * 3_600_000));
        assert_eq!(store.blobs().list(ago(30)).await.unwrap(), [old], "ours is {hours} h off");
        assert!(!store.blobs().collect(young, ago(30)).await.unwrap());
        assert!(!store.blobs().collect(old, ago(90)).await.unwrap());
    }
    // Stored again, it is young.
    assert_eq!(store.blobs().put_bytes(Bytes::from_static(b"old")).await.unwrap(), old);
    assert!(!store.blobs().collect(old, ago(30)).await.unwrap());
    object.set_modified(object.metadata().unwrap().modified().unwrap()).unwrap();
    assert_eq!(server.keys().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_was_changed_is_not_returned() {
    let (server, folder, clock) = (S3Server::start(), tempfile::tempdir().unwrap(), Arc::new(MockClock::new(NOW)));
    let store = open_with(config(&server, folder.path()), Arc::clone(&clock) as _).await.unwrap();
    let address = store.blobs().put_bytes(Bytes::from_static(b"abc")).await.unwrap();
    let open = async || {
        let mut blob = store.blobs().open_verified(address).await?;
        let mut text = String::new();
        blob.read_to_string(&mut text).unwrap();
        Ok::<_, StoreError>(text)
    };
    let before = server.requests()["GET"];
    assert_eq!(open().await.unwrap(), "abc");
    assert_eq!(open().await.unwrap(), "abc");
    assert_eq!(server.requests()["GET"], before + 1, "fetched and verified once");
    std::fs::write(server.object(&key(address)), "abd").unwrap();
    let object = std::fs::File::options().write(true).open(server.object(&key(address))).unwrap();
    object.set_modified(object.metadata().unwrap().modified().unwrap() + Duration::from_secs(5)).unwrap();
    assert!(matches!(store.blobs().get(address).await, Err(StoreError::Corrupt(_))));
    clock.advance(Duration::from_secs(11));
    assert!(matches!(open().await, Err(StoreError::Corrupt(_))));
    // Storing it again mends it.
    store.blobs().put_bytes(Bytes::from_static(b"abc")).await.unwrap();
    assert_eq!(open().await.unwrap(), "abc");
    assert_eq!(store.blobs().get(address).await.unwrap(), "abc");
    assert_eq!(std::fs::read_dir(folder.path().join("cache/tmp")).unwrap().count(), 1, "the verified copy");
    clock.advance(Duration::from_secs(61));
    std::fs::remove_file(server.object(&key(address))).unwrap();
    assert!(matches!(open().await, Err(StoreError::MissingBlob(found)) if found == address));
    assert_eq!(std::fs::read_dir(folder.path().join("cache/tmp")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_is_away_has_lost_nothing() {
    let (store, (mut server, _folder)) = open().await.unwrap();
    let address = store.blobs().put_bytes(Bytes::from_static(b"input")).await.unwrap();
    server.kill();
    assert!(matches!(store.blobs().get(address).await, Err(StoreError::BlobsAway(_))));
    assert!(matches!(store.blobs().open(address).await, Err(StoreError::BlobsAway(_))));
    server.restart();
    assert_eq!(store.blobs().get(address).await.unwrap(), "input");
}

/// A router in front of the bucket answers so while it looks for its server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_finds_nothing_at_all_has_lost_no_blob() {
    let (store, (server, _folder)) = open().await.unwrap();
    let address = upload(&store, &large()).await.unwrap();
    let empty = store.blobs().put_bytes(Bytes::new()).await.unwrap();
    let mut reader = store.blobs().open(address).await.unwrap();
    server.treat(|_, _| Treatment::Refuse(StatusCode::NOT_FOUND));
    let away = |error: StoreError| assert!(matches!(error, StoreError::BlobsAway(_)), "{}", told(&error));
    away(store.blobs().get(address).await.unwrap_err());
    away(store.blobs().get(empty).await.unwrap_err());
    away(store.blobs().open(address).await.unwrap_err());
    away(store.blobs().open_verified(address).await.unwrap_err());
    away(store.blobs().look(address, 20_000_003).await.unwrap_err());
    away(store.blobs().len(address).await.unwrap_err());
    away(store.blobs().delete(address).await.unwrap_err());
    let read = tokio::task::spawn_blocking(move || reader.read_to_end(&mut Vec::new()).unwrap_err());
    let why = read.await.unwrap().into_inner().unwrap();
    away(*why.downcast::<StoreError>().unwrap());

    server.treat(|_, _| Treatment::Serve);
    assert_eq!(store.blobs().get(address).await.unwrap(), large());
    assert_eq!(store.blobs().get(empty).await.unwrap(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_moves_no_blob() {
    let (store, (server, _folder)) = open().await.unwrap();
    let address = upload(&store, &large()).await.unwrap();
    let before = server.requests().get("GET").copied();
    store.blobs().look(address, 20_000_003).await.unwrap();
    assert!(matches!(store.blobs().look(address, 20_000_002).await, Err(StoreError::Corrupt(_))));
    assert_eq!(server.requests().get("GET").copied(), before);
    // One more request shows that this object is the missing one.
    std::fs::remove_file(server.object(&key(address))).unwrap();
    assert!(matches!(store.blobs().look(address, 20_000_003).await, Err(StoreError::MissingBlob(_))));
    assert_eq!(server.requests()["GET"], before.unwrap_or_default() + 1);
}
