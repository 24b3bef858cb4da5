//! Authentication of operators: by the secret of an operator token, by the cookie of a sign-in (see `sign_in`), or by a token of the
//! identity provider (see [`crate::oidc`]). And what they may reach: each route
//! says by the extractor that it takes which role it needs, and whether it is of a task.
//!
//! A token may be for some tasks alone. Then [`OfTask`] admits it to these, and to others as little as to tasks that are not there;
//! [`InScope`] to what its handler narrows down to them; and every other extractor refuses it, so that a new route is closed to it
//! until it says otherwise.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams};
use federation::event::Actor;
use federation::id::{Digest, ParticipantId, TaskId, TokenId};
use federation::time::Timestamp;
use http::header;
use http::request::Parts;
use store::StoreError;
use store::entity::sign_in::{KnownIdentity, SignIn};
use store::entity::task::TaskRow;
use store::entity::token::{OperatorToken, TaskScope};
use wire::admin::Role;

use super::app::{App, named_task};
use super::authenticate::{Participant, connection, stranger};
use super::connection_pool::ConnectionGuard;
use super::limits::Key;
use super::problem::{Error, Result};
use super::sign_in::{self, Found};
use crate::oidc::{Identity, Oidc};

/// By what an operator is known.
#[derive(Clone, Debug)]
pub(super) enum Who {
    /// An operator token.
    Token(TokenId),
    /// The word of the identity provider.
    Identity(KnownIdentity),
}

/// The bearer of an operator token, of a cookie that stands for one, or of a token of the identity provider.
#[derive(Clone, Debug)]
pub(super) struct Bearer {
    pub(super) who: Who,
    pub(super) name: String,
    /// What the token allows at present.
    pub(super) role: Role,
    /// What it is for.
    pub(super) scope: TaskScope,
    /// From then on it does not count, nor does what it began.
    pub(super) until: Option<Timestamp>,
    /// The sign-in, if a cookie came in place of the token.
    pub(super) sign_in: Option<SignIn>,
}

impl Bearer {
    /// Refuses a role below this one.
    ///
    /// # Errors
    /// [`Error::Forbidden`].
    pub(super) fn must_be(&self, needed: Role) -> Result<()> {
        if self.role < needed {
            let (needed, has) = (needed.as_str(), self.role.as_str());
            return Err(Error::Forbidden(format!("this needs the role {needed}, and the token's is {has}")));
        }
        Ok(())
    }

    /// The operator token, if there is one.
    pub(super) fn token(&self) -> Option<TokenId> {
        match self.who {
            Who::Token(token) => Some(token),
            Who::Identity(_) => None,
        }
    }

    /// By what the bearer's requests are counted.
    pub(super) fn key(&self) -> Key {
        match &self.who {
            Who::Token(token) => Key::Operator(*token),
            Who::Identity(known) => Key::Identity(known.subject_sha256),
        }
    }

    /// As whom the log names the bearer.
    pub(super) fn actor(&self) -> Actor {
        match &self.who {
            Who::Token(token) => actor(*token, &self.name),
            Who::Identity(known) => identity_actor(known.issuer.clone(), known.subject_sha256),
        }
    }
}

/// As whom the log names the bearer of an operator token.
pub(super) fn actor(token: TokenId, name: &str) -> Actor {
    Actor::Operator { token, name: name.to_owned() }
}

/// As whom the log names somebody whom the identity provider knows.
pub(super) fn identity_actor(issuer: String, subject_sha256: Digest) -> Actor {
    Actor::Identity { issuer, subject_sha256 }
}

async fn bearer(parts: &Parts, app: &App, needed: Role) -> Result<Bearer> {
    let connection = connection(parts);
    match find_bearer(parts, app, needed).await {
        Ok(bearer) => Ok(bearer),
        Err(error) => Err(stranger(app, connection, error)),
    }
}

