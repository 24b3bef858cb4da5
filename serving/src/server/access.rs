//! Authorizes predictions and rollbacks: by a token that the coordinator accepts, by a client certificate or, on a
//! loopback address, without credentials.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use http::uri::Authority;
use http::{HeaderMap, Uri, header};
use listener::read_certificates;
use operator_client::failure::{Exit, Failure, Outcome, chain};
use recipe::digest::sha256;
use wire::admin::Role;
use wire::problem::{Problem, ProblemType};
use wire::{Digest, TaskId};

use super::coordinator::tokens::Tokens;

/// How requests are authorized.
pub(crate) enum Access {
    /// The listener is on a loopback address: [`is_of_this_machine`] recognizes requests of programs on this machine.
    Everybody,
    /// Client certificates only. `None`: no certificate has the role operator.
    Certificates(Option<Operators>),
    /// Tokens, and client certificates if the listener accepts them.
    Tokens(Arc<Tokens>, Option<Operators>),
}

/// SHA-256 of the client certificates with the role operator. All other certificates allow predictions only.
#[derive(Debug)]
pub(crate) struct Operators(BTreeSet<Digest>);

impl Operators {
    /// Reads them from a PEM file.
    ///
    /// # Errors
    /// If the file cannot be read or contains no certificate.
    pub(super) fn read(path: &Path) -> Outcome<Self> {
        let certificates = read_certificates(path);
        let certificates = certificates.map_err(|error| Failure::new(Exit::Configuration, chain(&error)))?;
        Ok(Self(certificates.iter().map(|certificate| sha256(certificate)).collect()))
    }
}

/// Credentials of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender<'a> {
    pub(crate) token: Option<&'a str>,
    /// SHA-256 of the client certificate, which the listener has verified.
    pub(crate) certificate: Option<Digest>,
}

/// The rejection of a certificate, if it does not suffice.
fn refusal(certificate: Digest, needed: Role, operators: Option<&Operators>) -> Option<Problem> {
    let (has, why) = match operators {
        None => (Role::Predictor, "the server was started without it".to_owned()),
        Some(Operators(listed)) if listed.contains(&certificate) => (Role::Operator, "it holds this one".to_owned()),
        Some(_) => (Role::Predictor, format!("it does not hold the one with the SHA-256 {certificate}")),
    };
    let needed = (has < needed).then_some(needed.as_str())?;
    let detail = format!(
        "this needs the role {needed}; a client certificate has the role operator if the server's file --operators \
         holds it, and predictor otherwise: {why}"
    );
    Some(Problem::new(ProblemType::Forbidden, detail))
}

impl Access {
    /// Authorizes a request with at least this role, for a model of this task or for a resource without a task.
    ///
    /// # Errors
    /// The problem to answer with. A model of another task is reported as missing.
    pub(crate) async fn admit(
        &self,
        sender: Sender<'_>,
        needed: Role,
        model: Option<(&str, Option<TaskId>)>,
    ) -> Result<(), Problem> {
        match self {
            Self::Everybody => Ok(()),
            Self::Certificates(operators) => {
                let Some(certificate) = sender.certificate else {
                    return Err(Problem::new(ProblemType::Unauthenticated, "this needs a client certificate"));
                };
                refusal(certificate, needed, operators.as_ref()).map_or(Ok(()), Err)
            }
            Self::Tokens(tokens, operators) => {
                match sender.certificate.map(|certificate| refusal(certificate, needed, operators.as_ref())) {
                    Some(None) => return Ok(()),
                    Some(Some(problem)) if sender.token.is_none() => return Err(problem),
                    // A token may allow what the certificate does not.
                    Some(Some(_)) | None => {}
                }
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

/// The problem of a model that is missing or not visible to the caller.
pub(super) fn no_model(name: &str) -> Problem {
    Problem::new(ProblemType::NotFound, format!("no model is called {name:?} here"))
}

/// Whether an unauthenticated request was sent by a program on this machine rather than by a web page in its browser.
/// Requests of a page have an `Origin` or, after DNS rebinding, another host.
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
    fn certificates_that_are_listed_have_the_role_operator_and_others_predict() {
        let (listed, other) = (sha256(b"listed"), sha256(b"other"));
        let operators = Operators(BTreeSet::from([listed]));
        let status = |certificate: Digest, needed: Role, operators: Option<&Operators>| {
            refusal(certificate, needed, operators).map(|problem| problem.status)
        };
        for (certificate, operators) in [(listed, Some(&operators)), (other, Some(&operators)), (listed, None)] {
            assert_eq!(status(certificate, Role::Predictor, operators), None, "whoever has one may ask");
        }
        for needed in [Role::Viewer, Role::Operator] {
            assert_eq!(status(listed, needed, Some(&operators)), None);
            assert_eq!(status(other, needed, Some(&operators)), Some(403));
            assert_eq!(status(listed, needed, None), Some(403));
        }
        assert_eq!(status(listed, Role::Admin, Some(&operators)), Some(403));
        let why = |operators: Option<&Operators>| refusal(other, Role::Operator, operators).unwrap().detail.unwrap();
        assert!(why(Some(&operators)).contains(&other.to_string()), "it says which certificate to list");
        assert!(why(None).contains("started without it"));
    }

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
