//! A share of a whole, as people write it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A percentage from 0 to 100, written `"1 %"`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String))]
pub struct Percentage(f64);

impl Percentage {
    /// The largest whole number of `count` things that is not above this share of them.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count is a count")]
    pub fn of(self, count: usize) -> usize {
        // A product such as 2.3 * 3000 may come out just below the whole number.
        (self.0 * count as f64 / 100.0 * (1.0 + 4.0 * f64::EPSILON)) as usize
    }
}

impl TryFrom<String> for Percentage {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let is_share = |number: &f64| (0.0..=100.0).contains(number);
        number.filter(is_share).map(Self).ok_or_else(|| format!("`{text}` is no percentage, such as \"1 %\""))
    }
}

impl From<Percentage> for String {
    fn from(percentage: Percentage) -> Self {
        percentage.to_string()
    }
}

impl fmt::Display for Percentage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Percentage, String> {
        Percentage::try_from(text.to_owned())
    }

    #[test]
    fn percentages_are_read_and_written() {
        for (text, count, of) in [
            ("1 %", 250, 2),
            ("0.5%", 200, 1),
            ("0 %", 9, 0),
            ("100 %", 9, 9),
            ("29 %", 100, 29),
            ("2.3 %", 3000, 69),
            ("64.6 %", 500, 323),
        ] {
            let share = read(text).unwrap();
            assert_eq!((share.of(count), read(&share.to_string())), (of, Ok(share)), "{text}");
        }
        for text in ["1", "", "%", "-1 %", "101 %", "NaN %", "a %"] {
            assert!(read(text).unwrap_err().ends_with("is no percentage, such as \"1 %\""), "{text}");
        }
    }
}
