//! A task starts from a file next to its task file, or from a version of an earlier task.

use std::path::Path;
use std::sync::Arc;

use learning::{Layout, Parameters, TensorSpec, checkpoint};
use serde_json::{Value, json};
use test_servers::line::CutLine;

use crate::replicas::{address, front};
use crate::support::Served;

/// Bytes of a part of an upload.
const PART: u64 = 8 << 20;

/// Writes a model file; returns its bytes.
fn write(path: &Path, tensors: &[(&str, &[u64])]) -> Vec<u8> {
    let spec = |&(name, shape): &(&str, &[u64])| TensorSpec { name: name.to_owned(), shape: shape.to_vec() };
    let layout = Arc::new(Layout::new(tensors.iter().map(spec).collect()).unwrap());
    let values = (0..layout.len()).map(|at| at as f32 * 0.25).collect();
    let bytes = checkpoint::write(&Parameters::new(layout, values).unwrap()).unwrap();
    std::fs::write(path, &bytes).unwrap();
    bytes
}

/// Downloads the first version of a task.
fn first_version(served: &Served, task: &str, folder: &Path) -> Vec<u8> {
    let path = folder.join(format!("{task}-0.safetensors"));
    served.operate(&["model", "fetch", task, "--model-version", "0", "--out", path.to_str().unwrap()]).data();
    std::fs::read(path).unwrap()
}

fn task_file(folder: &Path, name: &str, model: &str) -> String {
    let path = folder.join(format!("{name}.toml"));
    std::fs::write(&path, format!("name = \"{name}\"\n[selection.cohort]\ncount = 3\n[model]\n{model}\n")).unwrap();
    path.display().to_string()
}

#[test]
fn task_starts_from_a_file_and_another_goes_on_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    // The order of the file is not that of the architecture.
    write(&folder.path().join("net.safetensors"), &[("fc.bias", &[2]), ("fc.weight", &[2, 3])]);
    let architecture = r#"architecture = { kind = "linear", inputs = 3, classes = 2 }"#;
    let task = task_file(folder.path(), "first", &format!("{architecture}\ninitial = \"net.safetensors\""));
    let checked = served.operate(&["task", "create", "--check", &task]).data();
    let created = served.operate(&["task", "create", &task]).data();
    assert_eq!(checked["spec"]["model"]["initial"], created["spec"]["model"]["initial"]);
    assert!(created["spec"]["model"]["initial"].as_str().unwrap().starts_with("sha256:"), "{created}");
    let first = first_version(&served, "first", folder.path());
    let layout = Arc::new(checkpoint::read_layout(&first).unwrap());
    let names: Vec<_> = layout.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["fc.weight", "fc.bias"]);
    let values = checkpoint::read(&first, &layout).unwrap();
    assert_eq!(values.values(), [0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 0.0, 0.25]);

    let model = format!("{architecture}\ninitial = {{ task = \"first\", version = 0 }}");
    let again = task_file(folder.path(), "again", &model);
    served.operate(&["task", "create", &again]).data();
    assert_eq!(first_version(&served, "again", folder.path()), first);
}

#[test]
fn tensors_come_from_the_file_if_the_task_declares_none() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    let bytes = write(&folder.path().join("net.safetensors"), &[("body.weight", &[4, 2]), ("head", &[3])]);
    let task = task_file(folder.path(), "own", "initial = \"net.safetensors\"");
    let created = served.operate(&["task", "create", &task]).data();
    let shapes: Vec<&Value> =
        created["spec"]["model"]["tensors"].as_array().unwrap().iter().map(|tensor| &tensor["shape"]).collect();
    assert_eq!(shapes, [&json!([4, 2]), &json!([3])]);
    assert_eq!(first_version(&served, "own", folder.path()), bytes);
}

#[test]
fn file_that_is_absent_or_no_model_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    std::fs::write(folder.path().join("note.txt"), "no model").unwrap();
    for (file, expected) in [("absent.safetensors", "cannot read absent.safetensors"), ("note.txt", "note.txt")] {
        let task = task_file(folder.path(), "bad", &format!("initial = \"{file}\""));
        let ran = served.operate(&["task", "create", &task]);
        assert_eq!(ran.code, 4, "{ran}");
        assert!(ran.stdout.contains(expected) || ran.stderr.contains(expected), "{ran}");
    }
    assert_eq!(served.operate(&["task", "list"]).data(), json!([]));
}

#[test]
fn upload_over_a_line_that_is_cut_sends_each_part_once() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    let bytes = write(&folder.path().join("net.safetensors"), &[("w", &[3 << 20]), ("v", &[3 << 20])]);
    let cuts = vec![PART + 100_000, 2 * PART + 200_000];
    let line = CutLine::before(vec![address(&served)], cuts, Vec::new());
    let task = task_file(folder.path(), "large", "initial = \"net.safetensors\"");
    front(line.port(), &served).operate(&["task", "create", &task]).data();
    assert_eq!(line.cuts_left_up(), 0);
    // A cut costs the part that was on its way.
    let most = bytes.len() as u64 + 2 * PART + 500_000;
    assert!(line.up() < most, "{} bytes were sent of a file of {}", line.up(), bytes.len());
    assert_eq!(first_version(&served, "large", folder.path()), bytes);
}
