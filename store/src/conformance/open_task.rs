//! Guarantees of the queries that a polling participant triggers.

use federation::id::TaskId;
use federation::round::{Round, RoundLimits, RoundState};
use federation::task_status::TaskStatus;

use super::sample::{NOW, after, collecting, moved, participant_id, round, task, task_id};
use crate::entity::check_in::CheckIn;
use crate::entity::open_task::OpenTask;
use crate::entity::task::TaskRow;
use crate::{Result, Store};

/// Open tasks are ACTIVE, draw the cohort of a round or still need the participant; the list begins with the oldest.
/// With a name, it has that task in any status.
pub async fn open_tasks_are_those_with_work(store: &Store) {
    let open = &collecting(store, 2).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                for row in [
                    task(3, "three"),
                    task(2, "two"),
                    TaskRow { status: TaskStatus::Paused, ..task(4, "paused") },
                    TaskRow { status: TaskStatus::Completed, ..task(5, "over") },
                ] {
                    tx.insert_task(&row).await?;
                }
                let ids = |open: Vec<OpenTask>| -> Vec<(TaskId, bool)> {
                    open.into_iter().map(|open| (open.task.id, open.awaits_it)).collect()
                };
                let (member, stranger) = (participant_id(1), participant_id(9));
                let all = [(task_id(1), true), (task_id(2), false), (task_id(3), false)];
                assert_eq!(ids(tx.open_tasks(member, None).await?), all);
                assert_eq!(ids(tx.open_tasks(stranger, None).await?), []);
                for (name, id) in [("one", 1), ("two", 2), ("paused", 4), ("over", 5)] {
                    let found = tx.open_tasks(member, Some(name)).await?;
                    assert_eq!(
                        found.iter().map(|open| &open.task).collect::<Vec<_>>(),
                        [&tx.task(task_id(id)).await?.unwrap()]
                    );
                    assert_eq!(ids(found), [(task_id(id), id == 1)]);
                }
                assert_eq!(tx.open_tasks(member, Some("none")).await?, []);
                // A glance returns the certificates and the open tasks of the participant.
                for name in [None, Some("two"), Some("none")] {
                    let seen = tx.glance(member, name).await?.unwrap();
                    assert_eq!(Some(seen.certificates), tx.certificates(member).await?);
                    assert_eq!(seen.tasks, tx.open_tasks(member, name).await?);
                    assert_eq!(tx.glance(stranger, name).await?, None);
                }
                // A participant with a place is needed even while its task is paused.
                assert!(
                    tx.set_task_status(open.key.task, &[TaskStatus::Active], TaskStatus::Paused, after(2), None)
                        .await?
                );
                assert_eq!(ids(tx.open_tasks(member, None).await?), all);
                assert_eq!(tx.open_tasks(member, None).await?[0].labels, super::sample::labels("eu"));
                let checked_in = |open: Vec<OpenTask>| open.iter().map(|open| open.is_checked_in).collect::<Vec<_>>();
                tx.upsert_check_ins(&[CheckIn::new(member, task_id(2), 1, NOW, after(1))]).await?;
                assert_eq!(checked_in(tx.open_tasks(member, None).await?), [false, true, false]);
                assert_eq!(checked_in(tx.open_tasks(participant_id(2), None).await?), [false; 3], "somebody else's");
                tx.remove_check_ins(&[member]).await?;
                assert_eq!(checked_in(tx.open_tasks(member, None).await?), [false; 3]);
                tx.transition_round(open, &moved(open, RoundState::Cancelled, after(3))).await?;
                assert_eq!(ids(tx.open_tasks(member, None).await?), all[1..]);
                // A round that selects still draws while its task is paused.
                let again = round(1, 1, 2);
                tx.insert_round(&again).await?;
                let drawing = [(task_id(1), false), (task_id(2), false), (task_id(3), false)];
                assert_eq!(ids(tx.open_tasks(member, None).await?), drawing);
                assert_eq!(tx.open_tasks(member, None).await?[0].selecting.map(|round| round.attempt), Some(again.key));
                tx.transition_round(&again, &moved(&again, RoundState::Collecting, after(4))).await?;
                assert_eq!(ids(tx.open_tasks(member, None).await?), all[1..], "it has drawn");
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// The next round is announced while it is SELECTING, to all participants that it may draw.
pub async fn a_round_that_selects_is_told_to_those_it_may_draw(store: &Store) {
    let first = &collecting(store, 2).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let (one, two) = (participant_id(1), participant_id(2));
                assert_eq!(tx.open_tasks(one, None).await?[0].selecting, None, "it has drawn");
                tx.transition_round(first, &moved(first, RoundState::Cancelled, after(3))).await?;
                assert_eq!(tx.open_tasks(one, None).await?[0].selecting, None, "it is over");
                let again = round(1, 1, 2);
                tx.insert_round(&again).await?;
                for participant in [one, two] {
                    let found = tx.open_tasks(participant, Some("one")).await?[0].selecting.unwrap();
                    assert_eq!((found.attempt, found.base_version), (again.key, 0));
                }
                tx.transition_round(&again, &moved(&again, RoundState::Cancelled, after(4))).await?;
                assert!(tx.forfeit_rounds(task_id(1), 1).await?);
                let mut sampled = round(1, 2, 1);
                sampled.limits = RoundLimits { sampled: Some(1), ..sampled.limits };
                tx.insert_round(&sampled).await?;
                tx.insert_sampled(sampled.key, &[two]).await?;
                assert_eq!(tx.open_tasks(one, None).await?[0].selecting, None, "it was not sampled");
                assert_eq!(tx.open_tasks(two, None).await?[0].selecting.unwrap().attempt, sampled.key);
                let Round { key, .. } = sampled;
                assert_eq!(tx.task(key.task).await?.unwrap().next_round(), key.round_key());
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
