//! The address of a coordinator.

use std::fmt;

use http::Uri;
use http::uri::{Authority, Scheme};

use super::TransportError;

/// Host and port of `https://HOST[:PORT]`, in lower case and without the usual port.
pub(crate) fn authority(server: &str) -> Result<Authority, TransportError> {
    let wrong = |what: &str| TransportError::protocol(format!("the server's address {what}, not {server}"));
    let uri: Uri = server.parse().map_err(|error| unusable("the server's address", error))?;
    let is_https = uri.scheme() == Some(&Scheme::HTTPS);
    let authority = uri.authority().filter(|_| is_https).ok_or_else(|| wrong("must begin with https://"))?;
    let host = authority.host();
    if host.is_empty() || authority.as_str().contains('@') || !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(wrong("must be https://HOST:PORT"));
    }
    let port = match authority.as_str().strip_prefix(host).unwrap_or_default().trim_start_matches(':') {
        "" | "443" => String::new(),
        port => format!(":{}", port.parse::<u16>().map_err(|error| unusable("the server's port", error))?),
    };
    format!("{}{port}", host.to_lowercase()).parse().map_err(|error| unusable("the server's address", error))
}

fn unusable(what: &str, error: impl fmt::Display) -> TransportError {
    TransportError::protocol(format!("{what} cannot be used: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_perhaps_a_port() {
        let told = |server: &str| authority(server).map(|authority| authority.to_string());
        for (server, is) in [
            ("https://localhost:8443", "localhost:8443"),
            ("https://localhost:8443/", "localhost:8443"),
            ("https://Coordinator.Example", "coordinator.example"),
            ("https://coordinator.example:443", "coordinator.example"),
            ("https://coordinator.example:", "coordinator.example"),
            ("https://[::1]:8443", "[::1]:8443"),
        ] {
            assert_eq!(told(server).unwrap(), is);
        }
        for (server, needs) in [
            ("http://localhost", "must begin with https://"),
            ("localhost:8443", "must begin with https://"),
            ("https://me@localhost", "https://HOST:PORT"),
            ("https://localhost/v1", "https://HOST:PORT"),
            ("https://localhost?task=digits", "https://HOST:PORT"),
            ("https://localhost:84430", "cannot be used"),
            ("https://", "the server's address"),
            ("", "the server's address cannot be used"),
        ] {
            let error = told(server).unwrap_err().to_string();
            assert!(error.contains(needs), "{server}: {error}");
        }
    }
}
