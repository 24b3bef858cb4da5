//! Guarantees of draws.

use std::collections::BTreeMap;

use federation::id::{Attempt, ParticipantId};

use super::sample::{after, collecting, labels, participant, participant_id, task_id};
use crate::entity::participant::ParticipantRow;
use crate::{Result, Store};

fn ids(numbers: &[u128]) -> Vec<ParticipantId> {
    numbers.iter().copied().map(participant_id).collect()
}

/// By enrolment and then by id, without revoked participants, and only with every required label.
pub async fn the_population_is_counted_in_the_order_of_enrolment(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let quoted = ("a \"quoted\" key.$[0]".to_owned(), "1".to_owned());
                let both = BTreeMap::from([("region".to_owned(), "eu".to_owned()), quoted.clone()]);
                let rows = [
                    ParticipantRow { enrolled_at: after(9), ..participant(1) },
                    ParticipantRow { enrolled_at: after(1), ..participant(3) },
                    ParticipantRow { enrolled_at: after(1), labels: both.clone(), ..participant(2) },
                    ParticipantRow { enrolled_at: after(2), labels: labels("us"), ..participant(4) },
                    ParticipantRow { enrolled_at: after(3), revoked_at: Some(after(4)), ..participant(5) },
                    ParticipantRow { enrolled_at: after(4), labels: BTreeMap::new(), ..participant(6) },
                ];
                for row in &rows {
                    tx.insert_participant(row).await?;
                }
                let everybody = BTreeMap::new();
                assert_eq!(tx.population(&everybody, 9).await?, ids(&[2, 3, 4, 6, 1]));
                assert_eq!(tx.population(&everybody, 3).await?, ids(&[2, 3, 4]));
                assert_eq!(tx.population(&everybody, 0).await?, []);
                assert_eq!(tx.population(&labels("eu"), 9).await?, ids(&[2, 3, 1]));
                assert_eq!(tx.population(&labels("us"), 9).await?, ids(&[4]));
                assert_eq!(tx.population(&labels("e"), 9).await?, []);
                assert_eq!(tx.population(&both, 9).await?, ids(&[2]));
                assert_eq!(tx.population(&BTreeMap::from([quoted]), 9).await?, ids(&[2]));
                assert_eq!(tx.count_enrolled(task_id(1), &everybody, 0).await?, 5);
                assert_eq!(tx.count_enrolled(task_id(1), &labels("eu"), 1).await?, 3, "nobody has taken part");
                assert!(tx.revoke_participant(participant_id(2), after(10)).await?);
                assert_eq!(tx.population(&labels("eu"), 9).await?, ids(&[3, 1]));
                assert_eq!(tx.count_enrolled(task_id(1), &labels("eu"), 0).await?, 2);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A participant is drawn at most once for an attempt, a draw belongs to its attempt, and it can be deleted.
pub async fn a_draw_is_kept_until_it_is_forgotten(store: &Store) {
    let open = &collecting(store, 4).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let key = open.key;
                // Every member of a cohort has taken part once.
                let counts = [(0, 4), (1, 0), (2, 4)];
                for (most, left) in counts {
                    assert_eq!(tx.count_enrolled(key.task, &BTreeMap::new(), most).await?, left, "{most}");
                }
                assert_eq!(tx.sampled(key).await?, []);
                tx.insert_sampled(key, &[]).await?;
                assert_eq!(tx.sampled(key).await?, []);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let (key, nowhere) = (open.key, Attempt { attempt: 2, ..open.key });
    for (attempt, bad) in &[(key, ids(&[1, 9])), (key, ids(&[1, 1])), (nowhere, ids(&[1]))] {
        refused!(store, |tx| tx.insert_sampled(*attempt, bad));
    }
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                assert_eq!(tx.sampled(key).await?, []);
                tx.insert_sampled(key, &ids(&[4, 2])).await
            })
        })
        .await;
    result.unwrap();
    let again = &ids(&[3, 2]);
    refused!(store, |tx| tx.insert_sampled(key, again));
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                assert_eq!(tx.sampled(key).await?, ids(&[2, 4]));
                assert_eq!(tx.forget_sampled(Attempt { attempt: 2, ..key }).await?, 0);
                assert_eq!(tx.forget_sampled(key).await?, 2);
                assert_eq!(tx.forget_sampled(key).await?, 0);
                assert_eq!(tx.sampled(key).await?, []);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
