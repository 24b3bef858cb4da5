//! Guarantees of assignments.

use std::collections::BTreeMap;

use federation::advance::Tally;
use federation::id::Attempt;
use federation::model_version::ModelVersion;
use federation::round::{Assignment, AssignmentState, RoundState};

use super::sample::{
    NOW, advance, after, assignment, collecting, labels, model_version, moved, participant_id, report, round, sharing,
    summary,
};
use crate::entity::listed_assignment::AssignmentFilter;
use crate::{Result, Store};

/// A cohort is stored as a whole; pages are contiguous.
pub async fn a_cohort_is_drawn_and_listed(store: &Store) {
    let open = &collecting(store, 3).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let key = open.key;
                assert_eq!(tx.assignments(key, None, 2).await?, [1, 2].map(|n| assignment(open, n)));
                assert_eq!(tx.assignments(key, Some(participant_id(2)), 2).await?, [assignment(open, 3)]);
                assert_eq!(tx.assignment(key, participant_id(2)).await?, Some(assignment(open, 2)));
                let some = [3, 9, 1].map(participant_id);
                assert_eq!(tx.assignments_of(key, &some).await?, [1, 3].map(|n| assignment(open, n)));
                assert_eq!(tx.assignments_of(key, &[]).await?, []);
                assert_eq!(tx.assignment(Attempt { attempt: 2, ..key }, participant_id(2)).await?, None);
                tx.insert_assignments(&[]).await
            })
        })
        .await;
    result.unwrap();
    // Drawn before, and a stranger.
    for bad in [1, 9] {
        let bad = &[assignment(open, bad)];
        refused!(store, |tx| tx.insert_assignments(bad));
    }
}

