//! A graph with tokens and numbers as inputs and three outputs, from requests to answers.

use std::path::Path;
use std::time::Duration;

use client_sdk::models::Architecture;
use inference::batcher::Batching;
use inference::rollout::Rollout;
use inference::scale::Replicas;
use learning::checkpoint;
use recipe::digest::sha256;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wire::Digest;

use super::super::engine::{Engine, ModelPair, NoAnswer};
use super::super::input::Input;
use super::super::model::{Loaded, Unservable};
use super::super::shared::Settings;
use super::*;

/// `scores[b, l] = table[tokens[b, l]] + numbers[b] w`, the best of them, and whether each number is above 0.
pub(crate) fn architecture() -> Architecture {
    let (batch, length) = (json!({ "factor": 1, "batch": 1 }), json!({ "factor": 1, "length": 1 }));
    let (one, two, three) = (json!({ "offset": 1 }), json!({ "offset": 2 }), json!({ "offset": 3 }));
    let graph = json!({
        "version": 1, "lengths": { "least": 1, "most": 100_000 },
        "inputs": [
            { "name": "tokens", "element": "i64", "shape": [batch, length] },
            { "name": "numbers", "element": "f32", "shape": [batch, two] },
        ],
        "parameters": [{ "name": "table", "shape": [5, 3] }, { "name": "w", "shape": [2, 3] }],
        "constants": [{ "shape": [], "values": { "f32": "AAAAAA==" } }],
        "nodes": [
            { "do": { "gather": { "axis": 0 } }, "of": [2, 0] },
            { "do": "mat_mul", "of": [1, 3] },
            { "do": { "reshape": { "to": [batch, one, three] } }, "of": [6] },
            { "do": { "arithmetic": "add" }, "of": [5, 7] },
            { "do": { "arg_max": { "axis": 2 } }, "of": [8] },
            { "do": { "comparison": "greater" }, "of": [1, 4] },
        ],
        "outputs": [
            { "name": "scores", "value": 8 }, { "name": "best", "value": 9 }, { "name": "is_positive", "value": 10 },
        ],
    });
    let graph = graph::decode(graph.to_string().as_bytes()).unwrap();
    Architecture::Graph(Arc::new(GraphModel::new(graph, Loss::NextToken { ignore: None }).unwrap()))
}

/// Parameters that are different for each version.
fn file(architecture: &Architecture, version: u32) -> Vec<u8> {
    let mut parameters = architecture.initial(version.into()).unwrap();
    let numbers = (1_u8..).map(|number| f32::from(number) / 8.0 + version as f32);
    parameters.values_mut().iter_mut().zip(numbers).for_each(|(value, number)| *value = number);
    checkpoint::write(&parameters).unwrap()
}

fn loaded() -> Arc<Loaded> {
    let model = architecture();
    Arc::new(Loaded::read(1, Digest([0; 32]), &file(&model, 1), Some(&model), 4).unwrap())
}

/// What version 1 gives as scores, in the order of the examples.
fn expected(tokens: &[Vec<usize>], numbers: &[[f32; 2]]) -> Vec<f32> {
    let value = |at: usize| (at + 1) as f32 / 8.0 + 1.0;
    let score = |token: usize, [a, b]: [f32; 2], class: usize| {
        value(3 * token + class) + a * value(15 + class) + b * value(18 + class)
    };
    let of_text = |(text, numbers): (&Vec<usize>, &[f32; 2])| {
        let numbers = *numbers;
        text.iter().flat_map(move |&token| (0..3).map(move |class| score(token, numbers, class))).collect::<Vec<_>>()
    };
    tokens.iter().zip(numbers).flat_map(of_text).collect()
}

fn input(tokens: &[Vec<usize>], numbers: &[[f32; 2]]) -> Input {
    let ids = tokens.iter().flatten().map(|&token| i64::try_from(token).unwrap()).collect();
    let tensors = vec![Tensor::I64(ids), Tensor::F32(numbers.concat())];
    Input::Tensors(Examples { tensors, count: tokens.len(), length: u32::try_from(tokens[0].len()).unwrap() })
}

fn is_close(one: &[f32], other: &[f32]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| (one - other).abs() < 1e-5)
}

