//! Guarantees of secure aggregation messages.

use federation::id::Attempt;
use std::collections::BTreeMap;

use super::sample::{collecting, digest, message, participant_id, send, summary};
use crate::entity::session_message::{MessageInsertion, MessageKind, SessionMessage};
use crate::{Result, Store};

/// The first one counts. Its digest identifies a repetition, even if sealed differently.
pub async fn a_message_counts_once(store: &Store) {
    let open = &collecting(store, 2).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let (key, kind, id) = (open.key, MessageKind::Unmasking, participant_id(1));
                let first = message(open, kind, 1);
                assert_eq!(tx.message(key, kind, id).await?, None);
                assert_eq!(tx.insert_message(&first).await?, MessageInsertion::Inserted);
                let sealed_anew = SessionMessage { message: Some(vec![9; 9].into()), ..first.clone() };
                assert_eq!(tx.insert_message(&sealed_anew).await?, MessageInsertion::Same);
                let another = SessionMessage { sha256: digest(9), ..first.clone() };
                assert_eq!(tx.insert_message(&another).await?, MessageInsertion::Different);
                assert_eq!(tx.message(key, kind, id).await?, Some(first.clone()));
                assert_eq!(tx.message(Attempt { attempt: 2, ..key }, kind, id).await?, None);
                assert_eq!(tx.message(key, MessageKind::Shares, id).await?, None);
                assert_eq!(tx.message(key, kind, participant_id(2)).await?, None);
                let of_another_kind = SessionMessage { kind: MessageKind::Input, message: None, ..another };
                assert_eq!(tx.insert_message(&of_another_kind).await?, MessageInsertion::Inserted);
                assert_eq!(tx.message(key, MessageKind::Input, id).await?, Some(of_another_kind));
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let first = message(open, MessageKind::Unmasking, 1);
    let nowhere = SessionMessage { attempt: Attempt { attempt: 2, ..open.key }, ..first };
    for stranger in &[message(open, MessageKind::Unmasking, 3), nowhere] {
        refused!(store, |tx| tx.insert_message(stranger));
    }
}

/// In the order of ids, for any order of arrival.
pub async fn messages_are_listed_and_counted_by_kind(store: &Store) {
    let open = &collecting(store, 4).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let key = open.key;
                for kind in MessageKind::ALL {
                    assert_eq!(kind.as_str().parse(), Ok(kind));
                    send(tx, open, kind, &[2]).await?;
                    assert_eq!(tx.messages(key, kind).await?, [message(open, kind, 2)]);
                }
                let shares = MessageKind::Shares;
                send(tx, open, shares, &[4, 1]).await?;
                assert_eq!(tx.messages(key, shares).await?, [1, 2, 4].map(|n| message(open, shares, n)));
                assert_eq!(tx.message_senders(key, shares).await?, [1, 2, 4].map(participant_id));
                assert_eq!(tx.messages(Attempt { attempt: 2, ..key }, shares).await?, []);
                assert_eq!(tx.message_senders(Attempt { attempt: 2, ..key }, shares).await?, []);
                let mut stats: BTreeMap<_, _> = MessageKind::ALL.map(|kind| (kind, (1, 2))).into();
                stats.insert(shares, (3, 7));
                assert_eq!(summary(tx, key).await?.messages, stats);
                assert_eq!(summary(tx, Attempt { attempt: 2, ..key }).await?.messages, BTreeMap::new());
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Clearing removes a message's content only.
pub async fn a_cleared_message_was_still_sent(store: &Store) {
    let open = &collecting(store, 2).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                use MessageKind::{Complaint, Consistency, Shares};
                let key = open.key;
                for kind in [Shares, Consistency] {
                    send(tx, open, kind, &[1, 2]).await?;
                }
                let stats = summary(tx, key).await?.messages;
                assert_eq!(tx.clear_messages(Attempt { attempt: 2, ..key }, &MessageKind::ALL).await?, 0);
                assert_eq!(tx.clear_messages(key, &[]).await?, 0);
                assert_eq!(tx.clear_messages(key, &[Shares, Complaint]).await?, 2);
                assert_eq!(tx.clear_messages(key, &[Shares, Complaint]).await?, 0);
                let cleared = |n| SessionMessage { message: None, ..message(open, Shares, n) };
                assert_eq!(tx.messages(key, Shares).await?, [1, 2].map(cleared));
                assert_eq!(tx.messages(key, Consistency).await?, [1, 2].map(|n| message(open, Consistency, n)));
                assert_eq!(tx.insert_message(&message(open, Shares, 1)).await?, MessageInsertion::Same);
                assert_eq!(tx.message(key, Shares, participant_id(1)).await?, Some(cleared(1)));
                assert_eq!(summary(tx, key).await?.messages, stats);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Stores `bytes` as a session and as messages of three kinds. All files must be free of these bytes after [`forget`].
pub async fn remember(store: &Store, bytes: &[u8]) {
    let open = &collecting(store, 3).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.put_session(open.key, bytes, open.opened_at).await?;
                for (kind, n) in [(MessageKind::Shares, 1), (MessageKind::Consistency, 2), (MessageKind::Unmasking, 3)]
                {
                    let kept = Some(bytes.to_vec().into());
                    tx.insert_message(&SessionMessage { message: kept, ..message(open, kind, n) }).await?;
                }
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Deletes everything that [`remember`] stored.
pub async fn forget(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let key = super::sample::round(1, 1, 1).key;
                assert_eq!(tx.clear_messages(key, &MessageKind::ALL).await?, 3);
                assert!(tx.delete_session(key).await?);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
