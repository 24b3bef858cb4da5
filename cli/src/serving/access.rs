//! Who may ask for predictions: bearers of tokens that the coordinator knows, clients with a certificate, or, on a loopback address
//! alone, everybody.

use std::net::IpAddr;
use std::sync::Arc;

use http::uri::Authority;
use http::{HeaderMap, Uri, header};
use wire::TaskId;
use wire::admin::Role;
use wire::problem::{Problem, ProblemType};

use super::tokens::Tokens;

/// By what a request may be let in.
pub(crate) enum Access {
    /// The listener is on a loopback address: [`is_of_this_machine`] says which requests come from a program here.
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

/// Whether a request that everybody may send was sent by a program on this machine, and not by a page of some site in its browser: such
/// a page's requests name their origin, or, where the site's name became that of this address, another host.
pub(super) fn is_of_this_machine(headers: &HeaderMap, target: &Uri) -> bool {
    let named =
        headers.get(header::HOST).map(|host| host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()));
    let named = match target.authority() {
        Some(authority) => Some(Some(authority.clone())),
        None => named,
    };
    let is_local = |authority: &Authority| {
        let host = authority.host();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        address.map_or_else(|_| host.eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
    };
    !headers.contains_key(header::ORIGIN) && named.is_none_or(|named| named.as_ref().is_some_and(is_local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_sites_are_told_from_programs() {
        let is_ours = |headers: &[(header::HeaderName, &str)], target: &str| {
            let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
            is_of_this_machine(&headers, &target.parse().unwrap())
        };
        for host in ["127.0.0.1:8500", "localhost:8500", "LOCALHOST", "[::1]:8500", "127.3.2.1"] {
            assert!(is_ours(&[(header::HOST, host)], "/v2"), "{host}");
            assert!(is_ours(&[], &format!("http://{host}/v2")), "HTTP/2 names {host} in the target");
            assert!(!is_ours(&[(header::HOST, host), (header::ORIGIN, "null")], "/v2"));
        }
        for host in ["evil.example:8500", "127.0.0.1.evil.example", "192.168.0.1", "", "localhost.evil.example"] {
            assert!(!is_ours(&[(header::HOST, host)], "/v2"), "{host}");
        }
        assert!(!is_ours(&[(header::HOST, "localhost")], "http://evil.example/v2"));
        assert!(is_ours(&[], "/v2"), "HTTP/1.0 has no host, and no browser speaks it");
    }
}