async fn find_bearer(parts: &Parts, app: &App, needed: Role) -> Result<Bearer> {
    let bearer = match (parts.headers.contains_key(header::AUTHORIZATION), sign_in::cookie(&parts.headers)) {
        (false, Some(secret)) => {
            if !parts.method.is_safe() {
                sign_in::must_be_of_dashboard(&parts.headers)?;
            }
            let (sign_in, holder) = sign_in::find(app, secret).await?;
            match holder {
                Found::Token(token) => admit(parts, app, token, Some(sign_in))?,
                Found::Identity(identity) => {
                    Bearer { sign_in: Some(sign_in), ..admit_identity(parts, app, identity).await? }
                }
            }
        }
        (true, _) | (false, None) => {
            let secret = secret_of_header(parts)?;
            match app.oidc.as_ref().filter(|_| Oidc::is_meant(secret)) {
                Some(oidc) => admit_identity(parts, app, oidc.identify(secret, app.now()).await?).await?,
                None => admit(parts, app, token_of_secret(app, secret).await?, None)?,
            }
        }
    };
    bearer.must_be(needed)?;
    Ok(bearer)
}

fn secret_of_header(parts: &Parts) -> Result<&str> {
    parts
        .headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, secret)| secret.trim())
        .ok_or(Error::Unauthenticated("this needs an operator's token: `Authorization: Bearer …`"))
}

/// The operator token with this secret, whether it counts or not.
///
/// # Errors
/// [`Error::Unauthenticated`]; errors of the store.
pub(super) async fn token_of_secret(app: &App, secret: &str) -> Result<OperatorToken> {
    let sha256 = crate::digest(secret.as_bytes());
    let row = app
        .store
        .read("find_operator_token", |tx| Box::pin(async move { tx.operator_token_by_secret(sha256).await }))
        .await?;
    row.ok_or(Error::Unauthenticated("the operator's token is not known"))
}

/// Judges the token at present, whatever stands for it, and counts the request.
///
/// # Errors
/// [`Error::TokenEnded`]; [`Error::RateLimited`].
pub(super) fn admit(parts: &Parts, app: &App, token: OperatorToken, sign_in: Option<SignIn>) -> Result<Bearer> {
    if let Some(end) = token.ended(app.now()) {
        return Err(Error::TokenEnded(end));
    }
    let role = Role::ALL.into_iter().find(|role| role.as_str() == token.role);
    let role = role.ok_or_else(|| Error::fault(format!("token {} has an unknown role", token.id)))?;
    count(parts, app, Key::Operator(token.id))?;
    let of_sign_in = sign_in.as_ref().map(|sign_in| sign_in.expires_at);
    let until = token.expires_at.into_iter().chain(of_sign_in).min();
    Ok(Bearer { who: Who::Token(token.id), name: token.name, role, scope: token.tasks, until, sign_in })
}

/// Counts the request of somebody who is known, and for whom there are tasks.
///
/// # Errors
/// [`Error::RateLimited`]; errors of the store.
pub(super) async fn admit_identity(parts: &Parts, app: &App, identity: Identity) -> Result<Bearer> {
    let Identity { known, role, tasks, until } = identity;
    count(parts, app, Key::Identity(known.subject_sha256))?;
    let scope = match &tasks {
        None => TaskScope::All,
        Some(named) => {
            let read = app.store.read("tasks_of_identity", |tx| {
                Box::pin(async move {
                    let mut tasks = Vec::new();
                    for named in named {
                        tasks.extend(named_task(tx, named).await?.map(|task| task.id));
                    }
                    Ok::<_, StoreError>(tasks)
                })
            });
            TaskScope::Only(read.await?)
        }
    };
    // Enough of it to tell operators apart in the histories of tasks.
    let name = format!("oidc-{}", known.subject_sha256.to_string().get(..12).unwrap_or_default());
    let who = Who::Identity(known);
    Ok(Bearer { who, name, role, scope, until: Some(until), sign_in: None })
}

