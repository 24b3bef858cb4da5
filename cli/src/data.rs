//! Data, partition and model: flags that the demo, a participant process and an evaluation share.
//!
//! Data and partition are pure functions of these flags, so processes with the same flags assign the same examples
//! without communication.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use client_sdk::models::{Architecture, InputKind, sized};
use datasets::{Dataset, Federated, Labelled, Partition, idx, synthetic, text};
use serde_json::Value;

use crate::failure::{Exit, Failure, Outcome, of_data};
use crate::table_file::{FORMS, TablePath, parse_rename};
use crate::task_input::{FlagValue, TaskInput};

/// Part of a participant's shard that it keeps out of training, to evaluate the models it receives.
pub(crate) const OWN_HELD_OUT: f64 = 0.1;
/// Seed of the data if `--seed` is not given.
const SEED: u64 = 42;
/// The key of a task that names its model.
const MODEL: &str = "model.architecture";
/// Maximum number of participants in one process or partition.
const MAX_PARTICIPANTS: i64 = 10_000;

/// A source of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Source {
    /// The federated Synthetic(α, β) benchmark of Li et al. 2020, generated
    Synthetic,
    /// 10,000 digits of MNIST, or anything in its IDX format from --data-dir
    Mnist,
    /// Next-character prediction over input.txt in --data-dir, one participant per speaker
    Text,
}

/// Value of `--data`: a ready source, or a table of one's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DataChoice {
    Ready(Source),
    Table(TablePath),
}

impl FromStr for DataChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ready = <Source as clap::ValueEnum>::from_str(text, false).map(Self::Ready);
        ready
            .or_else(|_| text.parse().map(Self::Table))
            .map_err(|()| format!("there are synthetic, mnist, text, and tables of your own as {FORMS}"))
    }
}

/// The task's names for columns of a table of one's own.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct MapArgs {
    /// Name of a column in your own table and the task's name for it, for example Alter=age; may be repeated
    #[arg(long = "map", value_name = "OWN=TASK", value_parser = parse_rename)]
    map: Vec<(String, String)>,
}

impl MapArgs {
    /// The table with the task's names for its columns.
    pub(crate) fn of(&self, table: &TablePath) -> TablePath {
        table.renamed(&self.map)
    }
}

/// Which data, dealt out how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DataArgs {
    /// Data: synthetic (the Synthetic(α, β) benchmark of Li et al. 2020, generated), mnist (10,000 digits, or IDX files in
    /// --data-dir), text (next-character prediction on input.txt in --data-dir, one participant per speaker), or your own
    /// table, csv:FILE (also compressed with gzip), parquet:FILE (or a folder of Parquet files) or 'command:COMMAND LINE' (a shell
    /// command that prints CSV), whose columns the task names (`participant run`, `model evaluate`)
    #[arg(long, value_name = "DATA", default_value = "synthetic")]
    pub(crate) data: DataChoice,
    #[command(flatten)]
    map: MapArgs,
    /// Folder with data files; the program contains 10,000 MNIST digits
    #[arg(long, env = "TRIBUTARY_DATA_DIR", value_name = "DIR", required_if_eq("data", "text"))]
    pub(crate) data_dir: Option<PathBuf>,
    /// Partition of labelled examples: iid, dirichlet:ALPHA or shards:K [default: dirichlet:0.5 for mnist; synthetic
    /// data is generated per participant]
    #[arg(long)]
    pub(crate) partition: Option<Partition>,
    /// Synthetic: variation of models among participants
    #[arg(long, default_value_t = 1.0)]
    pub(crate) alpha: f64,
    /// Synthetic: variation of data among participants
    #[arg(long, default_value_t = 1.0)]
    pub(crate) beta: f64,
    /// Text: characters per sequence
    #[arg(long, default_value_t = 80, value_name = "CHARACTERS")]
    pub(crate) sequence_length: usize,
    /// Number of participants
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=MAX_PARTICIPANTS))]
    pub(crate) participants: u32,
    /// Seed of all randomness except keys and secrets [default: 42]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

