//! All logs, at the most verbose level, and all files are free of inputs.

use serde_json::json;

use super::{Models, asked, folder};
use crate::kept::files;
use crate::secrecy::search::spellings;

/// Values that occur only in the requests.
const PLANTED: [f32; 5] = [31415.926, -27182.818, 14142.136, -17320.508, 16180.34];

#[tokio::test]
async fn inputs_are_in_no_log_and_in_no_file() {
    let (folder, elsewhere) = (folder(), tempfile::tempdir().unwrap());
    let log = elsewhere.path().join("log");
    let mut command = Models::command(folder.path(), &["--cache", "1000000"]);
    command.env("TRIBUTARY_LOG", "trace").stderr(std::fs::File::create(&log).unwrap());
    let models = Models::until_in_words(command);
    let ask = async |body: Vec<u8>, json: Option<usize>, status: u16| {
        let mut request = models.client.post(format!("{}/v2/models/digits/infer", models.url)).body(body);
        if let Some(length) = json {
            request = request.header("inference-header-content-length", length);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status);
    };
    let bytes = |body: &serde_json::Value| body.to_string().into_bytes();
    let row = asked(&PLANTED);
    for _ in 0..2 {
        ask(bytes(&row), None, 200).await;
    }
    let mut wrong = row.clone();
    wrong["inputs"][0]["shape"] = json!([5, 1]);
    ask(bytes(&wrong), None, 422).await;
    wrong["inputs"][0]["data"][1] = json!("no number");
    ask(bytes(&wrong), None, 422).await;
    let cut = bytes(&row);
    ask(cut[..cut.len() - 3].to_vec(), None, 400).await;
    let little: Vec<u8> = PLANTED.iter().flat_map(|number| number.to_le_bytes()).collect();
    let tensor =
        json!({ "name": "input", "shape": [1, 5], "datatype": "FP32", "parameters": { "binary_data_size": 20 } });
    let head = bytes(&json!({ "inputs": [tensor] }));
    ask([&head[..], &little].concat(), Some(head.len()), 200).await;
    ask([&head[..], &little[..16]].concat(), Some(head.len()), 422).await;
    // Waits for the last lines of the log.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    drop(models);

    let doubles: Vec<u8> = PLANTED.iter().flat_map(|number| f64::from(*number).to_le_bytes()).collect();
    let sent = bytes(&row);
    let start = sent.windows(7).position(|window| window == b"31415.9").expect("it is sent as it is searched for");
    let text = sent[start..].to_vec();
    let mut spelt: Vec<Vec<u8>> = [little, doubles, text].iter().flat_map(|secret| spellings(secret)).collect();
    // As JSON and Rust's formatting have them, rounded or not.
    spelt.extend(["31415.9", "27182.8", "14142.1", "17320.5", "16180.3"].map(|number| number.as_bytes().to_vec()));
    let logged = std::fs::read_to_string(&log).unwrap();
    assert!(logged.contains("version 1 of digits answers"), "{logged}");
    let searched = files(folder.path());
    assert!(searched.iter().any(|path| path.ends_with("state.json")));
    for path in searched.iter().chain([&log]) {
        let held = std::fs::read(path).unwrap();
        for spelling in &spelt {
            let is_there = held.windows(spelling.len()).any(|window| window == spelling.as_slice());
            assert!(!is_there, "{}: {}", path.display(), String::from_utf8_lossy(spelling));
        }
    }
}
