//! Guarantees of tokens.

use federation::id::TokenId;
use uuid::Uuid;

use super::sample::{NOW, after, digest, labels, participant, participant_id, task_id};
use crate::entity::token::{EnrollmentToken, OperatorToken, TakenToken, TaskScope, TokenEnd};
use crate::{Result, Store, StoreError};

fn token_id(n: u128) -> TokenId {
    TokenId(Uuid::from_u128(n))
}

fn enrollment(n: u8) -> EnrollmentToken {
    EnrollmentToken {
        id: token_id(n.into()),
        secret_sha256: digest(n),
        name: format!("site-{n}"),
        labels: labels("eu"),
        created_at: NOW,
        expires_at: after(100),
        used_at: None,
        used_by: None,
        participant: None,
    }
}

fn operator(n: u8) -> OperatorToken {
    OperatorToken {
        id: token_id(n.into()),
        secret_sha256: digest(n),
        name: format!("ann-{n}"),
        role: "admin".to_owned(),
        created_at: NOW,
        expires_at: None,
        revoked_at: None,
        tasks: TaskScope::All,
    }
}

/// One call gets it, before it expires; the participant it enrolled must exist when the transaction commits.
pub async fn an_enrollment_token_is_used_once(store: &Store) {
    let by = participant_id(1);
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_enrollment_token(&enrollment(1)).await?;
                assert_eq!(tx.take_enrollment_token(digest(2), NOW, by).await?, TakenToken::Unknown);
                assert_eq!(tx.take_enrollment_token(digest(1), after(100), by).await?, TakenToken::Expired);
                let used = EnrollmentToken { used_at: Some(after(99)), used_by: Some(by), ..enrollment(1) };
                let taken = tx.take_enrollment_token(digest(1), after(99), by).await?;
                assert_eq!(taken, TakenToken::Taken(used.clone()));
                let again = tx.take_enrollment_token(digest(1), after(99), participant_id(2)).await?;
                assert_eq!(again, TakenToken::Used(used));
                tx.insert_participant(&participant(1)).await
            })
        })
        .await;
    result.unwrap();
    let twin = &enrollment(1);
    refused!(store, |tx| tx.insert_enrollment_token(twin));

    let dangling: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_enrollment_token(&enrollment(3)).await?;
                let taken = tx.take_enrollment_token(digest(3), NOW, participant_id(9)).await?;
                assert!(matches!(taken, TakenToken::Taken(_)));
                Ok(())
            })
        })
        .await;
    assert!(matches!(dangling, Err(StoreError::Conflict(_))));
    let listed: Result<Vec<_>> =
        store.read("test", |tx| Box::pin(async move { tx.enrollment_tokens(None, 9).await })).await;
    assert_eq!(listed.unwrap().len(), 1);
}

/// A used token stays, as a record of the enrolment.
pub async fn an_enrollment_token_is_revoked_while_unused(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_participant(&participant(1)).await?;
                for n in 1..=3 {
                    tx.insert_enrollment_token(&enrollment(n)).await?;
                }
                assert_eq!(tx.enrollment_tokens(None, 2).await?, [enrollment(1), enrollment(2)]);
                assert_eq!(tx.enrollment_tokens(Some(token_id(2)), 2).await?, [enrollment(3)]);
                tx.take_enrollment_token(digest(1), NOW, participant_id(1)).await?;
                assert!(!tx.revoke_enrollment_token(token_id(1)).await?);
                assert!(tx.revoke_enrollment_token(token_id(2)).await?);
                assert!(!tx.revoke_enrollment_token(token_id(2)).await?);
                let taken = tx.take_enrollment_token(digest(2), NOW, participant_id(1)).await?;
                assert_eq!(taken, TakenToken::Unknown);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A revoked token is still found, with its time of revocation.
pub async fn operator_tokens_are_found_listed_and_revoked(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                for n in 1..=3 {
                    tx.insert_operator_token(&operator(n)).await?;
                }
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let twin = &operator(1);
    refused!(store, |tx| tx.insert_operator_token(twin));
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                assert_eq!(tx.operator_token_by_secret(digest(2)).await?, Some(operator(2)));
                assert_eq!(tx.operator_token_by_secret(digest(9)).await?, None);
                assert_eq!(tx.operator_tokens(Some(token_id(1)), 1).await?, [operator(2)]);
                let role = operator(2).role;
                assert_eq!(tx.lasting_operator_tokens(&role).await?, 3);
                assert_eq!(tx.lasting_operator_tokens("another").await?, 0);
                assert!(tx.revoke_operator_token(token_id(2), after(5)).await?);
                assert_eq!(tx.lasting_operator_tokens(&role).await?, 2);
                assert!(!tx.revoke_operator_token(token_id(2), after(6)).await?);
                let revoked = OperatorToken { revoked_at: Some(after(5)), ..operator(2) };
                assert_eq!(tx.operator_token_by_secret(digest(2)).await?, Some(revoked));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A token's limits are read as they were written. An expiring token is not a lasting one.
pub async fn an_operator_token_keeps_its_limits(store: &Store) {
    let expiring = OperatorToken { expires_at: Some(after(9)), ..operator(1) };
    let scoped = OperatorToken { tasks: TaskScope::Only(vec![task_id(2), task_id(1)]), ..operator(2) };
    let tokens = &[expiring.clone(), scoped, operator(3)];
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                for token in tokens {
                    tx.insert_operator_token(token).await?;
                }
                assert_eq!(tx.operator_tokens(None, 9).await?, tokens);
                assert_eq!(tx.lasting_operator_tokens("admin").await?, 2);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    assert_eq!(expiring.ended(after(8)), None);
    assert_eq!(expiring.ended(after(9)), Some(TokenEnd::Expired(after(9))));
    let revoked = OperatorToken { revoked_at: Some(after(1)), ..expiring };
    assert_eq!(revoked.ended(after(2)), Some(TokenEnd::Revoked));
}
