//! Benchmark of a page of rounds: 50 rounds of 1,000 participants under secure aggregation with a privacy ledger, in a database file. The
//! bench writes the rounds as rows, without training.
//!
//! `cargo bench -p coordinator --bench rounds`
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench prints, measures time, and stops at the first thing wrong"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use task_spec::{PrivacyAccounting, PrivacyMechanism, PrivacyView};

use axum::body::Body;
use coordinator::config::Config;
use coordinator::{Coordinator, Parts};
use federation::device_reason::DeviceReason;
use federation::id::{Attempt, Digest, ParticipantId, TaskId};
use federation::model_version::ModelVersion;
use federation::round::{Assignment, AssignmentState, PhaseLimits, Round, RoundLimits, RoundState, SecureLimits};
use federation::time::{MockClock, Timestamp};
use http::Request;
use http_body_util::BodyExt as _;
use learning::privacy::{Budget, Ledger};
use serde_json::json;
use store::entity::admitted::Admitted;
use store::entity::noised_sum::{NoisedSumRow, SumWork};
use store::entity::participant::ParticipantRow;
use store::entity::privacy_ledger::PrivacyRow;
use store::entity::round::RoundMetric;
use store::entity::session_message::{MessageKind, SessionMessage};
use store::{Store, StoreError, Transaction};
use tower::ServiceExt as _;
use uuid::Uuid;
use wire::admin::Role;

const ROUNDS: u32 = 50;
const COHORT: u32 = 1000;
const START: Timestamp = Timestamp(1_750_000_000_000);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.database.url = format!("sqlite:{}", folder.path().join("coordinator.db").display());
    config.blobs.url = "memory:".to_owned();
    config.identity.ca_certificate_file = "".into();
    config.identity.ca_key_file = "".into();
    let random = coordinator::random::Random::from_seed(1);
    let clock = Arc::new(MockClock::new(START));
    let coordinator = Coordinator::assemble(&config, Parts { clock, random }).await.unwrap();
    let token = coordinator.create_operator_token("bench", Role::Operator).await.unwrap().token;
    let task = create_task(&coordinator, &token).await;
    write(&coordinator.store, task).await.unwrap();
    println!("a page of {ROUNDS} rounds of {COHORT} participants under secure aggregation, with a privacy ledger");
    for when in ["first", "second", "third"] {
        let (milliseconds, held, body) = page(&coordinator, &token, task).await;
        let digest = hex::encode(&ring::digest::digest(&ring::digest::SHA256, &body).as_ref()[..8]);
        println!("  {when} time: {milliseconds:.1} ms, with one worker held for up to {held:.1} ms at once");
        println!("    {} bytes, SHA-256 {digest}", body.len());
    }
    coordinator.stop().await;
}

async fn send(coordinator: &Coordinator, token: &str, request: http::request::Builder, body: Body) -> Vec<u8> {
    let mut request = request.header("authorization", format!("Bearer {token}")).body(body).unwrap();
    request.extensions_mut().insert(coordinator::http::Connection::default());
    let response = coordinator.router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes().to_vec();
    assert!(status.is_success(), "{}", String::from_utf8_lossy(&body));
    body
}

async fn create_task(coordinator: &Coordinator, token: &str) -> TaskId {
    let spec = json!({
        "name": "bench",
        "model": { "tensors": [{ "name": "w", "shape": [100_000] }] },
        "rounds": { "count": ROUNDS + 1, "select_max": COHORT },
        "selection": { "cohort": { "count": COHORT } },
        "aggregation": { "max_weight": 1 },
        "metrics": ["loss", "accuracy"],
    });
    let request = Request::post(wire::route::TASKS).header("content-type", "application/json");
    let body = send(coordinator, token, request, Body::from(json!({ "spec": spec }).to_string())).await;
    let view: serde_json::Value = serde_json::from_slice(&body).unwrap();
    view["id"].as_str().unwrap().parse().unwrap()
}

/// Milliseconds of the request, the longest stall of other tasks, and the response.
async fn page(coordinator: &Coordinator, token: &str, task: TaskId) -> (f64, f64, Vec<u8>) {
    let others = tokio::spawn(async {
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        loop {
            tokio::task::yield_now().await;
            longest = longest.max(last.elapsed());
            last = Instant::now();
            if PAGE_READ.load(std::sync::atomic::Ordering::Relaxed) {
                return longest;
            }
        }
    });
    tokio::task::yield_now().await;
    PAGE_READ.store(false, std::sync::atomic::Ordering::Relaxed);
    let path = format!("{}?limit={ROUNDS}", wire::route::fill(wire::route::ROUNDS, &[&task]));
    let begin = Instant::now();
    let body = send(coordinator, token, Request::get(path), Body::empty()).await;
    let took = begin.elapsed();
    PAGE_READ.store(true, std::sync::atomic::Ordering::Relaxed);
    let held = others.await.unwrap();
    PAGE_READ.store(false, std::sync::atomic::Ordering::Relaxed);
    (took.as_secs_f64() * 1e3, held.as_secs_f64() * 1e3, body)
}

static PAGE_READ: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

fn digest(n: u32) -> Digest {
    let mut digest = [7; 32];
    digest[..4].copy_from_slice(&n.to_be_bytes());
    Digest(digest)
}

fn participant(n: u32) -> ParticipantId {
    ParticipantId(Uuid::from_u128(u128::from(n) << 64 | 0xBE4C))
}

