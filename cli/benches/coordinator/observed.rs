//! Cost of observation: the same rounds with metrics read each second, traces of 1 % of the updates, and 100 open
//! streams of events, and without all of these, in turn.
//!
//! The audit log is always on: its rows are part of the recorded transactions, and a worker numbers and chains them. So
//! both kinds of run have it, and the ratios do not show its cost.
//!
//! Readers of streams usually run elsewhere, and here on the same cores. A thread reads the bytes from the sockets of
//! 100 streams, compressed as for browsers, without decrypting them, and measures the processor time of that. One more
//! such stream is read in full, and must have all events. Another one is left unread: it must end after
//! `http.unread_timeout_ms`, and the others must stay.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use flate2::write::GzDecoder;
use futures_util::{Stream, StreamExt as _};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wire::route;

use crate::rounds::{Figures, measured, median};
use crate::server::Server;
use crate::unread::connect;
use crate::{Outcome, processor};

const PARTICIPANTS: u32 = 10;
const ROUNDS: u32 = 300;
const STREAMS: usize = 100;

/// Ways of observing a coordinator.
#[derive(Clone, Copy)]
struct Observed {
    metrics: bool,
    traces: bool,
    streams: bool,
}

const NOTHING: Observed = Observed { metrics: false, traces: false, streams: false };
const ALL: Observed = Observed { metrics: true, traces: true, streams: true };

/// Rounds of `parameters` parameters, `pairs` times either way; `in_parts`, then with one way of observing at a time.
pub(crate) async fn run(parameters: usize, pairs: usize, in_parts: bool) -> Outcome {
    println!(
        "observed: {PARTICIPANTS} participants, {parameters} parameters, {ROUNDS} rounds at a time in the clear, TLS; metrics each second, \
         traces of 1 %, {STREAMS} streams of events, or none of it, in turn"
    );
    compare(parameters, pairs, "all of it", ALL).await?;
    if in_parts {
        compare(parameters, pairs, "metrics", Observed { metrics: true, ..NOTHING }).await?;
        compare(parameters, pairs, "traces", Observed { traces: true, ..NOTHING }).await?;
        compare(parameters, pairs, "streams", Observed { streams: true, ..NOTHING }).await?;
    }
    Ok(())
}

async fn compare(parameters: usize, pairs: usize, name: &str, ways: Observed) -> Outcome {
    println!("  {name}:");
    let (mut observed, mut alone) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        // The order alternates between pairs.
        for is_observed in [pair % 2 == 0, pair % 2 != 0] {
            let figures = rounds(parameters, if is_observed { ways } else { NOTHING }).await?;
            if is_observed { observed.push(figures) } else { alone.push(figures) }
        }
        let (one, other) = (observed[pair], alone[pair]);
        println!(
            "    observed {:.2} rounds/s, {:.1} CPU-ms of the server each; alone {:.2} rounds/s, {:.1} CPU-ms: {:.3} ×",
            one.rounds_per_second,
            one.cpu_ms,
            other.rounds_per_second,
            other.cpu_ms,
            one.rounds_per_second / other.rounds_per_second
        );
    }
    let ratio = |of: fn(&Figures) -> f64| median(observed.iter().zip(&alone).map(|(one, other)| of(one) / of(other)));
    println!("    median of the ratios: rounds/s {:.3} × (goal: 0.97)", ratio(|figures| figures.rounds_per_second));
    println!("    CPU of the server for each round {:.3} ×", ratio(|figures| figures.cpu_ms));
    Ok(())
}

