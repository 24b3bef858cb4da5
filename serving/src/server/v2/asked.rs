//! The caller, model and version of a request.

use std::sync::Arc;

use http::{HeaderMap, header};
use listener::simple::Peer;
use wire::TaskId;
use wire::admin::Role;
use wire::problem::ProblemType;

use super::problem::Refusal;
use crate::server::access::{Sender, no_model};
use crate::server::model::Loaded;
use crate::server::served::Served;
use crate::server::shared::Serving;

pub(super) type Result<T, E = Refusal> = std::result::Result<T, E>;

/// Credentials of a request.
pub(super) fn sender(headers: &HeaderMap, peer: Peer) -> Sender<'_> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = bearer.and_then(|value| value.split_once(' '));
    let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, secret)| secret.trim());
    Sender { token, certificate: peer.certificate }
}

/// The model with this name and its task, if the caller has at least this role.
pub(super) async fn admitted<'a>(
    serving: &'a Serving,
    headers: &HeaderMap,
    peer: Peer,
    role: Role,
    name: &str,
) -> Result<(&'a Arc<Served>, Option<TaskId>)> {
    let served = serving.model(name);
    // Unauthorized callers must not learn which models exist.
    let task = served.and_then(|served| served.audience());
    serving.access.admit(sender(headers, peer), role, Some((name, task))).await?;
    Ok((served.ok_or_else(|| no_model(name))?, task))
}

/// A loaded version of the model.
pub(super) fn in_memory(served: &Served, version: Option<&str>) -> Result<Arc<Loaded>> {
    let number = version.map(|text| number(served, text)).transpose()?;
    let missing = || match version {
        Some(version) => no_version(served, version),
        None => Refusal::new(ProblemType::Unavailable, format!("{} has no version yet that is ready", served.name)),
    };
    served.at(number).ok_or_else(missing)
}

pub(super) fn number(served: &Served, version: &str) -> Result<u32> {
    version.parse().map_err(|_| no_version(served, version))
}

pub(super) fn no_version(served: &Served, version: &str) -> Refusal {
    let there: Vec<_> = served.answering().iter().map(u32::to_string).collect();
    let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    Refusal::new(ProblemType::NotFound, format!("{} answers by no version {version:?}, but by {there}", served.name))
}
