//! Which data, dealt out how, for which model: flags that the demo, a participant process and an evaluation share.
//!
//! Data and partition are pure functions of these flags, so processes that are given the same ones agree on who holds which
//! example without talking to each other.

use std::path::PathBuf;

use client_sdk::models::{Architecture, Cnn, Gru, Linear, Mlp};
use datasets::{Dataset, Federated, Partition, idx, synthetic, text};

use crate::failure::{Exit, Failure, Outcome};

/// Part of a participant's shard that it keeps out of training, to evaluate the models it receives.
pub(crate) const OWN_HELD_OUT: f64 = 0.1;
/// Where nothing is said.
const SEED: u64 = 42;
/// Most participants in one process, or in one partition.
const MAX_PARTICIPANTS: i64 = 10_000;

/// A source of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Source {
    /// The federated Synthetic(α, β) benchmark of Li et al. 2020, generated
    Synthetic,
    /// MNIST or anything in its IDX format, from --data-dir
    Mnist,
    /// Next-character prediction over input.txt in --data-dir, one participant per speaker
    Text,
}

/// A ready model of the SDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Model {
    /// Softmax regression
    Linear,
    /// One hidden layer of 200 units
    Mlp,
    /// Two convolutions (McMahan et al. 2017)
    Cnn,
    /// A gated recurrent unit over characters
    Gru,
}

/// Which data, dealt out how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DataArgs {
    /// What to train on
    #[arg(long, value_enum, default_value = "synthetic")]
    pub(crate) data: Source,
    /// Folder with the data's files
    #[arg(long, env = "TRIBUTARY_DATA_DIR", value_name = "DIR", required_if_eq_any([("data", "mnist"), ("data", "text")]))]
    pub(crate) data_dir: Option<PathBuf>,
    /// How labelled examples are dealt out: iid, dirichlet:ALPHA or shards:K [default: dirichlet:0.5 for mnist; synthetic
    /// data comes dealt out]
    #[arg(long)]
    pub(crate) partition: Option<Partition>,
    /// Synthetic: how much the participants' models differ
    #[arg(long, default_value_t = 1.0)]
    pub(crate) alpha: f64,
    /// Synthetic: how much the participants' data differ
    #[arg(long, default_value_t = 1.0)]
    pub(crate) beta: f64,
    /// Text: characters of a sequence
    #[arg(long, default_value_t = 80, value_name = "CHARACTERS")]
    pub(crate) sequence_length: usize,
    /// How many participants share the data
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=MAX_PARTICIPANTS))]
    pub(crate) participants: u32,
    /// Everything random derives from it, except keys and secrets [default: 42]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

impl DataArgs {
    /// The seed of the data and of their partition.
    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or(SEED)
    }

    /// Reads or generates the data and deals it out.
    pub(crate) fn load(&self) -> Outcome<Federated> {
        let participants = self.participants as usize;
        let dir = || self.data_dir.as_deref().ok_or_else(|| Failure::new(Exit::Usage, "this data needs --data-dir"));
        match self.data {
            Source::Synthetic => {
                let natural = synthetic::generate(participants, self.alpha, self.beta, self.seed())?;
                match self.partition {
                    None => Ok(natural),
                    Some(partition) => self.dealt_anew(natural, partition),
                }
            }
            Source::Mnist => {
                let (train, test) = idx::load_mnist(dir()?, self.seed())?;
                let partition = self.partition.unwrap_or(Partition::Dirichlet { alpha: 0.5 });
                Ok(Federated::partitioned(&train, test, partition, participants, self.seed(), "MNIST")?)
            }
            Source::Text if self.partition.is_some() => {
                Err(Failure::new(Exit::Usage, "text is dealt out by speaker; leave --partition out"))
            }
            Source::Text => Ok(text::load(dir()?, participants, self.sequence_length)?),
        }
    }

    fn dealt_anew(&self, natural: Federated, partition: Partition) -> Outcome<Federated> {
        match (Dataset::concat(&natural.shards)?, natural.test) {
            (Dataset::Labelled(train), Dataset::Labelled(test)) => {
                let source = format!("Synthetic({}, {})", self.alpha, self.beta);
                let participants = self.participants as usize;
                Ok(Federated::partitioned(&train, test, partition, participants, self.seed(), &source)?)
            }
            _ => Err(Failure::new(Exit::Internal, "synthetic data is labelled")),
        }
    }
}

