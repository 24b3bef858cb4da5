//! Failures of a proxy to open a tunnel, with the remedies.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use http::StatusCode;
use http::uri::Authority;

/// From the connection to the proxy to the head of its response. The proxy connects to the coordinator within this time.
pub(super) const PROXY_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// Reasons why a proxy did not open a tunnel.
#[derive(Debug, thiserror::Error)]
pub(super) enum Reason {
    #[error("could not be reached")]
    Connect(#[source] BoxError),
    #[error("did not answer for {} s", PROXY_TIMEOUT.as_secs())]
    Silent,
    #[error("answered {0}")]
    Status(StatusCode),
    #[error("sent no valid HTTP response")]
    Response(#[from] hyper::Error),
    #[error("sent data before the TLS handshake")]
    Early,
}

/// A failed tunnel, with its proxy.
pub(super) struct ProxyError {
    /// The proxy's address without a password.
    pub(super) proxy: String,
    /// Whether the proxy's address has a name and a password.
    pub(super) has_password: bool,
    pub(super) target: Authority,
    pub(super) reason: Reason,
}

impl ProxyError {
    /// The change of settings, at the client or the proxy, that would give a tunnel.
    pub(super) fn advice(&self) -> String {
        let (host, target) = (self.target.host(), &self.target);
        if is_loopback(host) {
            return format!("{host} is this machine: exempt it with NO_PROXY={host}, or set the proxy to `none`");
        }
        match &self.reason {
            Reason::Status(StatusCode::PROXY_AUTHENTICATION_REQUIRED) if self.has_password => {
                "it does not accept the name and the password in its address (method Basic)".to_owned()
            }
            Reason::Status(StatusCode::PROXY_AUTHENTICATION_REQUIRED) => {
                "it requires a name and a password: http://USER:PASSWORD@HOST:PORT (method Basic)".to_owned()
            }
            Reason::Status(status) if status.is_server_error() => {
                format!("it did not reach {target}: are the name and the port the coordinator's own?")
            }
            Reason::Status(_) => {
                format!("its rules have to allow CONNECT to {target}; NO_PROXY exempts hosts that are reached directly")
            }
            Reason::Connect(_) | Reason::Silent | Reason::Response(_) | Reason::Early => {
                "is that the address of an HTTP proxy?".to_owned()
            }
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the proxy {} {}", self.proxy, self.reason)
    }
}

impl fmt::Debug for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for ProxyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.reason.source()
    }
}