async fn rounds(parameters: usize, ways: Observed) -> Outcome<Figures> {
    let mut observers = JoinSet::new();
    let (spans, listener) = (Arc::new(AtomicU64::new(0)), tokio::net::TcpListener::bind("127.0.0.1:0").await?);
    let endpoint = format!("http://{}/v1/traces", listener.local_addr()?);
    let mut settings =
        vec![("TRIBUTARY_HTTP_HEALTH_LISTEN", "127.0.0.1:0"), ("TRIBUTARY_HTTP_UNREAD_TIMEOUT_MS", "1000")];
    if ways.traces {
        let collector = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&spans));
        observers.spawn(async move { drop(axum::serve(listener, collector).await) });
        settings.extend([("TRIBUTARY_TRACES_ENDPOINT", &*endpoint), ("TRIBUTARY_TRACES_SAMPLE_RATIO", "0.01")]);
    }
    let server = Server::start_with(&settings)?;
    if ways.metrics {
        let metrics = server.metrics_reader();
        observers.spawn(async move {
            loop {
                drop(metrics().await);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
    }
    let figures = if ways.streams {
        with_streams(&server, parameters, &mut observers).await?
    } else {
        measured(&server, PARTICIPANTS, parameters, ROUNDS).await?
    };
    if ways.traces {
        println!("      {} spans", spans.load(Ordering::Relaxed));
    }
    Ok(figures)
}

async fn with_streams(server: &Server, parameters: usize, observers: &mut JoinSet<()>) -> Outcome<Figures> {
    let deaf = leave_unread(server).await?;
    let readers = Readers::start(server).await?;
    let in_earnest = Arc::new(AtomicU64::new(0));
    observers.spawn(follow(server.events().await?, Arc::clone(&in_earnest)));
    let figures = measured(server, PARTICIPANTS, parameters, ROUNDS).await?;
    let last = server.get(&format!("{}?limit=1", route::AUDIT)).await?["items"][0]["position"].as_u64().unwrap();
    while in_earnest.load(Ordering::Relaxed) < last {
        if let Some(ended) = observers.try_join_next() {
            return Err(format!("an observer ended: {ended:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let left = server.gauge("tributary_event_streams").await?;
    let Taken { bytes, pieces, cpu_ms } = readers.stop()?;
    println!(
        "      {last} events, none missing; readers took {:.1} MB in {} pieces each with {:.1} CPU-ms a round",
        bytes as f64 / 1e6,
        pieces / STREAMS as u64,
        cpu_ms / f64::from(ROUNDS)
    );
    // With the one that is read in earnest.
    if left != (STREAMS + 1) as f64 {
        return Err(format!("a stream that nobody reads must be dropped, and no other; {left} are left").into());
    }
    drop(deaf);
    Ok(figures)
}

async fn take(State(spans): State<Arc<AtomicU64>>, body: Bytes) {
    let request = ExportTraceServiceRequest::decode(&*body).unwrap();
    let scopes = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
    spans.fetch_add(scopes.map(|scope| scope.spans.len() as u64).sum(), Ordering::Relaxed);
}

/// A stream of all events from the beginning on, which is left unread.
async fn leave_unread(server: &Server) -> Outcome<http::Response<h2::RecvStream>> {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(0);
    let (client, connection) = builder.handshake::<_, bytes::Bytes>(connect(server, None, "h2").await?).await?;
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

/// Reads a compressed stream, and publishes the position of its last event, as long as the positions are contiguous.
async fn follow(mut stream: impl Stream<Item = reqwest::Result<Bytes>> + Unpin, last: Arc<AtomicU64>) {
    let (mut gzip, mut text) = (GzDecoder::new(Vec::new()), Vec::new());
    while let Some(Ok(bytes)) = stream.next().await {
        gzip.write_all(&bytes).unwrap();
        gzip.flush().unwrap();
        text.append(gzip.get_mut());
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for line in text.drain(..whole).collect::<Vec<_>>().split(|byte| *byte == b'\n') {
            let Some(id) = line.strip_prefix(b"id: ") else { continue };
            let (id, before) = (std::str::from_utf8(id).unwrap().parse().unwrap(), last.load(Ordering::Relaxed));
            assert!(before == 0 || id == before + 1, "{id} follows {before}");
            last.store(id, Ordering::Relaxed);
        }
    }
}

/// A thread that reads streams from their sockets.
struct Readers {
    thread: std::thread::JoinHandle<Outcome<Taken>>,
    stopped: CancellationToken,
}

/// Totals of all readers.
struct Taken {
    bytes: u64,
    pieces: u64,
    cpu_ms: f64,
}

impl Readers {
    /// Opens the streams, each over a connection of its own.
    async fn start(server: &Server) -> Outcome<Self> {
        let mut sockets = Vec::new();
        for _ in 0..STREAMS {
            sockets.push(open(server).await?);
        }
        let stopped = CancellationToken::new();
        let until = stopped.clone();
        let thread = std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(take_all(sockets, until))
        });
        Ok(Self { thread, stopped })
    }

    fn stop(self) -> Outcome<Taken> {
        self.stopped.cancel();
        self.thread.join().unwrap()
    }
}

/// The socket of a compressed stream that has begun.
async fn open(server: &Server) -> Outcome<std::net::TcpStream> {
    let mut stream = connect(server, None, "http/1.1").await?;
    let (path, authorization) = (route::EVENTS, server.authorization());
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {authorization}\r\n");
    stream.write_all(format!("{head}accept-encoding: gzip\r\n\r\n").as_bytes()).await?;
    let mut received = Vec::new();
    while !has_begun(&received)? {
        if stream.read_buf(&mut received).await? == 0 {
            return Err(String::from_utf8_lossy(&received).into());
        }
    }
    Ok(stream.into_inner().0.into_std()?)
}

/// Whether the head of an answer is here, and the first chunk of its body, which is the reconnection delay that
/// precedes all events.
fn has_begun(received: &[u8]) -> Outcome<bool> {
    let Some(end) = find(received, b"\r\n\r\n") else { return Ok(false) };
    let (head, body) = (String::from_utf8_lossy(&received[..end]), &received[end + 4..]);
    if !head.starts_with("HTTP/1.1 200 ") || !head.contains("\r\ncontent-encoding: gzip") {
        return Err(format!("a stream is answered with {head}").into());
    }
    let Some(size_end) = find(body, b"\r\n") else { return Ok(false) };
    let size = usize::from_str_radix(std::str::from_utf8(&body[..size_end])?, 16)?;
    Ok(body.len() >= size_end + 2 + size + 2)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

async fn take_all(sockets: Vec<std::net::TcpStream>, stopped: CancellationToken) -> Outcome<Taken> {
    let (before, mut readers) = (processor::thread_seconds()?, JoinSet::new());
    for socket in sockets {
        let (mut socket, stopped) = (tokio::net::TcpStream::from_std(socket)?, stopped.clone());
        readers.spawn(async move {
            let (mut piece, mut taken) = (vec![0; 1 << 16], (0, 0));
            while let Some(Ok(read @ 1..)) = stopped.run_until_cancelled(socket.read(&mut piece)).await {
                taken = (taken.0 + read as u64, taken.1 + 1);
            }
            taken
        });
    }
    let taken = readers.join_all().await;
    let cpu_ms = (processor::thread_seconds()? - before) * 1000.0;
    Ok(Taken {
        bytes: taken.iter().map(|taken| taken.0).sum(),
        pieces: taken.iter().map(|taken| taken.1).sum(),
        cpu_ms,
    })
}
