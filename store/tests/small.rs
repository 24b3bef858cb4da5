//! Small objects in a real S3 server: created once, replaced on condition, and destroyed for good, even if requests are
//! lost.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use federation::time::MockClock;
use http::{Method, StatusCode};
use store::conformance::NOW;
use store::{KeepsVersions, S3Config, S3Credentials, SmallObjects, StoreError};
use tempfile::TempDir;
use test_servers::s3::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY, Treatment};

fn config(server: &S3Server, folder: &Path) -> S3Config {
    let credentials = folder.join("credentials");
    let keys = format!("aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n");
    std::fs::write(&credentials, keys).unwrap();
    S3Config {
        bucket: BUCKET.to_owned(),
        prefix: "seal".to_owned(),
        endpoint: Some(server.endpoint()),
        region: "eu-central-1".to_owned(),
        virtual_host: false,
        credentials: S3Credentials::File(credentials),
        cache: folder.join("cache"),
        cache_bytes: 0,
        timeout: Duration::from_secs(2),
    }
}

async fn open() -> (SmallObjects, S3Server, TempDir) {
    let (server, folder) = (S3Server::start(), tempfile::tempdir().unwrap());
    let objects = reopen(&server, &folder).await.unwrap();
    (objects, server, folder)
}

async fn reopen(server: &S3Server, folder: &TempDir) -> Result<SmallObjects, StoreError> {
    SmallObjects::open(&config(server, folder.path()), Arc::new(MockClock::new(NOW)), "probe-1").await
}

/// Treats the first requests with this method as said, and serves the others.
fn treat_first(server: &S3Server, method: Method, times: u32, treatment: Treatment) {
    let left = AtomicU32::new(times);
    server.treat(move |asked, _| {
        let is_meant = *asked == method
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if is_meant { treatment } else { Treatment::Serve }
    });
}

async fn bytes(objects: &SmallObjects, name: &str) -> Option<Vec<u8>> {
    objects.read(name).await.unwrap().map(|(bytes, _)| bytes.to_vec())
}

