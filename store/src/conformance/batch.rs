//! Guarantees of draws of fixed batches, and of the batches of cohorts.

use bytes::Bytes;
use federation::batches::BatchTally;
use federation::id::{Digest, ParticipantId};
use federation::round::{AssignmentState, RoundState};
use uuid::Uuid;

use super::sample::{
    NOW, advance, after, assignment, collecting, digest, participant, participant_id, report, send, sharing, summary,
    task, task_id,
};
use crate::entity::batch::{BatchDraw, BatchOffer};
use crate::entity::check_in::CheckIn;
use crate::entity::session_message::MessageKind::Shares;
use crate::{Result, Store, Transaction};

fn draw_id(n: u128) -> Uuid {
    Uuid::from_u128(0xD4A3 << 64 | n)
}

/// A draw for task 1 that opens at `NOW` plus so many milliseconds.
fn draw(n: u8) -> BatchDraw {
    BatchDraw {
        id: draw_id(n.into()),
        task: task_id(1),
        size: 3,
        opened_at: after(n.into()),
        deadline_at: after(i64::from(n) + 60),
        pool: None,
        drawn: None,
        failed: false,
    }
}

fn offer(draw: u8, participant: u8) -> BatchOffer {
    BatchOffer {
        draw: draw_id(draw.into()),
        participant: participant_id(participant.into()),
        offered_at: after(participant.into()),
        offer: vec![participant; 3].into(),
        reveal: None,
    }
}

/// Fixes the pool of a draw, for its offers of these participants alone.
async fn fix(tx: &mut Transaction<'_>, n: u8, outside: &[u8]) -> Result<bool> {
    let outside: Vec<_> = outside.iter().map(|n| participant_id((*n).into())).collect();
    tx.fix_batch_pool(draw_id(n.into()), &Bytes::from_static(b"pool"), &outside, after(900)).await
}

/// A draw accepts offers until its pool is fixed, and ends once: with a result or without. Tasks have their own draws.
pub async fn draws_go_from_offers_to_one_end(store: &Store) {
    collecting(store, 0).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_task(&task(2, "two")).await?;
                assert_eq!((tx.open_batch_draw(task_id(1)).await?, tx.batch_draw(draw_id(1)).await?), (None, None));
                let other = BatchDraw { task: task_id(2), ..draw(3) };
                for draw in [&draw(2), &draw(1), &other] {
                    tx.insert_batch_draw(draw).await?;
                }
                assert_eq!(tx.batch_draw(draw_id(2)).await?, Some(draw(2)));
                assert_eq!(tx.open_batch_draw(task_id(1)).await?, Some(draw(1)), "the oldest");
                assert_eq!(tx.open_batch_draw(task_id(2)).await?, Some(other));
                assert!(!tx.finish_batch_draw(draw_id(1), &"drawn".into()).await?, "its pool is not fixed");
                assert!(fix(tx, 1, &[]).await? && !fix(tx, 1, &[]).await?);
                let fixed = BatchDraw { pool: Some("pool".into()), deadline_at: after(900), ..draw(1) };
                assert_eq!(tx.batch_draw(draw_id(1)).await?, Some(fixed.clone()));
                assert_eq!(tx.open_batch_draw(task_id(1)).await?, Some(draw(2)));
                assert!(!tx.has_batches().await?);
                assert!(tx.finish_batch_draw(draw_id(1), &"drawn".into()).await?);
                assert!(!tx.finish_batch_draw(draw_id(1), &"other".into()).await?);
                assert!(!tx.fail_batch_draw(draw_id(1)).await?);
                assert_eq!(tx.batch_draw(draw_id(1)).await?, Some(BatchDraw { drawn: Some("drawn".into()), ..fixed }));
                assert!(tx.has_batches().await?);
                assert!(tx.fail_batch_draw(draw_id(2)).await? && !tx.fail_batch_draw(draw_id(2)).await?);
                assert!(!fix(tx, 2, &[]).await? && !tx.finish_batch_draw(draw_id(2), &"drawn".into()).await?);
                assert_eq!(tx.open_batch_draw(task_id(1)).await?, None);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    refused!(store, |tx| tx.insert_batch_draw(&draw(1)));
    refused!(store, |tx| tx.insert_batch_draw(&BatchDraw { size: 2, ..draw(4) }));
    refused!(store, |tx| tx.insert_batch_draw(&BatchDraw { task: task_id(9), ..draw(4) }));
}

