//! Failures of a proxy to open a tunnel, with the remedies.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use http::StatusCode;
use http::uri::Authority;

/// From the connection to the proxy to the head of its response. The proxy connects to the server within this time.
pub(crate) const PROXY_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// Reasons why a proxy did not open a tunnel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Reason {
    #[error("could not be reached")]
    Connect(#[source] BoxError),
    #[error("did not answer for {} s", PROXY_TIMEOUT.as_secs())]
    Silent,
    #[cfg(feature = "reqwest")]
    #[error("gave no tunnel in {} s", .0.as_secs())]
    Late(Duration),
    #[error("answered {0}")]
    Status(StatusCode),
    #[error("sent no valid HTTP response")]
    Response(#[from] hyper::Error),
    #[error("sent data before the TLS handshake")]
    Early,
}

/// A failed tunnel, with its proxy.
pub struct ProxyError {
    /// The proxy's address without a password.
    pub(crate) proxy: String,
    /// Whether the proxy's address has a name and a password.
    pub(crate) has_password: bool,
    pub(crate) target: Authority,
    pub(crate) reason: Reason,
}

impl ProxyError {
    /// The change of settings, at the client or the proxy, that would give a tunnel.
    #[must_use]
    pub fn advice(&self) -> String {
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
                format!("it did not reach {target}: are the name and the port right?")
            }
            Reason::Status(_) => {
                format!("its rules have to allow CONNECT to {target}; NO_PROXY exempts hosts that are reached directly")
            }
            #[cfg(feature = "reqwest")]
            Reason::Late(_) => "is that the address of an HTTP proxy?".to_owned(),
            Reason::Connect(_) | Reason::Silent | Reason::Response(_) | Reason::Early => {
                "is that the address of an HTTP proxy?".to_owned()
            }
        }
    }

    /// The failure with its causes and the [advice](Self::advice).
    #[must_use]
    pub fn report(&self) -> String {
        let mut text = self.to_string();
        let mut next = self.source();
        while let Some(cause) = next {
            let cause_text = cause.to_string();
            if !text.ends_with(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            next = cause.source();
        }
        format!("{text}; {}", self.advice())
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
