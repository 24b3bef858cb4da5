//! Peak memory of the coordinator while a large cohort reports large updates.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::Outcome;
use crate::server::Server;

const PARAMETERS: usize = 1_000_000;
const PARTICIPANTS: u32 = 500;

/// `at_once` participants fetch the model and send their update at the same time.
pub(crate) async fn run(at_once: usize) -> Outcome {
    let server = Server::start()?;
    let devices = server.enroll_many(PARTICIPANTS).await?;
    let alone = server.memory("VmRSS")?;
    // Every participant has its TLS connection open before the round begins.
    for device in &devices {
        device.check_in(0).await?;
    }
    let idle = server.memory("VmRSS")?;
    server.forget_peak()?;
    server.create_task(PARAMETERS, PARTICIPANTS, 1).await?;
    let cpu = server.cpu_seconds()?;
    let start = std::time::Instant::now();
    let slots = Arc::new(Semaphore::new(at_once));
    let runs = devices.into_iter().map(|device| {
        let slots = Arc::clone(&slots);
        tokio::spawn(async move {
            // All check in, for the cohort is all of them; then a few at a time fetch and send.
            let reply = loop {
                let reply = device.check_in(20_000).await?;
                if matches!(reply, wire::participant::CheckInReply::Assigned(_)) {
                    break reply;
                }
            };
            drop(reply);
            let _slot = slots.acquire().await?;
            device.take_part_once(PARAMETERS).await
        })
    });
    for run in runs.collect::<Vec<_>>() {
        run.await??;
    }
    let seconds = loop {
        if server.rounds().await?[0]["state"] == "COMPLETED" {
            break start.elapsed().as_secs_f64();
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let cpu = server.cpu_seconds()? - cpu;
    let peak = server.memory("VmHWM")?;
    let model = (PARAMETERS * 4) as f64;
    let updates = f64::from(PARTICIPANTS);
    println!("memory: {PARTICIPANTS} updates of {PARAMETERS} parameters, {at_once} uploads at once, {seconds:.1} s");
    println!("  {:.0} updates per second, {:.1} CPU-ms of the server each", updates / seconds, cpu / updates * 1e3);
    println!(
        "  {:.1} MB alone, {:.1} MB idle with {PARTICIPANTS} connections, peak {:.1} MB: {:.1} model sizes above idle (limit: 10)",
        alone / 1e6,
        idle / 1e6,
        peak / 1e6,
        (peak - idle) / model
    );
    Ok(())
}
