//! A graph from an ONNX file, served by the names of its inputs and written as ONNX again.

use std::path::Path;

use serde_json::{Value, json};

use super::{Models, publish_with};
use crate::support::run;

/// A regression over four numbers and a category of five, and what PyTorch computed with it.
const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../client-sdk/src/train/graph/imported/table");

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Imports the sample into a folder, with a task file.
fn import(folder: &Path) {
    let (onnx, graph) = (format!("{SAMPLE}.onnx"), folder.join("net.graph.json"));
    let weights = folder.join("net-v3.safetensors");
    let import = ["model", "import", &onnx, "--loss", "mse", "--out", text(&graph), "--weights", text(&weights)];
    let imported = run(&[&["--format", "json"], &import[..]].concat());
    assert_eq!(imported.code, 0, "{imported}");
    let task = "name = \"net\"\n[selection.cohort]\ncount = 3\n[model]\ngraph = \"net.graph.json\"\nloss = { kind = \"mse\" }\n";
    std::fs::write(folder.join("net.toml"), task).unwrap();
}

#[tokio::test]
async fn graph_is_served_by_the_names_of_its_inputs() {
    let folder = tempfile::tempdir().unwrap();
    import(folder.path());
    let graph: Value = serde_json::from_slice(&std::fs::read(folder.path().join("net.graph.json")).unwrap()).unwrap();
    let file = std::fs::read(folder.path().join("net-v3.safetensors")).unwrap();
    let record = json!({
        "task": "00000000-0000-0000-0000-000000000001",
        "sha256": recipe::digest::sha256(&file),
        "architecture": { "kind": "graph", "graph": graph, "loss": { "kind": "mse" } },
    });
    let models = folder.path().join("models");
    publish_with(&models, 3, &file, Some(record));
    let models = Models::serve(&models, &["--task", "digits"]);
    models.until_answers(3).await;
    let (_, described) = models.get("/v2/models/digits").await;
    let inputs = json!([
        { "name": "numbers", "datatype": "FP32", "shape": [-1, 4] }, { "name": "kind", "datatype": "INT64", "shape": [-1] },
    ]);
    assert_eq!((&described["inputs"], &described["outputs"][0]["name"]), (&inputs, &json!("y")), "{described}");

    let told: Value = serde_json::from_str(&std::fs::read_to_string(format!("{SAMPLE}.json")).unwrap()).unwrap();
    let body = json!({ "inputs": [
        { "name": "kind", "datatype": "INT32", "shape": [4], "data": told["inputs"]["kind"] },
        { "name": "numbers", "datatype": "FP32", "shape": [4, 4], "data": told["inputs"]["numbers"] },
    ] });
    let (status, said) = models.post("/v2/models/digits/infer", &body, None).await;
    assert_eq!((status, &said["outputs"][0]["shape"]), (200, &json!([4, 1])), "{said}");
    let numbers = |list: &Value| serde_json::from_value::<Vec<f32>>(list.clone()).unwrap();
    let (found, expected) = (numbers(&said["outputs"][0]["data"]), numbers(&told["output"]));
    assert!(found.iter().zip(&expected).all(|(one, other)| (one - other).abs() < 1e-5), "{found:?}, not {expected:?}");
    let outside = json!({ "inputs": [
        { "name": "kind", "datatype": "INT64", "shape": [1], "data": [5] },
        { "name": "numbers", "datatype": "FP32", "shape": [1, 4], "data": [0, 0, 0, 0] },
    ] });
    let (status, refused) = models.post("/v2/models/digits/infer", &outside, None).await;
    assert!(status == 422 && refused.to_string().contains("outside the model's range"), "{refused}");
}

#[test]
fn graph_is_exported_and_imported_again() {
    let folder = tempfile::tempdir().unwrap();
    import(folder.path());
    let [task, model, onnx, again, weights] =
        ["net.toml", "net-v3.safetensors", "net.onnx", "again.graph.json", "again.safetensors"]
            .map(|name| folder.path().join(name));
    let repository = folder.path().join("repository");
    let export = ["--format", "json", "model", "export", text(&model), "--task", text(&task), "--onnx", text(&onnx)];
    let exported = run(&[&export[..], &["--triton", text(&repository)]].concat());
    assert_eq!(exported.code, 0, "{exported}");
    let config = std::fs::read_to_string(repository.join("net/config.pbtxt")).unwrap();
    let inputs =
        r#"input [ { name: "numbers" data_type: TYPE_FP32 dims: [ 4 ] }, { name: "kind" data_type: TYPE_INT64"#;
    assert!(config.contains(inputs), "{config}");
    assert_eq!(std::fs::read(&onnx).unwrap(), std::fs::read(repository.join("net/3/model.onnx")).unwrap());
    let imported =
        run(&["model", "import", text(&onnx), "--loss", "mse", "--out", text(&again), "--weights", text(&weights)]);
    assert_eq!(imported.code, 0, "{imported}");
    assert_eq!(std::fs::read(&weights).unwrap(), std::fs::read(&model).unwrap(), "the same names and values");
    let without = run(&["model", "export", text(&model), "--onnx", text(&onnx)]);
    assert!(without.code != 0 && without.to_string().contains("--task"), "{without}");
}
