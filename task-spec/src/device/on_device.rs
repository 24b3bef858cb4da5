//! On-device eligibility: a task's criteria over attributes that never leave the device.
//!
//! The coordinator sends the criteria; the device compares them with its attributes and answers yes or no without a reason. A no reveals to
//! the coordinator that at least one criterion fails, a yes that all hold. So criteria must not cover attributes for which this is too
//! much.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The attribute known for every participant: its number of training examples.
pub const EXAMPLES: &str = "examples";

/// The attribute of every participant's SDK: the latest format of graphs ([`graph::Graph::LATEST`]) that it computes.
pub const GRAPH_VERSION: &str = "graph_version";

/// The attribute of every participant's SDK: the latest rules for tables ([`crate::TableSpec::LATEST`]) that it reads.
pub const TABLE_VERSION: &str = "table_version";

/// Maximum number of criteria of a task.
pub const MAX_CRITERIA: usize = 16;
/// Maximum number of texts in a criterion.
pub const MAX_TEXTS: usize = 64;

/// A device's attributes, as set by its app; they stay on the device.
pub type Attributes = BTreeMap<String, Attribute>;

/// The value of an attribute. Not serializable, so that it cannot leave the device.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Attribute {
    /// A number; criteria fail if it is not finite.
    Number(f64),
    Text(String),
}

impl From<f64> for Attribute {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A criterion on one attribute: `{ attribute = "language", one_of = ["de", "fr"] }` or `{ attribute = "memory_gb",
/// at_least = 4 }`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Criterion {
    /// Name of the attribute. Every participant has `examples`, its number of training examples, and `graph_version` and
    /// `table_version`, the latest format of graphs and rules for tables that its SDK supports.
    pub attribute: String,
    /// Holds for numbers that are not below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Holds for numbers that are not above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// Holds for these texts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub one_of: Vec<String>,
}

impl Criterion {
    /// Whether the criterion holds. False if the attribute is missing or of the other kind.
    #[must_use]
    pub fn holds(&self, attributes: &Attributes) -> bool {
        match attributes.get(&self.attribute) {
            Some(Attribute::Number(value)) => {
                let is_asked = self.at_least.is_some() || self.at_most.is_some();
                is_asked
                    && value.is_finite()
                    && self.at_least.is_none_or(|least| *value >= least)
                    && self.at_most.is_none_or(|most| *value <= most)
            }
            Some(Attribute::Text(text)) => self.one_of.contains(text),
            None => false,
        }
    }

    /// Validates the criterion.
    ///
    /// # Errors
    /// The first problem, with a valid alternative.
    pub fn check(&self) -> Result<(), &'static str> {
        let numbers = || self.at_least.into_iter().chain(self.at_most);
        if !(1..=64).contains(&self.attribute.len()) {
            return Err("attribute must be a name of 1 to 64 bytes");
        }
        if (numbers().count() > 0) != self.one_of.is_empty() {
            return Err("needs either one_of, for a text, or at_least and at_most or one of them, for a number");
        }
        if !numbers().all(f64::is_finite) {
            return Err("at_least and at_most must be finite");
        }
        if matches!((self.at_least, self.at_most), (Some(least), Some(most)) if least > most) {
            return Err("at_least is above at_most: no device could ever meet it");
        }
        let is_short = |text: &String| (1..=128).contains(&text.len());
        if self.one_of.len() > MAX_TEXTS || !self.one_of.iter().all(is_short) {
            return Err("one_of must list at most 64 texts of 1 to 128 bytes each");
        }
        Ok(())
    }
}

/// Whether all criteria hold.
#[must_use]
pub fn eligible(criteria: &[Criterion], attributes: &Attributes) -> bool {
    criteria.iter().all(|criterion| criterion.holds(attributes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(at_least: Option<f64>, at_most: Option<f64>) -> Criterion {
        Criterion { attribute: "memory_gb".to_owned(), at_least, at_most, ..Criterion::default() }
    }

    fn text(one_of: &[&str]) -> Criterion {
        let one_of = one_of.iter().map(|&text| text.to_owned()).collect();
        Criterion { attribute: "language".to_owned(), one_of, ..Criterion::default() }
    }

    #[test]
    fn each_kind_holds_for_what_it_names_and_nothing_else() {
        let device: Attributes = [("memory_gb".to_owned(), 4.0.into()), ("language".to_owned(), "de".into())].into();
        for (criterion, holds) in [
            (number(Some(4.0), None), true),
            (number(Some(4.1), None), false),
            (number(None, Some(4.0)), true),
            (number(Some(2.0), Some(3.0)), false),
            (text(&["fr", "de"]), true),
            (text(&["fr"]), false),
            (Criterion { attribute: "language".to_owned(), ..number(Some(0.0), None) }, false),
            (Criterion { attribute: "memory_gb".to_owned(), ..text(&["4"]) }, false),
            (Criterion { attribute: "age".to_owned(), ..number(Some(0.0), None) }, false),
        ] {
            assert_eq!(criterion.holds(&device), holds, "{criterion:?}");
        }
        assert!(eligible(&[], &Attributes::new()));
        assert!(!eligible(&[text(&["de"]), number(Some(9.0), None)], &device), "all must hold");
        let broken: Attributes = [("memory_gb".to_owned(), f64::NAN.into())].into();
        assert!(!number(Some(0.0), None).holds(&broken) && !number(None, Some(0.0)).holds(&broken));
    }

    #[test]
    fn what_no_device_could_answer_is_refused() {
        for good in [number(Some(1.0), Some(1.0)), number(None, Some(0.0)), text(&["de"])] {
            assert_eq!(good.check(), Ok(()), "{good:?}");
        }
        let many: Vec<_> = (0..=MAX_TEXTS).map(|index| index.to_string()).collect();
        for (bad, words) in [
            (number(None, None), "either"),
            (Criterion { at_least: Some(1.0), ..text(&["de"]) }, "either"),
            (number(Some(f64::NAN), None), "finite"),
            (number(Some(2.0), Some(1.0)), "above"),
            (text(&[""]), "128"),
            (Criterion { one_of: many, ..text(&[]) }, "64 texts"),
            (Criterion { attribute: String::new(), ..text(&["de"]) }, "name"),
        ] {
            assert!(bad.check().unwrap_err().contains(words), "{bad:?}");
        }
    }
}
