//! `--personalize`: a way to a model of one's own, as a task says it.
//!
//! `ditto`, `ditto:lambda=0.1` or `fed_per:personal=fc2.*+fc1.bias`: what is left out is chosen for the model; what does not
//! fit the task is said when it is created.

use std::str::FromStr;

use client_sdk::models::Architecture;
use serde_json::{Map, Value, json};
use task_spec::Personalization;

use crate::command::demo::pairs::{field, pairs};

/// `METHOD[:KEY=VALUE,…]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Way {
    /// As it was written, for people.
    label: String,
    method: Personalization,
    /// Patterns of the tensors that it is about; none: those that suit the model.
    patterns: Vec<String>,
}

/// Names that papers write without the underline.
const ALIASES: [(&str, &str); 5] = [
    ("fedper", "fed_per"),
    ("fedrep", "fed_rep"),
    ("fedbn", "fed_bn"),
    ("finetune", "fine_tune"),
    ("p_fed_me", "pfedme"),
];
/// What keeps tensors apart in a list of patterns.
const AND: char = '+';

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, settings) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let name = name.trim().replace('-', "_").to_lowercase();
        let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name.as_str(), |(_, name)| name);
        let mut fields = defaults(name);
        let mut patterns = Vec::new();
        for pair in settings.into_iter().flat_map(|settings| pairs(settings, "lambda=0.1")) {
            let (key, value) = pair?;
            match key {
                "personal" => patterns = value.split(AND).map(str::to_owned).collect(),
                "layers" => {
                    let layers: Vec<_> = value.split(AND).collect();
                    fields.insert(key.to_owned(), layers.into());
                }
                _ => {
                    fields.insert(key.to_owned(), field(value));
                }
            }
        }
        fields.insert("method".to_owned(), name.into());
        let method: Personalization =
            serde_json::from_value(Value::Object(fields)).map_err(|error| format!("{text}: {error}"))?;
        if !patterns.is_empty() && !method.parts_the_model() {
            return Err(format!("{text}: with {name} no tensor stays local, so there are no patterns to give"));
        }
        Ok(Self { label: text.to_owned(), method, patterns })
    }
}

/// What a method must be told, where nothing is said.
fn defaults(method: &str) -> Map<String, Value> {
    let fields = match method {
        "ditto" => json!({ "lambda": 0.1 }),
        "pfedme" => json!({ "lambda": 1.0, "rate": 0.5 }),
        "elastic" => json!({ "alpha": 0.5 }),
        // Layers are chosen for the model.
        "lora" => json!({ "rank": 4, "layers": [] }),
        _ => json!({}),
    };
    if let Value::Object(fields) = fields { fields } else { Map::new() }
}

impl Way {
    /// As it was asked for.
    pub(in crate::command::demo) fn label(&self) -> &str {
        &self.label
    }

    /// Whether the versions of the task are models that can be evaluated as they are.
    pub(in crate::command::demo) fn publishes_the_whole_model(&self) -> bool {
        !self.method.parts_the_model() && !self.method.shares_adapters()
    }

    /// Whether the versions of the task are those that FedAvg makes.
    pub(in crate::command::demo) fn makes_fed_avg(&self) -> bool {
        self.method.leaves_the_update_alone()
    }

    /// The method, for this model.
    pub(in crate::command::demo) fn method(&self, architecture: &Architecture) -> Personalization {
        let mut method = self.method.clone();
        if let Personalization::Lora { layers, .. } = &mut method
            && layers.is_empty()
        {
            let patterns: &[&str] = match architecture {
                Architecture::Linear(_) => &["fc.weight"],
                Architecture::Mlp(_) | Architecture::Cnn(_) => &["fc*.weight"],
                _ => &["gru.weight*", "fc.weight"],
            };
            *layers = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        }
        method
    }

    /// Patterns of the tensors that stay local with this model.
    pub(in crate::command::demo) fn personal(&self, architecture: &Architecture) -> Vec<String> {
        if !self.patterns.is_empty() || !self.method.parts_the_model() {
            return self.patterns.clone();
        }
        let head = match architecture {
            // None of the ready models has normalisation: what has one dimension takes its place.
            _ if matches!(self.method, Personalization::FedBn {}) => "*bias*".to_owned(),
            Architecture::Linear(_) => "fc.bias".to_owned(),
            Architecture::Mlp(sizes) => format!("fc{}.*", sizes.hidden.len() + 1),
            Architecture::Cnn(_) => "fc2.*".to_owned(),
            _ => "fc.*".to_owned(),
        };
        vec![head]
    }
}

#[cfg(test)]
mod tests {
    use client_sdk::models::{Gru, Mlp};

    use super::*;

    fn way(text: &str) -> Way {
        text.parse().unwrap()
    }

    #[test]
    fn every_method_can_be_named_alone() {
        for (text, name) in [
            ("fedper", "fed_per"),
            ("FedRep", "fed_rep"),
            ("fed-bn", "fed_bn"),
            ("ditto", "ditto"),
            ("pfedme", "pfedme"),
            ("apfl", "apfl"),
            ("fine_tune", "fine_tune"),
            ("elastic", "elastic"),
            ("lora", "lora"),
        ] {
            assert_eq!(way(text).method.as_str(), name);
        }
    }

    #[test]
    fn what_is_said_counts_and_what_is_not_suits_the_model() {
        assert_eq!(way("ditto:lambda=0.5,epochs=3").method, Personalization::Ditto { lambda: 0.5, epochs: Some(3) });
        let mlp = Architecture::Mlp(Mlp::default());
        assert_eq!(way("fedper").personal(&mlp), ["fc2.*"]);
        assert_eq!(way("fedper:personal=fc1.*+*.bias").personal(&mlp), ["fc1.*", "*.bias"]);
        assert_eq!(way("fedbn").personal(&mlp), ["*bias*"]);
        assert_eq!(way("fedrep").personal(&Architecture::Gru(Gru::with_vocabulary(5))), ["fc.*"]);
        assert!(way("ditto").personal(&mlp).is_empty());
        let Personalization::Lora { layers, rank, .. } = way("lora:rank=2").method(&mlp) else { panic!("another") };
        assert_eq!((layers, rank), (vec!["fc*.weight".to_owned()], 2));
        let Personalization::Lora { layers, .. } = way("lora:layers=a+b").method(&mlp) else { panic!("another") };
        assert_eq!(layers, ["a", "b"]);
        assert!(way("lora").makes_fed_avg() && !way("lora:adapters=shared").publishes_the_whole_model());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_reason() {
        for (text, reason) in [
            ("dito", "unknown variant `dito`"),
            ("ditto:lamda=1", "unknown field `lamda`"),
            ("ditto:lambda", "KEY=VALUE"),
            ("ditto:lambda=much", "invalid type"),
            ("ditto:personal=fc2.*", "no tensor stays local"),
        ] {
            let error = text.parse::<Way>().unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
