//! Who may ask for predictions: bearers of tokens that the coordinator knows, clients with a certificate, or, on a loopback address
//! alone, everybody.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use federation::time::{Clock as _, Timestamp};
use ring::digest::{SHA256, digest};
use wire::admin::{BearerView, Role};
use wire::problem::{Problem, ProblemType};
use wire::{TaskId, route};

use crate::failure::Exit;
use crate::server::Server;

/// How long the coordinator's word about a token counts without asking again: a revocation takes effect by then.
const COUNTS: Duration = Duration::from_secs(30);
/// How long a token that it does not know is refused without asking again.
const UNKNOWN: Duration = Duration::from_secs(5);
/// Tokens remembered; beyond, all are forgotten.
const REMEMBERED: usize = 10_000;

/// By what a request may be let in.
pub(crate) enum Access {
    /// The listener is on a loopback address.
    Everybody,
    /// Client certificates alone.
    Certificates,
    /// Tokens, and client certificates where the listener takes them.
    Tokens(Box<Tokens>),
}

/// What a request says of its sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender<'a> {
    pub(crate) token: Option<&'a str>,
    /// The listener has verified its certificate.
    pub(crate) certified: bool,
}

impl Access {
    /// Lets somebody in with at least this role, for a model of this task, or for what is of no task.
    ///
    /// # Errors
    /// The problem to answer with. A model of another task is as one that is not there.
    pub(crate) async fn admit(
        &self,
        sender: Sender<'_>,
        needed: Role,
        model: Option<(&str, Option<TaskId>)>,
    ) -> Result<(), Problem> {
        match self {
            Self::Everybody => Ok(()),
            Self::Certificates | Self::Tokens(_) if sender.certified && needed == Role::Predictor => Ok(()),
            Self::Certificates if sender.certified => {
                Err(Problem::new(ProblemType::Forbidden, "a client certificate allows predictions, and nothing else"))
            }
            Self::Certificates => Err(Problem::new(ProblemType::Unauthenticated, "this needs a client certificate")),
            Self::Tokens(tokens) => {
                let bearer = tokens.judge(sender.token).await?;
                if bearer.role < needed {
                    let (needed, has) = (needed.as_str(), bearer.role.as_str());
                    let detail = format!("this needs the role {needed}, and the token's is {has}");
                    return Err(Problem::new(ProblemType::Forbidden, detail));
                }
                let Some((name, task)) = model else { return Ok(()) };
                let is_within = bearer.tasks.is_none_or(|tasks| task.is_some_and(|task| tasks.contains(&task)));
                if is_within { Ok(()) } else { Err(no_model(name)) }
            }
        }
    }
}

/// The problem of a model that is not there, or not for whom asks.
pub(super) fn no_model(name: &str) -> Problem {
    Problem::new(ProblemType::NotFound, format!("no model is called {name:?} here"))
}

/// When the coordinator was asked about a token, by the digest of its secret, and whose it is.
type Known = BTreeMap<[u8; 32], (Timestamp, Option<BearerView>)>;

/// The coordinator's word about tokens, remembered by the digests of their secrets.
pub(crate) struct Tokens {
    server: Server,
    known: Mutex<Known>,
}

impl Tokens {
    pub(crate) fn new(server: Server) -> Self {
        Self { server, known: Mutex::default() }
    }

    async fn judge(&self, secret: Option<&str>) -> Result<BearerView, Problem> {
        let missing = || Problem::new(ProblemType::Unauthenticated, "this needs a token: `Authorization: Bearer …`");
        let secret = secret.ok_or_else(missing)?;
        let (mut key, now) = ([0; 32], coordinator::SystemClock.now());
        key.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
        let known = self.lock().get(&key).cloned();
        let unknown = || Problem::new(ProblemType::Unauthenticated, "the token is not known, or counts no more");
        match &known {
            Some((asked, Some(bearer))) if now.since(*asked) < COUNTS => {
                return unexpired(bearer.clone(), now).map_err(|problem| *problem);
            }
            Some((asked, None)) if now.since(*asked) < UNKNOWN => return Err(unknown()),
            Some(_) | None => {}
        }
        let told = self.server.bearing(secret).get::<BearerView>(route::OPERATOR_TOKEN, &[]).await;
        match told {
            Ok(bearer) => {
                self.remember(key, now, Some(bearer.clone()));
                unexpired(bearer, now).map_err(|problem| *problem)
            }
            Err(failure) if failure.exit == Exit::Denied || failure.exit == Exit::Usage => {
                self.remember(key, now, None);
                Err(unknown())
            }
            // The coordinator is away: whom it knew goes on until the token expires.
            Err(failure) => match known {
                Some((_, Some(bearer))) => unexpired(bearer, now).map_err(|problem| *problem),
                Some((_, None)) | None => {
                    tracing::warn!("a token cannot be judged: {}", failure.detail);
                    let detail = "the token cannot be judged now: the coordinator is away; try again later";
                    Err(Problem::new(ProblemType::Unavailable, detail))
                }
            },
        }
    }

    fn remember(&self, key: [u8; 32], now: Timestamp, bearer: Option<BearerView>) {
        let mut known = self.lock();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(key, (now, bearer));
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unexpired(bearer: BearerView, now: Timestamp) -> Result<BearerView, Box<Problem>> {
    match bearer.expires_at.filter(|end| *end <= now) {
        None => Ok(bearer),
        Some(end) => Err(Box::new(Problem::new(ProblemType::Unauthenticated, format!("the token expired at {end}")))),
    }
}
