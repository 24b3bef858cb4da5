//! Serving mlp 784-200-10 to 64 connections: with batches, without (`max_batch = 1`), by a server of the same libraries
//! that reads the request and answers as many bytes without computing (the limit), and, where TRIBUTARY_PEER names a
//! Python with torch and aiohttp, by the batcher in `peer.py`. The servers take turns, so that all see the same
//! machine.
//!
//! `cargo bench --bench serving [-- SECONDS]`: requests per second, per second of the server's processor time, and the 99th
//! percentile at half of what the server with batches can do.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "it measures, and the environment names the peer")]

mod load;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use axum::serve::{Listener as _, ListenerExt as _};
use client_sdk::models::{Architecture, Mlp};
use learning::checkpoint;
use load::{Figures, closed, open};

const CONNECTIONS: usize = 64;
const TURNS: usize = 3;
/// With this argument, the program is the server that skips the computation.
const NOTHING: &str = "nothing";

/// A server that ends with the measurement.
struct Server {
    name: &'static str,
    process: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn ours(name: &'static str, models: &Path, flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tributary"));
        command
            .args(["--format", "json", "infer", "serve", "--listen", "127.0.0.1:0", "--models"])
            .arg(models)
            .args(flags);
        Self::until(name, command, |line| {
            let event: serde_json::Value = serde_json::from_str(line).ok()?;
            Some(event["url"].as_str()?.strip_prefix("http://")?.to_owned())
        })
    }

    /// This program, as the server that skips the computation.
    fn limit() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(NOTHING);
        Self::until("nothing computed", command, |line| line.strip_prefix("serving ").map(str::to_owned))
    }

    /// The batcher in Python, which prints its address.
    fn peer(python: &str, model: &Path) -> Self {
        let mut command = Command::new(python);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/serving/peer.py")).arg(model);
        Self::until("torch + aiohttp", command, |line| line.strip_prefix("serving ").map(str::to_owned))
    }

    fn until(name: &'static str, mut command: Command, address: impl Fn(&str) -> Option<String>) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| address(&line.unwrap())).expect("it ended before");
        Self { name, process, address }
    }
}

/// Reads each request to its end, and answers with as many bytes as a prediction has.
async fn serve_nothing() {
    let answer = async |body: Bytes| {
        assert!(body.len() > 3136, "a whole row is asked about");
        let json = r#"{"model_name":"digits","model_version":"1","outputs":[{"name":"scores","datatype":"FP32","shape":[1,10],"parameters":{"binary_data_size":40}}]}"#;
        let mut answer = json.as_bytes().to_vec();
        answer.extend([0; 40]);
        ([("inference-header-content-length", json.len().to_string())], answer)
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    println!("serving {}", listener.local_addr().unwrap());
    axum::serve(listener, Router::new().route("/v2/models/{model}/infer", post(answer))).await.unwrap();
}

#[tokio::main]
async fn main() {
    if std::env::args().any(|argument| argument == NOTHING) {
        return serve_nothing().await;
    }
    let seconds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(5);
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("digits/1");
    std::fs::create_dir_all(&place).unwrap();
    let model = place.join("model.safetensors");
    let parameters = Architecture::Mlp(Mlp::default()).initial(1).unwrap();
    std::fs::write(&model, checkpoint::write(&parameters).unwrap()).unwrap();

    let mut servers = vec![
        Server::ours("batches of 32", folder.path(), &[]),
        Server::ours("max_batch = 1", folder.path(), &["--max-batch", "1"]),
    ];
    servers.push(Server::limit());
    servers.extend(std::env::var("TRIBUTARY_PEER").ok().map(|python| Server::peer(&python, &model)));
    let mut told: Vec<Vec<Figures>> = servers.iter().map(|_| Vec::new()).collect();
    for _ in 0..TURNS {
        for (server, told) in servers.iter().zip(&mut told) {
            told.push(closed(&server.address, server.process.id(), CONNECTIONS, seconds).await);
        }
    }
    println!("{CONNECTIONS} connections, mlp 784-200-10, rows as bytes; medians of {TURNS} turns of {seconds} s");
    let middle = |told: &[Figures], of: fn(&Figures) -> f64| {
        let mut all: Vec<f64> = told.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    for (server, told) in servers.iter().zip(&told) {
        println!(
            "{:<16} {:>8.0} requests/s {:>8.0} per CPU-second, p50 {:.2} ms, p99 {:.2} ms",
            server.name,
            middle(told, |one| one.rate),
            middle(told, |one| one.per_processor_second),
            middle(told, |one| one.p50_ms),
            middle(told, |one| one.p99_ms),
        );
    }
    let half = middle(&told[0], |one| one.rate) / 2.0;
    let figures = open(&servers[0].address, CONNECTIONS, half, seconds).await;
    println!("batches of 32 at half of that, {half:.0} requests/s: p50 {:.2} ms, p99 {:.2} ms", figures.0, figures.1);
}
