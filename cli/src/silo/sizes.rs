//! Large numbers as people write them: `7e9`, `7B`, `80GB`.

/// A whole number, at least 1: `7000000000`, `7e9`, `7B`, `350M`.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    scaled(text, &[("B", 1e9), ("M", 1e6), ("K", 1e3), ("", 1.0)])
        .ok_or_else(|| format!("{text:?} is no number of parameters; for example 7e9, 7B or 350M"))
}

/// Bytes, at least 1: `80GB` are 80e9, `80GiB` 80 · 2³⁰.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let units = [("TiB", 1024_f64.powi(4)), ("GiB", 1024_f64.powi(3)), ("MiB", 1024_f64.powi(2))];
    scaled(text, &[&units[..], &[("TB", 1e12), ("GB", 1e9), ("MB", 1e6)]].concat())
        .ok_or_else(|| format!("{text:?} is no amount of memory; for example 80GB or 500MiB"))
}

/// The number before the first unit that the text ends with.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let (number, unit) = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    let value = (number.trim().parse::<f64>().ok()? * unit).round();
    // The largest exact integer of a double exceeds the parameters of any model.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 1 to 2^53")]
    (1.0..=9e15).contains(&value).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_people_write_them() {
        for (text, value) in
            [("7e9", 7_000_000_000), ("7B", 7_000_000_000), ("1.3B", 1_300_000_000), ("350M", 350_000_000), ("12", 12)]
        {
            assert_eq!(count(text), Ok(value));
        }
        for (text, value) in
            [("80GB", 80_000_000_000), ("16 GiB", 17_179_869_184), ("0.5MB", 500_000), ("2TB", 2_000_000_000_000)]
        {
            assert_eq!(bytes(text), Ok(value));
        }
        for text in ["", "0", "-1", "seven", "7e30", "NaN", "inf", "7X"] {
            assert!(count(text).unwrap_err().contains("for example 7e9"), "{text}");
        }
        for text in ["80", "GB", "0GB", "-3GB", "1e9TB"] {
            assert!(bytes(text).unwrap_err().contains("for example 80GB"), "{text}");
        }
    }
}
