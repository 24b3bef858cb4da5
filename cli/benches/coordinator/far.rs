//! Secure rounds over a long line: every byte between participants and coordinator is delayed, both ways. Prints the
//! duration of a round in round trips.

use std::sync::Arc;
use std::time::Duration;

use client_sdk::journal::MemoryJournal;
use client_sdk::learning::{MetricValue, Parameters};
use client_sdk::transport::Proxy;
use client_sdk::{Participant, SecurityPolicy, Trained, Trainer, TrainerError, TrainingJob};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::Outcome;
use crate::server::{Server, TASK};

const PARAMETERS: usize = 1000;
const PARTICIPANTS: u32 = 10;
const ROUNDS: u32 = 5;

pub(crate) async fn run(one_way: Duration) -> Outcome {
    let server = Server::start()?;
    server.create_secure_task(PARAMETERS, PARTICIPANTS, ROUNDS).await?;
    let url = delayed(&server.url(""), one_way).await?;
    let mut running = Vec::new();
    for index in 0..PARTICIPANTS {
        let mut participant = Participant::builder()
            .server(&url)
            .proxy(Proxy::none())
            .ca_pem(server.ca_pem())
            .enrollment_token(server.enrollment_token(&format!("device-{index:04}")).await?)
            .task("bench")
            .journal(MemoryJournal::new())
            .trainer(Nudge)
            .secure_aggregation(SecurityPolicy::default())
            .build()?;
        running.push(tokio::spawn(async move { participant.run(std::future::pending()).await }));
    }
    for run in running {
        run.await??;
    }
    let cycles = server.cycles(TASK).await?;
    let (median, round_trip) = (Duration::from_millis(cycles[cycles.len() / 2].unsigned_abs()), 2 * one_way);
    println!("far away: {PARTICIPANTS} participants, secure aggregation, {ROUNDS} rounds, {one_way:?} each way");
    println!(
        "  median {median:.2?} from one model version to the next: {:.2} round trips",
        median.as_secs_f64() / round_trip.as_secs_f64()
    );
    Ok(())
}

/// Moves the model a little, at once.
struct Nudge;

impl Trainer for Nudge {
    fn train(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Trained, TrainerError> {
        let values = model.values().iter().map(|value| value + 0.01).collect();
        let parameters = Parameters::new(Arc::clone(model.layout()), values).map_err(TrainerError::failed)?;
        Ok(Trained { parameters, examples: 100, metrics: Vec::new() })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(Vec::new())
    }

    fn examples(&self) -> u64 {
        100
    }
}

/// The same server, behind a line that delays all bytes.
async fn delayed(url: &str, one_way: Duration) -> Outcome<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (host, port) = url.trim_start_matches("https://").rsplit_once(':').ok_or("the server's URL has no port")?;
    let (server, port) = (format!("127.0.0.1:{port}"), (host.to_owned(), listener.local_addr()?.port()));
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let server = server.clone();
            tokio::spawn(async move {
                // The connection's own handshake crosses the line, too.
                tokio::time::sleep(2 * one_way).await;
                let Ok(far) = TcpStream::connect(server).await else { return };
                let (near, far) = (near.into_split(), far.into_split());
                tokio::join!(carry(near.0, far.1, one_way), carry(far.0, near.1, one_way));
            });
        }
    });
    Ok(format!("https://{}:{}", port.0, port.1))
}

async fn carry(mut from: tokio::net::tcp::OwnedReadHalf, mut to: tokio::net::tcp::OwnedWriteHalf, one_way: Duration) {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
            if sender.send((Instant::now() + one_way, buffer[..bytes].to_vec())).is_err() {
                return;
            }
        }
    };
    let write = async move {
        while let Some((due, bytes)) = receiver.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(read, write);
}
