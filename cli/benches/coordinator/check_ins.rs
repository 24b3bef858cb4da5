//! Authenticated polls over kept-alive TLS connections: how many one core of the coordinator answers.

use std::time::{Duration, Instant};

use crate::Outcome;
use crate::server::Server;

const PARTICIPANTS: u32 = 100;
const SECONDS: u64 = 5;

pub(crate) async fn run() -> Outcome {
    let server = Server::start()?;
    let devices = server.enroll_many(PARTICIPANTS).await?;
    // A task that waits for one more than there are: nobody is ever drawn.
    server.create_task(10, PARTICIPANTS + 1, 1).await?;
    for device in &devices {
        device.check_in(0).await?;
    }
    let (cpu, start) = (server.cpu_seconds()?, Instant::now());
    let end = start + Duration::from_secs(SECONDS);
    let runs = devices.into_iter().map(|device| {
        tokio::spawn(async move {
            let mut polls = 0_u32;
            while Instant::now() < end {
                device.check_in(0).await?;
                polls += 1;
            }
            Outcome::Ok(polls)
        })
    });
    let mut polls = 0;
    for run in runs.collect::<Vec<_>>() {
        polls += run.await??;
    }
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), server.cpu_seconds()? - cpu);
    let polls = f64::from(polls);
    println!("check-ins: {PARTICIPANTS} participants, one kept-alive TLS connection each, {seconds:.1} s");
    println!(
        "  {:.0} polls/s with the clients on the same cores; {:.0} polls per CPU-second of the server (limit: at least 2000)",
        polls / seconds,
        polls / cpu
    );
    Ok(())
}
