//! Rounds with their phases, results, and watches.

use std::time::Duration;

use federation::id::RoundKey;
use federation::round::RoundState;
use federation::time::Timestamp;
use serde_json::json;
use wire::inspect::{ModelView, Page, ParticipantView, RoundView};
use wire::{DeviceReason, route};

use crate::support::{TestCoordinator, config, input, sha256, small_task};

#[tokio::test]
async fn a_round_is_shown_with_its_phases_and_what_it_made() {
    let mut config = config();
    config.aggregation.device = "cpu".to_owned();
    config.work.name = Some("north".to_owned());
    let t = TestCoordinator::with(&config).await;
    let task = t.create_task(&small_task()).await;
    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    t.advance(Duration::from_secs(1));
    let work = t.assigned(&[a.1.clone(), b.1.clone()]).await.remove(0);
    t.advance(Duration::from_secs(2));
    let view: RoundView = t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.read();
    assert_eq!((view.cohort, view.reported, view.phases.len(), view.model.clone()), (2, 0, 2, None));
    assert_eq!(view.phases[1].deadline_at, Some(view.phases[1].started_at.plus(Duration::from_secs(600))));
    for (id, who) in [&a, &b] {
        assert_eq!(t.send(who, t.upload(&work, *id, &input([1, 2, 3]))).await.status, 200);
    }
    t.work().await;
    let view: RoundView = t.get(&t.viewer, &format!("/v1/tasks/{task}/rounds/1?attempt=1")).await.read();
    assert_eq!((view.state.as_str(), view.reported, view.bytes_up, view.dropped), ("COMPLETED", 2, 32, 0));
    let counts: Vec<_> = view.phases.iter().map(|phase| (phase.state.as_str(), phase.count)).collect();
    assert_eq!(counts, [("SELECTING", Some(2)), ("COLLECTING", Some(2)), ("AGGREGATING", Some(2))]);
    assert!(view.phases.iter().all(|phase| phase.ended_at.is_some() && phase.deadline_at.is_none()));
    assert!((view.seconds - 2.0).abs() < 1e-9, "{}", view.seconds);
    let by = view.work.unwrap();
    assert_eq!((by.sum_because, by.unmask_because), (Some(DeviceReason::AskedFor), Some(DeviceReason::AskedFor)));
    assert_eq!((by.coordinator.as_deref(), by.device_failure), (Some("north"), None));
    let made = view.model.unwrap();
    let model: ModelView = t.get(&t.viewer, "/v1/tasks/small/models/1").await.read();
    assert_eq!((made.version, made.sha256, model.parent, model.round), (1, model.sha256, Some(0), Some(1)));
    let file = t.get(&t.viewer, "/v1/tasks/small/models/1/parameters").await;
    assert_eq!(sha256(&file.body), model.sha256);
    let models: Page<ModelView> = t.get(&t.viewer, "/v1/tasks/small/models").await.read();
    assert_eq!(models.items.iter().map(|model| model.version).collect::<Vec<_>>(), [1, 0]);
    let rounds: Page<RoundView> = t.get(&t.viewer, "/v1/tasks/small/rounds?limit=1").await.read();
    assert_eq!(rounds.items[0].number, 2);
    let seen: ParticipantView = t.get(&t.viewer, &format!("/v1/participants/{}", a.0)).await.read();
    assert_eq!(seen.participations, 1);
}

