//! `tributary model export`: a ready model, or a graph, in the forms that other servers of models read.

use std::fs;
use std::path::{Path, PathBuf};

use client_sdk::models::Architecture;
use learning::Parameters;
use recipe::digest::sha256;
use serving::{Signature, TensorMetadata, named_folder, onnx, signature};
use wire::Digest;

use super::evaluate::{architecture_of, parameters_of, read};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, bytes};
use crate::task_file;

/// Examples that Triton computes together, and how long it waits for them: as `tributary infer serve` does by default.
const MAX_BATCH: usize = 32;
const MAX_DELAY_US: u64 = 10_000;

/// Arguments of `tributary model export`.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("form").args(["onnx", "triton"]).required(true).multiple(true))]
pub(crate) struct Export {
    /// Model file (safetensors)
    file: PathBuf,
    /// Write an ONNX file
    #[arg(long, value_name = "FILE")]
    onnx: Option<PathBuf>,
    /// Write to a Triton model repository: DIR/NAME/config.pbtxt and DIR/NAME/VERSION/model.onnx
    #[arg(long, value_name = "DIR")]
    triton: Option<PathBuf>,
    /// Model name in the repository [default: from the file name, TASK in TASK-vVERSION.safetensors]
    #[arg(long, requires = "triton")]
    name: Option<String>,
    /// Model version in the repository [default: from the file name, or 1]
    #[arg(long, value_name = "VERSION", requires = "triton", value_parser = clap::value_parser!(u32).range(1..))]
    model_version: Option<u32>,
    /// Task file of the model; needed for a graph, and for a cnn whose images are not 28x28
    #[arg(long, value_name = "FILE")]
    task: Option<PathBuf>,
    /// Take the columns of the task's table as inputs, raw numbers and words, in place of the tensor; a number that is predicted becomes the
    /// output `prediction`, in units of the label
    #[arg(long, requires = "task", conflicts_with = "triton")]
    columns: bool,
}

/// Output of an export.
#[derive(serde::Serialize)]
struct Exported {
    files: Vec<PathBuf>,
    kind: &'static str,
    /// SHA-256 of the safetensors file.
    sha256: Digest,
    /// Of the ONNX file.
    bytes: u64,
}

impl Export {
    pub(super) fn run(self, output: Output) -> Outcome {
        let safetensors = read(&self.file)?;
        let architecture = self.architecture(&safetensors)?;
        let parameters = parameters_of(&architecture, &safetensors)?;
        if 4 * parameters.values().len() as u64 > onnx::MAX_BYTES - (1 << 20) {
            return Err(Failure::new(Exit::Data, "an ONNX file holds at most 2 GB: serve the safetensors file"));
        }
        let sha256 = sha256(&safetensors);
        let kind = architecture.kind();
        let mut model = onnx_of(&architecture, &parameters, sha256)?;
        if self.columns {
            model = self.with_columns(&architecture, &model)?;
        }
        let mut files = Vec::new();
        if let Some(path) = &self.onnx {
            write(path, &model)?;
            files.push(path.clone());
        }
        if let Some(repository) = &self.triton {
            let (name, version) = self.name_and_version();
            let folder = named_folder::join(repository, &name).map_err(Failure::because(Exit::Usage, "--name"))?;
            let path = folder.join(version.to_string()).join("model.onnx");
            let signature = signature(&architecture).map_err(|why| Failure::new(Exit::Data, why))?;
            write(&folder.join("config.pbtxt"), configuration(&name, &signature).as_bytes())?;
            write(&path, &model)?;
            files.extend([folder.join("config.pbtxt"), path]);
        }
        let exported = Exported { files, kind, sha256, bytes: model.len() as u64 };
        output.answer(&exported, || {
            let files: Vec<_> = exported.files.iter().map(|path| path.display().to_string()).collect();
            format!("{} ({kind}, {})", files.join(", "), bytes(exported.bytes))
        });
        Ok(())
    }

    /// The task's model, or the one that the tensors tell.
    fn architecture(&self, safetensors: &[u8]) -> Outcome<Architecture> {
        let Some(path) = &self.task else {
            let needed = || "names the task file, which a graph needs".to_owned();
            return architecture_of(&self.file, safetensors).map_err(|error| error.with_error("--task", needed()));
        };
        let told = task_file::read(path)?.model.architecture;
        let told = told.ok_or_else(|| task_file::wrong(path, "names no model.architecture"))?;
        serde_json::from_value(told).map_err(|error| task_file::wrong(path, error))
    }

    /// The model with the columns of the task's table as inputs.
    fn with_columns(&self, architecture: &Architecture, model: &[u8]) -> Outcome<Vec<u8>> {
        let path = self.task.as_deref().unwrap_or(Path::new(""));
        let table = task_file::read(path)?.model.table;
        let table =
            table.ok_or_else(|| task_file::wrong(path, "names no model.table, whose columns --columns takes"))?;
        let Signature { inputs, outputs } = signature(architecture).map_err(|why| Failure::new(Exit::Data, why))?;
        let width = i64::try_from(table.width()).unwrap_or(-1);
        let ([input], Some(output)) = (&inputs[..], outputs.first()) else {
            return Err(Failure::new(Exit::Data, "--columns: the model takes several inputs"));
        };
        if input.shape != [-1, width] {
            let detail =
                format!("--columns: the model takes {:?}, and a row of the table has {width} inputs", input.shape);
            return Err(Failure::new(Exit::Data, detail));
        }
        onnx::with_columns(model, &table, &input.name, &output.name).map_err(|why| Failure::new(Exit::Data, why))
    }