#[tokio::test]
async fn requests_of_different_lengths_are_not_joined() {
    let batching = Batching { max_batch: 4, max_delay: Duration::from_millis(50), ..Batching::default() };
    let engine = Engine::start(&["digits".to_owned()], batching, 1).unwrap();
    let target = ModelPair { model: loaded(), comparison: None, length: 0 };
    target.model.warm().unwrap();
    // Requests that are being read hold the batch open.
    let reading = engine.arriving(0, true).unwrap();
    let texts: Vec<Vec<Vec<usize>>> = vec![
        vec![vec![0, 4]],
        vec![vec![1, 2, 3]],
        vec![vec![2, 2], vec![3, 1]],
        vec![vec![4], vec![3], vec![2], vec![1], vec![0], vec![4]],
        vec![vec![0, 1, 2]],
    ];
    let numbers = |count: usize| (0..count).map(|at| [at as f32 - 1.0, 0.5]).collect::<Vec<_>>();
    let all = texts.iter().map(|text| engine.ask(0, None, &target, input(text, &numbers(text.len()))));
    let all = futures_util::future::join_all(all).await;
    drop(reading);
    for (text, said) in texts.iter().zip(all) {
        let said = said.unwrap();
        assert!(is_close(&said.scores, &expected(text, &numbers(text.len()))), "{text:?}: {said:?}");
        let count = text.len() * text[0].len();
        assert_eq!((said.classes.len(), said.others[0].len(), said.others[1].len()), (count, count, 2 * text.len()));
    }
    let mut lanes = Vec::new();
    for length in [2, 3] {
        lanes.push(ModelPair { length, ..target.clone() });
    }
    assert!(lanes[0] != lanes[1] && lanes[0] == lanes[0].clone());
}

#[tokio::test]
async fn integer_outside_a_table_is_not_the_version_s_fault() {
    let engine = Engine::start(&["digits".to_owned()], Batching::default(), 1).unwrap();
    let target = ModelPair { model: loaded(), comparison: None, length: 0 };
    let refused = engine.ask(0, None, &target, input(&[vec![17]], &[[0.0; 2]])).await.unwrap_err();
    assert!(matches!(refused, NoAnswer::Inputs) && !refused.is_of_version());
    assert!(!refused.to_string().contains("17"), "inputs are not quoted: {refused}");
    assert!(engine.ask(0, None, &target, input(&[vec![4]], &[[0.0; 2]])).await.is_ok());
}

#[test]
fn graph_that_mixes_examples_is_rejected() {
    let batch = json!({ "factor": 1, "batch": 1 });
    let mean = json!({ "reduce": { "by": "mean", "axes": [0], "keep": true } });
    let graph = json!({
        "version": 1,
        "inputs": [{ "name": "x", "element": "f32", "shape": [batch, { "offset": 2 }] }],
        "parameters": [{ "name": "w", "shape": [2, 3] }],
        "nodes": [
            { "do": "mat_mul", "of": [0, 1] },
            { "do": mean, "of": [2] },
            { "do": { "arithmetic": "sub" }, "of": [2, 3] },
        ],
        "outputs": [{ "name": "y", "value": 4 }],
    });
    let graph = graph::decode(graph.to_string().as_bytes()).unwrap();
    let model = Architecture::Graph(Arc::new(GraphModel::new(graph, Loss::CROSS_ENTROPY).unwrap()));
    let mixing = Loaded::read(1, Digest([0; 32]), &file(&model, 1), Some(&model), 4).unwrap();
    let error = mixing.warm().unwrap_err();
    assert!(matches!(error, Unservable::Graph(_)) && error.to_string().contains("other examples"), "{error}");
}

#[test]
fn sizes_beyond_limits_are_refused_before_memory() {
    let Architecture::Graph(model) = architecture() else { panic!("it is a graph") };
    let served = Served::new(&model).unwrap();
    let shapes = served.shapes(Point { batch: 2, length: 7 }).unwrap();
    assert_eq!(shapes, [vec![2, 7, 3], vec![2, 7], vec![2, 2]]);
    let refused = served.shapes(Point { batch: 1, length: 100_001 }).unwrap_err();
    assert!(refused.contains("takes sequences of 1 to 100000 positions, not 100001"), "{refused}");
    let refused = served.shapes(Point { batch: 11, length: 100_000 }).unwrap_err();
    assert!(refused.contains("ask about 10 such examples at once"), "{refused}");
    assert_eq!(served.chunk(1, 32), 32);
    assert!((50..150).contains(&served.chunk(100_000, 1000)), "{}", served.chunk(100_000, 1000));
}

