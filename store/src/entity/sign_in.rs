//! Sign-ins: cookies that stand for operator tokens or for identities of the identity provider. Only hashes of their
//! secrets are stored.

use federation::event::{EventKind, Fact, Subject};
use federation::id::{Digest, SignInId, TokenId};
use federation::time::Timestamp;

use crate::driver::{Bind, FromRow, Json, Row, Value, json};
use crate::error::{Result, StoreError};
use crate::transaction::Transaction;

/// An operator's sign-in with a browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignIn {
    pub id: SignInId,
    /// Of the cookie's secret.
    pub secret_sha256: Digest,
    /// The operator that it stands for.
    pub holder: Holder,
    pub created_at: Timestamp,
    /// From then on it does not count.
    pub expires_at: Timestamp,
    /// When the operator signed out.
    pub ended_at: Option<Timestamp>,
}

/// The operator that a sign-in stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The bearer of this operator token.
    Token(TokenId),
    /// An identity of the identity provider.
    Identity(KnownIdentity),
}

/// The identity provider's claims about a signed-in operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownIdentity {
    pub issuer: String,
    /// Of the issuer, a line feed, and the `sub`.
    pub subject_sha256: Digest,
    /// The values of the claim that decides, of those that allowed something.
    pub claim_values: Vec<String>,
}

impl Bind for Holder {
    fn bind<'q>(&'q self, to: &mut Vec<Value<'q>>) -> Result<()> {
        match self {
            Self::Token(token) => {
                token.bind(to)?;
                to.extend([Value::Null, Value::Null, Value::Null]);
            }
            Self::Identity(KnownIdentity { issuer, subject_sha256, claim_values }) => {
                to.push(Value::Null);
                issuer.bind(to)?;
                subject_sha256.bind(to)?;
                to.push(json(claim_values)?.into());
            }
        }
        Ok(())
    }
}

impl FromRow for Holder {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        if let Some(token) = row.get("token")? {
            return Ok(Self::Token(token));
        }
        let missing = || StoreError::corrupt("a sign-in of nobody");
        let (issuer, subject_sha256): (Option<String>, _) = (row.get("issuer")?, row.get("subject_sha256")?);
        let claim_values: Option<Json<Vec<String>>> = row.get("claim_values")?;
        Ok(Self::Identity(KnownIdentity {
            issuer: issuer.ok_or_else(missing)?,
            subject_sha256: Option::ok_or_else(subject_sha256, missing)?,
            claim_values: claim_values.ok_or_else(missing)?.0,
        }))
    }
}

record!("sign_in", SignIn { id, secret_sha256, holder: token_or_identity, created_at, expires_at, ended_at });

impl Transaction<'_> {
    /// Stores a new sign-in, with an event, and removes the oldest of its holder beyond `most`.
    ///
    /// # Errors
    /// `Conflict` if the id or the secret exists, or the token does not.
    pub async fn insert_sign_in(&mut self, sign_in: &SignIn, most: u32) -> Result<()> {
        self.insert(sign_in).await?;
        let facts = [("sign_in", Fact::from(sign_in.id.to_string())), ("expires_at", sign_in.expires_at.into())];
        self.note_event(sign_in.created_at, EventKind::SignedIn, Subject::Service, facts);
        match &sign_in.holder {
            Holder::Token(token) => {
                self.change(
                    "DELETE FROM sign_in WHERE token = ?1 AND id NOT IN
                     (SELECT id FROM sign_in WHERE token = ?1 ORDER BY created_at DESC, id LIMIT ?2)",
                    (*token, most),
                )
                .await?;
            }
            Holder::Identity(identity) => {
                self.change(
                    "DELETE FROM sign_in WHERE subject_sha256 = ?1 AND id NOT IN
                     (SELECT id FROM sign_in WHERE subject_sha256 = ?1 ORDER BY created_at DESC, id LIMIT ?2)",
                    (identity.subject_sha256, most),
                )
                .await?;
            }
        }
        Ok(())
    }

    /// The sign-in with this secret that counts at `now`.
    pub async fn live_sign_in(&mut self, secret_sha256: Digest, now: Timestamp) -> Result<Option<SignIn>> {
        self.find(
            "SELECT * FROM sign_in WHERE secret_sha256 = ?1 AND ended_at IS NULL AND expires_at > ?2",
            (secret_sha256, now),
        )
        .await
    }

    /// The sign-in with this id, ended or not.
    pub async fn sign_in(&mut self, id: SignInId) -> Result<Option<SignIn>> {
        self.find("SELECT * FROM sign_in WHERE id = ?1", id).await
    }

    /// Ends a sign-in, with an event. Returns false if it is unknown or has ended.
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
