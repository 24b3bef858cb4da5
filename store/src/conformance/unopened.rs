//! Guarantees of sessions that were never opened.

use bytes::Bytes;
use federation::id::{Attempt, RoundKey};
use federation::model_version::ModelVersion;
use federation::round::RoundState;

use super::sample::{
    after, assignment, digest, message, model_version, moved, participant_id, round, sharing, task, task_id,
};
use crate::entity::session_message::MessageKind;
use crate::entity::unopened::{AbortStatement, UnopenedSession};
use crate::{Result, Store};

fn session(group: u32, needed: u16) -> UnopenedSession {
    UnopenedSession { group, needed, roster: Bytes::from(vec![7; 5]) }
}

fn said(attempt: Attempt, participant: u8, group: u32) -> AbortStatement {
    AbortStatement {
        attempt,
        participant: participant_id(participant.into()),
        group,
        statement: vec![participant; 3].into(),
        received_at: after(participant.into()),
    }
}

/// Each member's first statement stays, by group and in the order of ids.
pub async fn sessions_and_statements_come_back(store: &Store) {
    let open = &sharing(store, 4).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let key = open.key;
                assert_eq!(tx.unopened(key).await?, []);
                let sessions = [session(0, 2), session(1, 3)];
                tx.insert_unopened(key, &sessions).await?;
                assert_eq!(tx.unopened(key).await?, sessions);
                assert_eq!(tx.unopened(Attempt { attempt: 2, ..key }).await?, []);
                for (participant, group) in [(3, 0), (1, 0), (2, 1)] {
                    assert!(tx.insert_abort_statement(&said(key, participant, group)).await?);
                }
                let again = AbortStatement { statement: Bytes::from_static(b"again"), ..said(key, 1, 0) };
                assert!(!tx.insert_abort_statement(&again).await?);
                assert_eq!(tx.abort_statements(key, 0).await?, [said(key, 1, 0), said(key, 3, 0)]);
                assert_eq!(tx.abort_statements(key, 1).await?, [said(key, 2, 1)]);
                assert_eq!(tx.abort_statements(Attempt { attempt: 2, ..key }, 0).await?, []);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let sessions = &[session(0, 2), session(1, 3)];
    for attempt in [open.key, Attempt { attempt: 2, ..open.key }] {
        refused!(store, |tx| tx.insert_unopened(attempt, sessions));
    }
    let stranger = &said(open.key, 9, 0);
    refused!(store, |tx| tx.insert_abort_statement(stranger));
}

/// A participant that sent an input from a model is counted once, whatever the task, until enough statements prove that
/// it is in no sum.
pub async fn those_who_gave_an_input_from_a_model_are_counted(store: &Store) {
    let first = &sharing(store, 4).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let (begun, key) = (model_version(1, 0), first.key);
                let another = RoundKey { number: 2, ..key.round_key() };
                tx.insert_model_version(&begun).await?;
                assert_eq!(tx.count_given(begun.sha256, another).await?, 0);
                for participant in 1..=3 {
                    tx.insert_message(&message(first, MessageKind::Input, participant)).await?;
                }
                assert_eq!(tx.count_given(begun.sha256, another).await?, 3);
                assert_eq!(tx.count_given(begun.sha256, key.round_key()).await?, 0, "in this very round");
                assert_eq!(tx.count_given(digest(1), another).await?, 0, "from another model");
                // Another task starts from the same model, and one of them took part in it too.
                tx.insert_task(&task(2, "two")).await?;
                tx.insert_model_version(&ModelVersion { task: task_id(2), ..begun.clone() }).await?;
                let selecting = round(2, 1, 1);
                tx.insert_round(&selecting).await?;
                let second = moved(&selecting, RoundState::Collecting, after(1));
                assert!(tx.transition_round(&selecting, &second).await?);
                tx.insert_assignments(&[assignment(&second, 3), assignment(&second, 4)]).await?;
                for participant in 3..=4 {
                    tx.insert_message(&message(&second, MessageKind::Input, participant)).await?;
                }
                assert_eq!(tx.count_given(begun.sha256, another).await?, 4);
                tx.insert_unopened(key, &[session(0, 2)]).await?;
                assert!(tx.insert_abort_statement(&said(key, 1, 0)).await?);
                assert_eq!(tx.count_given(begun.sha256, another).await?, 4, "one is not enough");
                assert!(tx.insert_abort_statement(&said(key, 4, 0)).await?);
                assert_eq!(tx.count_given(begun.sha256, another).await?, 2, "those of the other task alone");
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
