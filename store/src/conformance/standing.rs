//! Guarantees of where participants stand.

use federation::id::Attempt;
use federation::round::AssignmentState;

use super::sample::{after, collecting, message, participant_id, report, summary};
use crate::entity::session_message::MessageKind;
use crate::entity::standing::ParticipantStatus;
use crate::{Result, Store};

/// One statement returns round, place, input and the requested message, in the order of the questions.
pub async fn everybody_asked_for_is_told_in_order(store: &Store) {
    let open = &collecting(store, 3).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let (key, nowhere) = (open.key, Attempt { attempt: 2, ..open.key });
                report(tx, open, &[2]).await?;
                tx.insert_messages(&[message(open, MessageKind::Complaint, 3), message(open, MessageKind::Input, 2)])
                    .await?;
                let (one, two, three, stranger) =
                    (participant_id(1), participant_id(2), participant_id(3), participant_id(9));
                let asked = [
                    (key, three, MessageKind::Complaint),
                    (key, one, MessageKind::Complaint),
                    (key, two, MessageKind::Input),
                    (key, stranger, MessageKind::Input),
                    (key, three, MessageKind::Input),
                    (nowhere, one, MessageKind::Input),
                ];
                let round = Some(open.clone());
                let place = Some(AssignmentState::Assigned);
                let waiting = ParticipantStatus { round: round.clone(), place, admitted: None, message: None };
                let complained = message(open, MessageKind::Complaint, 3).sha256;
                let sent = message(open, MessageKind::Input, 2).sha256;
                let expected = [
                    ParticipantStatus { message: Some(complained), ..waiting.clone() },
                    waiting.clone(),
                    ParticipantStatus {
                        place: Some(AssignmentState::Reported),
                        admitted: tx.admitted(key, two).await?,
                        message: Some(sent),
                        round: round.clone(),
                    },
                    ParticipantStatus { round, ..ParticipantStatus::default() },
                    waiting.clone(),
                    ParticipantStatus::default(),
                ];
                assert!(expected[2].admitted.is_some());
                assert_eq!(tx.standings(&asked).await?, expected);
                assert_eq!(tx.standings(&[]).await?, []);
                assert_eq!(tx.standing(key, one).await?, waiting);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Places change together, each only from the states named, with its history; a message that is there is a conflict.
pub async fn places_change_together(store: &Store) {
    let open = &collecting(store, 3).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                use AssignmentState::{Assigned, Late, Reported, Working};
                let place = |n| (open.key, participant_id(n));
                let some = [place(1), place(3), place(9)];
                assert_eq!(tx.set_assignment_states(&some, &[Assigned], Working, after(5)).await?, 2);
                assert_eq!(tx.set_assignment_states(&some, &[Assigned], Working, after(6)).await?, 0);
                let all = [place(1), place(2), place(3)];
                assert_eq!(tx.set_assignment_states(&all, &[Working], Reported, after(7)).await?, 2);
                assert_eq!(tx.set_assignment_states(&[], &[Assigned], Working, after(7)).await?, 0);
                let states = summary(tx, open.key).await?.states;
                assert_eq!(states.into_iter().collect::<Vec<_>>(), [(Assigned, 1), (Reported, 2)]);
                let history = tx.assignment_history(open.key, participant_id(3)).await?;
                let history: Vec<_> = history.iter().map(|change| (change.state, change.at)).collect();
                assert_eq!(history[1..], [(Working, after(5)), (Reported, after(7))]);
                assert!(tx.set_assignment_states(&all, &[Reported], Late, after(8)).await.is_err(), "it drops out");
                tx.insert_messages(&[message(open, MessageKind::Input, 1), message(open, MessageKind::Input, 2)])
                    .await?;
                assert_eq!(tx.messages(open.key, MessageKind::Input).await?.len(), 2);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let again = &[message(open, MessageKind::Input, 3), message(open, MessageKind::Input, 2)];
    refused!(store, |tx| tx.insert_messages(again));
}
