//! A model of a table, served by the columns of the table.

use serde_json::{Value, json};

use super::{Models, parameters, publish_with};

/// Five inputs: a scaled number, three for words, a number.
fn table() -> Value {
    json!({
        "features": [
            { "column": "age", "low": 0, "high": 100, "missing": "median", "median": 50 },
            { "column": "ward", "one_of": ["icu", "surgery"], "other": true },
            { "column": "pulse" },
        ],
        "label": { "column": "outcome", "one_of": ["a", "b", "c"] },
    })
}

#[tokio::test]
async fn columns_give_the_scores_of_the_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let models = folder.path().join("models");
    let file = learning::checkpoint::write(&parameters(1)).unwrap();
    let record = json!({
        "task": "00000000-0000-0000-0000-000000000001",
        "sha256": recipe::digest::sha256(&file),
        "architecture": { "kind": "mlp", "inputs": 5, "hidden": [7], "classes": 3 },
        "table": table(),
    });
    publish_with(&models, 1, &file, Some(record));
    let models = Models::serve(&models, &["--task", "digits"]);
    models.until_answers(1).await;
    let (_, described) = models.get("/v2/models/digits").await;
    assert_eq!(described["table"]["features"][1]["one_of"], json!(["icu", "surgery"]), "{described}");

    let columns = json!({ "inputs": [
        { "name": "ward", "datatype": "BYTES", "shape": [3], "data": ["surgery", "burns", "icu"] },
        { "name": "pulse", "datatype": "FP64", "shape": [3], "data": [0.5, -1, 2] },
        { "name": "age", "datatype": "INT64", "shape": [3], "data": [25, null, 100] },
    ] });
    let (status, by_column) = models.post("/v2/models/digits/infer", &columns, None).await;
    assert_eq!(status, 200, "{by_column}");
    let rows = [0.25, 0.0, 1.0, 0.0, 0.5, 0.5, 0.0, 0.0, 1.0, -1.0, 1.0, 1.0, 0.0, 0.0, 2.0];
    let tensor = json!({ "inputs": [{ "name": "input", "shape": [3, 5], "datatype": "FP32", "data": rows }] });
    let (status, by_tensor) = models.post("/v2/models/digits/infer", &tensor, None).await;
    assert_eq!((status, &by_column["outputs"]), (200, &by_tensor["outputs"]));

    let outside = json!({ "inputs": [
        { "name": "ward", "datatype": "BYTES", "shape": [1], "data": ["icu"] },
        { "name": "pulse", "datatype": "FP64", "shape": [1], "data": [70] },
        { "name": "age", "datatype": "INT64", "shape": [1], "data": [731] },
    ] });
    let (status, refused) = models.post("/v2/models/digits/infer", &outside, None).await;
    let said = refused.to_string();
    assert!(status == 422 && said.contains("age: row 0 is no number from 0 to 100") && !said.contains("731"), "{said}");
}
