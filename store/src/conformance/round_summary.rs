//! Guarantees of summaries of rounds.

use std::collections::BTreeMap;

use federation::device_reason::DeviceReason;
use federation::id::Attempt;
use federation::round::{Assignment, AssignmentState, RoundState};

use super::sample::{
    NOW, advance, after, assignment, collecting, digest, model_version, moved, participant_id, report, round, send,
    summary, task, task_id,
};
use crate::entity::noised_sum::{NoisedSumRow, SumWork};
use crate::entity::privacy_ledger::PrivacyRow;
use crate::entity::round_summary::{GroupSummary, MadeVersion, RoundSummary, RoundSums};
use crate::entity::session_message::MessageKind;
use crate::entity::training::Buffered;
use crate::{Result, Store};

/// Other attempts, rounds and tasks are not counted; results are in the requested order.
pub async fn each_attempt_is_counted_by_itself(store: &Store) {
    let open = &collecting(store, 3).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                use AssignmentState::{Abandoned, Assigned, Reported};
                let (key, mut now) = (open.key, open.clone());
                send(tx, open, MessageKind::Shares, &[1, 2]).await?;
                report(tx, open, &[1]).await?;
                let gone = participant_id(2);
                assert!(tx.set_assignment_state(key, gone, &[Assigned], Abandoned, after(2), None).await?);
                tx.add_traffic(&[(key, RoundState::Collecting, 7)], after(3)).await?;
                advance(tx, &mut now, RoundState::Cancelled, after(9)).await?;
                // The next attempt, and another task's round of the same number, have other cohorts.
                let again = round(1, 1, 2);
                tx.insert_round(&again).await?;
                let grouped = |n, group| Assignment { group: Some(group), ..assignment(&again, n) };
                tx.insert_assignments(&[grouped(1, 0), grouped(2, 1), grouped(3, 1)]).await?;
                report(tx, &again, &[3]).await?;
                tx.set_anomaly_scores(Attempt { attempt: 2, ..key }, &[(participant_id(3), 1.5)]).await?;
                tx.insert_task(&task(2, "two")).await?;
                let other = round(2, 1, 1);
                tx.insert_round(&other).await?;
                tx.insert_assignments(&[assignment(&other, 1)]).await?;

                let found = tx.round_summaries(task_id(1), &[(1, 2), (7, 1), (1, 1)]).await?;
                let [second, none, first] = <[RoundSummary; 3]>::try_from(found).unwrap();
                assert_eq!(none, RoundSummary::default());
                assert_eq!(first, summary(tx, key).await?);
                assert_eq!(first.states, BTreeMap::from([(Assigned, 1), (Abandoned, 1), (Reported, 1)]));
                assert_eq!(first.dropped_in, BTreeMap::from([(RoundState::Collecting, 1)]));
                assert_eq!(first.messages, BTreeMap::from([(MessageKind::Shares, (2, 3))]));
                assert_eq!(first.bytes_down, BTreeMap::from([(RoundState::Collecting, 7)]));
                let states: Vec<_> = first.history.iter().map(|change| change.state).collect();
                assert_eq!(states, [RoundState::Selecting, RoundState::Collecting, RoundState::Cancelled]);
                assert_eq!((first.groups.len(), second.messages.len(), second.history.len()), (0, 0, 1));
                let group = |members, reported, anomaly| GroupSummary { members, reported, anomaly };
                assert_eq!(second.groups, BTreeMap::from([(0, group(1, 0, None)), (1, group(2, 1, Some(1.5)))]));
                assert_eq!(summary(tx, other.key).await?.states, BTreeMap::from([(Assigned, 1)]));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// The base version, the published version, the cost of the sum, the ledger row and the buffered updates.
pub async fn what_an_attempt_made_and_cost_is_found(store: &Store) {
    let open = &collecting(store, 3).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let key = open.key;
                assert_eq!(summary(tx, key).await?.base, None, "there is no version yet");
                tx.insert_model_version(&model_version(1, 0)).await?;
                tx.insert_model_version(&model_version(1, 1)).await?;
                assert!(tx.set_round_result(key, &[], Some(1)).await?);
                let text = str::to_owned;
                let work = SumWork {
                    coordinator: Some(text("north")),
                    sum_device: text("cpu"),
                    sum_because: Some(DeviceReason::TransferCostsMore),
                    unmask_device: text("gpu"),
                    unmask_because: Some(DeviceReason::AskedFor),
                    device_failure: None,
                    sum_ms: 1,
                    unmask_ms: 2,
                    keystream_bytes: 3,
                };
                let (attempt, created_at) = (key, NOW);
                let blob = digest(1);
                let sum = NoisedSumRow { attempt, blob, participants: 2, created_at, work: Some(work.clone()) };
                assert!(tx.insert_noised_sum(&sum).await?);
                let row = text("{\"total\":1}");
                let charge = PrivacyRow { attempt, idx: 0, published: true, row: row.clone(), created_at };
                tx.append_privacy_row(&charge).await?;
                let update = |n, base_version| Buffered { participant: participant_id(n), serial: 1, base_version };
                tx.insert_buffered(key, &[update(3, 0), update(1, 1), update(2, 0)]).await?;
                let found = summary(tx, key).await?;
                let (base, made) = (model_version(1, 0), model_version(1, 1));
                assert_eq!(found.base, Some(base.sha256));
                assert_eq!(found.made, Some(MadeVersion { version: 1, sha256: made.sha256, parent: Some(0) }));
                assert_eq!((found.work, found.charged), (Some(work), Some(row)));
                assert_eq!(found.buffered_from, [1, 0, 0]);
                let ended = moved(open, RoundState::Completed, after(3));
                assert!(tx.transition_round(open, &ended).await?);
                assert_eq!(summary(tx, key).await?.history.len(), 3);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// The latest attempt of each round counts, in any state; other tasks do not.
pub async fn the_rounds_of_a_task_are_added_up(store: &Store) {
    let open = &collecting(store, 3).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                use RoundState::{Cancelled, Collecting, Completed, Selecting};
                let sums = |state, rounds, millis, bytes_up, bytes_down| RoundSums {
                    state,
                    rounds,
                    millis,
                    bytes_up,
                    bytes_down,
                };
                let mut first = open.clone();
                send(tx, open, MessageKind::Shares, &[1, 2]).await?;
                send(tx, open, MessageKind::Unmasking, &[3]).await?;
                report(tx, open, &[1, 2]).await?;
                let traffic = [(open.key, Collecting, 7), (open.key, Selecting, 2)];
                tx.add_traffic(&traffic, after(3)).await?;
                assert_eq!(tx.sum_rounds(task_id(1), after(6)).await?, [sums(Collecting, 1, 6, 86, 9)]);
                advance(tx, &mut first, Cancelled, after(9)).await?;
                assert_eq!(tx.sum_rounds(task_id(1), after(20)).await?, [sums(Cancelled, 1, 9, 86, 9)]);
                let mut again = round(1, 1, 2);
                tx.insert_round(&again).await?;
                tx.insert_assignments(&[assignment(&again, 3)]).await?;
                assert_eq!(tx.sum_rounds(task_id(1), after(20)).await?, [sums(Selecting, 1, 20, 0, 0)]);
                report(tx, &again, &[3]).await?;
                advance(tx, &mut again, Completed, after(4)).await?;
                let mut second = round(1, 2, 1);
                tx.insert_round(&second).await?;
                advance(tx, &mut second, Completed, after(5)).await?;
                tx.insert_round(&round(1, 3, 1)).await?;
                let completed = sums(Completed, 2, 9, 40, 0);
                for (now, millis) in [(after(8), 8), (after(-8), 0)] {
                    let found = tx.sum_rounds(task_id(1), now).await?;
                    assert_eq!(found, [completed, sums(Selecting, 1, millis, 0, 0)]);
                }
                tx.insert_task(&task(2, "two")).await?;
                assert_eq!(tx.sum_rounds(task_id(2), after(8)).await?, []);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
