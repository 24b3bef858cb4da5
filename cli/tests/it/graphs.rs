//! A model from an ONNX file, trained in masked rounds.

use std::path::Path;

use serde_json::Value;

use crate::support::{Ran, run};

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
        (r#"{"version":3,"inputs":[],"parameters":[],"nodes":[],"outputs":[]}"#, "has the format 3"),
    ] {
        std::fs::write(&file, content).unwrap();
        let ran = run(&["demo", "--rounds", "1", "--model-file", path]);
        assert!(ran.code != 0 && ran.to_string().contains(says), "{content}: {ran}");
    }
    std::fs::write(&file, b"\x08\x08\x12\xff").unwrap();
    let ran = run(&["model", "import", path]);
    assert!(ran.code != 0 && ran.to_string().contains("net.graph.json"), "{ran}");
}

/// A regression over four numbers and a category of five, and what PyTorch computed with it.
const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../client-sdk/src/train/graph/imported/table");

/// An array of an NPZ file.
#[derive(Clone)]
struct Array {
    name: &'static str,
    /// The rest of the header, as NumPy writes it.
    header: &'static str,
    elements: Vec<u8>,
}

/// An NPZ file without compression.
fn npz(arrays: &[Array]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for Array { name, header, elements } in arrays {
        let (name, length) = (format!("{name}.npy"), u16::try_from(header.len()).unwrap().to_le_bytes());
        let content = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), elements].concat();
        let mut checksum = flate2::Crc::new();
        checksum.update(&content);
        let size = u32::try_from(content.len()).unwrap().to_le_bytes();
        let name_length = u16::try_from(name.len()).unwrap().to_le_bytes();
        // Version, flags, method and time, then sizes; an extra field of no bytes.
        let fields =
            [&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0], &checksum.sum().to_le_bytes()[..], &size, &size, &name_length, &[0; 2]];
        let (fields, offset) = (fields.concat(), u32::try_from(file.len()).unwrap().to_le_bytes());
        directory.extend([b"PK\x01\x02\x14\x00", &fields[..], &[0; 10], &offset, name.as_bytes()].concat());
        file.extend([b"PK\x03\x04", &fields[..], name.as_bytes(), &content].concat());
    }
    let count = u16::try_from(arrays.len()).unwrap().to_le_bytes();
    let [size, offset] = [directory.len(), file.len()].map(|length| u32::try_from(length).unwrap().to_le_bytes());
    file.extend(directory);
    file.extend([b"PK\x05\x06\0\0\0\0", &count[..], &count, &size, &offset, &[0; 2]].concat());
    file
}

/// The sample's four examples with PyTorch's output.
fn sample() -> [Array; 3] {
    let told: Value = serde_json::from_str(&std::fs::read_to_string(format!("{SAMPLE}.json")).unwrap()).unwrap();
    let floats = |list: &Value| -> Vec<u8> {
        let list: Vec<f32> = serde_json::from_value(list.clone()).unwrap();
        list.into_iter().flat_map(f32::to_le_bytes).collect()
    };
    let kinds: Vec<i64> = serde_json::from_value(told["inputs"]["kind"].clone()).unwrap();
    [
        Array {
            name: "numbers",
            header: "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 4), }\n",
            elements: floats(&told["inputs"]["numbers"]),
        },
        Array {
            name: "kind",
            header: "{'descr': '<i8', 'fortran_order': False, 'shape': (4,), }\n",
            elements: kinds.into_iter().flat_map(i64::to_le_bytes).collect(),
        },
        Array {
            name: "y",
            header: "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 1), }\n",
            elements: floats(&told["output"]),
        },
    ]
}

/// Imports the sample with these rows into a folder.
fn import(folder: &Path, rows: &[u8]) -> Ran {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (onnx, graph, weights, file) =
        (format!("{SAMPLE}.onnx"), path("net.graph.json"), path("net.safetensors"), path("sample.npz"));
    std::fs::write(&file, rows).unwrap();
    let args = ["--format", "json", "model", "import", &onnx, "--loss", "mse", "--rows", &file];
    run(&[&args[..], &["--out", &graph, "--weights", &weights]].concat())
}

#[test]
fn import_compares_outputs_on_sample_rows() {
    let folder = tempfile::tempdir().unwrap();
    let [numbers, kind, mut y] = sample();
    let imported = import(folder.path(), &npz(&[numbers.clone(), kind.clone(), y.clone()])).data();
    let compared = &imported["compared"];
    let found =
        (&compared["examples"], &compared["outputs"][0]["output"], compared["outputs"].as_array().unwrap().len());
    assert_eq!(found, (&4.into(), &"y".into(), 1), "{imported}");
    assert!(compared["outputs"][0]["relative"].as_f64().unwrap() < 1e-5, "{imported}");
    assert!(imported["step"]["seconds_per_1000_examples"].as_f64().unwrap() > 0.0, "{imported}");

    let without = import(folder.path(), &npz(&[kind.clone(), numbers.clone()])).data();
    assert_eq!((&without["compared"]["examples"], &without["compared"]["outputs"]), (&4.into(), &Value::Array(vec![])));
    assert_eq!(without["tensors"], imported["tensors"], "both check the gradients on the rows");

    std::fs::remove_file(folder.path().join("net.graph.json")).unwrap();
    let last = f32::from_le_bytes(*y.elements.last_chunk().unwrap());
    y.elements.splice(12.., (last + 0.01).to_le_bytes());
    let ran = import(folder.path(), &npz(&[numbers, kind, y]));
    assert!(ran.code != 0 && ran.to_string().contains("sample.npz: the output `y` deviates by 0.01"), "{ran}");
    assert!(!folder.path().join("net.graph.json").exists(), "a model that deviates is not written");
}

