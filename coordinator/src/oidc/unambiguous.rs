//! JSON without duplicate members. RFC 8259 §4 leaves the meaning of duplicates open, so two readers of one token may see different
//! audiences; RFC 7519 §4 requires rejection of such tokens.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Whether `json` is one JSON value without duplicate member names at any depth.
pub(super) fn is_unambiguous(json: &[u8]) -> bool {
    serde_json::from_slice::<Unambiguous>(json).is_ok()
}

/// Any JSON value without duplicate members.
struct Unambiguous;

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Unambiguous;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value without repeated members")
    }

    fn visit_unit<E>(self) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_str<E>(self, _: &str) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Unambiguous, A::Error> {
        while list.next_element::<Unambiguous>()?.is_some() {}
        Ok(Unambiguous)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unambiguous, A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if names.contains(&name) {
                return Err(A::Error::custom(format!("the member {name:?} occurs twice")));
            }
            names.insert(name);
            map.next_value::<Unambiguous>()?;
        }
        Ok(Unambiguous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_members_are_found_at_any_depth() {
        for fine in [r#"{"a": 1, "b": [{"a": 1}, {"a": 2.5}], "c": {"a": null, "d": -1, "e": true}}"#, "[]", "\"a\""] {
            assert!(is_unambiguous(fine.as_bytes()), "{fine}");
        }
        for wrong in [
            r#"{"aud": "x", "aud": "x"}"#,
            r#"{"aud": "x", "\u0061ud": "y"}"#,
            r#"{"a": {"b": 1, "b": 2}}"#,
            r#"{"a": [1, {"b": 1, "c": 2, "b": 3}]}"#,
            r#"{"a": 1} {"b": 1}"#,
            "{",
        ] {
            assert!(!is_unambiguous(wrong.as_bytes()), "{wrong}");
        }
    }
}
