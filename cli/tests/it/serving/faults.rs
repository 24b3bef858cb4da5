//! Faults on disk or of the process: answers always come from a verified version.

use std::time::Duration;

use learning::checkpoint;
use serde_json::json;

use super::{Models, are_of, folder, parameters, publish, publish_with, row};

const TASK: &str = "00000000-0000-0000-0000-000000000001";

/// The file with its first number replaced, which `checkpoint::write` would not write.
fn with_nan(mut file: Vec<u8>) -> Vec<u8> {
    // A safetensors file: the length of its header, the header, the numbers.
    let header = usize::try_from(u64::from_le_bytes(file[..8].try_into().unwrap())).unwrap();
    file[8 + header..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    file
}

#[tokio::test]
async fn a_corrupt_file_and_a_model_of_nan_are_never_used() {
    let folder = folder();
    let models = Models::serve(folder.path(), &[]);
    let file = checkpoint::write(&parameters(2)).unwrap();
    let record = json!({ "task": TASK, "sha256": "ab".repeat(32) });
    publish_with(folder.path(), 2, &file, Some(record));
    publish_with(folder.path(), 3, &with_nan(checkpoint::write(&parameters(3)).unwrap()), None);
    publish_with(folder.path(), 4, b"no model at all", None);
    models
        .wait("three that are unfit", async || {
            models.metric("tributary_infer_swaps_total", "outcome=\"unfit\"").await == 3.0
        })
        .await;
    let (version, scores) = models.infer(&row(1), None).await.unwrap();
    assert!(version == 1 && are_of(1, &row(1), &scores));
    publish(folder.path(), 5, &parameters(5));
    models.until_answers(5).await;
    assert_eq!(models.metric("tributary_infer_swaps_total", "outcome=\"unfit\"").await, 3.0, "each was judged once");
}

#[tokio::test]
async fn killed_in_the_middle_of_swaps_it_starts_on_a_version_that_was_verified() {
    let folder = folder();
    for kill in 0..4_u32 {
        let models = Models::serve(folder.path(), &[]);
        let (first, scores) = models.infer(&row(kill), None).await.unwrap();
        assert!(are_of(first, &row(kill), &scores));
        for version in [first + 1, first + 2] {
            publish(folder.path(), version, &parameters(version));
        }
        // Somewhere between reading a version and writing the state: the checks have an interval of 250 ms.
        tokio::time::sleep(Duration::from_millis(u64::from(90 * kill))).await;
        drop(models);
        // Half of a version, as a fetch leaves it.
        let half = folder.path().join(format!("digits/.incoming-{}", first + 3));
        std::fs::create_dir_all(&half).unwrap();
        std::fs::write(half.join("model.safetensors"), "half").unwrap();
        let models = Models::serve(folder.path(), &[]);
        let (version, scores) = models.infer(&row(kill), None).await.unwrap();
        assert!((first..=first + 2).contains(&version) && are_of(version, &row(kill), &scores), "{version}");
        models.until_answers(first + 2).await;
    }
    std::fs::write(folder.path().join("digits/state.json"), "{").unwrap();
    let models = Models::serve(folder.path(), &[]);
    assert_eq!(models.infer(&row(1), None).await.unwrap().0, 9, "without a word on what was in use, the newest");
    let aside = std::fs::read_to_string(folder.path().join("digits/state.damaged.json"));
    assert_eq!(aside.unwrap(), "{", "what cannot be understood stays for a person");
}

#[tokio::test]
async fn a_folder_that_cannot_be_read_is_told_once_and_read_again() {
    let folder = folder();
    let models = Models::serve(folder.path(), &[]);
    let (place, aside) = (folder.path().join("digits"), folder.path().join("aside"));
    std::fs::rename(&place, &aside).unwrap();
    std::fs::write(&place, "no folder").unwrap();
    let told = async || models.metric("tributary_infer_fetch_failures_total", "reason=\"disk\"").await;
    models.wait("a word about it", async || told().await > 0.0).await;
    // It is looked at every 250 ms.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(told().await, 1.0);
    assert_eq!(models.infer(&row(1), None).await.unwrap().0, 1, "it goes on");
    std::fs::remove_file(&place).unwrap();
    std::fs::rename(&aside, &place).unwrap();
    publish(folder.path(), 2, &parameters(2));
    models.until_answers(2).await;
}

#[tokio::test]
async fn a_full_queue_says_when_to_come_back() {
    let folder = folder();
    let models =
        std::sync::Arc::new(Models::serve(folder.path(), &["--threads", "1", "--max-batch", "1", "--queue", "40"]));
    // Each fills the queue: further requests are rejected until it is empty.
    let data: Vec<f32> = (0..40).flat_map(row).collect();
    let body = json!({ "inputs": [{ "name": "input", "shape": [40, 5], "datatype": "FP32", "data": data }] });
    let ask = |_| {
        let (models, body) = (std::sync::Arc::clone(&models), body.to_string());
        tokio::spawn(async move {
            let mut refused = 0;
            for _ in 0..10 {
                let url = format!("{}/v2/models/digits/infer", models.url);
                let answer = models.client.post(url).body(body.clone()).send().await.unwrap();
                match answer.status().as_u16() {
                    200 => {}
                    429 => {
                        refused += 1;
                        let seconds = answer.headers()["retry-after"].to_str().unwrap().to_owned();
                        assert!(seconds.parse::<u64>().is_ok_and(|seconds| seconds >= 1), "{seconds}");
                        let told: serde_json::Value = answer.json().await.unwrap();
                        let words = format!("try again in {seconds} s");
                        assert!(told["error"].as_str().unwrap().contains(&words), "{told}");
                    }
                    other => panic!("{other}"),
                }
            }
            refused
        })
    };
    let mut refused = 0;
    for asker in (0..16).map(ask).collect::<Vec<_>>() {
        refused += asker.await.unwrap();
    }
    assert!(refused > 0);
    assert_eq!(models.metric("tributary_infer_requests_total", "status=\"429\"").await, f64::from(refused));
    assert_eq!(models.metric("tributary_infer_queue_size", "").await, 0.0);
}

#[tokio::test]
async fn scores_that_are_not_finite_are_refused_and_not_remembered() {
    let folder = folder();
    let models = Models::serve(folder.path(), &["--cache", "1000000"]);
    let mut overflows = parameters(2);
    let (first, rest) = overflows.values_mut().split_at_mut(5 * 7);
    first.fill(1e30);
    rest.fill(0.0);
    rest[7..].fill(1.0);
    publish(folder.path(), 2, &overflows);
    models.until_answers(2).await;
    for _ in 0..2 {
        let (status, answer) = models.infer(&[1e20; 5], None).await.unwrap_err();
        assert!(status == 422 && answer["error"].as_str().unwrap().contains("not finite"), "{answer}");
    }
    assert_eq!(models.metric("tributary_infer_cache_hits_total", "").await, 0.0);
    assert_eq!(models.metric("tributary_infer_cache_misses_total", "").await, 2.0);
}

#[tokio::test]
async fn version_of_huge_weights_never_replaces_a_good_one() {
    let folder = folder();
    let models = Models::serve(folder.path(), &[]);
    models.until_answers(1).await;
    let mut huge = parameters(2);
    huge.values_mut().fill(f32::MAX);
    publish(folder.path(), 2, &huge);
    models
        .wait("a version that is unfit", async || {
            models.metric("tributary_infer_swaps_total", "outcome=\"unfit\"").await >= 1.0
        })
        .await;
    assert_eq!(models.infer(&[1.0; 5], None).await.unwrap().0, 1);
    publish(folder.path(), 3, &parameters(3));
    models.until_answers(3).await;
}