fn told(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_replace_what_they_saw_one_is_refused() {
    let (objects, server, _folder) = open().await;
    assert_eq!(server.keys(), [""; 0], "nothing is left of the trial");
    assert_eq!(bytes(&objects, "ledgers/a").await, None);
    assert!(objects.replace("ledgers/a", b"1", None).await.unwrap());
    assert!(!objects.replace("ledgers/a", b"other", None).await.unwrap(), "it is there");
    let (_, seen) = objects.read("ledgers/a").await.unwrap().unwrap();
    assert!(objects.replace("ledgers/a", b"2", Some(&seen)).await.unwrap());
    assert!(!objects.replace("ledgers/a", b"other", Some(&seen)).await.unwrap(), "it is another one");
    assert_eq!(bytes(&objects, "ledgers/a").await.unwrap(), b"2");
    objects.destroy("ledgers/a").await.unwrap();
    assert!(!objects.replace("ledgers/a", b"other", Some(&seen)).await.unwrap(), "it is gone");
    assert_eq!(objects.names("ledgers").await.unwrap(), [""; 0]);
    objects.create("ledgers/b", b"3").await.unwrap();
    objects.create("releases/c", b"4").await.unwrap();
    assert_eq!(objects.names("ledgers").await.unwrap(), ["b"]);
    assert_eq!(server.keys(), ["seal/ledgers/b", "seal/releases/c"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_there_though_the_answer_to_its_creation_was_lost() {
    let (objects, server, _folder) = open().await;
    treat_first(&server, Method::PUT, 1, Treatment::Unanswered);
    objects.create("releases/a", b"key").await.unwrap();
    assert_eq!(bytes(&objects, "releases/a").await.unwrap(), b"key");
    // A creation whose request was lost ends in an error.
    treat_first(&server, Method::PUT, 1, Treatment::Drop);
    let error = objects.create("releases/b", b"key").await.unwrap_err();
    assert!(matches!(error, StoreError::BlobsAway(_)), "{error:?}");
    assert_eq!(bytes(&objects, "releases/b").await, None);
}

/// A repeated creation of a key may recreate it after its destruction: the first request may only be slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_creation_of_an_object_is_asked_for_once() {
    let (objects, server, _folder) = open().await;
    let before = server.requests()["PUT"];
    treat_first(&server, Method::PUT, 9, Treatment::Refuse(StatusCode::SERVICE_UNAVAILABLE));
    let error = objects.create("releases/a", b"key").await.unwrap_err();
    assert!(matches!(error, StoreError::BlobsAway(_)), "{error:?}");
    assert_eq!(server.requests()["PUT"], before + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_overwritten_before_it_is_deleted_and_looked_for_after_it() {
    let (objects, server, _folder) = open().await;
    objects.create("releases/a", &[7; 32]).await.unwrap();
    let object = server.object("seal/releases/a");
    server.treat(move |method, _| {
        if *method == Method::DELETE {
            assert_eq!(std::fs::read(&object).unwrap(), [0; 32], "it is overwritten first");
        }
        Treatment::Serve
    });
    objects.destroy("releases/a").await.unwrap();
    objects.destroy("releases/a").await.unwrap();
    assert_eq!(server.keys(), [""; 0]);

    // A server that confirms a deletion and keeps the object.
    objects.create("releases/b", &[7; 32]).await.unwrap();
    server.treat(|method, _| if *method == Method::DELETE { Treatment::Answer("") } else { Treatment::Serve });
    let error = objects.destroy("releases/b").await.unwrap_err();
    assert!(told(&error).contains("still there"), "{}", told(&error));
    server.treat(|_, _| Treatment::Drop);
    assert!(matches!(objects.destroy("releases/b").await.unwrap_err(), StoreError::BlobsAway(_)));
    server.treat(|_, _| Treatment::Serve);
    objects.destroy("releases/b").await.unwrap();
}

/// Versions may be turned on at any time. An existing object then stays below the one that overwrites it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_whose_overwriting_makes_a_version_is_not_destroyed() {
    let (objects, server, _folder) = open().await;
    objects.create("releases/a", &[7; 32]).await.unwrap();
    server.treat(|method, _| if *method == Method::PUT { Treatment::Versioned } else { Treatment::Serve });
    let error = objects.destroy("releases/a").await.unwrap_err();
    assert!(matches!(error, StoreError::Fault(_)) && told(&error).contains("keeps versions"), "{}", told(&error));
    // A repetition is rejected as well: the object is the version that the zeros made.
    server.treat(|method, _| if *method == Method::GET { Treatment::Versioned } else { Treatment::Serve });
    let error = objects.destroy("releases/a").await.unwrap_err();
    assert!(told(&error).contains("keeps versions"), "{}", told(&error));
    assert_eq!(server.keys(), ["seal/releases/a"], "no deletion hides it");
}

/// A destroyed key ends its round, so a lost bucket must not look like one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_or_finds_nothing_at_all_is_not_one_without_the_object() {
    let (objects, mut server, folder) = open().await;
    objects.create("releases/a", b"key").await.unwrap();
    server.kill();
    assert!(matches!(objects.read("releases/a").await.unwrap_err(), StoreError::BlobsAway(_)));
    assert!(matches!(reopen(&server, &folder).await.err().unwrap(), StoreError::BlobsAway(_)));
    server.restart();
    assert_eq!(bytes(&objects, "releases/a").await.unwrap(), b"key");
    server.treat(|_, _| Treatment::Refuse(StatusCode::NOT_FOUND));
    assert!(objects.read("releases/a").await.is_err(), "of a bucket, or a path, that is not there");
    assert!(objects.destroy("releases/a").await.is_err());
    server.treat(|_, _| Treatment::Serve);
    assert_eq!(bytes(&objects, "releases/a").await.unwrap(), b"key");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_is_asked_whether_it_keeps_versions() {
    let (objects, server, _folder) = open().await;
    let KeepsVersions::Unknown(why) = objects.keeps_versions().await.unwrap() else { panic!("s3s-fs cannot tell") };
    assert_eq!(why, "501 (NotImplemented)");
    for (answer, expected) in [
        (r#"<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"/>"#, KeepsVersions::No),
        ("<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>", KeepsVersions::Yes),
        ("<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>", KeepsVersions::Yes),
    ] {
        server.treat(move |_, uri| match uri.query() {
            Some(query) if query.contains("versioning") => Treatment::Answer(answer),
            _ => Treatment::Serve,
        });
        assert_eq!(objects.keeps_versions().await.unwrap(), expected, "{answer}");
    }
    server.treat(|_, _| Treatment::Refuse(StatusCode::FORBIDDEN));
    assert!(matches!(objects.keeps_versions().await.unwrap(), KeepsVersions::Unknown(_)));
    server.treat(|_, _| Treatment::Drop);
    assert!(matches!(objects.keeps_versions().await.unwrap_err(), StoreError::BlobsAway(_)));
}
