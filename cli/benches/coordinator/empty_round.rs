//! A round without training: the rest is the coordinator's own latency.

use std::fs::File;
use std::io::Write as _;
use std::time::Instant;

use crate::Outcome;
use crate::server::{Server, TASK};

const PARAMETERS: usize = 1000;
const PARTICIPANTS: u32 = 10;
const ROUNDS: u32 = 50;

pub(crate) async fn run() -> Outcome {
    let server = Server::start()?;
    let fsync_ms = measure_fsync(server.folder.path())?;
    let devices = server.enroll_many(PARTICIPANTS).await?;
    server.create_task(PARAMETERS, PARTICIPANTS, ROUNDS).await?;
    let cpu = server.cpu_seconds()?;
    let runs = devices.into_iter().map(|device| tokio::spawn(async move { device.take_part(PARAMETERS).await }));
    for run in runs.collect::<Vec<_>>() {
        run.await??;
    }
    let cpu_ms = (server.cpu_seconds()? - cpu) * 1000.0 / f64::from(ROUNDS);
    let cycles = server.cycles(TASK).await?;
    let (median, p90) = (cycles[cycles.len() / 2], cycles[cycles.len() * 9 / 10]);
    println!(
        "empty round: {PARTICIPANTS} participants, {PARAMETERS} parameters, {ROUNDS} rounds, TLS, durable commits"
    );
    println!(
        "  median {median} ms, 90th percentile {p90} ms from one model version to the next; {cpu_ms:.1} CPU-ms of the server"
    );
    println!("  one fsync {fsync_ms:.2} ms; limit 50 ms + 10 fsyncs = {:.1} ms", 50.0 + 10.0 * fsync_ms);
    Ok(())
}

/// Median of 4 KiB appends, each made durable, where the database lies.
fn measure_fsync(folder: &std::path::Path) -> Outcome<f64> {
    let mut file = File::create(folder.join("fsync"))?;
    let mut times = Vec::new();
    for _ in 0..50 {
        file.write_all(&[7; 4096])?;
        let start = Instant::now();
        file.sync_all()?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
