//! Authentication of operators: by the secret of an operator token, by the cookie of a sign-in (see `sign_in`), or by a token of the
//! identity provider (see [`crate::oidc`]). Each route declares its required role and task scope by its extractor.
//!
//! A token may be restricted to some tasks. [`OfTask`] then admits it to these tasks, and reports all others as missing. [`InScope`] leaves
//! the filtering to the handler. Every other extractor rejects restricted tokens, so new routes are closed to them by default.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams};
use federation::event::Actor;
use federation::id::{Digest, ParticipantId, TaskId, TokenId};
use federation::time::Timestamp;
use http::header;
use http::request::Parts;
use listener::{ConnectionGuard, Key};
use store::StoreError;
use store::entity::sign_in::{KnownIdentity, SignIn};
use store::entity::task::TaskRow;
use store::entity::token::{OperatorToken, TaskScope};
use wire::admin::Role;

use super::authenticate::{Participant, connection, stranger};
use super::sign_in::{self, Found};
use crate::http::app::{App, named_task};
use crate::http::reply::problem::{Error, Result};
use crate::oidc::{Identity, Oidc};

/// The identity of an operator.
#[derive(Clone, Debug)]
pub(in crate::http) enum Who {
    /// An operator token.
    Token(TokenId),
    /// An account at the identity provider.
    Identity(KnownIdentity),
}

/// The bearer of an operator token, of a sign-in cookie, or of a token of the identity provider.
#[derive(Clone, Debug)]
pub(in crate::http) struct Bearer {
    pub(in crate::http) who: Who,
    pub(in crate::http) name: String,
    /// The role currently granted.
    pub(in crate::http) role: Role,
    /// The tasks in scope.
    pub(in crate::http) scope: TaskScope,
    /// When the token, and every sign-in derived from it, expires.
    pub(in crate::http) until: Option<Timestamp>,
    /// The sign-in, if the request came with a cookie.
    pub(in crate::http) sign_in: Option<SignIn>,
}

impl Bearer {
    /// Requires at least this role.
    ///
    /// # Errors
    /// [`Error::Forbidden`].
    pub(in crate::http) fn must_be(&self, needed: Role) -> Result<()> {
        if self.role < needed {
            let (needed, has) = (needed.as_str(), self.role.as_str());
            return Err(Error::Forbidden(format!("this needs the role {needed}, and the token's is {has}")));
        }
        Ok(())
    }

    /// The operator token, if any.
    pub(in crate::http) fn token(&self) -> Option<TokenId> {
        match self.who {
            Who::Token(token) => Some(token),
            Who::Identity(_) => None,
        }
    }

    /// The rate-limit key of the bearer.
    pub(in crate::http) fn key(&self) -> Key {
        match &self.who {
            Who::Token(token) => Key::Operator(*token),
            Who::Identity(known) => Key::Identity(known.subject_sha256),
        }
    }

    /// The bearer as an actor in the log.
    pub(in crate::http) fn actor(&self) -> Actor {
        match &self.who {
            Who::Token(token) => actor(*token, &self.name),
            Who::Identity(known) => identity_actor(known.issuer.clone(), known.subject_sha256),
        }
    }
}

/// The bearer of an operator token as an actor in the log.
pub(in crate::http) fn actor(token: TokenId, name: &str) -> Actor {
    Actor::Operator { token, name: name.to_owned() }
}

/// An account at the identity provider as an actor in the log.
pub(in crate::http) fn identity_actor(issuer: String, subject_sha256: Digest) -> Actor {
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

/// The operator token with this secret, valid or not.
///
/// # Errors
/// [`Error::Unauthenticated`]; errors of the store.
pub(in crate::http) async fn token_of_secret(app: &App, secret: &str) -> Result<OperatorToken> {
    let sha256 = crate::digest(secret.as_bytes());
    let row = app
        .store
        .read("find_operator_token", |tx| Box::pin(async move { tx.operator_token_by_secret(sha256).await }))
        .await?;
    row.ok_or(Error::Unauthenticated("the operator's token is not known"))
}

/// Checks the token's current validity, also behind a cookie, and counts the request.
///
/// # Errors
/// [`Error::TokenEnded`]; [`Error::RateLimited`].
pub(in crate::http) fn admit(
    parts: &Parts,
    app: &App,
    token: OperatorToken,
    sign_in: Option<SignIn>,
) -> Result<Bearer> {
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

/// Admits an account with at least one task, and counts the request.
///
/// # Errors
/// [`Error::RateLimited`]; errors of the store.
pub(in crate::http) async fn admit_identity(parts: &Parts, app: &App, identity: Identity) -> Result<Bearer> {
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
    // A prefix is enough to distinguish operators in the histories of tasks.
    let name = format!("oidc-{}", known.subject_sha256.to_string().get(..12).unwrap_or_default());
    let who = Who::Identity(known);
    Ok(Bearer { who, name, role, scope, until: Some(until), sign_in: None })
}

/// Counts the request of an operator, and moves the connection out of the slots for unauthenticated peers, whatever the role.
fn count(parts: &Parts, app: &App, key: Key) -> Result<()> {
    if let Some(guard) = parts.extensions.get::<Arc<ConnectionGuard>>() {
        guard.promote_to_operator();
    }
    app.limiter.admit(key, app.now()).map_err(Error::RateLimited)
}

/// The role required by an extractor.
pub(super) trait AtLeast: Send {
    const ROLE: Role;
}

/// An operator with at least the role viewer, for all tasks.
pub(in crate::http) struct Viewer;

/// An operator with at least the role operator, for all tasks.
pub(in crate::http) struct Operator(pub(in crate::http) Bearer);

/// An operator with the role admin.
pub(in crate::http) struct Admin(pub(in crate::http) Bearer);

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

/// The bearer of any token with any scope. Handlers may return only the bearer's own data.
pub(in crate::http) struct Anybody(pub(in crate::http) Bearer);

impl FromRequestParts<Arc<App>> for Anybody {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self> {
        bearer(parts, app, Role::Predictor).await.map(Self)
    }
}

/// A viewer for all or some tasks. The answer must stay within the bearer's scope.
pub(in crate::http) struct InScope(pub(in crate::http) Bearer);

impl FromRequestParts<Arc<App>> for InScope {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self> {
        bearer(parts, app, Role::Viewer).await.map(Self)
    }
}

/// An operator with at least a role, and the task of the path, within the token's scope.
pub(in crate::http) struct OfTask<R> {
    pub(in crate::http) bearer: Bearer,
    pub(in crate::http) task: TaskRow,
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
pub(in crate::http) struct SignedIn {
    pub(in crate::http) bearer: Bearer,
    pub(in crate::http) sign_in: SignIn,
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

/// A participant, or a viewer of the task in the path.
pub(in crate::http) enum Reader {
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