/// A folder with version 1 of `net`, and a server of it.
async fn serve(folder: &Path) -> crate::Running {
    let (model, place) = (architecture(), folder.join("net/1"));
    std::fs::create_dir_all(&place).unwrap();
    let file = file(&model, 1);
    let record = json!({
        "task": "00000000-0000-0000-0000-000000000001", "sha256": sha256(&file), "architecture": model,
    });
    std::fs::write(place.join("model.safetensors"), &file).unwrap();
    std::fs::write(place.join("record.json"), record.to_string()).unwrap();
    let settings = Settings {
        models: folder.to_owned(),
        names: vec!["net".to_owned()],
        listen: "127.0.0.1:0".parse().unwrap(),
        health: None,
        batching: Batching::default(),
        rollout: Rollout::default(),
        threads: 1,
        device: client_sdk::train::Device::Cpu,
        body_max: 1 << 20,
        cache_bytes: 1 << 20,
        replicas: Replicas::default(),
        replicas_of: None,
        name: None,
    };
    crate::start(settings, None, None, Arc::new(|_| Box::new(|_| ()))).await.unwrap()
}

/// Sends a request; gives status, the header with the length of the JSON, and the body.
async fn send(running: &crate::Running, head: &str, body: &[u8]) -> (u16, Option<usize>, Vec<u8>) {
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let length = body.len();
    let head = format!("{head}host: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.replacen(" HTTP", " HTTP/1.1\r\n", 1).as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let told = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    let status = told.split(' ').nth(1).unwrap().parse().unwrap();
    let json = told.lines().find_map(|line| line.strip_prefix("inference-header-content-length: "));
    (status, json.map(|length| length.trim().parse().unwrap()), answer[end + 4..].to_vec())
}

async fn post(running: &crate::Running, body: &Value) -> (u16, Value) {
    let (status, _, body) = send(running, "POST /v2/models/net/infer HTTP", body.to_string().as_bytes()).await;
    (status, serde_json::from_slice(&body).unwrap())
}

fn asked(tokens: &Value, numbers: &Value) -> Value {
    json!({ "inputs": [tokens, numbers] })
}

#[tokio::test]
async fn graph_answers_over_http_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let running = serve(folder.path()).await;
    let (status, _, body) = send(&running, "GET /v2/models/net HTTP", b"").await;
    let described: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, &described["platform"]), (200, &json!("tributary_graph")));
    let tensor =
        |name: &str, datatype: &str, shape: &[i64]| json!({ "name": name, "datatype": datatype, "shape": shape });
    assert_eq!(described["inputs"], json!([tensor("tokens", "INT64", &[-1, -1]), tensor("numbers", "FP32", &[-1, 2])]));
    let outputs = [
        tensor("scores", "FP32", &[-1, -1, 3]),
        tensor("best", "INT64", &[-1, -1]),
        tensor("is_positive", "BOOL", &[-1, 2]),
    ];
    assert_eq!(described["outputs"], json!(outputs));

    let (tokens, rows) = (vec![vec![0, 4], vec![2, 3]], [[1.0, -0.5], [0.0, 2.0]]);
    let ids = |datatype: &str| json!({ "name": "tokens", "datatype": datatype, "shape": [2, 2], "data": [0, 4, 2, 3] });
    let numbers = json!({ "name": "numbers", "datatype": "FP32", "shape": [2, 2], "data": [[1.0, -0.5], [0.0, 2.0]] });
    for body in [asked(&ids("INT64"), &numbers), asked(&numbers, &ids("INT32"))] {
        let (status, said) = post(&running, &body).await;
        assert_eq!(status, 200, "{said}");
        let scores: Vec<f32> = serde_json::from_value(said["outputs"][0]["data"].clone()).unwrap();
        assert!(is_close(&scores, &expected(&tokens, &rows)), "{said}");
        assert_eq!(said["outputs"][0]["shape"], json!([2, 2, 3]));
        assert_eq!(said["outputs"][1]["data"], json!([2, 2, 2, 2]));
        assert_eq!(said["outputs"][2]["data"], json!([true, false, false, true]));
    }
    running.shutdown().await;
}

