//! Formats of times in queries and on command lines.

use federation::time::Timestamp;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Parses RFC 3339, or milliseconds since 1970, UTC.
///
/// # Errors
/// It is neither, or cannot be expressed in milliseconds.
pub fn parse_time(text: &str) -> Result<Timestamp, &'static str> {
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
    use super::*;

    #[test]
    fn a_time_is_a_date_with_its_zone_or_milliseconds() {
        let read = |text| parse_time(text).map(|at| at.0);
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
}
