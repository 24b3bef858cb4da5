//! Rounds reported by participants but unknown to this database: it was restored from a backup, or lost the end of its log.
//!
//! Under secure aggregation a participant refuses to make keys for a round it has sent an input for, and for earlier ones. It reports that
//! round with each check-in: see [`CheckIn::sent_round`].

use std::collections::HashSet;

use federation::id::TaskId;
use federation::task_status::TaskStatus;
use listener::PoisonFreeMutex;
use store::entity::check_in::CheckIn;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};
use wire::inspect::BehindView;

/// Reports farther ahead than this are ignored: an outage loses fewer rounds, and a liar could exhaust a task's round numbers.
const AHEAD_MAX: u32 = 100_000;

/// Tasks already logged as behind their participants.
#[derive(Default)]
pub(crate) struct ReportedRounds(PoisonFreeMutex<HashSet<TaskId>>);

impl ReportedRounds {
    /// Logs the first report of a task.
    pub(crate) fn note(&self, check_in: &CheckIn) {
        let &CheckIn { task, participant, sent_round: Some(sent), .. } = check_in else { return };
        if self.0.lock().insert(task) {
            tracing::error!(
                %task, %participant, sent,
                "participant {participant} has sent an input for round {sent} of task {task}, which this coordinator has not had \
                 yet: was its database restored? If others say so too, `tributary task rebase {task}` goes on beyond"
            );
        }
    }
}

/// Participants ahead of this task, and the round to continue after; `None` without such participants.
///
/// # Errors
/// Errors of the database.
pub(crate) async fn behind(tx: &mut Transaction<'_>, task: &TaskRow) -> Result<Option<BehindView>, StoreError> {
    if task.status.is_terminal() || task.status == TaskStatus::BudgetExhausted {
        return Ok(None);
    }
    let next = task.next_round().number;
    Ok(beyond(next, tx.sent_rounds_from(task.id, next).await?))
}

/// The highest round reported by at least a tenth of the participants ahead, and by at least two if there are two. A few liars cannot raise
/// it, and a few honest participants beyond it can take part again later.
fn beyond(next: u32, mut sent: Vec<u32>) -> Option<BehindView> {
    let participants = u32::try_from(sent.len()).unwrap_or(u32::MAX);
    sent.retain(|sent| sent.saturating_sub(next) <= AHEAD_MAX);
    sent.sort_unstable();
    let agreed = sent.len().div_ceil(10).max(2).min(sent.len());
    let seen = sent.len().checked_sub(agreed.max(1)).and_then(|index| sent.get(index)).copied()?;
    Some(BehindView { participants, next_round: next, seen_round: seen })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(next: u32, sent: &[u32]) -> Option<u32> {
        beyond(next, sent.to_vec()).map(|view| view.seen_round)
    }

    #[test]
    fn one_who_lies_moves_nothing() {
        assert_eq!(seen(5, &[]), None);
        assert_eq!(seen(5, &[7]), Some(7), "there is nobody else to ask");
        assert_eq!(seen(5, &[7, 7, 7, 6, 50_000]), Some(7));
        assert_eq!(seen(5, &[7, 7, u32::MAX]), Some(7));
        assert_eq!(seen(5, &[u32::MAX, u32::MAX]), None, "no outage loses so many");
        let mut many = vec![9; 99];
        many.extend([20_000; 9]);
        assert_eq!(seen(5, &many), Some(9));
        assert_eq!(beyond(5, many).unwrap().participants, 108);
    }
}
