//! Cost of durable commits: the same rounds with rows and blobs on the disk, and with both in memory, in turn.

use crate::Outcome;
use crate::rounds::{Figures, measured, median};
use crate::server::Server;

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
        // The order alternates between pairs.
        let order = if pair % 2 == 0 { [Place::Disk, Place::Memory] } else { [Place::Memory, Place::Disk] };
        for place in order {
            let figures = rounds(place, parameters).await?;
            match place {
                Place::Disk => on_disk.push(figures),
                Place::Memory => in_memory.push(figures),
            }
        }
        let (disk, memory) = (on_disk[pair as usize], in_memory[pair as usize]);
        println!(
            "  on disk {:.2} rounds/s, {:.0} CPU-ms of the server each; in memory {:.2} rounds/s, {:.0} CPU-ms: {:.2} ×",
            disk.rounds_per_second,
            disk.cpu_ms,
            memory.rounds_per_second,
            memory.cpu_ms,
            disk.rounds_per_second / memory.rounds_per_second
        );
    }
    let medians = |of: fn(&Figures) -> f64| (median(on_disk.iter().map(of)), median(in_memory.iter().map(of)));
    let (disk, memory) = medians(|figures| figures.rounds_per_second);
    println!("  medians: {disk:.2} against {memory:.2} rounds/s: {:.2} × (goal: 0.8)", disk / memory);
    let (disk, memory) = medians(|figures| figures.cpu_ms);
    println!("  {disk:.0} against {memory:.0} CPU-ms of the server a round");
    Ok(())
}

/// Rounds with rows and blobs in that place.
async fn rounds(place: Place, parameters: usize) -> Outcome<Figures> {
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
    measured(&server, PARTICIPANTS, parameters, ROUNDS).await
}
