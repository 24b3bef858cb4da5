//! Parsers for values shared by several subcommands.

use std::error::Error;
use std::net::{SocketAddr, ToSocketAddrs as _};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use coordinator::config::{Config, TelemetryConfig};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use wire::Timestamp;

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

/// Takes one of these values by its name; `--help` and completions list the names.
pub(crate) fn one_of<T, const N: usize>(all: [T; N], name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let named =
        move |given: String| all.into_iter().find(|value| name(*value) == given).ok_or("there is none of this name");
    PossibleValuesParser::new(all.map(name)).try_map(named)
}

/// Parses a time as the API's `since` is given: RFC 3339, or milliseconds since 1970.
pub(crate) fn parse_since(text: &str) -> Result<Timestamp, &'static str> {
    if let Ok(millis) = text.parse() {
        return Ok(Timestamp(millis));
    }
    let at = OffsetDateTime::parse(text, &Rfc3339)
        .map_err(|_| "a time is RFC 3339, such as 2026-11-24T12:00:00Z, or milliseconds since 1970")?;
    let millis = i64::try_from(at.unix_timestamp_nanos().div_euclid(1_000_000));
    millis.map(Timestamp).map_err(|_| "the time is out of range")
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
    fn a_time_is_a_date_with_its_zone_or_milliseconds() {
        let read = |text| parse_since(text).map(|at| at.0);
        for (text, millis) in [
            ("-5", -5),
            ("1750000000500", 1_750_000_000_500),
            ("2025-06-15T15:06:40.5Z", 1_750_000_000_500),
            ("2025-06-15T17:06:40+02:00", 1_750_000_000_000),
            ("1969-12-31T23:59:59.999Z", -1),
        ] {
            assert_eq!(read(text), Ok(millis), "{text}");
        }
        for text in ["", "yesterday", "2025-06-15", "99999999999999999999", "2025-13-01T00:00:00Z"] {
            assert!(read(text).is_err(), "{text}");
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
