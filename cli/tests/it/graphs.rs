//! A model from an ONNX file, trained in masked rounds.

use serde_json::Value;

use crate::support::run;

/// The rounds of a demo with these arguments.
fn rounds(more: &[&str]) -> Vec<Value> {
    let args = [&["--format", "json", "demo", "--participants", "5"][..], more].concat();
    let ran = run(&args);
    assert_eq!(ran.code, 0, "{args:?}: {ran}");
    ran.events().into_iter().filter(|event| event["event"] == "round").collect()
}

#[test]
fn imported_model_trains_in_masked_rounds() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (model, onnx, graph) = (path("first.safetensors"), path("net.onnx"), path("net.graph.json"));
    rounds(&["--rounds", "1", "--model", "mlp", "--out", &model]);
    let exported = run(&["--format", "json", "model", "export", &model, "--onnx", &onnx]);
    assert_eq!(exported.code, 0, "{exported}");

    let imported = run(&["--format", "json", "model", "import", &onnx]);
    assert_eq!(imported.code, 0, "{imported}");
    let imported = imported.data();
    assert_eq!((&imported["graph"], &imported["warnings"]), (&graph.as_str().into(), &Value::Array(vec![])));
    let names: Vec<_> = imported["tensors"].as_array().unwrap().iter().map(|tensor| &tensor["name"]).collect();
    assert_eq!(names, ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]);

    let twice = [(); 2].map(|()| rounds(&["--rounds", "3", "--model-file", &graph]));
    for round in &twice[0] {
        assert_eq!((&round["state"], &round["reported"]), (&"COMPLETED".into(), &5.into()), "{round}");
    }
    assert!(twice[0][2]["metrics"]["accuracy"].as_f64().unwrap() > 0.2, "{}", twice[0][2]);
    let versions = twice.map(|rounds| rounds.into_iter().map(|round| round["model"].clone()).collect::<Vec<_>>());
    assert_eq!(versions[0], versions[1], "the seed decides every bit");
}

#[test]
fn wrong_model_files_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("net.graph.json");
    let path = file.to_str().unwrap();
    for (content, says) in [
        ("{", "net.graph.json"),
        (r#"{"version":2,"inputs":[],"parameters":[],"nodes":[],"outputs":[]}"#, "has the format 2"),
    ] {
        std::fs::write(&file, content).unwrap();
        let ran = run(&["demo", "--rounds", "1", "--model-file", path]);
        assert!(ran.code != 0 && ran.to_string().contains(says), "{content}: {ran}");
    }
    std::fs::write(&file, b"\x08\x08\x12\xff").unwrap();
    let ran = run(&["model", "import", path]);
    assert!(ran.code != 0 && ran.to_string().contains("net.graph.json"), "{ran}");
}
