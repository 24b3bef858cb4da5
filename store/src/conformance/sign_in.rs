//! Guarantees of sign-ins.

use federation::id::{SignInId, TokenId};
use uuid::Uuid;

use super::sample::{NOW, after, digest};
use crate::entity::sign_in::{Holder, KnownIdentity, SignIn};
use crate::entity::token::{OperatorToken, TaskScope};
use crate::{Result, Store};

fn token(n: u8) -> OperatorToken {
    OperatorToken {
        id: TokenId(Uuid::from_u128(n.into())),
        secret_sha256: digest(n),
        name: format!("ann-{n}"),
        role: "viewer".to_owned(),
        created_at: NOW,
        expires_at: None,
        revoked_at: None,
        tasks: TaskScope::All,
    }
}

fn sign_in(n: u8, of: u8) -> SignIn {
    SignIn {
        id: SignInId(Uuid::from_u128(n.into())),
        secret_sha256: digest(100 + n),
        holder: Holder::Token(token(of).id),
        created_at: after(n.into()),
        expires_at: after(50 + i64::from(n)),
        ended_at: None,
    }
}

fn identity(n: u8) -> Holder {
    let claim_values = vec!["ward \"7\"".to_owned(), String::new()];
    Holder::Identity(KnownIdentity { issuer: "https://id.example".to_owned(), subject_sha256: digest(n), claim_values })
}

/// It is found until it is ended, expires or is removed, independently of its token.
pub async fn a_sign_in_counts_until_it_ends(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_operator_token(&token(1)).await?;
                tx.insert_sign_in(&sign_in(1, 1), 9).await?;
                tx.insert_sign_in(&sign_in(2, 1), 9).await?;
                assert_eq!(tx.live_sign_in(digest(101), after(50)).await?, Some(sign_in(1, 1)));
                assert_eq!(tx.live_sign_in(digest(101), after(51)).await?, None, "expired");
                assert_eq!(tx.live_sign_in(digest(9), NOW).await?, None, "unknown");
                assert_eq!(tx.live_sign_in(digest(1), NOW).await?, None, "a token's secret is no cookie's");
                tx.revoke_operator_token(token(1).id, after(5)).await?;
                assert_eq!(
                    tx.live_sign_in(digest(101), after(6)).await?,
                    Some(sign_in(1, 1)),
                    "its token is looked up"
                );
                assert!(tx.end_sign_in(sign_in(2, 1).id, after(7)).await?);
                assert!(!tx.end_sign_in(sign_in(2, 1).id, after(8)).await?);
                assert_eq!(tx.live_sign_in(digest(102), after(9)).await?, None, "ended");
                let ended = SignIn { ended_at: Some(after(7)), ..sign_in(2, 1) };
                assert_eq!(tx.sign_in(ended.id).await?, Some(ended));
                assert_eq!(tx.sign_in(sign_in(9, 1).id).await?, None);
                assert_eq!(tx.forget_sign_ins(after(50)).await?, 0);
                assert_eq!(tx.forget_sign_ins(after(51)).await?, 1);
                assert_eq!(tx.forget_sign_ins(after(99)).await?, 1);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let (twin, orphan) = (&sign_in(3, 1), &sign_in(4, 2));
    store.transact("test", |tx| Box::pin(async move { tx.insert_sign_in(twin, 9).await })).await.unwrap();
    refused!(store, |tx| tx.insert_sign_in(twin, 9));
    refused!(store, |tx| tx.insert_sign_in(orphan, 9));
}

/// A token's sign-ins are bounded; those of others stay.
pub async fn the_oldest_sign_ins_of_a_token_go_first(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_operator_token(&token(1)).await?;
                tx.insert_operator_token(&token(2)).await?;
                tx.insert_sign_in(&sign_in(9, 2), 2).await?;
                for n in 1..=3 {
                    tx.insert_sign_in(&sign_in(n, 1), 2).await?;
                }
                let mut live = Vec::new();
                for n in [1, 2, 3, 9] {
                    live.push(tx.live_sign_in(digest(100 + n), NOW).await?.is_some());
                }
                assert_eq!(live, [false, true, true, true]);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A sign-in of an identity keeps the identity provider's claims, and the number of sign-ins is bounded per identity.
pub async fn a_sign_in_may_be_of_an_identity(store: &Store) {
    let of = |n: u8, subject: u8| SignIn { holder: identity(subject), ..sign_in(n, 1) };
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_operator_token(&token(1)).await?;
                tx.insert_sign_in(&sign_in(8, 1), 2).await?;
                tx.insert_sign_in(&of(9, 2), 2).await?;
                for n in 1..=3 {
                    tx.insert_sign_in(&of(n, 1), 2).await?;
                }
                assert_eq!(tx.live_sign_in(digest(103), NOW).await?, Some(of(3, 1)));
                assert_eq!(tx.sign_in(of(9, 2).id).await?, Some(of(9, 2)));
                let mut live = Vec::new();
                for n in [1, 2, 3, 8, 9] {
                    live.push(tx.live_sign_in(digest(100 + n), NOW).await?.is_some());
                }
                assert_eq!(live, [false, true, true, true, true]);
                assert!(tx.end_sign_in(of(3, 1).id, after(7)).await?);
                assert_eq!(tx.live_sign_in(digest(103), after(8)).await?, None, "ended");
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