#[tokio::test]
async fn graph_answers_over_http_in_binary() {
    let folder = tempfile::tempdir().unwrap();
    let running = serve(folder.path()).await;
    let json = json!({
        "inputs": [
            { "name": "numbers", "datatype": "FP32", "shape": [1, 2], "parameters": { "binary_data_size": 8 } },
            { "name": "tokens", "datatype": "INT32", "shape": [1, 3], "parameters": { "binary_data_size": 12 } },
        ],
        "outputs": [
            { "name": "is_positive", "parameters": { "binary_data": true } },
            { "name": "scores", "parameters": { "binary_data": true } },
        ],
    })
    .to_string();
    let numbers = [1.0_f32, -0.5].iter().flat_map(|value| value.to_le_bytes());
    let tokens = [4_i32, 0, 3].iter().flat_map(|value| value.to_le_bytes());
    let body: Vec<u8> = json.bytes().chain(numbers).chain(tokens).collect();
    let length = json.len();
    let head = format!("POST /v2/models/net/infer HTTPinference-header-content-length: {length}\r\n");
    let (status, told, said) = send(&running, &head, &body).await;
    let (head, binary) = said.split_at(told.unwrap_or(0));
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&said));
    let head: Value = serde_json::from_slice(head).unwrap();
    assert_eq!(head["outputs"][0]["name"], "is_positive");
    assert_eq!(&binary[..2], [1, 0]);
    let scores: Vec<f32> = binary[2..].as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    assert!(is_close(&scores, &expected(&[vec![4, 0, 3]], &[[1.0, -0.5]])), "{scores:?}");
    running.shutdown().await;
}

#[tokio::test]
async fn wrong_requests_for_a_graph_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let running = serve(folder.path()).await;
    let tensor = |name: &str, datatype: &str, shape: &[u64], data: Value| json!({ "name": name, "datatype": datatype, "shape": shape, "data": data });
    let tokens = || tensor("tokens", "INT64", &[1, 2], json!([0, 4]));
    let numbers = || tensor("numbers", "FP32", &[1, 2], json!([0, 1]));
    for (inputs, why) in [
        (vec![tokens()], "this model takes `tokens`, `numbers`; these are 1"),
        (vec![tokens(), tokens()], "`tokens` is there twice"),
        (vec![tokens(), tensor("x", "FP32", &[1, 2], json!([0, 1]))], "and no \\\"x\\\""),
        (vec![tokens(), tensor("numbers", "FP64", &[1, 2], json!([0, 1]))], "its datatype is FP32"),
        (vec![tokens(), tensor("numbers", "INT32", &[1, 2], json!([0, 1]))], "its datatype is FP32"),
        (vec![tokens(), tensor("numbers", "FP32", &[2, 2], json!([0, 1, 2, 3]))], "[batch, 2] is right"),
        (vec![tokens(), tensor("numbers", "FP32", &[1, 3], json!([0, 1, 2]))], "its shape is [-1, 2]"),
        (vec![tokens(), tensor("numbers", "FP32", &[1, 2], json!([0]))], "holds 2 elements, and these are 1"),
        (vec![tokens(), tensor("numbers", "FP32", &[1, 2], json!([true, false]))], "BOOL data are true and false"),
        (vec![tensor("tokens", "INT64", &[1, 2], json!([0, 0.5])), numbers()], "element 1 is no whole number"),
        (vec![tensor("tokens", "INT64", &[1, 2], json!([0, 1e18])), numbers()], "element 1 is no whole number"),
        (vec![tensor("tokens", "INT64", &[1, 2], json!([0, 5])), numbers()], "outside the model's range"),
        (vec![tensor("tokens", "INT64", &[1, 100_001], json!([])), numbers()], "1 to 100000 positions"),
    ] {
        let (status, said) = post(&running, &json!({ "inputs": inputs })).await;
        assert_eq!(status, 422, "{said}");
        assert!(said.to_string().contains(why), "{said}");
    }
    let outputs = json!([{ "name": "classes" }]);
    let (status, said) = post(&running, &json!({ "inputs": [tokens(), numbers()], "outputs": outputs })).await;
    assert!(status == 422 && said.to_string().contains("gives `scores`, `best`, `is_positive`"), "{said}");
    running.shutdown().await;
}
