//! Guarantees of rounds with secure aggregation: the participants that each phase waits for, and the fate of silent
//! ones.

use std::collections::BTreeMap;

use federation::advance::Tally;
use federation::groups::GroupTally;
use federation::id::{Attempt, ParticipantId};
use federation::round::{Assignment, AssignmentState, Round, RoundState};

use super::sample::{
    NOW, advance, after, assignment, participant, participant_id, report, round, send, sharing, summary, task_id,
};
use crate::entity::check_in::{CheckIn, CheckInKeys};
use crate::entity::round::RoundChange;
use crate::entity::session_message::MessageKind::{Complaint, Consistency, Input, Shares, Unmasking};
use crate::{Result, Store, Transaction};

/// The round stays open in every phase, so a second one is rejected. Each history entry counts the participants that
/// brought the round there.
pub async fn a_round_is_open_in_every_phase_and_history_counts_answers(store: &Store) {
    let open = &sharing(store, 5).await;
    let second = &round(1, 1, 2);
    let mut now = open.clone();
    let phases = [
        (Shares, [1, 2, 3, 4].as_slice(), RoundState::Collecting),
        (Input, &[1, 2, 3], RoundState::Confirming),
        (Consistency, &[2, 3], RoundState::Unmasking),
        (Unmasking, &[3], RoundState::Aggregating),
    ];
    for (at, (kind, senders, next)) in (2..).zip(phases) {
        refused!(store, |tx| tx.insert_round(second));
        let before = &now;
        let result: Result<Round> = store
            .transact("test", |tx| {
                Box::pin(async move {
                    let mut now = before.clone();
                    assert_open(tx, &now).await?;
                    send(tx, &now, kind, senders).await?;
                    if next == RoundState::Confirming {
                        report(tx, &now, senders).await?;
                    }
                    advance(tx, &mut now, next, after(at)).await?;
                    Ok(now)
                })
            })
            .await;
        now = result.unwrap();
    }
    refused!(store, |tx| tx.insert_round(second));
    let last = &now;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let mut now = last.clone();
                assert_open(tx, &now).await?;
                advance(tx, &mut now, RoundState::Completed, after(6)).await?;
                assert_eq!(tx.open_rounds().await?, []);
                let history = summary(tx, open.key).await?.history;
                let counts: Vec<_> = history.iter().map(|RoundChange { state, count, .. }| (*state, *count)).collect();
                let expected = [
                    (RoundState::Selecting, 0),
                    (RoundState::Sharing, 5),
                    (RoundState::Collecting, 4),
                    (RoundState::Confirming, 3),
                    (RoundState::Unmasking, 2),
                    (RoundState::Aggregating, 1),
                    (RoundState::Completed, 3),
                ];
                assert_eq!(counts, expected);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

async fn assert_open(tx: &mut Transaction<'_>, now: &Round) -> Result<()> {
    assert_eq!(tx.open_rounds().await?.iter().map(|row| &row.round).collect::<Vec<_>>(), [now]);
    Ok(())
}

async fn counts(tx: &mut Transaction<'_>, round: &Round) -> Result<(u32, u32, u32)> {
    let Tally { pending, answered, reported, .. } = tx.tally(round.key).await?;
    Ok((pending, answered, reported))
}

/// Pending, answered and reported, phase by phase.
pub async fn each_phase_waits_for_those_who_have_not_answered(store: &Store) {
    let open = &sharing(store, 6).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let (key, id) = (open.key, participant_id);
                let mut now = open.clone();
                assert_eq!(counts(tx, &now).await?, (6, 0, 0));
                send(tx, &now, Shares, &[1, 2, 3, 4, 5]).await?;
                assert_eq!(counts(tx, &now).await?, (1, 5, 0));
                let (assigned, abandoned) = ([AssignmentState::Assigned], AssignmentState::Abandoned);
                tx.set_assignment_state(key, id(6), &assigned, abandoned, after(2), None).await?;
                assert_eq!(counts(tx, &now).await?, (0, 5, 0));

                advance(tx, &mut now, RoundState::Collecting, after(3)).await?;
                assert_eq!(counts(tx, &now).await?, (5, 0, 0));
                report(tx, &now, &[1, 2, 3, 4]).await?;
                assert_eq!(counts(tx, &now).await?, (1, 0, 4));
                assert!(tx.set_dropped(key, id(4), RoundState::Collecting).await?);
                assert_eq!(counts(tx, &now).await?, (1, 0, 4));

                advance(tx, &mut now, RoundState::Confirming, after(4)).await?;
                assert_eq!(counts(tx, &now).await?, (3, 0, 4), "4 dropped out");
                send(tx, &now, Consistency, &[1, 2]).await?;
                assert_eq!(counts(tx, &now).await?, (1, 2, 4));

                advance(tx, &mut now, RoundState::Unmasking, after(5)).await?;
                assert_eq!(counts(tx, &now).await?, (2, 0, 4), "only those who signed are asked");
                send(tx, &now, Unmasking, &[1]).await?;
                assert_eq!(counts(tx, &now).await?, (1, 1, 4));
                assert!(tx.set_dropped(key, id(2), RoundState::Unmasking).await?);
                assert_eq!(counts(tx, &now).await?, (0, 1, 4));

                advance(tx, &mut now, RoundState::Aggregating, after(6)).await?;
                assert_eq!(counts(tx, &now).await?, (0, 0, 4));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A participant that dealt no shares is out of the round; one that reported stays in its sum and is recorded as
/// missed.
pub async fn the_missing_drop_out_in_their_phase(store: &Store) {
    let open = &sharing(store, 6).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                use AssignmentState::{Assigned, Late, Reported};
                use RoundState::{Aggregating, Collecting, Confirming, Sharing};
                let (key, id) = (open.key, participant_id);
                let mut now = open.clone();
                send(tx, &now, Shares, &[1, 2, 3, 4, 5]).await?;
                for idle in [RoundState::Selecting, Aggregating, RoundState::Failed] {
                    assert_eq!(tx.drop_missing(key, idle, &[], after(2)).await?, 0);
                }
                assert_eq!(tx.drop_missing(Attempt { attempt: 2, ..key }, Sharing, &[], after(2)).await?, 0);
                assert_eq!(tx.drop_missing(key, Sharing, &[], after(2)).await?, 1);
                assert_eq!(tx.drop_missing(key, Sharing, &[], after(3)).await?, 0);
                let history = tx.assignment_history(key, id(6)).await?;
                assert_eq!(
                    history.iter().map(|c| (c.state, c.at)).collect::<Vec<_>>(),
                    [(Assigned, NOW), (Late, after(2))]
                );

                advance(tx, &mut now, Collecting, after(3)).await?;
                report(tx, &now, &[1, 2, 3, 4]).await?;
                assert_eq!(tx.drop_missing(key, Collecting, &[], after(4)).await?, 1);
                advance(tx, &mut now, Confirming, after(4)).await?;
                send(tx, &now, Consistency, &[1, 2, 3]).await?;
                // The phase is explicit, so it does not matter whether the round has left it.
                advance(tx, &mut now, RoundState::Unmasking, after(5)).await?;
                assert_eq!(tx.drop_missing(key, Confirming, &[], after(5)).await?, 1);
                send(tx, &now, Unmasking, &[1, 2]).await?;
                assert_eq!(tx.drop_missing(key, RoundState::Unmasking, &[], after(6)).await?, 1);
                assert_eq!(tx.drop_missing(key, RoundState::Unmasking, &[], after(6)).await?, 0);

                let found = tx.assignments(key, None, 9).await?;
                let places: Vec<_> =
                    found.iter().map(|place| (place.state, place.dropped_in, place.state_since)).collect();
                let expected = [
                    (Reported, None, after(1)),
                    (Reported, None, after(2)),
                    (Reported, Some(RoundState::Unmasking), after(3)),
                    (Reported, Some(Confirming), after(4)),
                    (Late, Some(Collecting), after(4)),
                    (Late, Some(Sharing), after(2)),
                ];
                assert_eq!(places, expected);
                assert_eq!(tx.assignment_history(key, id(4)).await?.len(), 2, "it entered no other state");
                let counts =
                    BTreeMap::from([(Sharing, 1), (Collecting, 1), (Confirming, 1), (RoundState::Unmasking, 1)]);
                assert_eq!(summary(tx, key).await?.dropped_in, counts);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// The given participants that a round needs. Asserts that the round's members cannot be drawn into another one.
async fn needed(tx: &mut Transaction<'_>, participants: &[u8]) -> Result<Vec<u8>> {
    let mut needed = Vec::new();
    let mut free = Vec::new();
    for &n in participants {
        match tx.pending_assignment(participant_id(n.into())).await? {
            Some(place) => {
                assert_eq!(place.participant, participant_id(n.into()));
                needed.push(n);
            }
            None => free.push(participant_id(n.into())),
        }
    }
    let ready: Vec<ParticipantId> =
        tx.candidates(task_id(1), NOW).await?.iter().map(|candidate| candidate.participant).collect();
    assert_eq!(ready, free);
    let keyed = tx.keyed_candidates(round(1, 9, 9).key, NOW).await?;
    assert_eq!(keyed.iter().map(|(candidate, _)| candidate.participant).collect::<Vec<_>>(), free);
    Ok(needed)
}

async fn check_in(tx: &mut Transaction<'_>, participants: &[u8]) -> Result<()> {
    let keys = CheckInKeys { attempt: round(1, 9, 9).key, advertisement: vec![1].into() };
    let check_in = |&n: &u8| CheckIn {
        keys: Some(keys.clone()),
        ..CheckIn::new(participant_id(n.into()), task_id(1), 1, NOW, after(100))
    };
    tx.upsert_check_ins(&participants.iter().map(check_in).collect::<Vec<_>>()).await
}

/// A participant that restarts gets its place back, after any of its answers; without secure aggregation, an accepted
/// input ends its part.
pub async fn a_participant_is_needed_until_it_has_answered_everything(store: &Store) {
    let open = &sharing(store, 5).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let everybody = [1, 2, 3, 4, 5];
                check_in(tx, &everybody).await?;
                let mut now = open.clone();
                send(tx, &now, Shares, &[1, 2, 3, 4]).await?;
                assert_eq!(needed(tx, &everybody).await?, everybody);
                assert_eq!(tx.pending_assignment(participant_id(1)).await?, Some(assignment(open, 1)));
                tx.drop_missing(open.key, RoundState::Sharing, &[], after(2)).await?;
                advance(tx, &mut now, RoundState::Collecting, after(2)).await?;
                report(tx, &now, &[1, 2, 3]).await?;
                assert_eq!(needed(tx, &everybody).await?, [1, 2, 3, 4]);
                tx.drop_missing(open.key, RoundState::Collecting, &[], after(3)).await?;
                advance(tx, &mut now, RoundState::Confirming, after(3)).await?;
                assert_eq!(needed(tx, &everybody).await?, [1, 2, 3]);
                send(tx, &now, Consistency, &[1, 2]).await?;
                assert_eq!(needed(tx, &everybody).await?, [1, 2, 3], "those who signed are asked once more");
                advance(tx, &mut now, RoundState::Unmasking, after(4)).await?;
                assert_eq!(needed(tx, &everybody).await?, [1, 2], "who did not sign is asked for nothing");
                send(tx, &now, Unmasking, &[1]).await?;
                assert_eq!(needed(tx, &everybody).await?, [2]);
                tx.drop_missing(open.key, RoundState::Unmasking, &[], after(5)).await?;
                assert_eq!(needed(tx, &everybody).await?, [0_u8; 0]);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A revoked participant cannot answer any more; its input, once accepted, stays in the sum.
pub async fn a_revoked_participant_is_waited_for_no_more(store: &Store) {
    let open = &sharing(store, 4).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                use RoundState::{Collecting, Confirming, Sharing};
                let (key, id) = (open.key, participant_id);
                let mut now = open.clone();
                assert_eq!(tx.revoke_pending(id(4), after(2)).await?, [key.round_key()]);
                advance(tx, &mut now, Collecting, after(3)).await?;
                report(tx, &now, &[1, 2, 3]).await?;
                assert_eq!(tx.revoke_pending(id(3), after(4)).await?, [key.round_key()]);
                assert_eq!(tx.revoke_pending(id(3), after(4)).await?, []);
                advance(tx, &mut now, Confirming, after(5)).await?;
                send(tx, &now, Consistency, &[1, 2]).await?;
                assert_eq!(tx.revoke_pending(id(2), after(6)).await?, [key.round_key()]);
                advance(tx, &mut now, RoundState::Unmasking, after(7)).await?;
                assert_eq!(counts(tx, &now).await?, (1, 0, 3));
                send(tx, &now, Unmasking, &[1]).await?;
                assert_eq!(tx.revoke_pending(id(1), after(8)).await?, [], "it has answered everything");
                let dropped = BTreeMap::from([(Sharing, 1), (Confirming, 2)]);
                assert_eq!(summary(tx, key).await?.dropped_in, dropped);
                let states = BTreeMap::from([(AssignmentState::Reported, 3), (AssignmentState::Revoked, 1)]);
                assert_eq!(summary(tx, key).await?.states, states);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// The groups of a divided cohort are counted separately, and one of them can be excluded.
pub async fn groups_are_counted_and_left_out_on_their_own(store: &Store) {
    let open = &sharing(store, 0).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let (mut now, key) = (open.clone(), open.key);
                let place = |who, group| Assignment { group: Some(group), ..assignment(open, who) };
                let cohort = [place(1, 0), place(2, 1), place(3, 0), place(4, 1), place(5, 1)];
                for who in 1..=5 {
                    tx.insert_participant(&participant(who)).await?;
                }
                tx.insert_assignments(&cohort).await?;
                assert_eq!(tx.assignment(key, participant_id(4)).await?, Some(place(4, 1)));
                send(tx, &now, Shares, &[1, 2, 3, 4]).await?;
                let facts = |pending, answered, reported, complaints| GroupTally {
                    tally: Tally { pending, answered, reported, ..Tally::default() },
                    complaints,
                };
                assert_eq!(tx.group_tallies(key).await?, [facts(0, 2, 0, 0), facts(1, 2, 0, 0)]);
                advance(tx, &mut now, RoundState::Collecting, after(1)).await?;
                report(tx, &now, &[1, 2, 3]).await?;
                send(tx, &now, Complaint, &[4]).await?;
                assert_eq!(tx.group_tallies(key).await?, [facts(0, 0, 2, 0), facts(2, 0, 1, 1)]);
                assert_eq!(tx.drop_missing(key, RoundState::Collecting, &[1], after(7)).await?, 3);
                assert_eq!(tx.drop_missing(key, RoundState::Collecting, &[1], after(8)).await?, 0);
                advance(tx, &mut now, RoundState::Confirming, after(8)).await?;
                assert_eq!(tx.group_tallies(key).await?, [facts(2, 0, 2, 0), facts(0, 0, 1, 1)]);
                let states = BTreeMap::from([(AssignmentState::Reported, 3), (AssignmentState::Late, 2)]);
                assert_eq!(summary(tx, key).await?.states, states);
                assert_eq!(summary(tx, key).await?.dropped_in, BTreeMap::from([(RoundState::Collecting, 3)]));
                let end = Round { state: RoundState::Cancelled, state_since: after(9), ..now.clone() };
                assert!(tx.transition_round(&now, &end).await?);
                check_in(tx, &[2, 4, 5]).await?;
                let known: Vec<_> = tx.candidates(key.task, NOW).await?.iter().map(|one| one.duration_ms).collect();
                assert_eq!(known, [Some(2), Some(7), Some(7)], "who was late with its input took so long at least");
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
