//! A task as a TOML file: read, and completed with the tensors of the architecture it names.
//!
//! ```toml
//! name = "digits"
//! [model.architecture]
//! kind = "mlp"
//! [selection.cohort]
//! count = 20
//! ```
//!
//! The coordinator checks the task; this only reads it.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use client_sdk::models::{Incomplete, complete};
use task_spec::{TaskSpec, in_words, said_of, wrong_key};

use crate::failure::{Exit, Failure, Outcome};

mod download;
mod graph;

pub(crate) use download::download;
pub(crate) use graph::{beside, read_graph};

/// Largest task file that is read.
const MAX_BYTES: u64 = 4 << 20;

/// The text of a task file.
pub(crate) fn text(path: &Path) -> Outcome<String> {
    let unreadable = || Failure::because(Exit::Configuration, format!("cannot read {}", path.display()));
    let file = File::open(path).map_err(unreadable())?;
    let mut text = String::new();
    // Bounds the bytes read, since a device or a pipe does not have a size.
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(unreadable())?;
    if text.len() as u64 > MAX_BYTES {
        return Err(wrong(path, format!("has more than {MAX_BYTES} bytes, the most of a task file")));
    }
    Ok(text)
}

/// Reads a task file and fills in the tensors.
pub(crate) fn read(path: &Path) -> Outcome<TaskSpec> {
    read_text(path, &text(path)?)
}

/// Reads the text of a task file and fills in the tensors.
fn read_text(path: &Path, text: &str) -> Outcome<TaskSpec> {
    let mut spec: TaskSpec = parse(text).map_err(|error| wrong(path, error))?;
    let unusable = "one key has a value that cannot work";
    read_graph(&mut spec.model, path)
        .map_err(|Incomplete { field, detail }| wrong(path, unusable).with_error(field, detail))?;
    complete(&mut spec.model)
        .map_err(|Incomplete { field, detail }| wrong(path, unusable).with_error(field, detail))?;
    Ok(spec)
}

/// The text as a task, or its error.
fn parse(text: &str) -> Result<TaskSpec, String> {
    let reader = toml::Deserializer::parse(text).map_err(|error| in_words(&error.to_string()))?;
    serde_path_to_error::deserialize(reader).map_err(|error| {
        let (place, what, path) = (error.inner().to_string(), error.inner().message(), error.path().to_string());
        let task = toml::from_str(text).unwrap_or_default();
        let key = wrong_key(&task, &path, what);
        let said = said_of(&task, &key, what);
        match place.trim_end().strip_suffix(what) {
            // The place is that of the table.
            Some(place) if key != path => format!("{place}{key}: {said}"),
            Some(place) => format!("{place}{said}"),
            None => in_words(&place),
        }
    })
}

/// Writes a task so that [`read`] reads it.
pub(crate) fn write(path: &Path, spec: &TaskSpec) -> Outcome {
    let text = toml::to_string(spec).map_err(Failure::because(Exit::Internal, "the task as TOML"))?;
    std::fs::write(path, text).map_err(Failure::because(Exit::Io, format!("cannot write {}", path.display())))
}

/// A failure about this file.
pub(crate) fn wrong(path: &Path, detail: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Configuration, format!("{}: {detail}", path.display()))
}

#[cfg(test)]
mod tests {
    use task_spec::Initial;

    use super::*;
    use crate::command::task::objections;

    fn read_file(text: &str) -> Outcome<TaskSpec> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("task.toml");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn no_more_is_read_than_a_task_file_may_have() {
        let failure = text(Path::new("/dev/zero")).unwrap_err();
        assert!(failure.detail.contains("more than 4194304 bytes"), "{}", failure.detail);
    }

    #[test]
    fn an_architecture_becomes_tensors() {
        let spec = read_file("name = \"a\"\n[model.architecture]\nkind = \"mlp\"\nhidden = [3]\n").unwrap();
        let names: Vec<_> = spec.model.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(names, ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]);
        assert_eq!(spec.model.tensors[0].shape, [3, 784]);
        assert!(matches!(spec.model.tensors[0].init, Initial::Uniform { .. }));
    }

    #[test]
    fn the_documented_task_can_work() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/config/task.toml");
        let spec = read(Path::new(path)).unwrap();
        spec.check(&task_spec::Deployment { poll_interval_ms: 30_000 }).unwrap();
        assert_eq!(spec.draw(100).cohort, 12);
        assert_eq!(objections(&spec), [""; 0], "an app with the defaults takes part");
    }

    #[test]
    fn the_documented_analyses_can_work() {
        for name in ["statistics", "clusters", "trees", "regression", "survival", "cox", "contingency"] {
            let path = format!("{}/../docs/config/{name}.toml", env!("CARGO_MANIFEST_DIR"));
            let spec = read(Path::new(&path)).unwrap();
            spec.check(&task_spec::Deployment { poll_interval_ms: 30_000 }).unwrap();
            let analytics = learning::AnalyticsSpec::read(spec.analytics.as_ref().unwrap()).unwrap();
            let analysis = learning::Analysis::new(analytics, spec.modulus_bits(), spec.rounds.select_max).unwrap();
            assert_eq!(spec.rounds.count, analysis.rounds(), "{name}");
            assert_eq!(objections(&spec), [""; 0], "{name}: an app with the defaults takes part");
        }
    }

    #[test]
    fn tensors_that_contradict_the_architecture_are_refused() {
        let text = "name = \"a\"\n[model.architecture]\nkind = \"linear\"\ninputs = 2\nclasses = 2\n\
                    [[model.tensors]]\nname = \"w\"\nshape = [4]\n";
        let failure = read_file(text).unwrap_err();
        assert_eq!(failure.more.errors[0].field, "model.tensors");
    }

    #[test]
    fn an_architecture_of_the_apps_own_needs_its_tensors() {
        let own = "name = \"a\"\n[model.architecture]\nkind = \"forest\"\n";
        assert_eq!(read_file(own).unwrap_err().more.errors[0].field, "model.architecture");
        let declared = format!("{own}[[model.tensors]]\nname = \"w\"\nshape = [4]\n");
        assert_eq!(read_file(&declared).unwrap().model.tensors.len(), 1);
    }

    #[test]
    fn a_wrong_key_is_named() {
        for (text, key) in [
            ("name = \"a\"\nmodle = 1\n[model]\n", "modle"),
            ("name = \"a\"\n[model.architecture]\nkind = \"mlp\"\ndepth = 3\n", "depth"),
            ("name = \"a\"\n[model]\n[rounds]\ncount = \"ten\"\n", "count"),
            ("[model]\n", "name"),
        ] {
            let failure = read_file(text).unwrap_err();
            assert_eq!(failure.exit, Exit::Configuration);
            let said = format!("{} {:?}", failure.detail, failure.more.errors);
            assert!(said.contains(key), "{said}");
        }
    }
}
