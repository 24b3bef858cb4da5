//! Guarantees of check-ins.

use federation::cohort::{Candidate, CoarseLoss};
use federation::id::ParticipantId;
use federation::round::{AssignmentState, RoundState};

use super::sample::{
    NOW, admitted, after, assignment, collecting, labels, moved, participant, participant_id, round, task_id,
};
use crate::entity::admitted::Admitted;
use crate::entity::check_in::{CheckIn, CheckInKeys};
use crate::{Result, Store, Transaction};

fn check_in(n: u8) -> CheckIn {
    CheckIn::new(participant_id(n.into()), task_id(1), n.into(), NOW, after(100))
}

/// Adds participants 3 to 5.
async fn enrol(tx: &mut Transaction<'_>) -> Result<()> {
    for n in 3..=5 {
        tx.insert_participant(&participant(n)).await?;
    }
    Ok(())
}

async fn ready(tx: &mut Transaction<'_>, at: i64) -> Result<Vec<ParticipantId>> {
    let ready: Vec<_> =
        tx.candidates(task_id(1), after(at)).await?.iter().map(|candidate| candidate.participant).collect();
    assert_eq!(tx.candidate_count(task_id(1), after(at)).await? as usize, ready.len());
    Ok(ready)
}

/// A renewed check-in lasts longer with the same content. A removed one stays removed, and an expiry only moves later.
pub async fn check_ins_are_renewed_only_where_they_are(store: &Store) {
    collecting(store, 1).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                enrol(tx).await?;
                let keys = CheckInKeys { attempt: round(1, 2, 1).key, advertisement: "keys".into() };
                tx.upsert_check_ins(&[CheckIn { keys: Some(keys.clone()), ..check_in(3) }, check_in(4)]).await?;
                let until = |n: u8, end| CheckIn { examples: 99, expires_at: after(end), ..check_in(n) };
                tx.renew_check_ins(&[until(3, 200), until(4, 50), until(5, 200)]).await?;
                assert_eq!(ready(tx, 99).await?, [3, 4].map(participant_id));
                assert_eq!(ready(tx, 199).await?, [3].map(participant_id));
                assert_eq!(tx.candidates(task_id(1), after(199)).await?[0].examples, 3);
                assert_eq!(tx.check_in_keys(task_id(1), participant_id(3)).await?, Some(keys));
                assert_eq!(tx.keyed_candidate_count(round(1, 2, 1).key, after(199)).await?, 1);
                assert_eq!(tx.keyed_candidate_count(round(1, 2, 2).key, after(199)).await?, 0);
                tx.remove_check_ins(&[participant_id(3)]).await?;
                tx.renew_check_ins(&[until(3, 300)]).await?;
                assert_eq!(ready(tx, 199).await?, []);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Keys that are taken back are excluded from draws. A drawn participant keeps its keys.
pub async fn keys_are_taken_back_from_whoever_waits(store: &Store) {
    collecting(store, 1).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                enrol(tx).await?;
                let (attempt, other) = (round(1, 2, 1).key, round(1, 2, 2).key);
                let keys = CheckInKeys { attempt, advertisement: "keys".into() };
                let with_keys = |n| CheckIn { keys: Some(keys.clone()), ..check_in(n) };
                tx.upsert_check_ins(&[with_keys(1), with_keys(3), with_keys(4)]).await?;
                assert!(tx.release_keys(other, participant_id(3)).await?);
                assert_eq!(tx.keyed_candidate_count(attempt, NOW).await?, 2);
                assert!(tx.release_keys(attempt, participant_id(3)).await?);
                assert_eq!(tx.keyed_candidate_count(attempt, NOW).await?, 1);
                assert_eq!(ready(tx, 0).await?, [3, 4].map(participant_id), "it still waits");
                tx.upsert_check_ins(&[check_in(3)]).await?;
                assert_eq!(tx.keyed_candidate_count(attempt, NOW).await?, 1, "older keys do not come back");
                assert!(!tx.release_keys(attempt, participant_id(1)).await?, "it was drawn");
                assert_eq!(tx.check_in_keys(task_id(1), participant_id(1)).await?, Some(keys));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A participant that refuses a task is excluded from its candidates, with or without keys, until the refusal ends. It
/// is counted by its reason.
pub async fn whoever_refuses_is_counted_and_no_candidate(store: &Store) {
    collecting(store, 1).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                enrol(tx).await?;
                let attempt = round(1, 2, 1).key;
                let keys = CheckInKeys { attempt, advertisement: "keys".into() };
                let refuses = |n, refusal| CheckIn { refusal: Some(refusal), ..check_in(n) };
                tx.upsert_check_ins(&[CheckIn { keys: Some(keys), ..check_in(3) }, check_in(4), check_in(5)]).await?;
                assert_eq!((ready(tx, 0).await?.len(), tx.refusals(task_id(1), NOW).await?), (3, vec![]));
                tx.upsert_check_ins(&[refuses(3, "policy"), refuses(4, "privacy"), refuses(5, "policy")]).await?;
                assert_eq!(ready(tx, 0).await?, []);
                assert_eq!(tx.keyed_candidate_count(attempt, NOW).await?, 0);
                let counts = [("policy".to_owned(), 2), ("privacy".to_owned(), 1)];
                assert_eq!(tx.refusals(task_id(1), NOW).await?, counts);
                tx.upsert_check_ins(&[check_in(3)]).await?;
                tx.revoke_participant(participant_id(5), NOW).await?;
                assert_eq!(ready(tx, 0).await?, [3].map(participant_id));
                assert_eq!(tx.refusals(task_id(1), NOW).await?, counts[1..]);
                assert_eq!(tx.refusals(task_id(1), after(100)).await?, []);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Candidates are ordered by name; revoked and busy ones are omitted.
pub async fn candidates_are_those_ready_with_their_history(store: &Store) {
    let open = &collecting(store, 2).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                enrol(tx).await?;
                tx.upsert_check_ins(&[5, 4, 3, 2, 1].map(check_in)).await?;
                tx.revoke_participant(participant_id(4), NOW).await?;
                // 1 and 2 are busy.
                assert_eq!(ready(tx, 0).await?, [3, 5].map(participant_id));

                tx.set_pending_assignments(open.key, AssignmentState::Late, after(2)).await?;
                assert_eq!(ready(tx, 0).await?, [1, 2, 3, 5].map(participant_id));
                let end = moved(open, RoundState::Cancelled, after(3));
                assert!(tx.transition_round(open, &end).await?);
                // The next attempt draws 1 again: its history has two entries, the last of which counts.
                let again = round(1, 1, 2);
                tx.insert_round(&again).await?;
                let mut drawn = assignment(&again, 1);
                drawn.assigned_at = after(50);
                tx.insert_assignments(&[drawn]).await?;
                let found = tx.candidates(task_id(1), NOW).await?;
                let expected = |n: u8, participations, last| Candidate {
                    participant: participant_id(n.into()),
                    labels: labels("eu"),
                    examples: n.into(),
                    participations,
                    last,
                    loss: None,
                    duration_ms: None,
                    round_trip_ms: None,
                };
                // The attempt is still selecting, so it does not wait for participant 1.
                assert_eq!(found[0], expected(1, 2, Some((1, after(50)))));
                assert_eq!(found[1], expected(2, 1, Some((1, NOW))));
                assert_eq!(found[2], expected(3, 0, None));
                assert_eq!(tx.candidates(task_id(2), NOW).await?, []);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

async fn durations(tx: &mut Transaction<'_>) -> Result<Vec<Option<u64>>> {
    Ok(tx.candidates(task_id(1), NOW).await?.iter().map(|candidate| candidate.duration_ms).collect())
}

/// Data for selectors: the loss of the newest check-in, and the time that the last input took.
pub async fn candidates_come_with_their_loss_and_speed(store: &Store) {
    let open = &collecting(store, 2).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let loss = CoarseLoss::of(2.3);
                tx.upsert_check_ins(&[CheckIn { loss, ..check_in(1) }, CheckIn { loss, ..check_in(2) }]).await?;
                tx.upsert_check_ins(&[check_in(2)]).await?;
                assert_eq!(durations(tx).await?, [], "they are at work");
                assert_eq!(tx.drop_missing(open.key, RoundState::Collecting, &[], after(40)).await?, 2);
                assert_eq!(durations(tx).await?, [Some(40), Some(40)], "as long at least as the round waited");
                tx.insert_admitted(&[Admitted { accepted_at: after(70), ..admitted(open, 1) }]).await?;
                tx.insert_admitted(&[Admitted { accepted_at: after(-5), ..admitted(open, 2) }]).await?;
                let end = moved(open, RoundState::Cancelled, after(80));
                assert!(tx.transition_round(open, &end).await?);
                let found = tx.candidates(task_id(1), NOW).await?;
                let facts: Vec<_> = found.iter().map(|one| (one.loss, one.duration_ms)).collect();
                assert_eq!(facts, [(loss, Some(70)), (None, Some(0))], "the newest check-in; no time is negative");
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// One check-in per participant and task, the newest; it counts until it expires.
pub async fn check_ins_are_replaced_removed_and_expire(store: &Store) {
    collecting(store, 0).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                for n in 1..=3 {
                    tx.insert_participant(&participant(n)).await?;
                }
                tx.upsert_check_ins(&[1, 2, 3].map(check_in)).await?;
                let newer = CheckIn { examples: u64::MAX, expires_at: after(200), ..check_in(1) };
                tx.upsert_check_ins(&[newer]).await?;
                assert_eq!(ready(tx, 99).await?, [1, 2, 3].map(participant_id));
                assert_eq!(ready(tx, 100).await?, [1].map(participant_id));
                assert_eq!(tx.candidates(task_id(1), after(100)).await?[0].examples, i64::MAX.unsigned_abs());
                tx.remove_check_ins(&[participant_id(2), participant_id(9)]).await?;
                assert_eq!(ready(tx, 99).await?, [1, 3].map(participant_id));
                assert_eq!(tx.expire_check_ins(after(100)).await?, 1);
                assert_eq!(ready(tx, 0).await?, [1].map(participant_id));
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let stranger = &[check_in(9)];
    refused!(store, |tx| tx.upsert_check_ins(stranger));
}

/// A check-in ends unless a newer one was written, by any process.
pub async fn check_ins_end_unless_there_is_a_newer_one(store: &Store) {
    collecting(store, 1).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                enrol(tx).await?;
                let keys = CheckInKeys { attempt: round(1, 2, 1).key, advertisement: "keys".into() };
                let first = [CheckIn { keys: Some(keys.clone()), ..check_in(3) }, check_in(4), check_in(5)];
                tx.upsert_check_ins(&first).await?;
                tx.upsert_check_ins(&[CheckIn { checked_in_at: after(10), ..check_in(4) }]).await?;
                tx.end_check_ins(&[first[0].clone(), first[1].clone()], after(20)).await?;
                assert_eq!(ready(tx, 20).await?, [4, 5].map(participant_id));
                assert_eq!(tx.check_in_keys(task_id(1), participant_id(3)).await?, Some(keys), "for when it is back");
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A participant's report of its slow connection and of lost rounds stays until its next report.
pub async fn check_ins_tell_of_slow_lines_and_lost_rounds(store: &Store) {
    collecting(store, 1).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                enrol(tx).await?;
                let slow = CheckIn { round_trip_ms: Some(750), sent_round: Some(7), ..check_in(3) };
                let ahead = CheckIn { sent_round: Some(5), ..check_in(4) };
                tx.upsert_check_ins(&[slow, ahead, check_in(5)]).await?;
                let lines = tx.candidates(task_id(1), NOW).await?;
                let lines: Vec<_> = lines.iter().map(|candidate| candidate.round_trip_ms).collect();
                assert_eq!(lines, [Some(750), None, None]);
                for (next, sent) in [(5, vec![5, 7]), (6, vec![7]), (7, vec![7]), (8, vec![])] {
                    let mut found = tx.sent_rounds_from(task_id(1), next).await?;
                    found.sort_unstable();
                    assert_eq!(found, sent, "from {next}");
                }
                assert!(tx.sent_rounds_from(task_id(2), 1).await?.is_empty(), "of another task");
                tx.upsert_check_ins(&[check_in(3)]).await?;
                assert_eq!(tx.sent_rounds_from(task_id(1), 5).await?, [5]);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Keys are for one attempt; a check-in without keys keeps those of an earlier one.
pub async fn keys_stay_until_newer_ones_come(store: &Store) {
    collecting(store, 0).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                for n in 1..=3 {
                    tx.insert_participant(&participant(n)).await?;
                }
                let id = participant_id(1);
                let keys = |number, attempt, bytes: Vec<u8>| CheckInKeys {
                    attempt: round(1, number, attempt).key,
                    advertisement: bytes.into(),
                };
                let with = |n, keys: &CheckInKeys| CheckIn { keys: Some(keys.clone()), ..check_in(n) };
                let (first, other) = (keys(1, 1, vec![0, 1, 255]), keys(1, 2, vec![7; 4096]));
                tx.upsert_check_ins(&[with(1, &first), with(2, &other), check_in(3)]).await?;
                assert_eq!(tx.check_in_keys(task_id(1), id).await?, Some(first.clone()));
                assert_eq!(tx.check_in_keys(task_id(1), participant_id(3)).await?, None);
                assert_eq!(tx.check_in_keys(task_id(2), id).await?, None);

                tx.upsert_check_ins(&[CheckIn { examples: 9, ..check_in(1) }]).await?;
                assert_eq!(tx.check_in_keys(task_id(1), id).await?, Some(first.clone()));
                assert_eq!(ready(tx, 0).await?, [1, 2, 3].map(participant_id));
                let found = tx.keyed_candidates(round(1, 1, 1).key, NOW).await?;
                let candidate = tx.candidates(task_id(1), NOW).await?.remove(0);
                assert_eq!(candidate.examples, 9);
                assert_eq!(found, [(candidate, first.advertisement)]);
                assert_eq!(tx.keyed_candidates(round(1, 2, 1).key, NOW).await?, []);
                assert_eq!(tx.keyed_candidates(round(1, 1, 1).key, after(100)).await?, []);

                tx.upsert_check_ins(&[with(1, &other)]).await?;
                assert_eq!(tx.keyed_candidates(round(1, 1, 1).key, NOW).await?, []);
                let found = tx.keyed_candidates(round(1, 1, 2).key, NOW).await?;
                assert_eq!(
                    found.iter().map(|(one, _)| one.participant).collect::<Vec<_>>(),
                    [1, 2].map(participant_id)
                );
                assert!(found.iter().all(|(_, keys)| *keys == other.advertisement));
                tx.remove_check_ins(&[id]).await?;
                assert_eq!(tx.check_in_keys(task_id(1), id).await?, None);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let keys = CheckInKeys { attempt: round(1, 1, 1).key, advertisement: vec![7; 4097].into() };
    let long = &[CheckIn { keys: Some(keys), ..check_in(3) }];
    refused!(store, |tx| tx.upsert_check_ins(long));
}
