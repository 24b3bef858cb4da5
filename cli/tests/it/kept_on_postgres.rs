//! Files outside a PostgreSQL database, and `fsck` of its rows and bucket.

#![cfg(target_os = "linux")]

use serde_json::Value;
use test_servers::postgres::{Cluster, Options};
use test_servers::s3::S3Server;

use crate::kept::{PRIVATE, refuse_to_resume, task_file};
use crate::replicas::Site;
use crate::support::{Ran, finish};

/// The findings of `fsck`, as text, after its exit code was compared.
fn findings(site: &Site, code: i32) -> String {
    let checked: Ran = finish(&mut site.command("fsck", 0));
    assert_eq!(checked.code, code, "{checked}");
    let event: Value = checked.events().into_iter().find(|event| event["event"] == "checked").unwrap();
    assert_eq!((&event["ledgers"], event["blobs"].as_u64()), (&Value::from(1), Some(1)), "{checked}");
    event["findings"].to_string()
}

#[test]
fn a_private_task_whose_end_is_gone_pauses_on_postgres() {
    let Some(cluster) = Cluster::start(Options { tcp: true, ..Options::default() }) else { return };
    let (database, blobs, folder) = (cluster.create_database(), S3Server::start(), tempfile::tempdir().unwrap());
    let site = Site::new(folder.path(), &cluster.url(&database), &blobs);
    let task = task_file(folder.path(), &PRIVATE);
    let served = site.serve(0, "127.0.0.1:0");
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    let token = served.token.clone();
    drop(served);
    assert_eq!(findings(&site, 0), "[]");

    let end = blobs.keys().into_iter().find(|key| key.starts_with("apart/ledgers/")).unwrap();
    let kept = std::fs::read(blobs.object(&end)).unwrap();
    std::fs::remove_file(blobs.object(&end)).unwrap();
    let mut served = site.serve(0, "127.0.0.1:0");
    served.token = token;
    let shown = served.operate(&["task", "show", "demo"]).data();
    let why = "releases after the backup cannot be ruled out";
    assert!(shown["status"] == "PAUSED" && shown["history"].to_string().contains(why), "{shown}");
    refuse_to_resume(&served, why);
    assert!(findings(&site, 17).contains(why), "beside a coordinator that serves");

    std::fs::write(blobs.object(&end), kept).unwrap();
    assert_eq!(findings(&site, 0), "[]");
    served.operate(&["task", "resume", "demo"]).data();
    let model = blobs.keys().into_iter().find(|key| key.starts_with("models/")).unwrap();
    let whole = std::fs::read(blobs.object(&model)).unwrap();
    let mut other = whole.clone();
    *other.last_mut().unwrap() ^= 1;
    std::fs::write(blobs.object(&model), other).unwrap();
    assert!(findings(&site, 17).contains("damaged_blob"), "rows are compared with the bucket");
    std::fs::remove_file(blobs.object(&model)).unwrap();
    assert!(findings(&site, 17).contains("missing_blob"));
    std::fs::write(blobs.object(&model), whole).unwrap();
    assert_eq!(findings(&site, 0), "[]");
}