/// A page gives each place its own facts.
pub async fn a_page_of_a_cohort_has_names_inputs_scores_and_histories(store: &Store) {
    let open = &collecting(store, 3).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let (key, first, second) = (open.key, participant_id(1), participant_id(2));
                let all = &AssignmentFilter::default();
                report(tx, open, &[1, 3]).await?;
                tx.set_anomaly_scores(key, &[(first, 1.5)]).await?;
                let listed = tx.listed_assignments(key, all, None, 9).await?;
                assert_eq!(listed.len(), 3);
                for (n, place) in (1..).zip(&listed) {
                    let id = participant_id(n);
                    assert_eq!(Some(&place.assignment), tx.assignment(key, id).await?.as_ref());
                    assert_eq!(Some(&place.name), tx.participant(id).await?.map(|row| row.name).as_ref());
                    assert_eq!(place.bytes, tx.admitted(key, id).await?.map(|input| input.bytes));
                    assert_eq!(place.anomaly, tx.anomaly_score(key, id).await?);
                    assert_eq!(place.history, tx.assignment_history(key, id).await?);
                }
                assert_eq!(listed.iter().map(|place| place.anomaly).collect::<Vec<_>>(), [Some(1.5), None, None]);
                assert_eq!(listed[1].bytes, None);
                assert_eq!(tx.listed_assignments(key, all, Some(first), 1).await?, listed[1..2]);
                assert_eq!(tx.listed_assignments(key, all, Some(second), 9).await?, listed[2..]);
                assert_eq!(tx.listed_assignments(Attempt { attempt: 2, ..key }, all, None, 9).await?, []);
                use AssignmentState::{Assigned, Reported};
                for (states, region, cursor, found) in [
                    (vec![Reported], None, None, &[0, 2][..]),
                    (vec![Reported], Some("eu"), Some(first), &[2]),
                    (vec![Assigned, Reported], Some("eu"), None, &[0, 1, 2]),
                    (vec![Assigned], None, Some(second), &[]),
                    (vec![], Some("us"), None, &[]),
                    (vec![], Some("eu"), None, &[0, 1, 2]),
                ] {
                    let filter = AssignmentFilter { states, labels: region.map(labels).unwrap_or_default() };
                    let places = tx.listed_assignments(key, &filter, cursor, 9).await?;
                    let expected: Vec<_> = found.iter().map(|at: &usize| listed[*at].clone()).collect();
                    assert_eq!(places, expected, "{filter:?}");
                }
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A round counts for participants that are REPORTED in its COMPLETED attempt, and only once it is.
pub async fn the_last_round_that_counted_is_found(store: &Store) {
    let open = &collecting(store, 3).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let (task, reporter, silent) = (open.key.task, participant_id(1), participant_id(2));
                report(tx, open, &[1]).await?;
                assert_eq!(tx.last_counted(task, reporter).await?, None, "it may still fail");
                let mut done = open.clone();
                advance(tx, &mut done, RoundState::Aggregating, after(5)).await?;
                advance(tx, &mut done, RoundState::Completed, after(6)).await?;
                assert_eq!(tx.last_counted(task, reporter).await?, Some(done.key));
                assert_eq!(tx.last_counted(task, silent).await?, None);
                assert_eq!(tx.last_counted(super::sample::task_id(9), reporter).await?, None);
                // A later round that failed does not count, even with reports.
                let later = &round(1, 2, 1);
                tx.insert_round(later).await?;
                tx.insert_assignments(&[assignment(later, 1), assignment(later, 2)]).await?;
                let ended = moved(later, RoundState::Cancelled, after(9));
                assert!(tx.transition_round(later, &ended).await?);
                assert_eq!(tx.last_counted(task, reporter).await?, Some(done.key));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Participants whose last answer was a refusal of this kind are found, from a round and a time on.
pub async fn participants_that_refuse_are_found(store: &Store) {
    let open = &collecting(store, 3).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let (task, id, from) = (open.key.task, participant_id, [AssignmentState::Assigned]);
                let (refused, gone) = ("refused: privacy: words", "conditions");
                for (who, detail) in [(1, refused), (2, gone)] {
                    let to = AssignmentState::Abandoned;
                    assert!(tx.set_assignment_state(open.key, id(who), &from, to, after(10), Some(detail)).await?);
                }
                report(tx, open, &[3]).await?;
                let like = "refused: privacy:%";
                assert_eq!(tx.refusing(task, 1, after(10), like).await?, [id(1)]);
                assert_eq!(tx.refusing(task, 1, after(11), like).await?, []);
                assert_eq!(tx.refusing(task, 2, NOW, like).await?, []);
                assert_eq!(tx.refusing(task, 1, NOW, "conditions").await?, [id(2)]);
                // Later answers replace earlier ones.
                let (mut first, again) = (open.clone(), round(1, 1, 2));
                advance(tx, &mut first, RoundState::Cancelled, after(15)).await?;
                tx.insert_round(&again).await?;
                tx.insert_assignments(&[assignment(&again, 1), assignment(&again, 3)]).await?;
                let reported = AssignmentState::Reported;
                assert!(tx.set_assignment_state(again.key, id(1), &from, reported, after(20), None).await?);
                let to = AssignmentState::Abandoned;
                assert!(tx.set_assignment_state(again.key, id(3), &from, to, after(21), Some(refused)).await?);
                assert_eq!(tx.refusing(task, 1, NOW, like).await?, [id(3)]);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A change that expects another state is ignored; effective changes are recorded and counted.
pub async fn states_change_by_compare_and_swap_with_history(store: &Store) {
    let open = &collecting(store, 3).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                use AssignmentState::{Abandoned, Assigned, Reported, Working};
                let (key, first) = (open.key, participant_id(1));
                let pending = [Assigned, Working];
                assert!(tx.set_assignment_state(key, first, &[Assigned], Working, after(2), None).await?);
                assert!(!tx.set_assignment_state(key, first, &[Assigned], Working, after(3), None).await?);
                let words = Some("no power — \"low\"");
                assert!(tx.set_assignment_state(key, first, &pending, Abandoned, after(4), words).await?);
                assert!(!tx.set_assignment_state(key, first, &pending, Reported, after(5), None).await?);
                assert!(tx.set_assignment_state(key, participant_id(2), &pending, Reported, after(5), None).await?);
                let expected = Assignment {
                    state: Abandoned,
                    state_since: after(4),
                    detail: words.map(str::to_owned),
                    dropped_in: Some(RoundState::Collecting),
                    ..assignment(open, 1)
                };
                assert_eq!(tx.assignment(key, first).await?, Some(expected));
                let history = tx.assignment_history(key, first).await?;
                let listed = tx.listed_assignments(key, &AssignmentFilter::default(), None, 1).await?;
                assert_eq!((listed.len(), &listed[0].history), (1, &history));
                let seen: Vec<_> = history.iter().map(|c| (c.state, c.at, c.detail.as_deref())).collect();
                assert_eq!(seen, [(Assigned, NOW, None), (Working, after(2), None), (Abandoned, after(4), words)]);
                let counts = BTreeMap::from([(Assigned, 1), (Abandoned, 1), (Reported, 1)]);
                assert_eq!(summary(tx, key).await?.states, counts);
                let tally = Tally { eligible: 0, pending: 1, answered: 0, reported: 1, published: false };
                assert_eq!(tx.tally(key).await?, tally);
                tx.insert_model_version(&model_version(1, 0)).await?;
                assert_eq!(tx.tally(key).await?, tally);
                // Numbers that are used up leave gaps: versions and rounds do not count alike.
                let (of_another, its_own) = (model_version(1, 1), model_version(1, 2));
                tx.insert_model_version(&ModelVersion { round: Some(2), ..of_another }).await?;
                assert_eq!(tx.tally(key).await?, tally);
                tx.insert_model_version(&ModelVersion { round: Some(1), ..its_own }).await?;
                assert_eq!(tx.tally(key).await?, Tally { published: true, ..tally });
                assert_eq!(
                    tx.tally(Attempt { attempt: 2, ..key }).await?,
                    Tally { published: true, ..Tally::default() }
                );
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Pending means: not reported, not dropped, and the round is collecting.
pub async fn pending_ones_are_found_closed_and_revoked(store: &Store) {
    let open = &collecting(store, 4).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                use AssignmentState::{Assigned, Late, Reported, Revoked, Working};
                let key = open.key;
                let id = participant_id;
                assert_eq!(tx.pending_assignment(id(1)).await?, Some(assignment(open, 1)));
                tx.set_assignment_state(key, id(1), &[Assigned], Reported, after(2), None).await?;
                assert_eq!(tx.pending_assignment(id(1)).await?, None);
                tx.set_assignment_state(key, id(2), &[Assigned], Working, after(2), None).await?;
                assert_eq!(tx.pending_assignment(id(2)).await?.unwrap().state, Working);

                assert_eq!(tx.revoke_pending(id(2), after(3)).await?, [key.round_key()]);
                assert_eq!(tx.revoke_pending(id(2), after(3)).await?, []);
                assert_eq!(tx.revoke_pending(id(1), after(3)).await?, []);
                let summing = moved(open, RoundState::Aggregating, after(4));
                assert!(tx.transition_round(open, &summing).await?);
                assert_eq!(tx.pending_assignment(id(3)).await?, None);
                assert_eq!(tx.set_pending_assignments(key, Late, after(4)).await?, 2);
                assert_eq!(tx.set_pending_assignments(key, Late, after(5)).await?, 0);
                let states: Vec<_> = tx.assignments(key, None, 9).await?.iter().map(|row| row.state).collect();
                assert_eq!(states, [Reported, Revoked, Late, Late]);
                let history = tx.assignment_history(key, id(4)).await?;
                assert_eq!(
                    history.iter().map(|c| (c.state, c.at)).collect::<Vec<_>>(),
                    [(Assigned, NOW), (Late, after(4))]
                );
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A participant that does not report is counted with the state in which the round lost it.
pub async fn who_drops_out_is_recorded_with_the_state_of_the_round(store: &Store) {
    let open = &sharing(store, 7).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                use AssignmentState::{Abandoned, Assigned, Excused, Late, Released, Revoked, Working};
                use RoundState::{Collecting, Confirming, Sharing};
                let (key, id) = (open.key, participant_id);
                let mut now = open.clone();
                let change = [(1, Working), (2, Abandoned)];
                for (n, to) in change {
                    assert!(tx.set_assignment_state(key, id(n), &[Assigned], to, after(2), None).await?);
                }
                advance(tx, &mut now, Collecting, after(3)).await?;
                for (n, to) in [(3, Excused), (4, Revoked)] {
                    assert!(tx.set_assignment_state(key, id(n), &[Assigned], to, after(4), None).await?);
                }
                report(tx, &now, &[1, 5]).await?;
                assert!(!tx.set_dropped(key, id(6), Collecting).await?, "it has not reported");
                advance(tx, &mut now, Confirming, after(5)).await?;
                // They were late for COLLECTING, which has just been left.
                assert_eq!(tx.set_pending_assignments(key, Late, after(5)).await?, 2);
                assert!(tx.set_dropped(key, id(5), Confirming).await?);
                assert!(!tx.set_dropped(key, id(5), Collecting).await?, "it dropped out before");
                let found = tx.assignments(key, None, 9).await?;
                let dropped: Vec<_> = found.iter().map(|place| place.dropped_in).collect();
                let in_collecting = Some(Collecting);
                let expected =
                    [None, Some(Sharing), in_collecting, in_collecting, Some(Confirming), in_collecting, in_collecting];
                assert_eq!(dropped, expected);
                let counts = BTreeMap::from([(Sharing, 1), (Collecting, 4), (Confirming, 1)]);
                assert_eq!(summary(tx, key).await?.dropped_in, counts);
                assert_eq!(summary(tx, Attempt { attempt: 2, ..key }).await?.dropped_in, BTreeMap::new());

                let again = round(1, 1, 2);
                advance(tx, &mut now, RoundState::Cancelled, after(6)).await?;
                tx.insert_round(&again).await?;
                tx.insert_assignments(&[assignment(&again, 1)]).await?;
                assert_eq!(tx.set_pending_assignments(Attempt { attempt: 2, ..key }, Released, after(7)).await?, 1);
                assert_eq!(
                    summary(tx, Attempt { attempt: 2, ..key }).await?.dropped_in,
                    BTreeMap::new(),
                    "it was let go"
                );
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
