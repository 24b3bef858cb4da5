//! Rounds of devices that do not train, timed.

use std::time::Instant;

use crate::Outcome;
use crate::server::{Server, TASK};

/// Measurements of one run.
#[derive(Clone, Copy)]
pub(crate) struct Figures {
    /// From the first model version to the last.
    pub(crate) rounds_per_second: f64,
    /// Of the server, for each round.
    pub(crate) cpu_ms: f64,
}

/// Has `participants` complete a task of that many rounds.
pub(crate) async fn measured(server: &Server, participants: u32, parameters: usize, rounds: u32) -> Outcome<Figures> {
    let devices = server.enroll_many(participants).await?;
    server.create_task(parameters, participants, rounds).await?;
    let (cpu, begin) = (server.cpu_seconds()?, Instant::now());
    let runs = devices.into_iter().map(|device| tokio::spawn(async move { device.take_part(parameters).await }));
    for run in runs.collect::<Vec<_>>() {
        run.await??;
    }
    let (cpu, seconds) = (server.cpu_seconds()? - cpu, begin.elapsed().as_secs_f64());
    let completed = server.completed(TASK).await?;
    if completed != rounds as usize {
        return Err(format!("{completed} of {rounds} rounds ended").into());
    }
    let of_rounds = f64::from(rounds);
    Ok(Figures { rounds_per_second: of_rounds / seconds, cpu_ms: cpu * 1000.0 / of_rounds })
}

pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = figures.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
