//! What being observed costs rounds: the same rounds with metrics read each second, traces of 1 % of the updates, and 100 open
//! streams of events, and without any of it, in turn.
//!
//! One more stream is never read: it must be gone after `http.unread_timeout_ms`, and the others not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use futures_util::StreamExt as _;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use tokio::task::JoinSet;
use wire::route;

use crate::Outcome;
use crate::server::{Server, TASK};
use crate::unread::connect;

const PARTICIPANTS: u32 = 10;
const ROUNDS: u32 = 60;
const STREAMS: u64 = 100;

/// What was measured of one run.
#[derive(Clone, Copy)]
struct Figures {
    rounds_per_second: f64,
    cpu_ms: f64,
}

/// Rounds of `parameters` parameters, `pairs` times either way.
pub(crate) async fn run(parameters: usize, pairs: usize) -> Outcome {
    println!(
        "observed: {PARTICIPANTS} participants, {parameters} parameters, {ROUNDS} rounds at a time in the clear, TLS; metrics each second, \
         traces of 1 %, {STREAMS} streams of events, or none of it, in turn"
    );
    let (mut observed, mut alone) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        // Neither is always the one that goes first.
        for is_observed in [pair % 2 == 0, pair % 2 != 0] {
            let figures = if is_observed { with_observers(parameters).await? } else { without(parameters).await? };
            if is_observed { observed.push(figures) } else { alone.push(figures) }
        }
        let (one, other) = (observed[pair], alone[pair]);
        println!(
            "  observed {:.2} rounds/s, {:.1} CPU-ms of the server each; alone {:.2} rounds/s, {:.1} CPU-ms: {:.3} ×",
            one.rounds_per_second,
            one.cpu_ms,
            other.rounds_per_second,
            other.cpu_ms,
            one.rounds_per_second / other.rounds_per_second
        );
    }
    let ratios = |of: fn(&Figures) -> f64| {
        let mut ratios: Vec<f64> = observed.iter().zip(&alone).map(|(one, other)| of(one) / of(other)).collect();
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    };
    println!("  median of the ratios: rounds/s {:.3} × (goal: 0.97)", ratios(|figures| figures.rounds_per_second));
    println!("  CPU of the server for each round {:.3} ×", ratios(|figures| figures.cpu_ms));
    Ok(())
}

async fn without(parameters: usize) -> Outcome<Figures> {
    rounds(&Server::start()?, parameters).await
}

async fn with_observers(parameters: usize) -> Outcome<Figures> {
    let spans = Arc::new(AtomicU64::new(0));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let endpoint = format!("http://{}/v1/traces", listener.local_addr()?);
    let collector = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&spans));
    let mut observers = JoinSet::new();
    observers.spawn(async move { drop(axum::serve(listener, collector).await) });
    let server = Server::start_with(&[
        ("TRIBUTARY_TRACES_ENDPOINT", &endpoint),
        ("TRIBUTARY_TRACES_SAMPLE_RATIO", "0.01"),
        ("TRIBUTARY_HTTP_HEALTH_LISTEN", "127.0.0.1:0"),
        ("TRIBUTARY_HTTP_UNREAD_TIMEOUT_MS", "1000"),
    ])?;
    let deaf = leave_unread(&server).await?;
    let read = Arc::new(AtomicU64::new(0));
    for _ in 0..STREAMS {
        let (mut stream, read) = (server.events().await?, Arc::clone(&read));
        observers.spawn(async move {
            while let Some(Ok(bytes)) = stream.next().await {
                read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
        });
    }
    let metrics = server.metrics_reader();
    observers.spawn(async move {
        loop {
            drop(metrics().await);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let figures = rounds(&server, parameters).await?;
    let left = server.gauge("tributary_event_streams").await?;
    println!(
        "    {} spans, {:.1} MB of events read; {left} streams left of {STREAMS} that are read and one that is not",
        spans.load(Ordering::Relaxed),
        read.load(Ordering::Relaxed) as f64 / 1e6
    );
    if left != STREAMS as f64 {
        return Err("a stream that nobody reads must be dropped, and no other".into());
    }
    drop(deaf);
    Ok(figures)
}

async fn take(State(spans): State<Arc<AtomicU64>>, body: Bytes) {
    let request = ExportTraceServiceRequest::decode(&*body).unwrap();
    let scopes = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
    spans.fetch_add(scopes.map(|scope| scope.spans.len() as u64).sum(), Ordering::Relaxed);
}

/// A stream of all events from the beginning on, of which nothing is ever taken.
async fn leave_unread(server: &Server) -> Outcome<http::Response<h2::RecvStream>> {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(0);
    let (client, connection) = builder.handshake::<_, bytes::Bytes>(connect(server, None).await?).await?;
    tokio::spawn(async move { drop(connection.await) });
    let request = http::Request::get(server.url(&format!("{}?after=0", route::EVENTS)));
    let request = request.header("authorization", server.authorization()).body(())?;
    let (answer, _) = client.ready().await?.send_request(request, true)?;
    let answer = answer.await?;
    if answer.status() != 200 {
        return Err(format!("a stream is answered with {}", answer.status()).into());
    }
    Ok(answer)
}

/// Rounds per second, from the first to the last, and the server's CPU-ms for each.
async fn rounds(server: &Server, parameters: usize) -> Outcome<Figures> {
    let devices = server.enroll_many(PARTICIPANTS).await?;
    server.create_task(parameters, PARTICIPANTS, ROUNDS).await?;
    let (cpu, begin) = (server.cpu_seconds()?, Instant::now());
    let runs = devices.into_iter().map(|device| tokio::spawn(async move { device.take_part(parameters).await }));
    for run in runs.collect::<Vec<_>>() {
        run.await??;
    }
    let (cpu, seconds) = (server.cpu_seconds()? - cpu, begin.elapsed().as_secs_f64());
    if server.completed(TASK).await? != ROUNDS as usize {
        return Err("rounds are missing".into());
    }
    let of_rounds = f64::from(ROUNDS);
    Ok(Figures { rounds_per_second: of_rounds / seconds, cpu_ms: cpu * 1000.0 / of_rounds })
}
