//! A new version is tried on some keys: it stays, or is taken back by itself or by one command.

use super::{Models, folder, parameters, publish, row};
use crate::support::run;

const TRIED: [&str; 6] = ["--canary-percent", "20", "--abort-min-requests", "20", "--abort-p99-ms", "60000"];

#[tokio::test]
async fn a_worse_version_is_taken_back_before_its_time_is_over_and_each_key_has_one_side() {
    let folder = folder();
    let models = Models::serve(folder.path(), &[&TRIED[..], &["--hold-s", "3600"]].concat());
    let mut worse = parameters(1);
    // It prefers other classes: the scores of the last layer with the opposite sign.
    let last = worse.values().len() - (3 * 7 + 3);
    worse.values_mut()[last..].iter_mut().for_each(|value| *value = -*value);
    publish(folder.path(), 2, &worse);
    models
        .wait("a canary", async || models.metric("tributary_infer_swaps_total", "outcome=\"tried\"").await == 1.0)
        .await;
    let (mut sides, mut number) = (std::collections::BTreeMap::new(), 0);
    models
        .wait("the verdict", async || {
            for _ in 0..50 {
                number += 1;
                let key = format!("patient-{}", number % 100);
                let (version, _) = models.infer(&row(number), Some(&key)).await.unwrap();
                if version == 2 {
                    assert_eq!(*sides.entry(key).or_insert(version), 2, "a key stays where it is");
                } else {
                    sides.entry(key).or_insert(version);
                }
            }
            models.metric("tributary_infer_swaps_total", "outcome=\"taken_back\"").await == 1.0
        })
        .await;
    let tried = sides.values().filter(|version| **version == 2).count();
    assert!((5..=40).contains(&tried), "{tried} of 100 keys");
    let (version, _) = models.infer(&row(1), Some("patient-1")).await.unwrap();
    assert_eq!(version, 1);
    publish(folder.path(), 3, &parameters(1));
    models
        .wait("the next", async || models.metric("tributary_infer_swaps_total", "outcome=\"tried\"").await == 2.0)
        .await;
}

#[tokio::test]
async fn a_slow_sender_is_no_fault_of_the_version() {
    let folder = folder();
    let tried = ["--canary-percent", "100", "--abort-min-requests", "1", "--abort-p99-ms", "2000", "--hold-s", "3600"];
    let models = Models::serve(folder.path(), &tried);
    publish(folder.path(), 2, &parameters(1));
    models
        .wait("a canary", async || models.metric("tributary_infer_swaps_total", "outcome=\"tried\"").await == 1.0)
        .await;
    let body = super::asked(&row(1)).to_string();
    let (first, second) = body.split_at(body.len() / 2);
    let (first, second) = (first.to_owned(), second.to_owned());
    let pieces = futures_util::stream::unfold(0, move |piece| {
        let (first, second) = (first.clone(), second.clone());
        async move {
            match piece {
                0 => Some((Ok::<_, std::io::Error>(first), 1)),
                1 => {
                    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
                    Some((Ok(second), 2))
                }
                _ => None,
            }
        }
    });
    let url = format!("{}/v2/models/digits/infer", models.url);
    let request = reqwest::Client::new().post(url).body(reqwest::Body::wrap_stream(pieces));
    let (status, answer) = super::answer(request).await;
    assert_eq!((status, &answer["model_version"]), (200, &"2".into()), "{answer}");
    // The watch is looked at every few milliseconds.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(models.metric("tributary_infer_swaps_total", "outcome=\"taken_back\"").await, 0.0);
    assert_eq!(models.metric("tributary_infer_version{", "side=\"canary\"").await, 2.0);
}

#[tokio::test]
async fn a_good_version_becomes_the_stable_one_and_one_command_goes_back() {
    let folder = folder();
    let models = Models::serve(folder.path(), &[&TRIED[..], &["--hold-s", "1"]].concat());
    let nothing = run(&["--format", "json", "infer", "rollback", "digits", "--at", &models.url]);
    assert_eq!(nothing.code, 8, "{nothing}");
    publish(folder.path(), 2, &parameters(1));
    models.until_answers(2).await;
    assert_eq!(models.metric("tributary_infer_swaps_total", "outcome=\"promoted\"").await, 1.0);
    let back = run(&["--format", "json", "infer", "rollback", "digits", "--at", &models.url]).data();
    assert_eq!(back, serde_json::json!({ "name": "digits", "version": "1" }));
    models.until_answers(1).await;
    let unknown = run(&["--format", "json", "infer", "rollback", "other", "--at", &models.url]);
    assert_eq!(unknown.code, 7, "{unknown}");
    drop(models);
    let again = Models::serve(folder.path(), &[]);
    assert_eq!(again.infer(&row(1), None).await.unwrap().0, 1, "what was left is not used after a restart either");
}
