//! The error message leads to the failure in the default log.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use federation::time::MockClock;
use store::entity::token::{OperatorToken, TaskScope};
use store::{Blobs, Database, Store, StoreConfig};
use wire::{Digest, Timestamp};

use crate::support::{Served, tributary};

/// Stores a token with an unknown role, so that listing tokens fails with a fault.
async fn spoil(data: &Path) {
    let (database, clock) = (Database::SqliteFile(data.join("coordinator.db")), Arc::new(MockClock::new(Timestamp(0))));
    let store = Store::open(StoreConfig { database, blobs: Blobs::Memory, connections: 1, clock }).await.unwrap();
    let token = &OperatorToken {
        id: "01934c2e-7d3a-7b1c-9f00-0123456789ab".parse().unwrap(),
        secret_sha256: Digest([7; 32]),
        name: "nobody".to_owned(),
        role: "emperor".to_owned(),
        created_at: Timestamp(0),
        expires_at: None,
        revoked_at: None,
        tasks: TaskScope::All,
    };
    store.transact("test", |tx| Box::pin(async move { tx.insert_operator_token(token).await })).await.unwrap();
}

#[tokio::test]
async fn a_fault_is_found_in_the_log_by_its_instance() {
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let token = Served::dev(&data).token.clone();
    spoil(&data).await;
    let mut command = tributary();
    command.args(["--format", "json", "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
    command.stderr(File::create(&log).unwrap());
    let served = Served { token, ..Served::until_in_words(command, "serving") };

    let failed = served.operate(&["token", "list"]);
    assert_eq!(failed.code, 11, "{failed}");
    let instance = failed.envelope()["data"]["instance"].as_str().unwrap().to_owned();
    assert!(failed.stderr.contains(&format!("in the coordinator's log: {instance}")), "{failed}");
    let told = std::fs::read_to_string(&log).unwrap();
    let words = format!("request {instance} failed");
    let line = told.lines().find(|line| line.contains(&words)).unwrap_or_else(|| panic!("{told}"));
    assert!(line.contains("has an unknown role") && !failed.stderr.contains("has an unknown role"), "{line}\n{failed}");
}
