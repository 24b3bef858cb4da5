//! Parsers for values shared by several subcommands.

use std::convert::Infallible;
use std::error::Error;
use std::net::{SocketAddr, ToSocketAddrs as _};

use clap::builder::{PossibleValuesParser, TypedValueParser};
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

/// A token, without white space around it: files and mounted secrets often end with a line break, which is not part of
/// the token.
pub(crate) fn parse_token(text: &str) -> Result<String, Infallible> {
    Ok(text.trim().to_owned())
}

/// Parses a participant's label.
pub(crate) fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a label is written KEY=VALUE".to_owned()),
    }
}

/// Takes one of these values by its name; `--help` and completions list the names.
pub(crate) fn one_of<T, const N: usize>(all: [T; N], name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let named =
        move |given: String| all.into_iter().find(|value| name(*value) == given).ok_or("there is none of this name");
    PossibleValuesParser::new(all.map(name)).try_map(named)
}

#[cfg(test)]
mod tests {
    use std::net::{AddrParseError, Ipv4Addr};

    use wire::TaskStatus;

    use super::*;

    #[test]
    fn a_value_is_one_of_those_that_are_listed() {
        let command = || {
            let state = clap::Arg::new("state").long("state").value_delimiter(',');
            clap::Command::new("x").arg(state.num_args(1).value_parser(one_of(TaskStatus::ALL, TaskStatus::as_str)))
        };
        let read = command().try_get_matches_from(["x", "--state", "PAUSED,ACTIVE"]).unwrap();
        let states: Vec<TaskStatus> = read.get_many("state").unwrap().copied().collect();
        assert_eq!(states, [TaskStatus::Paused, TaskStatus::Active]);
        for wrong in ["paused", "PAUSED,", ""] {
            let said = command().try_get_matches_from(["x", "--state", wrong]).unwrap_err().to_string();
            assert!(said.contains("[possible values: ACTIVE, PAUSED, COMPLETED"), "{said}");
        }
    }

    #[test]
    fn token_has_no_white_space_around_it() {
        for text in ["tbo_secret", "tbo_secret\n", "tbo_secret\r\n", " tbo_secret\t"] {
            assert_eq!(parse_token(text), Ok("tbo_secret".to_owned()));
        }
    }

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
