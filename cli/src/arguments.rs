//! Parsers for values shared by several subcommands.

use std::error::Error;
use std::net::{SocketAddr, ToSocketAddrs as _};

use coordinator::config::{Config, TelemetryConfig};

use crate::failure::{Exit, Failure, Outcome};

/// Log directives as `telemetry.level` takes them; [`Exit::Usage`] for any other.
pub(crate) fn log_level(level: &str) -> Outcome<String> {
    let config = Config {
        telemetry: TelemetryConfig { level: level.to_owned(), ..TelemetryConfig::default() },
        ..Config::default()
    };
    config.check().map_err(|error| Failure::new(Exit::Usage, format!("--log: {error}")))?;
    Ok(level.to_owned())
}

/// An id in its text form; [`Exit::Usage`] for any other text.
pub(crate) fn parse_id<T: std::str::FromStr>(what: &str, text: &str) -> Outcome<T>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error| Failure::new(Exit::Usage, format!("`{text}` is no id of a {what}: {error}")))
}

/// Where to listen: an address with a port, or a name with a port, of whose addresses the first of IPv4 is taken, or the first.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, Box<dyn Error + Send + Sync>> {
    let wrong = match text.parse::<SocketAddr>() {
        Ok(address) => return Ok(address),
        Err(wrong) => wrong,
    };
    if !text.contains(':') {
        return Err(wrong.into());
    }
    let addresses = text.to_socket_addrs().map_err(|error| format!("this name has no address here: {error}"))?;
    let addresses: Vec<SocketAddr> = addresses.collect();
    let first = addresses.iter().find(|address| address.is_ipv4()).or_else(|| addresses.first());
    first.copied().ok_or_else(|| wrong.into())
}

/// Parses a participant's label.
pub(crate) fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a label is written KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{AddrParseError, Ipv4Addr};

    use super::*;

    #[test]
    fn one_listens_at_an_address_or_a_name() {
        assert_eq!(parse_listen("127.0.0.1:0").unwrap(), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        assert_eq!(parse_listen("localhost:8443").unwrap(), SocketAddr::from((Ipv4Addr::LOCALHOST, 8443)));
        assert_eq!(parse_listen("[::1]:8443").unwrap().to_string(), "[::1]:8443");
        for without_port in ["nowhere", "8443", ""] {
            assert!(parse_listen(without_port).unwrap_err().is::<AddrParseError>(), "{without_port:?}");
        }
        let no_port = parse_listen("localhost:99999").unwrap_err().to_string();
        assert!(no_port.starts_with("this name has no address here: "), "{no_port}");
    }
}