/// Counts the request of an operator, who does not share its connection slot with strangers, whatever the role.
fn count(parts: &Parts, app: &App, key: Key) -> Result<()> {
    if let Some(guard) = parts.extensions.get::<Arc<ConnectionGuard>>() {
        guard.promote_to_operator();
    }
    app.limiter.admit(key, app.now()).map_err(Error::RateLimited)
}

/// The role that an extractor asks for.
pub(super) trait AtLeast: Send {
    const ROLE: Role;
}

/// An operator with at least the role viewer, for everything.
pub(super) struct Viewer;

/// An operator with at least the role operator, for everything.
pub(super) struct Operator(pub(super) Bearer);

/// An operator with the role admin.
pub(super) struct Admin(pub(super) Bearer);

macro_rules! role {
    ($name:ident: $of:expr) => {
        impl AtLeast for $name {
            const ROLE: Role = Role::$name;
        }

        impl FromRequestParts<Arc<App>> for $name {
            type Rejection = Error;

            async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self> {
                let bearer = bearer(parts, app, Role::$name).await?;
                match &bearer.scope {
                    TaskScope::All => Ok($of(bearer)),
                    TaskScope::Only(_) => Err(Error::Forbidden(
                        "the token is for some tasks alone, and this is not of one of them".to_owned(),
                    )),
                }
            }
        }
    };
}

role!(Viewer: |_| Self);
role!(Operator: Self);
role!(Admin: Self);

/// The bearer of any token, for whatever it is: nothing but the bearer's own may be answered.
pub(super) struct Anybody(pub(super) Bearer);

impl FromRequestParts<Arc<App>> for Anybody {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self> {
        bearer(parts, app, Role::Predictor).await.map(Self)
    }
}

/// A viewer for everything or for some tasks alone: what is answered must be within the bearer's scope.
pub(super) struct InScope(pub(super) Bearer);

impl FromRequestParts<Arc<App>> for InScope {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self> {
        bearer(parts, app, Role::Viewer).await.map(Self)
    }
}

/// An operator with at least a role, and the task that the path names, which the operator's token is for.
pub(super) struct OfTask<R> {
    pub(super) bearer: Bearer,
    pub(super) task: TaskRow,
    role: PhantomData<R>,
}

impl<R: AtLeast> FromRequestParts<Arc<App>> for OfTask<R> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self> {
        let bearer = bearer(parts, app, R::ROLE).await?;
        let path = RawPathParams::from_request_parts(parts, app)
            .await
            .map_err(|rejection| Error::NotFound(format!("the path names nothing: {}", rejection.body_text())))?;
        let named = path.iter().find_map(|(name, value)| (name == "task").then_some(value));
        let named = named.ok_or_else(|| Error::fault("a route of a task whose path has none"))?;
        let task = app.task_within(&bearer.scope, named).await?;
        Ok(Self { bearer, task, role: PhantomData })
    }
}

/// An operator of any role who signed in.
pub(super) struct SignedIn {
    pub(super) bearer: Bearer,
    pub(super) sign_in: SignIn,
}

impl FromRequestParts<Arc<App>> for SignedIn {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self> {
        let bearer = bearer(parts, app, Role::Viewer).await?;
        let sign_in = bearer.sign_in.clone();
        let sign_in = sign_in.ok_or_else(|| Error::NotFound("a bearer token is not a sign-in".to_owned()))?;
        Ok(Self { bearer, sign_in })
    }
}

/// A participant, or a viewer of the task that the path names.
pub(super) enum Reader {
    Participant(ParticipantId),
    Viewer(TaskId),
}

impl FromRequestParts<Arc<App>> for Reader {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self> {
        if parts.headers.contains_key(header::AUTHORIZATION) || sign_in::cookie(&parts.headers).is_some() {
            return OfTask::<Viewer>::from_request_parts(parts, app).await.map(|viewer| Self::Viewer(viewer.task.id));
        }
        Participant::from_request_parts(parts, app).await.map(|participant| Self::Participant(participant.id))
    }
}
