//! Rounds that participants report but this coordinator does not know: its database was restored from a backup, or
//! lost the end of its log.
//!
//! Under secure aggregation a participant makes no keys for a round that it has sent an input for, nor for an earlier
//! one. Its reports are kept in memory only: it repeats them with each check-in.

use std::collections::HashMap;

use federation::id::{ParticipantId, TaskId};
use federation::task_status::TaskStatus;
use store::entity::task::TaskRow;
use wire::inspect::BehindView;
use wire::participant::{CheckInRequest, Declined};

use crate::base::next_round;
use crate::guarded::Guarded;

/// Maximum number of participants remembered, over all tasks; more make no difference to the result.
const REMEMBERED_MAX: usize = 100_000;
/// Reports farther ahead than this are ignored: no outage loses that many rounds, and a liar could exhaust a task's
/// round numbers.
const AHEAD_MAX: u32 = 100_000;

/// The latest rounds for which participants report to have sent inputs.
#[derive(Default)]
pub(crate) struct ReportedRounds(Guarded<HashMap<(TaskId, ParticipantId), u32>>);

impl ReportedRounds {
    /// Records a participant's report about these tasks, or that it reports nothing any more.
    pub(crate) fn note(&self, participant: ParticipantId, tasks: &[TaskId], request: &CheckInRequest) {
        let Some(Declined { task, sent }) = request.declined else {
            let mut claims = self.0.lock();
            if !claims.is_empty() {
                claims.retain(|(task, who), _| *who != participant || !tasks.contains(task));
            }
            return;
        };
        if !tasks.contains(&task) {
            return;
        }
        let mut claims = self.0.lock();
        if claims.len() >= REMEMBERED_MAX {
            return;
        }
        let first_of_task = !claims.keys().any(|(claimed, _)| *claimed == task);
        claims.insert((task, participant), sent);
        drop(claims);
        if first_of_task {
            tracing::error!(
                %task, %participant, sent,
                "participant {participant} has sent an input for round {sent} of task {task}, which this coordinator has not had \
                 yet: was its database restored? If others say so too, `tributary task rebase {task}` goes on beyond"
            );
        }
    }

    /// Participants ahead of this task, and the round it should continue after; `None` if there are none.
    pub(crate) fn of(&self, task: &TaskRow) -> Option<BehindView> {
        if task.status.is_terminal() || task.status == TaskStatus::BudgetExhausted {
            return None;
        }
        let next = next_round(task).number;
        let claims = self.0.lock();
        let ahead = claims.iter().filter(|((claimed, _), sent)| *claimed == task.id && **sent >= next);
        beyond(next, ahead.map(|(_, sent)| *sent).collect())
    }
}

/// The highest round reported by at least a tenth of those ahead, and by at least two if there are two: a few liars
/// cannot raise it, and a few honest participants beyond it can take part again as round numbers grow.
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
