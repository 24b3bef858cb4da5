//! Ends of privacy ledgers in a bucket.

use test_servers::s3::S3Server;

use crate::support::private::in_the_clear;
use crate::support::secure::World;

async fn world(server: &S3Server) -> World {
    World::in_bucket(3, server, |spec| {
        in_the_clear(spec, "central_gaussian");
        spec["rounds"]["count"] = serde_json::json!(4);
    })
    .await
}

fn end_of(world: &World) -> String {
    format!("apart/ledgers/{}", world.task.0.simple())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_database_is_noticed_by_what_the_bucket_holds() {
    let server = S3Server::start();
    let mut world = world(&server).await;
    assert_eq!(server.keys(), [end_of(&world)], "the promise is there from the beginning");
    world.run_in_the_clear(1, |_| true, |_| true).await;
    let folder = world.folder.as_ref().unwrap().path().to_owned();
    let rows = rusqlite::Connection::open(folder.join("rows.db")).unwrap();
    rows.execute_batch(&format!("VACUUM INTO '{}'", folder.join("copy.db").display())).unwrap();
    drop(rows);
    world.run_in_the_clear(2, |_| true, |_| true).await;
    assert_eq!(world.rows().await.len(), 2);
    assert_eq!(server.keys(), [end_of(&world)], "and no key of a release");

    world.config.database.url = format!("sqlite:{}", folder.join("copy.db").display());
    world.restart().await;
    world.t.inner.engine.check_ledgers().await.unwrap();
    let (status, why) = world.status().await;
    assert_eq!(status, "PAUSED");
    assert!(why.contains("has 1 rows, and had 2"), "{why}");
    assert_eq!(world.privacy().await.status, 409);
}

/// Unlike for folders, every version of the program stored ends in the bucket: an emptied or different bucket must not pass for a fresh
/// start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_whose_end_is_gone_or_was_edited_is_not_trusted() {
    let server = S3Server::start();
    let mut world = world(&server).await;
    world.run_in_the_clear(1, |_| true, |_| true).await;
    let end = server.object(&end_of(&world));
    let kept = std::fs::read_to_string(&end).unwrap();
    let edited = kept.replace("\"rows\":1", "\"rows\":0");
    assert_ne!(edited, kept);
    std::fs::write(&end, &edited).unwrap();
    let reply = world.privacy().await;
    let told = String::from_utf8_lossy(&reply.body).into_owned();
    assert!(reply.status == 409 && told.contains("is not what was written"), "{told}");
    std::fs::remove_file(&end).unwrap();
    world.restart().await;
    world.t.inner.engine.check_ledgers().await.unwrap();
    let (status, why) = world.status().await;
    assert!(status == "PAUSED" && why.contains("is gone"), "{status}: {why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_task_waits_while_the_bucket_is_away() {
    let mut server = S3Server::start();
    let mut world = world(&server).await;
    world.run_in_the_clear(1, |_| true, |_| true).await;
    server.kill();
    assert_eq!(world.privacy().await.status, 503);
    let total = world.t.get(&world.t.viewer, "/v1/privacy").await;
    assert_eq!(total.status, 503);
    server.restart();
    world.run_in_the_clear(2, |_| true, |_| true).await;
    assert_eq!(world.rows().await.len(), 2);
    assert_eq!(world.t.get(&world.t.viewer, "/v1/privacy").await.status, 200);
}
