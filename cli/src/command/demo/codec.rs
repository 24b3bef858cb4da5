//! `--codec`: in which form the demo's participants upload, as a task says it.
//!
//! `top_k,k=1%` or `rotated,bits=2,keep=0.75,norm=2`: read here; what does not fit the task is said when it is created.

use std::str::FromStr;

use serde_json::{Map, Value};
use task_spec::Compression;
use wire::inspect::CompressionView;

use super::pairs::{field, named, number};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::bytes;

/// `NAME[,KEY=VALUE…]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CodecArg {
    /// As a task says it, but for `k`.
    said: Map<String, Value>,
    k: Option<Amount>,
    norm: Option<f32>,
}

/// Coordinates: so many, or a part of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Amount {
    Count(u64),
    Percent(f64),
}

/// About the length of an update of the demo's models in their first rounds.
const NORM: f32 = 2.0;

impl FromStr for CodecArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, pairs) = named(text, "k=1%");
        if !Compression::NAMES.contains(&name) {
            return Err(format!("there is no codec `{name}`; there are {}", Compression::NAMES.join(", ")));
        }
        let mut said = Map::from_iter([("codec".to_owned(), name.into())]);
        // What a task must say: values that suit the demo's models.
        let (mut k, mut norm) = match name {
            "rotated" => (None, Some(NORM)),
            "random_k" => (Some(Amount::Percent(10.0)), None),
            "top_k" => (Some(Amount::Percent(1.0)), None),
            "low_rank" => {
                said.insert("rank".to_owned(), 16.into());
                (None, None)
            }
            _ => (None, None),
        };
        for pair in pairs {
            let (key, value) = pair?;
            match key {
                "k" => k = Some(amount(value)?),
                "norm" => norm = Some(number(key, value)?),
                "feedback" => {
                    let keeps = match value {
                        "yes" => true,
                        "no" => false,
                        _ => return Err(format!("feedback={value}: it is yes or no")),
                    };
                    said.insert("error_feedback".to_owned(), keeps.into());
                }
                key => {
                    said.insert(key.to_owned(), field(value));
                }
            }
        }
        let arg = Self { said, k, norm };
        arg.read(1).map_err(|error| format!("{name}: {error}"))?;
        Ok(arg)
    }
}

fn amount(value: &str) -> Result<Amount, String> {
    match value.strip_suffix('%') {
        Some(percent) => number("k", percent).map(Amount::Percent),
        None => number("k", value).map(Amount::Count),
    }
}

impl CodecArg {
    /// `[compression]` of a task whose model has so many parameters.
    ///
    /// # Errors
    /// None: it was read before.
    pub(super) fn compression(&self, parameters: u64) -> Outcome<Compression> {
        self.read(parameters).map_err(|error| Failure::new(Exit::Usage, format!("--codec: {error}")))
    }

    fn read(&self, parameters: u64) -> serde_json::Result<Compression> {
        let mut said = self.said.clone();
        if let Some(k) = self.k {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "saturates; judged with the task"
            )]
            let k = match k {
                Amount::Count(count) => count,
                Amount::Percent(percent) => (parameters as f64 * percent / 100.0).round() as u64,
            };
            said.insert("k".to_owned(), k.into());
        }
        serde_json::from_value(Value::Object(said))
    }

    /// Bound on an update's L2 norm, where one is wanted or the codec needs it.
    pub(super) fn clip_norm(&self) -> Option<f32> {
        self.norm
    }
}

/// For people.
pub(crate) fn words(view: &CompressionView) -> String {
    let error = match (view.added_error, view.norm) {
        (Some(error), Some(norm)) => {
            format!("; it changed an update of length {norm:.3} by {:.1} % on average", 100.0 * error)
        }
        _ => String::new(),
    };
    format!("{}, {} an update, {:.1} × smaller than in floats{error}", view.codec, bytes(view.upload_bytes), view.ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Compression {
        text.parse::<CodecArg>().unwrap().compression(159_010).unwrap()
    }

    #[test]
    fn codecs_are_read_with_what_suits_them() {
        assert_eq!(read("top_k"), Compression::TopK { k: 1590, error_feedback: true });
        assert_eq!(read("top_k,k=2%,feedback=no"), Compression::TopK { k: 3180, error_feedback: false });
        assert_eq!(read("random_k,k=500,bits=8"), Compression::RandomK { k: 500, bits: 8, error_feedback: false });
        assert_eq!(read("low_rank,rank=4"), Compression::LowRank { rank: 4, bits: 12, error_feedback: false });
        assert_eq!(read("rotated,keep=0.75"), Compression::Rotated { bits: 2, keep: 0.75 });
        assert_eq!(read("int8"), Compression::Int8 {});
        assert_eq!("rotated".parse::<CodecArg>().unwrap().clip_norm(), Some(2.0));
        assert_eq!("rotated,norm=3".parse::<CodecArg>().unwrap().clip_norm(), Some(3.0));
        assert_eq!("int8".parse::<CodecArg>().unwrap().clip_norm(), None);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("zip", "there is no codec `zip`"),
            ("top_k,k", "no KEY=VALUE"),
            ("top_k,k=inf", "a number is expected"),
            ("top_k,n=3", "unknown field `n`"),
            ("rotated,k=3", "unknown field `k`"),
            ("rotated,bits=inf", "invalid type"),
            ("top_k,feedback=maybe", "yes or no"),
        ] {
            let error = text.parse::<CodecArg>().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
