//! Sign-ins: cookies that stand for operator tokens. Only hashes of their secrets are stored.

use federation::event::{EventKind, Fact, Subject};
use federation::id::{Digest, SignInId, TokenId};
use federation::time::Timestamp;

use super::token::OperatorToken;
use crate::error::Result;
use crate::transaction::Transaction;

/// An operator's sign-in with a browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignIn {
    pub id: SignInId,
    /// Of the cookie's secret.
    pub secret_sha256: Digest,
    /// The operator token that it stands for.
    pub token: TokenId,
    pub created_at: Timestamp,
    /// From then on it does not count.
    pub expires_at: Timestamp,
    /// When the operator signed out.
    pub ended_at: Option<Timestamp>,
}

record!("sign_in", SignIn { id, secret_sha256, token, created_at, expires_at, ended_at });

impl Transaction<'_> {
    /// Stores a new sign-in, with an event, and removes the oldest of its token beyond `most`.
    ///
    /// # Errors
    /// `Conflict` if the id or the secret exists, or the token does not.
    pub async fn insert_sign_in(&mut self, sign_in: &SignIn, most: u32) -> Result<()> {
        self.insert(sign_in).await?;
        let facts = [("sign_in", Fact::from(sign_in.id.to_string())), ("expires_at", sign_in.expires_at.into())];
        self.note_event(sign_in.created_at, EventKind::SignedIn, Subject::Service, facts);
        self.change(
            "DELETE FROM sign_in WHERE token = ?1 AND id NOT IN
             (SELECT id FROM sign_in WHERE token = ?1 ORDER BY created_at DESC, id LIMIT ?2)",
            (sign_in.token, most),
        )
        .await?;
        Ok(())
    }

    /// The sign-in with this secret that counts at `now`, with its token, which may be revoked.
    pub async fn live_sign_in(
        &mut self,
        secret_sha256: Digest,
        now: Timestamp,
    ) -> Result<Option<(SignIn, OperatorToken)>> {
        let found: Option<SignIn> = self
            .find(
                "SELECT * FROM sign_in WHERE secret_sha256 = ?1 AND ended_at IS NULL AND expires_at > ?2",
                (secret_sha256, now),
            )
            .await?;
        let Some(sign_in) = found else { return Ok(None) };
        let token = self.find("SELECT * FROM operator_token WHERE id = ?1", sign_in.token).await?;
        Ok(token.map(|token| (sign_in, token)))
    }

    /// The sign-in with this id, ended or not.
    pub async fn sign_in(&mut self, id: SignInId) -> Result<Option<SignIn>> {
        self.find("SELECT * FROM sign_in WHERE id = ?1", id).await
    }

    /// Ends a sign-in, with an event. False if there is none, or if it has ended.
    pub async fn end_sign_in(&mut self, id: SignInId, at: Timestamp) -> Result<bool> {
        let end = "UPDATE sign_in SET ended_at = ?2 WHERE id = ?1 AND ended_at IS NULL";
        let changed = self.change_one(end, (id, at)).await?;
        if changed {
            let facts = [("sign_in", Fact::from(id.to_string()))];
            self.note_event(at, EventKind::SignedOut, Subject::Service, facts);
        }
        Ok(changed)
    }

    /// Removes sign-ins that have expired by `now`; returns their number.
    pub async fn forget_sign_ins(&mut self, now: Timestamp) -> Result<u32> {
        self.change("DELETE FROM sign_in WHERE expires_at <= ?1", now).await
    }
}
