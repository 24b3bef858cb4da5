//! Queries devices about tasks' criteria.

use federation::id::{ParticipantId, TaskId};
use federation::time::Timestamp;
use store::entity::open_task::OpenTask;
use store::entity::task::TaskRow;
use wire::Digest;
use wire::participant::{CheckInRequest, MAX_FINDINGS, Question};

/// How long a participant is queried about the same tasks, if there are too many for one answer.
const ASKED_FOR_MS: i64 = 600_000;

/// Keeps the tasks without criteria or with a positive answer, and selects questions about undecided tasks: in turn, if there are too many.
pub(super) fn sift(
    mut tasks: Vec<OpenTask>,
    request: &CheckInRequest,
    participant: ParticipantId,
    now: Timestamp,
) -> (Vec<OpenTask>, Vec<Question>) {
    let found = |task: TaskId| request.findings.iter().find(|finding| finding.task == task);
    let criteria = |task: &TaskRow| {
        // The reported number of examples makes this question redundant.
        let least = task.spec.selection.require.on_device().filter(|_| request.examples == 0);
        task.spec.on_device().chain(least).collect::<Vec<_>>()
    };
    let asks = |task: &&TaskRow| found(task.id).is_none() && !criteria(task).is_empty();
    let mut asking: Vec<_> = tasks.iter().map(|open| &open.task).filter(asks).collect();
    let room = MAX_FINDINGS.saturating_sub(request.findings.len());
    if asking.len() > room {
        // The participant must be able to join the task of its held update.
        let holds = |task| request.training.is_some_and(|report| report.ready && report.task == task);
        asking.sort_by_cached_key(|task| (!holds(task.id), turn(participant, task.id, now)));
        asking.truncate(room);
    }
    let question = |task: &TaskRow| Question { task: task.id, criteria: criteria(task) };
    let questions = asking.into_iter().map(question).collect();
    tasks.retain(|OpenTask { task, .. }| {
        found(task.id).map_or_else(|| criteria(task).is_empty(), |finding| finding.eligible)
    });
    (tasks, questions)
}

/// Orders tasks differently for each participant and period, so that every task gets its turn. The order needs only the time, not state.
fn turn(participant: ParticipantId, task: TaskId, now: Timestamp) -> Digest {
    let while_of = now.0.div_euclid(ASKED_FOR_MS);
    crate::digest(&[&while_of.to_be_bytes()[..], participant.0.as_bytes(), task.0.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use federation::task_status::TaskStatus;
    use uuid::Uuid;
    use wire::participant::{Finding, TrainingReport};

    use super::*;

    const TASKS: u128 = 100;

    fn id(n: u128) -> TaskId {
        TaskId(Uuid::from_u128(n))
    }

    fn tasks() -> Vec<OpenTask> {
        let spec = serde_json::json!({
            "name": "t",
            "model": { "tensors": [{ "name": "w", "shape": [3] }] },
            "selection": { "on_device": [{ "attribute": "language", "one_of": ["de"] }] },
        });
        let task = |n| TaskRow {
            id: id(n),
            spec: serde_json::from_value(spec.clone()).unwrap(),
            status: TaskStatus::Active,
            parameters: 3,
            created_at: Timestamp(0),
            rounds_completed: 0,
            rounds_forfeited: 0,
            model_version: 0,
            promoted_version: None,
        };
        let open = |n| OpenTask {
            task: task(n),
            labels: BTreeMap::new(),
            is_checked_in: false,
            awaits_it: false,
            selecting: None,
        };
        (0..TASKS).map(open).collect()
    }

    fn request(findings: &[TaskId], held: Option<TaskId>) -> CheckInRequest {
        CheckInRequest {
            task: None,
            examples: 10,
            wait_ms: 0,
            keys: None,
            loss: None,
            findings: findings.iter().map(|&task| Finding { task, eligible: true }).collect(),
            training: held.map(|task| TrainingReport { task, serial: 1, ready: true }),
            declined: None,
            batch: None,
            round_trip_ms: None,
            refusals: Vec::new(),
        }
    }

    /// The tasks in question in the nth period.
    fn asked(request: &CheckInRequest, participant: u128, nth: i64) -> Vec<TaskId> {
        let participant = ParticipantId(Uuid::from_u128(participant));
        let (_, questions) = sift(tasks(), request, participant, Timestamp(nth * ASKED_FOR_MS + 7));
        questions.into_iter().map(|question| question.task).collect()
    }

    #[test]
    fn of_more_tasks_than_can_be_told_of_each_has_its_turn() {
        let nothing = request(&[], None);
        let mut times = vec![0; TASKS as usize];
        for nth in 0..100 {
            let now = asked(&nothing, 1, nth);
            assert_eq!(now.len(), MAX_FINDINGS);
            assert_eq!(now, asked(&nothing, 1, nth), "the same for a while");
            now.iter().for_each(|task| times[task.0.as_u128() as usize] += 1);
        }
        assert!(times.iter().all(|times| (10..60).contains(times)), "{times:?}");
        let sets: BTreeSet<_> = (1..=10).map(|participant| asked(&nothing, participant, 0)).collect();
        assert_eq!(sets.len(), 10, "not everybody is asked by the same tasks");
    }

    #[test]
    fn what_was_told_leaves_room_for_the_rest() {
        let told = asked(&request(&[], None), 1, 0);
        let more = asked(&request(&told[..20], None), 1, 0);
        assert_eq!(more, told[20..]);
        assert_eq!(asked(&request(&told, None), 1, 0), []);
    }

    #[test]
    fn the_task_of_a_finished_update_is_always_asked_about() {
        for nth in 0..10 {
            assert!(asked(&request(&[], Some(id(99))), 1, nth).contains(&id(99)));
        }
    }
}