/// One participant's data as it uses it: to train on, and to evaluate the models it receives.
pub(crate) fn own_split(shard: Dataset, seed: u64) -> (Dataset, Dataset) {
    shard.split(OWN_HELD_OUT, seed)
}

/// The model for this data: the one asked for, or the usual one.
pub(crate) fn architecture(source: Source, model: Option<Model>, test: &Dataset) -> Outcome<Architecture> {
    let model = model.unwrap_or(match source {
        Source::Synthetic => Model::Linear,
        Source::Mnist => Model::Mlp,
        Source::Text => Model::Gru,
    });
    let size = |value: usize| {
        u32::try_from(value).map_err(|_| Failure::new(Exit::Data, format!("{value} is too large a size for a model")))
    };
    let misfit = |why: &str| Err(Failure::new(Exit::Usage, format!("--model {model:?}: {why}").to_lowercase()));
    match (test, model) {
        (Dataset::Text(data), Model::Gru) => Ok(Architecture::Gru(Gru::with_vocabulary(size(data.vocabulary)?))),
        (Dataset::Text(_), _) => misfit("text takes the model gru"),
        (Dataset::Labelled(_), Model::Gru) => misfit("gru predicts characters, and these data are no text"),
        (Dataset::Labelled(data), _) => {
            let (inputs, classes) = (size(data.width)?, size(data.classes)?);
            match model {
                Model::Linear => Ok(Architecture::Linear(Linear { inputs, classes })),
                Model::Mlp => Ok(Architecture::Mlp(Mlp { inputs, classes, ..Mlp::default() })),
                _ if source == Source::Synthetic => misfit("synthetic data are not images; use linear or mlp"),
                _ => {
                    let side = inputs.isqrt();
                    if side * side != inputs {
                        return misfit("the images are not square");
                    }
                    Ok(Architecture::Cnn(Cnn { height: side, width: side, channels: 1, classes }))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(data: Source) -> DataArgs {
        DataArgs {
            data,
            data_dir: None,
            partition: None,
            alpha: 1.0,
            beta: 1.0,
            sequence_length: 80,
            participants: 3,
            seed: None,
        }
    }

    #[test]
    fn synthetic_data_comes_dealt_out_but_can_be_dealt_anew() {
        let natural = args(Source::Synthetic).load().unwrap();
        let anew = DataArgs { partition: Some(Partition::Iid), ..args(Source::Synthetic) }.load().unwrap();
        assert_eq!(natural.shards.len(), anew.shards.len());
        let sizes: Vec<_> = anew.shards.iter().map(Dataset::len).collect();
        assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        assert_ne!(natural.shards, anew.shards);
    }

    #[test]
    fn a_model_that_does_not_fit_the_data_is_refused() {
        let test = args(Source::Synthetic).load().unwrap().test;
        assert!(matches!(architecture(Source::Synthetic, None, &test), Ok(Architecture::Linear(_))));
        for model in [Model::Cnn, Model::Gru] {
            assert_eq!(architecture(Source::Synthetic, Some(model), &test).unwrap_err().exit, Exit::Usage);
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_said() {
        let failure = DataArgs { data_dir: Some("/no/such".into()), ..args(Source::Mnist) }.load().unwrap_err();
        assert_eq!(failure.exit, Exit::Data);
        assert!(failure.detail.contains("/no/such"), "{}", failure.detail);
    }
}