/// A participant has one offer in a draw, which it replaces, and reveals one nonce. Offers outside the pool are deleted.
pub async fn offers_are_replaced_and_revealed_once(store: &Store) {
    collecting(store, 4).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_batch_draw(&draw(1)).await?;
                tx.insert_batch_draw(&draw(2)).await?;
                for n in [3, 1, 4, 2] {
                    assert!(tx.insert_batch_offer(&offer(1, n)).await?);
                }
                let newer = BatchOffer { offered_at: after(9), offer: "newer".into(), ..offer(1, 2) };
                assert!(!tx.insert_batch_offer(&newer).await?);
                assert_eq!(tx.batch_offers(draw_id(1)).await?, [1, 2, 3, 4].map(|n| offer(1, n)));
                assert!(tx.replace_batch_offer(&newer).await?);
                assert!(!tx.replace_batch_offer(&offer(2, 2)).await?, "it has none in this draw");
                let offers = [offer(1, 1), offer(1, 3), offer(1, 4), newer];
                assert_eq!(tx.batch_offers(draw_id(1)).await?, offers, "in the order of their times");
                assert_eq!((tx.batch_offer_count(draw_id(1)).await?, tx.batch_offer_count(draw_id(2)).await?), (4, 0));
                assert!(fix(tx, 1, &[4]).await?);
                assert_eq!(tx.batch_offers(draw_id(1)).await?, [&offers[..2], &offers[3..]].concat());
                let reveal = |n| (draw_id(1), participant_id(n));
                for (n, is_new) in [(1, true), (1, false), (4, false)] {
                    let (draw, participant) = reveal(n);
                    assert_eq!(tx.set_batch_reveal(draw, participant, &"nonce".into()).await?, is_new, "{n}");
                }
                let revealed = BatchOffer { reveal: Some("nonce".into()), ..offer(1, 1) };
                assert_eq!(tx.batch_offers(draw_id(1)).await?[0], revealed);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    refused!(store, |tx| tx.insert_batch_offer(&offer(1, 9)));
    refused!(store, |tx| tx.insert_batch_offer(&offer(9, 1)));
}

