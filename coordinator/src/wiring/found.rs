//! Stored state that a start resumes: logged once, at level `info`.

use federation::task_status::TaskStatus;
use store::entity::round::RoundRow;
use store::{Store, StoreError};
use wire::grammar::counted;

/// Maximum number of rounds with a log line each.
const ROUNDS_TOLD: usize = 16;

struct FoundRound {
    row: RoundRow,
    /// Name of the task.
    name: String,
    /// Accepted inputs not yet in a partial sum.
    unfolded: u32,
}

/// Logs the stored state. `leases` were taken over from a dead process.
///
/// # Errors
/// Errors of the store.
pub(super) async fn tell(store: &Store, leases: u32) -> Result<(), StoreError> {
    let (tasks, rounds) = store
        .read("found at start", |tx| {
            Box::pin(async move {
                let tasks = tx.task_counts().await?;
                let mut rounds = Vec::new();
                for row in tx.open_rounds().await? {
                    let unfolded = tx.unfolded_count(row.round.key).await?;
                    let task = tx.task(row.round.key.task).await?;
                    rounds.push(FoundRound {
                        row,
                        name: task.map(|task| task.spec.name).unwrap_or_default(),
                        unfolded,
                    });
                }
                Ok::<_, StoreError>((tasks, rounds))
            })
        })
        .await?;
    let of = |status| tasks.iter().find(|(of, _)| *of == status).map_or(0, |(_, count)| *count);
    let unfolded: u32 = rounds.iter().map(|round| round.unfolded).sum();
    let by_status: Vec<_> = tasks.iter().map(|(status, count)| format!("{count} {status}")).collect();
    let by_status = if by_status.is_empty() { "none".to_owned() } else { by_status.join(", ") };
    tracing::info!(
        tasks_active = of(TaskStatus::Active),
        tasks_paused = of(TaskStatus::Paused),
        tasks_completed = of(TaskStatus::Completed),
        tasks_cancelled = of(TaskStatus::Cancelled),
        tasks_budget_exhausted = of(TaskStatus::BudgetExhausted),
        open_rounds = rounds.len(),
        unfolded_inputs = unfolded,
        leases_taken_over = leases,
        "found tasks: {by_status}; {} open; inputs accepted and not folded yet: {unfolded}; leases taken over from a process that is \
         gone: {leases}",
        counted(rounds.len() as u64, "round is", "rounds are")
    );
    for FoundRound { row, name, unfolded } in rounds.iter().take(ROUNDS_TOLD) {
        let round = &row.round;
        let (key, phase) = (round.key, round.state);
        let deadline = round.deadline_at().map_or_else(|| "it ends".to_owned(), |at| at.to_string());
        tracing::info!(
            task = %key.task, name, round = key.round, attempt = key.attempt, phase = phase.as_str(), deadline,
            unfolded_inputs = unfolded,
            "round {} of task {name} goes on: {phase} until {deadline}", key.round
        );
    }
    if let Some(more) = rounds.len().checked_sub(ROUNDS_TOLD).filter(|more| *more > 0) {
        tracing::info!(more, "and {more} more rounds go on");
    }
    Ok(())
}
