//! Who may ask for predictions: bearers of tokens that the coordinator knows, clients with a certificate, or, on a loopback address
//! alone, everybody.

use std::sync::Arc;

use wire::TaskId;
use wire::admin::Role;
use wire::problem::{Problem, ProblemType};

use super::tokens::Tokens;

/// By what a request may be let in.
pub(crate) enum Access {
    /// The listener is on a loopback address.
    Everybody,
    /// Client certificates alone.
    Certificates,
    /// Tokens, and client certificates where the listener takes them.
    Tokens(Arc<Tokens>),
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
