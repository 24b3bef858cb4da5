//! New versions under load: all requests succeed, and every answer is the one of the version that it names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Models, are_of, folder, parameters, publish, row};
use crate::support::number;

#[tokio::test]
async fn versions_are_swapped_under_load_and_no_request_fails() {
    let swaps = u32::try_from(number("TRIBUTARY_SWAPS", 6)).unwrap();
    let folder = folder();
    let models = Arc::new(Models::serve(folder.path(), &[]));
    let (is_over, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let ask = |client: u32| {
        let (models, is_over, answers) = (Arc::clone(&models), Arc::clone(&is_over), Arc::clone(&answers));
        tokio::spawn(async move {
            let mut newest = 0;
            for number in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let row = row(client * 31 + number);
                let (version, scores) = models.infer(&row, None).await.unwrap();
                assert!(are_of(version, &row, &scores), "version {version} did not say {scores:?}");
                assert!(version >= newest, "version {version} answered after {newest}");
                newest = version;
                answers.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let askers: Vec<_> = (0..8).map(ask).collect();
    for version in 2..swaps + 2 {
        publish(folder.path(), version, &parameters(version));
        models.until_answers(version).await;
    }
    is_over.store(true, Ordering::Relaxed);
    for asker in askers {
        asker.await.unwrap();
    }
    let (answers, used) = (answers.load(Ordering::Relaxed), f64::from(swaps) + 1.0);
    assert!(answers > u64::from(swaps), "{answers} answers");
    println!("{swaps} swaps, {answers} answers, none failed");
    assert_eq!(models.metric("tributary_infer_swaps_total", "outcome=\"used\"").await, used);
    assert_eq!(models.metric("tributary_infer_requests_total", "status=\"200\"").await, answers as f64);
    assert_eq!(models.metric("tributary_infer_queue_seconds_count", "").await, answers as f64);
}

#[tokio::test]
async fn many_rows_are_parted_and_answered_in_their_order() {
    let folder = folder();
    let models = Models::serve(folder.path(), &["--max-batch", "4", "--cache", "1000000"]);
    let rows: Vec<_> = (0..37).map(row).collect();
    let data: Vec<f32> = rows.concat();
    let body = serde_json::json!({
        "id": "mine",
        "inputs": [{ "name": "input", "shape": [37, 5], "datatype": "FP32", "data": data }],
        "outputs": [{ "name": "classes" }, { "name": "scores" }],
    });
    for _ in 0..2 {
        let (status, answer) = models.post("/v2/models/digits/versions/1/infer", &body, None).await;
        assert_eq!(
            (status, &answer["id"], &answer["outputs"][0]["shape"]),
            (200, &"mine".into(), &serde_json::json!([37]))
        );
        let scores: Vec<f32> = serde_json::from_value(answer["outputs"][1]["data"].clone()).unwrap();
        for (row, scores) in rows.iter().zip(scores.chunks(3)) {
            assert!(are_of(1, row, scores));
        }
    }
    assert_eq!(models.metric("tributary_infer_cache_hits_total", "").await, 1.0, "the second time it is remembered");
    let sizes = models.metric("tributary_infer_batch_size_sum", "").await
        / models.metric("tributary_infer_batch_size_count", "").await;
    assert!(sizes <= 4.0, "{sizes}");
}
