//! `--codec`: in which form the demo's participants upload, as a task says it.
//!
//! `top_k,k=1%` or `rotated,bits=2,keep=0.75,norm=2`: read here; what does not fit the task is said when it is created.

use std::str::FromStr;

use task_spec::Compression;
use wire::inspect::CompressionView;

use super::pairs::{named, number};
use crate::output::bytes;

/// `NAME[,KEY=VALUE…]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CodecArg {
    name: Name,
    k: Amount,
    bits: Option<u8>,
    keep: f64,
    rank: u32,
    feedback: Option<bool>,
    norm: Option<f32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Rotated,
    RandomK,
    LowRank,
    TopK,
    Int8,
}

/// Coordinates: so many, or a part of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Amount {
    Count(u64),
    Percent(f64),
}

const RANK: u32 = 16;
const ROTATED_BITS: u8 = 2;
const BITS: u8 = 12;
/// About the length of an update of the demo's models in their first rounds.
const NORM: f32 = 2.0;

impl FromStr for CodecArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, pairs) = named(text, "k=1%");
        let (name, percent) = match name {
            "rotated" => (Name::Rotated, 100.0),
            "random_k" => (Name::RandomK, 10.0),
            "low_rank" => (Name::LowRank, 100.0),
            "top_k" => (Name::TopK, 1.0),
            "int8" => (Name::Int8, 100.0),
            other => {
                return Err(format!(
                    "there is no codec `{other}`; there are rotated, random_k, low_rank, top_k and int8"
                ));
            }
        };
        let k = Amount::Percent(percent);
        let mut arg = Self { name, k, bits: None, keep: 1.0, rank: RANK, feedback: None, norm: None };
        for pair in pairs {
            let (key, value) = pair?;
            match key {
                "k" => arg.k = amount(value)?,
                "bits" => arg.bits = Some(number(key, value)?),
                "keep" => arg.keep = number(key, value)?,
                "rank" => arg.rank = number(key, value)?,
                "norm" => arg.norm = Some(number(key, value)?),
                "feedback" => {
                    arg.feedback = Some(match value {
                        "yes" => true,
                        "no" => false,
                        _ => return Err(format!("feedback={value}: it is yes or no")),
                    });
                }
                _ => return Err(format!("there is no `{key}`; there are k, bits, keep, rank, norm and feedback")),
            }
        }
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
    pub(super) fn compression(&self, parameters: u64) -> Compression {
        let k = match self.k {
            Amount::Count(count) => count,
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "saturates; judged with the task"
            )]
            Amount::Percent(percent) => (parameters as f64 * percent / 100.0).round() as u64,
        };
        let (bits, rank) = (self.bits.unwrap_or(BITS), self.rank);
        match self.name {
            Name::Rotated => Compression::Rotated { bits: self.bits.unwrap_or(ROTATED_BITS), keep: self.keep },
            Name::RandomK => Compression::RandomK { k, bits, error_feedback: self.feedback.unwrap_or(false) },
            Name::LowRank => Compression::LowRank { rank, bits, error_feedback: self.feedback.unwrap_or(false) },
            Name::TopK => Compression::TopK { k, error_feedback: self.feedback.unwrap_or(true) },
            Name::Int8 => Compression::Int8 {},
        }
    }

    /// Bound on an update's L2 norm, where one is wanted or the codec needs it.
    pub(super) fn clip_norm(&self) -> Option<f32> {
        self.norm.or((self.name == Name::Rotated).then_some(NORM))
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
        text.parse::<CodecArg>().unwrap().compression(159_010)
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
            ("top_k,n=3", "there is no `n`"),
            ("top_k,feedback=maybe", "yes or no"),
        ] {
            let error = text.parse::<CodecArg>().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
