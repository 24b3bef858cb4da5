//! Numbers and times as people read them.

use std::time::Duration;

use wire::Timestamp;

/// `1.2 MB`: powers of a thousand, three digits.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "kB", "MB", "GB", "TB"] {
        if value < 999.5 || unit == "TB" {
            let digits = if unit == "B" || value >= 99.95 { 0 } else { 1 };
            return format!("{value:.digits$} {unit}");
        }
        value /= 1000.0;
    }
    unreachable!("the last unit takes everything")
}

/// `1,663,370`.
pub(crate) fn number(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Four significant digits, without further zeros.
pub(crate) fn figure(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() {
        "unbounded".to_owned()
    } else if magnitude == 0.0 {
        "0".to_owned()
    } else if !(1e-4..1e6).contains(&magnitude) {
        format!("{value:.2e}")
    } else {
        let digits = (1_u32..=7).find(|&digits| magnitude * 10_f64.powi(digits.cast_signed()) >= 1000.0).unwrap_or(8);
        let digits = if magnitude >= 1000.0 { 0 } else { digits as usize };
        let text = format!("{value:.digits$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    }
}

/// `0.42 s`, `12.3 s`, `4 min 05 s`, `3 h 20 min`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    let whole = duration.as_secs();
    if seconds < 9.995 {
        format!("{seconds:.2} s")
    } else if seconds < 99.95 {
        format!("{seconds:.1} s")
    } else if whole < 3600 {
        format!("{} min {:02} s", whole / 60, whole % 60)
    } else {
        format!("{} h {:02} min", whole / 3600, whole / 60 % 60)
    }
}

/// `2026-11-20 12:00:03Z`.
pub(crate) fn when(at: Timestamp) -> String {
    let Some(moment) = moment(at) else { return at.to_string() };
    let (date, time) = (moment.date(), moment.time());
    format!("{date} {:02}:{:02}:{:02}Z", time.hour(), time.minute(), time.second())
}

/// `2026-11-20`, the day in UTC.
pub(crate) fn day(at: Timestamp) -> String {
    moment(at).map_or_else(|| at.to_string(), |moment| moment.date().to_string())
}

fn moment(at: Timestamp) -> Option<time::OffsetDateTime> {
    time::OffsetDateTime::from_unix_timestamp(at.0.div_euclid(1000)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_four_digits() {
        let cases = [
            (8.0, "8"),
            (7.999_6, "8"),
            (7.991_2, "7.991"),
            (0.012_345, "0.01235"),
            (123.456, "123.5"),
            (98_765.4, "98765"),
            (0.0, "0"),
            (0.25, "0.25"),
            (1e-7, "1.00e-7"),
            (1000.0, "1000"),
            (f64::INFINITY, "unbounded"),
        ];
        for (value, text) in cases {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [0, 999, 1000, 99_949, 999_499, 6_653_480].map(bytes),
            ["0 B", "999 B", "1.0 kB", "99.9 kB", "999 kB", "6.7 MB"]
        );
        assert_eq!([0, 999, 1000, 1_663_370].map(number), ["0", "999", "1,000", "1,663,370"]);
        assert_eq!(
            [420, 12_345, 245_000, 12_000_000].map(|ms| duration(Duration::from_millis(ms))),
            ["0.42 s", "12.3 s", "4 min 05 s", "3 h 20 min"]
        );
        assert_eq!(when(Timestamp(1_700_000_000_000)), "2023-11-14 22:13:20Z");
        assert_eq!(day(Timestamp(1_700_000_000_000)), "2023-11-14");
    }
}