impl DataArgs {
    /// The seed of the data and of their partition.
    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or(SEED)
    }

    /// One's own table, if the data are one.
    ///
    /// # Errors
    /// Columns are renamed, and the data are no table.
    pub(crate) fn table(&self) -> Outcome<Option<TablePath>> {
        match &self.data {
            DataChoice::Table(table) => Ok(Some(self.map.of(table))),
            DataChoice::Ready(_) if self.map.map.is_empty() => Ok(None),
            DataChoice::Ready(_) => {
                let detail = format!("--map renames columns of a table: add --data with {FORMS}");
                Err(Failure::new(Exit::Usage, detail))
            }
        }
    }

    /// The ready source.
    ///
    /// # Errors
    /// A table was given without a task that names its columns.
    pub(crate) fn source(&self) -> Outcome<Source> {
        match &self.data {
            DataChoice::Ready(source) => self.table().map(|_| *source),
            DataChoice::Table(_) => {
                let detail = "--data: tables of your own are for `participant run` and `model evaluate`, where a task names their \
                              columns; here it takes synthetic, mnist or text";
                Err(Failure::new(Exit::Usage, detail))
            }
        }
    }

    /// Reads or generates the data of a ready source and deals it out.
    pub(crate) fn load(&self) -> Outcome<Federated> {
        let participants = self.participants as usize;
        let dir = || self.data_dir.as_deref().ok_or_else(|| Failure::new(Exit::Usage, "this data needs --data-dir"));
        match self.source()? {
            Source::Synthetic => {
                let natural = synthetic::generate(participants, self.alpha, self.beta, self.seed()).map_err(of_data)?;
                match self.partition {
                    None => Ok(natural),
                    Some(partition) => self.dealt_anew(natural, partition),
                }
            }
            Source::Mnist => {
                let (train, test) = mnist(self.data_dir.as_deref(), self.seed())?;
                let partition = self.partition.unwrap_or(Partition::Dirichlet { alpha: 0.5 });
                Federated::partitioned(&train, test, partition, participants, self.seed(), "MNIST").map_err(of_data)
            }
            Source::Text if self.partition.is_some() => {
                Err(Failure::new(Exit::Usage, "text is dealt out by speaker; leave --partition out"))
            }
            Source::Text => text::load(dir()?, participants, self.sequence_length).map_err(of_data),
        }
    }

    fn dealt_anew(&self, natural: Federated, partition: Partition) -> Outcome<Federated> {
        match (Dataset::concat(&natural.shards).map_err(of_data)?, natural.test) {
            (Dataset::Labelled(train), Dataset::Labelled(test)) => {
                let source = format!("Synthetic({}, {})", self.alpha, self.beta);
                let participants = self.participants as usize;
                Federated::partitioned(&train, test, partition, participants, self.seed(), &source).map_err(of_data)
            }
            _ => Err(Failure::new(Exit::Internal, "synthetic data is labelled")),
        }
    }
}

/// Digits to train on and to test with: of a folder, or those that come with the program.
///
/// # Errors
/// The folder's error.
pub(crate) fn mnist(dir: Option<&Path>, seed: u64) -> Outcome<(Labelled, Labelled)> {
    let loaded = match dir {
        Some(dir) => idx::load_mnist(dir, seed),
        None => idx::shipped_mnist(seed),
    };
    loaded.map_err(of_data)
}

/// One participant's data as it uses it: to train on, and to evaluate the models it receives.
pub(crate) fn own_split(shard: Dataset, seed: u64) -> (Dataset, Dataset) {
    shard.split(OWN_HELD_OUT, seed)
}

/// The model for these data, and `input` with the model's settings.
///
/// # Errors
/// As [`architecture`].
pub(crate) fn model(source: Source, input: TaskInput, test: &Dataset) -> Outcome<(Architecture, TaskInput)> {
    let architecture = architecture(source, input.architecture()?.as_ref(), test)?;
    let sizes = serde_json::to_value(&architecture).map_err(Failure::because(Exit::Internal, "the model's sizes"))?;
    let input = input.with(FlagValue::by_itself(architecture.kind(), vec![(MODEL.to_owned(), sizes)]));
    Ok((architecture, input))
}

/// The model for these data: the requested kind and sizes, by default the usual kind of the source with fitting
/// sizes.
///
/// # Errors
/// The model's requirement that the data violate.
fn architecture(source: Source, asked: Option<&Value>, test: &Dataset) -> Outcome<Architecture> {
    let usual = match source {
        Source::Synthetic => "linear",
        Source::Mnist => "mlp",
        Source::Text => "gru",
    };
    let (input, classes) = match test {
        Dataset::Labelled(data) => (InputKind::Features(data.width), data.classes),
        Dataset::Text(data) => (InputKind::Characters, data.vocabulary),
    };
    sized(asked, usual, input, classes)
        .map_err(|why| Failure::new(Exit::Usage, "the model does not fit the data").with_error(MODEL, why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn args(data: Source) -> DataArgs {
        DataArgs {
            data: DataChoice::Ready(data),
            map: MapArgs::default(),
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
    fn a_model_is_sized_for_the_data_and_one_that_does_not_fit_is_refused() {
        let test = args(Source::Synthetic).load().unwrap().test;
        let model = |asked: Value| architecture(Source::Synthetic, Some(&asked), &test);
        assert!(matches!(architecture(Source::Synthetic, None, &test), Ok(Architecture::Linear(_))));
        let Ok(Architecture::Mlp(mlp)) = model(json!({ "kind": "mlp", "hidden": [7] })) else { panic!("another") };
        assert_eq!((mlp.inputs, mlp.hidden, mlp.classes), (60, vec![7], 10));
        for (asked, why) in [
            (json!({ "kind": "cnn" }), "square images"),
            (json!({ "kind": "gru" }), "no text"),
            (json!({ "kind": "resnet" }), "linear, mlp, cnn, gru"),
            (json!({ "kind": "linear", "inputs": 784 }), "\"inputs\":60"),
            (json!({ "hidden": [7] }), "hidden"),
        ] {
            let failure = model(asked).unwrap_err();
            assert_eq!((failure.exit, failure.more.errors[0].field.as_str()), (Exit::Usage, MODEL));
            assert!(failure.more.errors[0].detail.contains(why), "{failure:?}");
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_said() {
        let failure = DataArgs { data_dir: Some("/no/such".into()), ..args(Source::Mnist) }.load().unwrap_err();
        assert_eq!(failure.exit, Exit::Data);
        assert!(failure.detail.contains("/no/such"), "{}", failure.detail);
    }
}
