//! Operational endpoints, and the document of the contract.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use federation::event::EventKind;
use federation::id::RoundKey;
use federation::round::{Round, RoundState};
use federation::time::Timestamp;
use serde_json::{Value, json};
use store::StoreError;
use tokio::sync::Notify;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, Who, config, small_task};

#[tokio::test]
async fn the_service_says_how_it_is() {
    let t = TestCoordinator::start().await;
    assert_eq!(t.get(&Who::Nobody, route::HEALTHZ).await.body, b"ok\n");
    assert_eq!(t.get(&Who::Nobody, route::READYZ).await.body, b"ready\n");
    t.create_task(&small_task()).await;
    t.get(&t.viewer, "/v1/tasks/unknown").await.problem(ProblemType::NotFound);
    let text = String::from_utf8(t.get(&t.viewer, route::METRICS).await.body).unwrap();
    for line in [
        "tributary_rejections_total{code=\"not-found\"}",
        "tributary_requests_total{route=\"/v1/tasks\",method=\"POST\",status=\"201\"} ",
        "# TYPE tributary_requests_total counter",
        concat!("tributary_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\",commit=\""),
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    t.inner.stop().await;
    t.get(&Who::Nobody, route::READYZ).await.problem(ProblemType::Unavailable);
    assert_eq!(t.get(&Who::Nobody, route::HEALTHZ).await.status, 200);
}

/// A round without a base is damage, not reported to peers.
#[tokio::test]
async fn a_fault_is_no_rejection() {
    let t = TestCoordinator::start().await;
    let task = t.create_task(&small_task()).await;
    t.work().await;
    let round = RoundKey { task, number: 1 };
    let damaged = t.inner.store.transact("test", |tx| {
        Box::pin(async move {
            let open = tx.round(round).await?.unwrap().round;
            let ended = Round { state: RoundState::Cancelled, ..open.clone() };
            assert!(tx.transition_round(&open, &ended).await?);
            tx.insert_round(&Round { key: round.attempt(2), base_version: 99, ..open }).await
        })
    });
    damaged.await.unwrap();
    let faults = async || {
        let text = String::from_utf8(t.get(&t.viewer, route::METRICS).await.body).unwrap();
        assert!(!text.contains("tributary_rejections_total{code=\"internal\"}"), "{text}");
        let line = text.lines().find_map(|line| line.strip_prefix("tributary_faults_total "));
        line.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    let before = faults().await;
    t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.problem(ProblemType::Internal);
    assert_eq!(faults().await, before + 1);
}

#[tokio::test]
async fn strangers_that_ask_again_and_again_have_nothing_written_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let (blobs, elsewhere) = (folder.path().join("blobs"), folder.path().join("elsewhere"));
    let mut config = config();
    config.blobs.url = format!("file:{}", blobs.display());
    let t = TestCoordinator::with(&config).await;
    let ready = async || t.get(&Who::Nobody, route::READYZ).await.status == 200;
    assert!(ready().await);
    std::fs::rename(&blobs, &elsewhere).unwrap();
    t.advance(Duration::from_millis(999));
    assert!(ready().await, "nobody looks");
    t.advance(Duration::from_millis(1));
    t.get(&Who::Nobody, route::READYZ).await.problem(ProblemType::Unavailable);
    std::fs::rename(&elsewhere, &blobs).unwrap();
    t.advance(Duration::from_millis(999));
    t.get(&Who::Nobody, route::READYZ).await.problem(ProblemType::Unavailable);
    t.advance(Duration::from_millis(1));
    assert!(ready().await);
}

#[tokio::test]
async fn readiness_is_answered_within_two_seconds_while_the_database_hangs() {
    let t = TestCoordinator::start().await;
    assert_eq!(t.get(&Who::Nobody, route::READYZ).await.body, b"ready\n");
    let (store, begun, end) = (t.inner.store.clone(), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let hanging = tokio::spawn({
        let (begun, end) = (Arc::clone(&begun), Arc::clone(&end));
        async move {
            let hung = store.transact("test", |tx| {
                let (begun, end) = (Arc::clone(&begun), Arc::clone(&end));
                Box::pin(async move {
                    tx.expire_check_ins(Timestamp(0)).await?;
                    begun.notify_one();
                    end.notified().await;
                    Ok::<_, StoreError>(())
                })
            });
            hung.await.unwrap();
        }
    });
    begun.notified().await;
    t.advance(Duration::from_secs(2));
    for _ in 0..2 {
        let answer = tokio::time::timeout(Duration::from_secs(2), t.get(&Who::Nobody, route::READYZ)).await;
        let detail = answer.expect("an answer within two seconds").problem(ProblemType::Unavailable);
        assert!(detail.contains("the database did not answer within 1500 ms"), "{detail}");
    }
    end.notify_one();
    hanging.await.unwrap();
    t.advance(Duration::from_secs(2));
    assert_eq!(t.get(&Who::Nobody, route::READYZ).await.body, b"ready\n");
}

#[tokio::test]
async fn methods_that_peers_make_up_do_not_become_metrics() {
    let t = TestCoordinator::start().await;
    for method in ["MADE-UP-1", "MADE-UP-2"] {
        t.call(&Who::Nobody, method.parse().unwrap(), route::TASKS).await.problem(ProblemType::MethodNotAllowed);
    }
    let text = String::from_utf8(t.get(&t.viewer, route::METRICS).await.body).unwrap();
    assert!(!text.contains("MADE-UP"), "{text}");
    assert!(text.contains("method=\"other\""), "{text}");
}

#[tokio::test]
async fn nobody_may_ask_without_end() {
    let mut config = config();
    (config.http.address_rate, config.http.burst_s) = (2, 1);
    for path in [route::METRICS, route::OPENAPI, route::READYZ, "/no/such/path"] {
        let t = TestCoordinator::with(&config).await;
        for _ in 0..2 {
            assert_ne!(t.get(&Who::Nobody, path).await.status, 429, "{path}");
        }
        t.get(&Who::Nobody, path).await.problem(ProblemType::RateLimited);
    }
}

#[tokio::test]
async fn the_document_names_every_route() {
    let t = TestCoordinator::start().await;
    let document = t.get(&Who::Nobody, route::OPENAPI).await.json();
    assert_eq!(document["openapi"], json!("3.1.0"));
    let paths: BTreeSet<_> = document["paths"].as_object().unwrap().keys().cloned().collect();
    // Read from the source, so that new routes are included.
    let sources = [
        include_str!("../../../wire/src/route.rs"),
        include_str!("../../../wire/src/inspect/mod.rs"),
        include_str!("../../../wire/src/admin/mod.rs"),
    ];
    let routes: BTreeSet<_> = sources
        .into_iter()
        .flat_map(str::lines)
        .filter(|line| line.trim_start().starts_with("pub const "))
        .filter_map(|line| line.split('"').nth(1))
        .map(str::to_owned)
        .collect();
    assert!(routes.len() > 20);
    assert_eq!(paths, routes);
    let rounds = &document["paths"][route::ROUNDS]["get"];
    let answer = |status: &str, media: &str| rounds["responses"][status]["content"][media]["schema"]["$ref"].clone();
    assert_eq!(
        rounds["responses"]["200"]["content"]["application/json"]["schema"]["anyOf"][0]["$ref"],
        "#/components/schemas/Page_RoundView"
    );
    assert_eq!(answer("404", "application/problem+json"), "#/components/schemas/Problem");
    assert_eq!((&rounds["x-role"], &rounds["operationId"]), (&json!("viewer"), &json!("list_task_rounds")));
    let ids = document["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap().values());
    let ids: Vec<_> = ids.map(|operation| operation["operationId"].as_str().unwrap()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "each operation has an id of its own: {ids:?}");
    let parameter = |at: usize| (&rounds["parameters"][at]["in"], &rounds["parameters"][at]["name"]);
    assert_eq!(parameter(0), (&json!("path"), &json!("task")));
    assert_eq!(parameter(2), (&json!("query"), &json!("limit")));
    // Names are those of the wire, not those of the code.
    let names = |schema: &str| document["components"]["schemas"][schema]["enum"].clone();
    assert_eq!(names("Role"), json!(["predictor", "viewer", "operator", "admin"]));
    assert_eq!(names("RoundState"), json!(RoundState::ALL));
    assert_eq!(names("EventKind"), json!(EventKind::ALL));
    // Every documented path and method is served.
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let method = method.to_uppercase().parse().unwrap();
            let path = path.replace("{round}", "1").replace("{version}", "1");
            let path = path.replace(['{', '}'], "");
            let reply = t.call(&Who::Nobody, method, &path).await;
            assert_ne!(reply.status, 405, "{path}");
            if reply.status == 404 {
                let detail = reply.problem(ProblemType::NotFound);
                assert!(!detail.contains("no such path"), "{path}: {detail}");
            }
        }
    }
}

#[tokio::test]
async fn every_reference_of_the_document_leads_somewhere() {
    let t = TestCoordinator::start().await;
    let document = t.get(&Who::Nobody, route::OPENAPI).await.json();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let mut wanted = BTreeSet::new();
    collect(&document, &mut wanted);
    assert!(wanted.len() > 20);
    for reference in wanted {
        let name = reference.strip_prefix("#/components/schemas/").unwrap();
        assert!(schemas.contains_key(name), "{name} is not described");
    }
}

fn collect(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
                found.insert(reference.to_owned());
            }
            object.values().for_each(|value| collect(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| collect(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[tokio::test]
async fn a_malformed_database_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    let path = folder.path().join("coordinator.db");
    config.database.url = format!("sqlite:{}", path.display());
    let mut t = TestCoordinator::with(&config).await;
    assert_eq!(t.get(&Who::Nobody, route::READYZ).await.body, b"ready\n");
    t.inner.stop().await;
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'operator_token'";
    let root: u32 = connection.query_row(root, (), |row| row.get(0)).unwrap();
    drop(connection);
    let mut bytes = std::fs::read(&path).unwrap();
    let begin = (root as usize - 1) * 4096;
    bytes[begin..begin + 4096].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    t.restart(&config, 2).await;
    // Found by the next read, and reported until a read succeeds.
    for _ in 0..2 {
        let detail = t.get(&Who::Nobody, route::READYZ).await.problem(ProblemType::Unavailable);
        assert!(detail.contains("the database is malformed"), "{detail}");
    }
}
