//! What durable commits cost rounds: the same rounds with rows and blobs on the disk, and with both in memory, in turn.

use std::time::Instant;

use crate::Outcome;
use crate::server::{Server, TASK};

const PARTICIPANTS: u32 = 10;
const ROUNDS: u32 = 10;

#[derive(Clone, Copy)]
enum Place {
    Disk,
    Memory,
}

/// Rounds of `parameters` parameters, `pairs` times on either.
pub(crate) async fn run(parameters: usize, pairs: u32) -> Outcome {
    println!(
        "durable commits: {PARTICIPANTS} participants, {parameters} parameters, {ROUNDS} rounds at a time in the clear, TLS; SQLite, on \
         the disk and in memory in turn"
    );
    let (mut on_disk, mut in_memory) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        // Neither is always the one that goes first.
        let order = if pair % 2 == 0 { [Place::Disk, Place::Memory] } else { [Place::Memory, Place::Disk] };
        for place in order {
            let figures = rounds(place, parameters).await?;
            match place {
                Place::Disk => on_disk.push(figures),
                Place::Memory => in_memory.push(figures),
            }
        }
        let ((disk, disk_cpu), (memory, memory_cpu)) = (on_disk[pair as usize], in_memory[pair as usize]);
        println!(
            "  on disk {disk:.2} rounds/s, {disk_cpu:.0} CPU-ms of the server each; in memory {memory:.2} rounds/s, {memory_cpu:.0} CPU-ms: \
             {:.2} ×",
            disk / memory
        );
    }
    let (disk, memory) = (median(&on_disk, |figures| figures.0), median(&in_memory, |figures| figures.0));
    println!("  medians: {disk:.2} against {memory:.2} rounds/s: {:.2} × (goal: 0.8)", disk / memory);
    let (disk, memory) = (median(&on_disk, |figures| figures.1), median(&in_memory, |figures| figures.1));
    println!("  {disk:.0} against {memory:.0} CPU-ms of the server a round");
    Ok(())
}

fn median(figures: &[(f64, f64)], which: impl Fn(&(f64, f64)) -> f64) -> f64 {
    let mut values: Vec<f64> = figures.iter().map(which).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Rounds per second, from the first model version to the last, and the server's CPU-ms for each.
async fn rounds(place: Place, parameters: usize) -> Outcome<(f64, f64)> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (rows, blobs) = match place {
        Place::Disk => (format!("sqlite:{}", at("coordinator.db")), format!("file:{}", at("blobs"))),
        Place::Memory => ("sqlite::memory:".to_owned(), "memory:".to_owned()),
    };
    let config = at("coordinator.toml");
    let text = format!(
        "[http]\nlisten = \"127.0.0.1:0\"\n[database]\nurl = {rows:?}\n[blobs]\nurl = {blobs:?}\n\
         [identity]\nca_certificate_file = {:?}\nca_key_file = {:?}\n",
        at("ca.pem"),
        at("ca-key.pem")
    );
    std::fs::write(&config, text)?;
    let server = Server::launch(&["--config", &config], &[], folder)?;
    let devices = server.enroll_many(PARTICIPANTS).await?;
    server.create_task(parameters, PARTICIPANTS, ROUNDS).await?;
    let (cpu, begin) = (server.cpu_seconds()?, Instant::now());
    let runs = devices.into_iter().map(|device| tokio::spawn(async move { device.take_part(parameters).await }));
    for run in runs.collect::<Vec<_>>() {
        run.await??;
    }
    let (cpu, seconds) = (server.cpu_seconds()? - cpu, begin.elapsed().as_secs_f64());
    let completed = server.completed(TASK).await?;
    if completed != ROUNDS as usize {
        return Err(format!("{completed} of {ROUNDS} rounds ended").into());
    }
    Ok((f64::from(ROUNDS) / seconds, cpu * 1e3 / f64::from(ROUNDS)))
}