    /// The given name and version, or those in the file name that `model fetch` chose.
    fn name_and_version(&self) -> (String, u32) {
        let stem = self.file.file_stem().and_then(|stem| stem.to_str()).unwrap_or("model");
        let parts = stem.rsplit_once("-v").and_then(|(name, version)| Some((name, version.parse().ok()?)));
        let (name, version) = parts.filter(|(name, version)| !name.is_empty() && *version > 0).unwrap_or((stem, 1));
        (self.name.clone().unwrap_or_else(|| name.to_owned()), self.model_version.unwrap_or(version))
    }
}

/// The model as an ONNX file, which names the digest of the safetensors file.
fn onnx_of(architecture: &Architecture, parameters: &Parameters, sha256: Digest) -> Outcome<Vec<u8>> {
    if let Architecture::Graph(model) = architecture {
        let digest = sha256.to_string();
        let metadata = [("tributary.safetensors_sha256", digest.as_str())];
        let file = graph_import::export(model.graph(), parameters.values(), &metadata);
        return file.map_err(Failure::because(Exit::Data, "the graph cannot be written as ONNX"));
    }
    let kind = architecture.kind();
    onnx::encode(architecture, parameters, sha256)
        .ok_or_else(|| Failure::new(Exit::Data, format!("a {kind} cannot be written as ONNX")))
}

/// Whole or not at all: Triton looks at its repository while this writes.
fn write(path: &Path, content: &[u8]) -> Outcome {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let draft = path.with_added_extension("part");
    let written =
        fs::create_dir_all(folder).and_then(|()| fs::write(&draft, content)).and_then(|()| fs::rename(&draft, path));
    written.map_err(Failure::because(Exit::Io, format!("cannot write {}", path.display())))
}

/// Triton's description of the model (`model_config.proto`, in text). The first dimension of every tensor is the batch, which it leaves out.
fn configuration(name: &str, Signature { inputs, outputs }: &Signature) -> String {
    let list = |tensors: &[TensorMetadata]| tensors.iter().map(tensor).collect::<Vec<_>>().join(", ");
    format!(
        "name: {name:?}\nplatform: \"onnxruntime_onnx\"\nmax_batch_size: {MAX_BATCH}\n\
         dynamic_batching {{ max_queue_delay_microseconds: {MAX_DELAY_US} }}\n\
         input [ {} ]\noutput [ {} ]\n",
        list(inputs),
        list(outputs)
    )
}

fn tensor(tensor: &TensorMetadata) -> String {
    let TensorMetadata { name, datatype, shape } = tensor;
    let dims = match &shape[1..] {
        // It wants a dimension where each example has one number.
        [] => "[ 1 ] reshape { shape: [ ] }".to_owned(),
        dims => format!("[ {} ]", dims.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")),
    };
    format!("{{ name: {name:?} data_type: TYPE_{} dims: {dims} }}", datatype.as_str())
}

#[cfg(test)]
mod tests {
    use client_sdk::models::{Gru, Linear};

    use super::*;

    fn export(file: &str) -> Export {
        Export {
            file: file.into(),
            onnx: None,
            triton: None,
            name: None,
            model_version: None,
            task: None,
            columns: false,
        }
    }

    #[test]
    fn a_repository_is_filled_as_the_file_is_called() {
        for (file, name, version) in [
            ("out/digits-v12.safetensors", "digits", 12),
            ("digits.safetensors", "digits", 1),
            ("a-vb-v0.safetensors", "a-vb-v0", 1),
            ("-v3.safetensors", "-v3", 1),
        ] {
            assert_eq!(export(file).name_and_version(), (name.to_owned(), version), "{file}");
        }
        let asked = Export { name: Some("ward".into()), model_version: Some(3), ..export("digits-v12.safetensors") };
        assert_eq!(asked.name_and_version(), ("ward".to_owned(), 3));
    }

    #[test]
    fn triton_is_told_what_an_example_is() {
        let of = |architecture: &Architecture| signature(architecture).unwrap();
        let said = configuration("digits", &of(&Architecture::Linear(Linear { inputs: 60, classes: 10 })));
        let expected = r#"name: "digits"
platform: "onnxruntime_onnx"
max_batch_size: 32
dynamic_batching { max_queue_delay_microseconds: 10000 }
input [ { name: "input" data_type: TYPE_FP32 dims: [ 60 ] } ]
output [ { name: "scores" data_type: TYPE_FP32 dims: [ 10 ] }, { name: "classes" data_type: TYPE_INT64 dims: [ 1 ] reshape { shape: [ ] } } ]
"#;
        assert_eq!(said, expected);
        let text = configuration("text", &of(&Architecture::Gru(Gru::with_vocabulary(7))));
        assert!(text.contains("data_type: TYPE_INT64 dims: [ -1 ] }") && text.contains("dims: [ -1, 7 ]"), "{text}");
    }
}
