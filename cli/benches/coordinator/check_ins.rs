//! Authenticated polls over kept-alive TLS connections: polls per second on one core of the coordinator, and the cost
//! of waiting participants.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client_sdk::identity::Identity;

use crate::Outcome;
use crate::server::{Device, Server};

/// All come from one address, with one operator's token, so their limits are raised.
const UNLIMITED: [(&str, &str); 3] = [
    ("TRIBUTARY_HTTP_OPERATOR_RATE", "1000000"),
    ("TRIBUTARY_HTTP_ADDRESS_RATE", "1000000"),
    ("TRIBUTARY_HTTP_CONNECTIONS_MAX", "15000"),
];

/// Number of concurrent polls; the other participants wait for their next turn.
const AT_ONCE: usize = 100;
const SECONDS: u64 = 5;

/// `participants` are checked in; a hundred at a time poll.
pub(crate) async fn run(participants: u32) -> Outcome {
    let server = Server::start_with(&UNLIMITED)?;
    let devices = server.enroll_many(participants).await?;
    // A task that waits for one participant more than exist, so that it draws none of them.
    server.create_task(10, participants + 1, 1).await?;
    server.each(&devices, |device| device.check_in(0)).await?;
    let (cpu, start) = (server.cpu_seconds()?, Instant::now());
    let polls = take_turns(&Arc::new(devices), SECONDS).await?;
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), server.cpu_seconds()? - cpu);
    let polls = f64::from(polls);
    let (idle, start) = (server.cpu_seconds()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let idle = (server.cpu_seconds()? - idle) / start.elapsed().as_secs_f64();
    println!("check-ins: {participants} participants, one kept-alive TLS connection each, {seconds:.1} s");
    println!(
        "  {:.0} polls/s with the clients on the same cores; {:.0} polls per CPU-second of the server (limit: at least 2000)",
        polls / seconds,
        polls / cpu
    );
    println!("  {:.0} µs of the server each; {:.1} % of a core when nobody polls", cpu / polls * 1e6, idle * 100.0);
    Ok(())
}

/// A hundred at a time poll for some seconds; how many polls were answered.
pub(crate) async fn take_turns(devices: &Arc<Vec<Device>>, seconds: u64) -> Outcome<u32> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let runs = (0..AT_ONCE.min(devices.len())).map(|first| {
        let devices = Arc::clone(devices);
        tokio::spawn(async move {
            let mut polls = 0_u32;
            for device in devices.iter().skip(first).step_by(AT_ONCE).cycle() {
                if Instant::now() >= end {
                    break;
                }
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
    Ok(polls)
}

/// `participants` have checked in and hung up, each is to come back within some minutes. Polls have stopped.
pub(crate) async fn idle(participants: u32) -> Outcome {
    let mut settings = UNLIMITED.to_vec();
    // Their next check-ins are late enough for all to be still awaited when the last has checked in.
    settings.push(("TRIBUTARY_HTTP_CHECK_INS_PER_SECOND", "50"));
    let server = Server::start_with(&settings)?;
    server.create_task(10, participants + 1, 1).await?;
    let enroll = |index| {
        let server = &server;
        async move { Ok(server.enroll(&format!("device-{index:05}")).await?.identity) }
    };
    let mut identities = server.each(0..participants, enroll).await?;
    // How long one is awaited depends on how many are known: the second time that is all.
    for _ in 0..2 {
        let check_in = |identity: Identity| async {
            let device: Device = server.again(identity)?;
            device.check_in(0).await?;
            Ok(device.identity)
        };
        identities = server.each(identities, check_in).await?;
    }
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let (cpu, start) = (server.cpu_seconds()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(4 * SECONDS)).await;
    let share = (server.cpu_seconds()? - cpu) / start.elapsed().as_secs_f64();
    println!(
        "idle: {participants} participants are awaited, nobody polls: {:.1} % of a core (limit: 2)",
        share * 100.0
    );
    Ok(())
}
