//! Every invalid request gets an explanation instead of an internal error.

use serde_json::{Value, json};

use super::{Models, asked, folder, row};

#[tokio::test]
async fn wrong_requests_are_told_what_is_wrong() {
    let folder = folder();
    let models = Models::serve(folder.path(), &["--body-max", "100000", "--max-batch", "2", "--queue", "3"]);
    let with = |key: &str, value: Value| {
        let mut body = asked(&row(1));
        body["inputs"][0][key] = value;
        body
    };
    let long = json!({ "inputs": [{ "name": "input", "shape": [7, 5], "datatype": "FP32", "data": vec![0.5; 35] }] });
    let huge =
        json!({ "inputs": [{ "name": "input", "shape": [20000, 5], "datatype": "FP32", "data": vec![0.5; 100_000] }] });
    let mut output = asked(&row(1));
    output["outputs"] = json!([{ "name": "logits" }]);
    for (path, body, status, words) in [
        ("digits", with("shape", json!([1, 4])), 422, "its shape is [-1, 5]"),
        ("digits", with("datatype", json!("FP64")), 422, "its datatype is FP32"),
        ("digits", with("name", json!("x")), 422, "called `input`"),
        ("digits", with("data", json!([1, 2, 3])), 422, "holds 5 elements, and these are 3"),
        ("digits", with("data", json!([1, 2, 3, 4, 1e300])), 422, "element 4 is no finite FP32"),
        ("digits", with("data", json!(["secret-4711", 2, 3, 4, 5])), 422, "element 0 is no number"),
        ("digits", with("shape", json!("x")), 400, "not what it has to be"),
        ("digits", json!({}), 400, "not what it has to be"),
        ("digits", json!([]), 400, "not what it has to be"),
        ("digits", long, 413, "at most 6 examples here, and this one has 7"),
        ("digits", huge, 413, "at most 100000 bytes"),
        ("digits", output, 422, "no \"logits\""),
        ("other", asked(&row(1)), 404, "no model is called \"other\""),
        ("digits/versions/9", asked(&row(1)), 404, "by no version \"9\", but by 1"),
        ("digits/versions/x", asked(&row(1)), 404, "by no version \"x\""),
    ] {
        let (found, answer) = models.post(&format!("/v2/models/{path}/infer"), &body, None).await;
        let told = answer["error"].as_str().unwrap_or_default();
        assert!(found == status && told.contains(words), "{path}: {found} {answer}");
        assert!(!answer.to_string().contains("4711"), "inputs are told to nobody");
        assert_eq!(answer["status"], status);
    }
    let client = reqwest::Client::new();
    let url = format!("{}/v2/models/digits/infer", models.url);
    for (header, value, status) in [
        ("inference-header-content-length", "99999", 400),
        ("inference-header-content-length", "x", 400),
        ("content-encoding", "gzip", 415),
        // Headers of a page of a site in this machine's browser.
        ("origin", "https://evil.example", 403),
        ("host", "evil.example", 403),
    ] {
        let answer = client.post(&url).header(header, value).body(asked(&row(1)).to_string()).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{header}: {value}");
    }
    assert_eq!(models.get("/v2/models/digits/infer").await.0, 405);
    assert_eq!(models.get("/v3").await.0, 404);
    assert_eq!(models.get("/v2/models/digits/versions/2/ready").await.0, 404);
    assert!(models.infer(&row(1), None).await.is_ok(), "it goes on");
    assert_eq!(models.metric("tributary_infer_requests_total", "status=\"5").await, 0.0);
}

#[tokio::test]
async fn metadata_says_what_a_model_takes_and_gives() {
    let folder = folder();
    let models = Models::serve(folder.path(), &[]);
    assert_eq!(models.get("/v2/health/live").await, (200, json!({ "live": true })));
    assert_eq!(models.get("/v2/health/ready").await, (200, json!({ "ready": true })));
    assert_eq!(models.get("/v2").await.1["extensions"], json!(["binary_tensor_data"]));
    let told = json!({
        "name": "digits", "versions": ["1"], "platform": "tributary_mlp",
        "inputs": [{ "name": "input", "datatype": "FP32", "shape": [-1, 5] }],
        "outputs": [
            { "name": "scores", "datatype": "FP32", "shape": [-1, 3] },
            { "name": "classes", "datatype": "INT64", "shape": [-1] },
        ],
    });
    assert_eq!(models.get("/v2/models/digits").await, (200, told.clone()));
    assert_eq!(models.get("/v2/models/digits/versions/1").await, (200, told));
    assert_eq!(models.get("/v2/models/digits/ready").await, (200, json!({ "name": "digits", "ready": true })));
}