/// The cache is correct: a freshly started coordinator returns the same.
#[tokio::test]
async fn a_page_says_of_each_round_what_is_said_of_it_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    config.database.url = format!("sqlite:{}", folder.path().join("coordinator.db").display());
    let mut t = TestCoordinator::with(&config).await;
    let mut spec = small_task();
    spec["rounds"]["count"] = json!(4);
    let task = t.create_task(&spec).await;
    let people = [t.enroll("a").await, t.enroll("b").await];
    let who: Vec<_> = people.iter().map(|(_, who)| who.clone()).collect();
    for _ in 0..2 {
        t.advance(Duration::from_secs(1));
        let work = t.assigned(&who).await.remove(0);
        t.advance(Duration::from_secs(2));
        for (id, who) in &people {
            assert_eq!(t.send(who, t.upload(&work, *id, &input([1, 2, 3]))).await.status, 200);
        }
        t.work().await;
    }
    let work = t.assigned(&who).await.remove(0);
    let path = route::abandon(work.task, work.round, people[0].0);
    assert_eq!(t.post(&who[0], &path, &json!({ "attempt": 1, "reason": "conditions" })).await.status, 204);
    t.work().await;
    let states = |page: &str| -> Vec<String> {
        let page: Page<RoundView> = serde_json::from_str(page).unwrap();
        page.items.iter().map(|round| round.state.to_string()).collect()
    };
    t.rounds("small").await;
    t.post(&t.operator, "/v1/tasks/small/cancel", &json!({})).await;
    let page = t.rounds("small").await;
    assert_eq!(states(&page)[1..], ["COMPLETED", "COMPLETED"], "{page}");
    assert_eq!(page, t.rounds("small").await);
    t.restart(&config, 2).await;
    assert_eq!(page, t.rounds("small").await);
    // Bytes in transit at a round's end are counted when sent.
    let (key, state) = (RoundKey { task, number: 1 }, RoundState::Collecting);
    let sent = &[(key.attempt(1), state, 77)];
    let counted =
        t.inner.store.transact("test", |tx| Box::pin(async move { tx.add_traffic(sent, Timestamp(7)).await }));
    counted.await.unwrap();
    let first = t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.json();
    assert_eq!((&first["bytes_down"], &first["phases"][1]["bytes_down"]), (&json!(77), &json!(77)));
    assert_ne!(page, t.rounds("small").await);
}

#[tokio::test]
async fn a_watch_returns_when_the_round_moves_on() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let watch = t.get(&t.viewer, "/v1/tasks/small/rounds/1?wait_ms=10000");
    let open = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        t.work().await;
    };
    let (reply, ()) = tokio::join!(watch, open);
    assert_eq!(reply.json()["state"], "SELECTING", "even one that was not there yet");
    let watch = t.get(&t.viewer, "/v1/tasks/small/rounds/1?after_state=SELECTING&wait_ms=10000");
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        t.post(&t.operator, "/v1/tasks/small/cancel", &json!({})).await;
    };
    let (reply, ()) = tokio::join!(watch, cancel);
    assert_eq!(reply.json()["state"], "CANCELLED");
    let reply = t.get(&t.viewer, "/v1/tasks/small/rounds/1?after_state=CANCELLED&wait_ms=20").await;
    assert_eq!(reply.json()["state"], "CANCELLED", "after its time it says what there is");
}

#[tokio::test]
async fn a_round_that_waits_in_vain_tells_how_many_are_there() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["selection"]["cohort"]["count"] = json!(8);
    t.create_task(&spec).await;
    t.work().await;
    for n in 0..6 {
        let (_, who) = t.enroll(&format!("p{n}")).await;
        t.check_in(&who, "small").await;
    }
    let selecting = async || {
        let round = t.get(&t.viewer, "/v1/tasks/small/rounds/1?attempt=1").await.json();
        (round["state"].clone(), round["phases"][0]["count"].clone(), round["phases"][0]["min"].clone())
    };
    let (state, count, min) = selecting().await;
    assert_eq!((state, count), (json!("SELECTING"), json!(6)));
    assert!(min.as_u64() > Some(6), "{min}");
    // Within the validity of the waiting check-ins.
    let task = t.get(&t.viewer, "/v1/tasks/small").await.json();
    assert_eq!(task["status"], "ACTIVE");
    t.post(&t.operator, "/v1/tasks/small/cancel", &json!({})).await;
    assert_eq!(selecting().await.0, "CANCELLED");
    assert_eq!(selecting().await.1, 6, "and so it does when it is over");
}
