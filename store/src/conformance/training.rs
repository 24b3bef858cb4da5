//! Guarantees of training ahead of rounds.

use federation::id::{Attempt, ParticipantId};
use federation::round::AssignmentState;
use federation::training::{Claim, Training};

use super::sample::{NOW, after, collecting, participant, participant_id, task, task_id};
use crate::entity::check_in::CheckIn;
use crate::entity::training::Buffered;
use crate::{Result, Store};

fn training(n: u128, serial: u32, base_version: u32) -> Training {
    Training {
        participant: participant_id(n),
        serial,
        base_version,
        granted_at: NOW,
        expires_at: after(100),
        is_over: false,
    }
}

fn check_in(n: u128, training: Option<Claim>) -> CheckIn {
    CheckIn { training, ..CheckIn::new(participant_id(n), task_id(1), 1, NOW, after(50)) }
}

fn ids(numbers: &[u128]) -> Vec<ParticipantId> {
    numbers.iter().copied().map(participant_id).collect()
}

/// The serial number increases; a report is visible while its check-in is valid, and the last one counts.
pub async fn a_training_takes_the_place_of_the_one_before(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_task(&task(1, "ahead")).await?;
                for n in 1..=4 {
                    tx.insert_participant(&participant(n)).await?;
                }
                assert_eq!(tx.training(task_id(1), participant_id(1)).await?, None);
                tx.grant_trainings(task_id(1), &ids(&[3, 1, 2, 4]), 5, NOW, after(100)).await?;
                tx.grant_trainings(task_id(1), &ids(&[2]), 6, NOW, after(100)).await?;
                assert_eq!(tx.training(task_id(1), participant_id(2)).await?, Some(training(2, 2, 6)));
                tx.revoke_participant(participant_id(4), NOW).await?;

                let claim = |serial, is_ready| Some(Claim { serial, is_ready });
                let claims = [check_in(1, claim(1, true)), check_in(2, claim(1, false)), check_in(3, None)];
                tx.upsert_check_ins(&claims).await?;
                let open = [(1, 1, 5), (2, 2, 6), (3, 1, 5)].map(|(n, serial, base)| training(n, serial, base));
                let said = [claim(1, true), claim(1, false), None];
                let expected: Vec<_> = open.into_iter().zip(said).collect();
                assert_eq!(tx.open_trainings(task_id(1), NOW).await?, expected);
                assert_eq!(tx.count_ready_trainings(task_id(1), 5, NOW).await?, 1);
                assert_eq!(tx.count_ready_trainings(task_id(1), 6, NOW).await?, 0, "too old");
                assert_eq!(tx.count_ready_trainings(task_id(1), 5, after(50)).await?, 0, "check-ins end");
                assert_eq!(tx.count_ready_trainings(task_id(2), 0, NOW).await?, 0, "of another task");
                for (said, ready) in [(claim(2, true), 2), (claim(1, true), 1), (None, 1)] {
                    tx.upsert_check_ins(&[check_in(2, said), check_in(4, claim(1, true))]).await?;
                    assert_eq!(tx.count_ready_trainings(task_id(1), 5, NOW).await?, ready, "{said:?}");
                }
                let silent: Vec<_> = open.into_iter().map(|training| (training, None)).collect();
                assert_eq!(tx.open_trainings(task_id(1), after(50)).await?, silent, "check-ins end");
                tx.upsert_check_ins(&[check_in(1, None)]).await?;
                assert_eq!(tx.open_trainings(task_id(1), NOW).await?[0].1, None, "it takes back what it said");
                assert_eq!(tx.open_trainings(task_id(2), NOW).await?, []);

                tx.lapse_trainings(task_id(1), &ids(&[1]), after(7)).await?;
                let lapsed = Training { expires_at: after(7), ..training(1, 1, 5) };
                assert_eq!(tx.training(task_id(1), participant_id(1)).await?, Some(lapsed));
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let nobody = &ids(&[9]);
    refused!(store, |tx| tx.grant_trainings(task_id(1), nobody, 6, NOW, after(100)));
}

/// Accepted updates of a round are not used again; the others may be.
pub async fn an_update_is_aggregated_once(store: &Store) {
    let open = &collecting(store, 3).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let (key, task) = (open.key, open.key.task);
                tx.grant_trainings(task, &ids(&[1, 2, 3]), 0, NOW, after(100)).await?;
                let update = |n| Buffered { participant: participant_id(n), serial: 1, base_version: 0 };
                let all = [1, 2, 3].map(update);
                tx.insert_buffered(key, &all).await?;
                assert_eq!(tx.all_buffered(key).await?, all);
                assert_eq!(tx.all_buffered(Attempt { attempt: 2, ..key }).await?, []);
                assert_eq!(tx.buffered(key, participant_id(2)).await?, Some(all[1]));
                assert_eq!(tx.buffered(key, participant_id(9)).await?, None);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    for bad in [1, 9] {
        let bad = &[Buffered { participant: participant_id(bad), serial: 1, base_version: 0 }];
        refused!(store, |tx| tx.insert_buffered(open.key, bad));
    }
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let (key, task) = (open.key, open.key.task);
                let (from, to) = ([AssignmentState::Assigned], AssignmentState::Reported);
                for n in [1, 2] {
                    assert!(tx.set_assignment_state(key, participant_id(n), &from, to, NOW, None).await?);
                }
                // The second participant got another training before collection closed.
                tx.grant_trainings(task, &ids(&[2]), 1, NOW, after(100)).await?;
                let ready = [1, 3].map(|n| check_in(n, Some(Claim { serial: 1, is_ready: true })));
                tx.upsert_check_ins(&ready).await?;
                assert_eq!(tx.count_ready_trainings(task, 0, NOW).await?, 2);
                assert_eq!(tx.end_reported_trainings(key).await?, 1);
                assert_eq!(tx.count_ready_trainings(task, 0, NOW).await?, 1, "one is in the sum");
                assert_eq!(tx.end_reported_trainings(key).await?, 0);
                let over = Training { is_over: true, ..training(1, 1, 0) };
                assert_eq!(tx.training(task, participant_id(1)).await?, Some(over));
                let left: Vec<_> = tx.open_trainings(task, NOW).await?.into_iter().map(|(open, _)| open).collect();
                assert_eq!(left, [training(2, 2, 1), training(3, 1, 0)]);
                tx.grant_trainings(task, &ids(&[1]), 1, NOW, after(100)).await?;
                assert_eq!(tx.training(task, participant_id(1)).await?, Some(training(1, 2, 1)));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