/// A failed draw counts against silent members, in its task and from `since` on, and until a later draw has a result.
pub async fn failed_draws_name_those_who_did_not_reveal(store: &Store) {
    collecting(store, 3).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_task(&task(2, "two")).await?;
                tx.insert_batch_draw(&draw(1)).await?;
                for n in [1, 2] {
                    tx.insert_batch_offer(&offer(1, n)).await?;
                }
                assert!(fix(tx, 1, &[]).await?);
                tx.set_batch_reveal(draw_id(1), participant_id(1), &"nonce".into()).await?;
                assert_eq!(owing(tx).await?, [false; 3], "the draw is not over");
                assert!(!tx.has_batch_draw_failed(task_id(1)).await?);
                assert!(tx.fail_batch_draw(draw_id(1)).await?);
                assert_eq!(owing(tx).await?, [false, true, false]);
                let two = participant_id(2);
                assert!(tx.has_failed_batch_draw(two, task_id(1), after(1)).await?);
                assert!(!tx.has_failed_batch_draw(two, task_id(1), after(2)).await?);
                assert!(!tx.has_failed_batch_draw(two, task_id(2), NOW).await?);
                assert!(tx.has_batch_draw_failed(task_id(1)).await?);
                assert!(!tx.has_batch_draw_failed(task_id(2)).await?);
                tx.insert_batch_draw(&draw(2)).await?;
                assert!(fix(tx, 2, &[]).await? && tx.has_batch_draw_failed(task_id(1)).await?);
                assert!(tx.finish_batch_draw(draw_id(2), &"drawn".into()).await?);
                assert!(!tx.has_batch_draw_failed(task_id(1)).await?);
                assert_eq!(owing(tx).await?, [false, true, false]);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Which of participants 1 to 3 owe a draw of task 1 their nonce.
async fn owing(tx: &mut Transaction<'_>) -> Result<[bool; 3]> {
    let mut owing = [false; 3];
    for (n, owes) in (1..).zip(&mut owing) {
        *owes = tx.has_failed_batch_draw(participant_id(n), task_id(1), NOW).await?;
    }
    Ok(owing)
}

/// Participants 1 and 3 are in one batch, 2 and 4 in another. Participant 5 is in neither batch.
fn batches() -> [(ParticipantId, Digest); 4] {
    [(1, 8), (2, 7), (3, 8), (4, 7)].map(|(who, batch)| (participant_id(who), digest(batch)))
}

/// The progress of each batch of a cohort is counted, in the order of ids.
pub async fn batches_of_a_cohort_are_counted(store: &Store) {
    let open = &sharing(store, 5).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let (mut now, key) = (open.clone(), open.key);
                assert_eq!((tx.batch_tallies(key).await?, tx.has_batches().await?), (vec![], false));
                tx.insert_assignment_batches(key, &batches()).await?;
                assert!(tx.has_batches().await?);
                let tally =
                    |reported, pending, answered| BatchTally { group: None, size: 2, reported, pending, answered };
                send(tx, &now, Shares, &[1, 2, 3]).await?;
                assert_eq!(tx.batch_tallies(key).await?, [tally(0, 1, 1), tally(0, 0, 2)]);
                tx.drop_missing(key, RoundState::Sharing, &[], after(2)).await?;
                advance(tx, &mut now, RoundState::Collecting, after(2)).await?;
                report(tx, &now, &[1, 2]).await?;
                assert_eq!(tx.batch_tallies(key).await?, [tally(1, 0, 0), tally(1, 1, 0)]);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    refused!(store, |tx| tx.insert_assignment_batches(open.key, &batches()[..1]));
    refused!(store, |tx| tx.insert_assignment_batches(open.key, &[(participant_id(9), digest(7))]));
}

/// An input that is taken out of a sum is not admitted any more, and its sender is late.
pub async fn excluded_inputs_are_late(store: &Store) {
    let open = &collecting(store, 4).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let (key, id) = (open.key, participant_id);
                report(tx, open, &[1, 2, 3]).await?;
                // Participant 4 has sent no input, so its state stays.
                tx.exclude_inputs(key, &[id(2), id(4)], after(50), "its batch is not complete").await?;
                for (who, is_in) in [(1, true), (2, false), (3, true), (4, false)] {
                    assert_eq!(tx.admitted(key, id(who)).await?.is_some(), is_in, "{who}");
                }
                let late = tx.assignment(key, id(2)).await?.unwrap();
                let detail = Some("its batch is not complete".to_owned());
                assert_eq!((late.state, late.state_since, late.detail), (AssignmentState::Late, after(50), detail));
                assert_eq!(late.dropped_in, Some(RoundState::Collecting));
                assert_eq!(tx.assignment(key, id(4)).await?, Some(assignment(open, 4)));
                let summary = summary(tx, key).await?;
                assert_eq!(summary.states[&AssignmentState::Reported], 2);
                assert_eq!(summary.states[&AssignmentState::Late], 1);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// The newest check-in of a participant decides which batch it reports.
pub async fn check_ins_report_batches(store: &Store) {
    collecting(store, 0).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                for n in 1..=3 {
                    tx.insert_participant(&participant(n)).await?;
                }
                let check_in = |n: u8, batch| CheckIn {
                    batch,
                    ..CheckIn::new(participant_id(n.into()), task_id(1), 1, NOW, after(100))
                };
                let (one, two) = (digest(7), digest(8));
                let first = [check_in(1, Some(one)), check_in(2, Some(one)), check_in(3, None)];
                tx.upsert_check_ins(&first).await?;
                assert_eq!(reported(tx, 0).await?, [(participant_id(1), one), (participant_id(2), one)]);
                tx.upsert_check_ins(&[check_in(1, None), check_in(3, Some(two))]).await?;
                assert_eq!(reported(tx, 0).await?, [(participant_id(2), one), (participant_id(3), two)]);
                assert_eq!(reported(tx, 100).await?, [], "they have expired");
                assert_eq!(tx.reported_batches(task_id(2), NOW).await?, []);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

async fn reported(tx: &mut Transaction<'_>, at: i64) -> Result<Vec<(ParticipantId, Digest)>> {
    let mut reported = tx.reported_batches(task_id(1), after(at)).await?;
    reported.sort_unstable();
    Ok(reported)
}
