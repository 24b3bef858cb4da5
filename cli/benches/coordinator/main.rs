//! Costs of the coordinator: `tributary serve` as its own process, participants over real TLS, figures next to limits
//! that are measured in the same run.
//!
//! `cargo bench -p tributary --bench coordinator [-- empty-round | check-ins [PARTICIPANTS, 100] | idle [PARTICIPANTS, 5000] |
//! memory [UPLOADS AT ONCE, 16] | unread | far [MILLISECONDS EACH WAY, 2000] | durable [PARAMETERS, 1000000] | observed [PARAMETERS, 1000] [parts] | recovery | large |
//! load [sqlite] [postgres] [replicas] [participants=10000] [polling=…] [rate=1000] [seconds=60] [cohort=100] [connections=4] [quota=20]]`
//!
//! `TRIBUTARY_BENCHED=FILE` measures another build of `tributary` than this one's. `large` and `pages [ROUNDS, 10000]` run only by name.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench prints, measures time, and stops at the first thing wrong"
)]

mod check_ins;
mod durable;
mod empty_round;
mod far;
mod large;
mod load;
mod memory;
mod observed;
mod pages;
mod processor;
mod recovery;
mod rounds;
mod server;
mod unread;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Outcome<T = ()> = Result<T, Error>;

#[tokio::main]
async fn main() -> Outcome {
    // This process has installed only this provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let asked: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|argument| argument == name);
    let number: Option<u32> = asked.iter().find_map(|argument| argument.parse().ok());
    if wanted("empty-round") {
        empty_round::run().await?;
    }
    if wanted("check-ins") {
        check_ins::run(number.unwrap_or(100)).await?;
    }
    if wanted("idle") {
        check_ins::idle(number.unwrap_or(5000)).await?;
    }
    if wanted("memory") {
        memory::run(number.map_or(16, |number| number as usize)).await?;
    }
    if wanted("far") {
        far::run(std::time::Duration::from_millis(number.unwrap_or(2000).into())).await?;
    }
    if asked.iter().any(|argument| argument == "large") {
        large::run().await?;
    }
    if asked.iter().any(|argument| argument == "pages") {
        pages::run(number.unwrap_or(10_000)).await?;
    }
    if wanted("unread") {
        unread::run().await?;
    }
    if wanted("durable") {
        durable::run(number.map_or(1_000_000, |number| number as usize), 9).await?;
    }
    if wanted("observed") {
        let in_parts = asked.iter().any(|argument| argument == "parts");
        observed::run(number.map_or(1000, |number| number as usize), 15, in_parts).await?;
    }
    if wanted("recovery") {
        recovery::run().await?;
    }
    if wanted("load") {
        load::run(&asked).await?;
    }
    Ok(())
}