#[test]
fn import_names_what_is_wrong_with_rows() {
    let folder = tempfile::tempdir().unwrap();
    let whole = sample();
    let with = |position: usize, change: fn(&mut Array)| {
        let mut arrays = whole.clone();
        change(&mut arrays[position]);
        npz(&arrays)
    };
    for (rows, why) in [
        (with(0, |numbers| numbers.name = "x"), "the graph has no `x`: its inputs are `numbers`, `kind`"),
        (npz(&whole[1..]), "takes the input `numbers`, which is missing; its inputs are"),
        (
            with(0, |numbers| numbers.header = "{'descr': '<f8', 'fortran_order': False, 'shape': (4, 2), }\n"),
            "the input `numbers` is float64, and the graph takes float32",
        ),
        (
            with(0, |numbers| numbers.header = "{'descr': '<f4', 'fortran_order': True, 'shape': (4, 4), }\n"),
            "the array `numbers` is in Fortran order",
        ),
        (
            with(0, |numbers| numbers.header = "{'descr': '<f4', 'fortran_order': False, 'shape': (8, 2), }\n"),
            "input `numbers`: has the shape [8, 2]; [batch, 4] is right",
        ),
        (
            with(1, |kind| kind.header = "{'descr': '<i4', 'fortran_order': False, 'shape': (8,), }\n"),
            "input `kind`: has the shape [8]; [batch] is right",
        ),
        (with(1, |kind| kind.elements[24] = 5), "integers from 0 to 4 as its input `kind`, not 5 (example 3)"),
        (
            with(2, |y| y.header = "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }\n"),
            "the expected output `y` has the shape [4]; the graph computes [4, 1]",
        ),
        (b"PK".to_vec(), "its end is missing"),
    ] {
        let ran = import(folder.path(), &rows);
        assert!(ran.code != 0 && ran.to_string().contains(why), "{why}: {ran}");
        assert!(ran.to_string().contains("sample.npz"), "{ran}");
    }
}

/// A graph of the ready data's images with a batch normalization; the running statistics are its tensors 4 and 5.
const NORMALIZED: &str = r#"{"version":2,
    "inputs":[{"name":"x","element":"f32","shape":[{"factor":1,"batch":1},{"offset":60}]}],
    "parameters":[{"name":"fc1.weight","shape":[32,60]},{"name":"fc1.bias","shape":[32]},
        {"name":"bn.weight","shape":[32]},{"name":"bn.bias","shape":[32]},
        {"name":"bn.running_mean","shape":[32]},{"name":"bn.running_var","shape":[32]},
        {"name":"fc2.weight","shape":[10,32]},{"name":"fc2.bias","shape":[10]}],
    "nodes":[{"do":{"gemm":{"transpose_a":false,"transpose_b":true,"alpha":1.0,"beta":1.0}},"of":[0,1,2]},
        {"do":{"batch_norm":{"epsilon":0.00001,"momentum":0.1}},"of":[9,3,4,5,6]},
        {"do":{"activation":"relu"},"of":[10]},
        {"do":{"gemm":{"transpose_a":false,"transpose_b":true,"alpha":1.0,"beta":1.0}},"of":[11,7,8]}],
    "outputs":[{"name":"y","value":12}]}"#;

#[test]
fn running_statistics_are_averaged_in_masked_rounds() {
    let folder = tempfile::tempdir().unwrap();
    let graph = folder.path().join("net.graph.json");
    std::fs::write(&graph, NORMALIZED).unwrap();
    let graph = graph.to_str().unwrap();
    let args = |mode: &str| {
        let mode = format!("model.batch_norm={mode}");
        ["--rounds", "5", "--model-file", graph, "--set", &mode].map(str::to_owned)
    };
    let of = |mode: &str| rounds(&args(mode).each_ref().map(String::as_str));
    let (averaged, again) = (of("averaged"), of("averaged"));
    let accuracy = |rounds: &[Value]| rounds[4]["metrics"]["accuracy"].as_f64().unwrap();
    assert!(accuracy(&averaged) > 0.2, "{}", averaged[4]);
    assert_eq!(averaged[4]["model"], again[4]["model"], "the seed decides every bit");
    let refused = run(&["demo", "--rounds", "1", "--model-file", graph]);
    assert!(refused.code != 0 && refused.to_string().contains("model.batch_norm"), "{refused}");
    let other = run(&["demo", "--rounds", "1", "--model", "mlp", "--set", "model.batch_norm=averaged"]);
    assert!(other.code != 0 && other.to_string().contains("no running statistics that train"), "{other}");
}