async fn write(store: &Store, task: TaskId) -> Result<(), StoreError> {
    store
        .transact("participants", |tx| {
            Box::pin(async move {
                for n in 0..COHORT {
                    let row = ParticipantRow {
                        id: participant(n),
                        name: format!("device-{n}"),
                        labels: BTreeMap::new(),
                        enrolled_at: START,
                        certificate_fingerprint: digest(n),
                        previous_fingerprint: None,
                        certificate_expires_at: START,
                        revoked_at: None,
                        last_seen_at: START,
                    };
                    tx.insert_participant(&row).await?;
                }
                Ok::<_, StoreError>(())
            })
        })
        .await?;
    let charges = &charges();
    for number in 1..=ROUNDS {
        store.transact("round", |tx| Box::pin(async move { round(tx, task, number, charges).await })).await?;
    }
    Ok(())
}

/// A row of the ledger for each round.
fn charges() -> Vec<String> {
    let (mechanism, seal) = (PrivacyMechanism::CentralGaussian, |_: &[u8]| [0; 32]);
    let budget = Budget {
        epsilon: None,
        delta: 1e-5,
        against: PrivacyView::CohortKnown,
        accounting: PrivacyAccounting::default(),
    };
    let mut ledger = Ledger::open(mechanism, budget, Vec::new(), &seal).unwrap();
    let charge = |round: u32| {
        let release = json!({
            "round": round, "attempt": 1, "mechanism": mechanism, "participants": COHORT,
            "sum": { "noise": { "discrete_gaussian": { "sigma": 400.0 } }, "sensitivity": 100.0, "dimension": 10 },
            "sampled": "anyhow",
        });
        serde_json::to_string(ledger.charge(serde_json::from_value(release).unwrap(), &seal).unwrap()).unwrap()
    };
    (1..=ROUNDS).map(charge).collect()
}

/// Writes the rows of a completed round.
async fn round(tx: &mut Transaction<'_>, task: TaskId, number: u32, charges: &[String]) -> Result<(), StoreError> {
    let attempt = Attempt { task, round: number, attempt: 1 };
    let limits = PhaseLimits { min: COHORT, max: COHORT, deadline_ms: 600_000 };
    let secure = SecureLimits {
        threshold: COHORT / 2 + 1,
        share_deadline_ms: 60_000,
        confirm_deadline_ms: 60_000,
        unmask_deadline_ms: 60_000,
    };
    let mut round = Round {
        key: attempt,
        state: RoundState::Selecting,
        base_version: number - 1,
        limits: RoundLimits {
            select: limits,
            collect: limits,
            aggregate_deadline_ms: 60_000,
            sampled: None,
            round_trip_ms: None,
            secure: Some(secure),
            groups: None,
        },
        cohort: 0,
        state_since: START,
        opened_at: START,
        failure: None,
    };
    tx.insert_round(&round).await?;
    advance(tx, &mut round, RoundState::Sharing).await?;
    let place = |n| Assignment {
        attempt,
        participant: participant(n),
        state: AssignmentState::Assigned,
        state_since: START,
        detail: None,
        dropped_in: None,
        assigned_at: START,
        group: None,
    };
    tx.insert_assignments(&(0..COHORT).map(place).collect::<Vec<_>>()).await?;
    for n in 0..COHORT {
        let participant = participant(n);
        for kind in [MessageKind::Shares, MessageKind::Input, MessageKind::Consistency, MessageKind::Unmasking] {
            let (sha256, received_at) = (digest(n), START);
            let message = SessionMessage { attempt, kind, participant, sha256, bytes: 70, received_at, message: None };
            tx.insert_message(&message).await?;
        }
        let (from, to) = ([AssignmentState::Assigned], AssignmentState::Reported);
        tx.set_assignment_state(attempt, participant, &from, to, START, None).await?;
        let (sha256, bytes, accepted_at) = (digest(n), 300_000, START);
        tx.insert_admitted(&[Admitted { attempt, participant, sha256, bytes, accepted_at, folded: true }]).await?;
    }
    for state in [RoundState::Collecting, RoundState::Confirming, RoundState::Unmasking, RoundState::Aggregating] {
        tx.add_traffic(&[(attempt, round.state, 1_000_000)], START).await?;
        advance(tx, &mut round, state).await?;
    }
    let (device, created_at) = (|| "cpu".to_owned(), START);
    let work = SumWork {
        coordinator: None,
        sum_device: device(),
        sum_because: Some(DeviceReason::AskedFor),
        unmask_device: device(),
        unmask_because: Some(DeviceReason::AskedFor),
        device_failure: None,
        sum_ms: 9,
        unmask_ms: 9,
        keystream_bytes: 9,
    };
    let sum = NoisedSumRow { attempt, blob: digest(0), participants: COHORT, created_at, work: Some(work) };
    tx.insert_noised_sum(&sum).await?;
    let row = charges[number as usize - 1].clone();
    tx.append_privacy_row(&PrivacyRow { attempt, idx: u64::from(number) - 1, published: true, row, created_at })
        .await?;
    tx.insert_model_version(&ModelVersion {
        task,
        version: number,
        sha256: digest(number),
        bytes: 400_000,
        round: Some(number),
        parent: Some(number - 1),
        clip: None,
        optimizer_state: None,
        created_at,
    })
    .await?;
    let metric = |name: &str| RoundMetric { name: name.to_owned(), value: 0.5, count: u64::from(COHORT) };
    tx.set_round_result(attempt, &[metric("loss"), metric("accuracy")], Some(number)).await?;
    advance(tx, &mut round, RoundState::Completed).await
}

async fn advance(tx: &mut Transaction<'_>, round: &mut Round, state: RoundState) -> Result<(), StoreError> {
    let after = Round { state, cohort: COHORT, ..round.clone() };
    assert!(tx.transition_round(round, &after).await?);
    *round = after;
    Ok(())
}
