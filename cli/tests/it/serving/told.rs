//! A coordinator lists the servers of its models: a server appears when it serves, and goes when it stops.

use serde_json::{Value, json};

use super::Models;
use crate::support::Served;

fn listed(served: &Served) -> Value {
    served.operate(&["infer", "servers", "demo"]).data()
}

#[tokio::test]
async fn a_server_appears_when_it_serves_and_goes_when_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::demo(&folder.path().join("data"), &["--rounds", "2", "--participants", "3"]);
    assert_eq!(listed(&served), json!([]));
    assert!(served.read(&["infer", "servers", "demo"]).contains("tributary infer serve --from"));
    let made = served.operate(&["token", "create", "--role", "viewer", "--name", "models", "--task", "demo"]).data();
    let token = made["token"].as_str().unwrap();
    let place = folder.path().join("models");
    let from = ["--from", &served.url, "--ca", &served.ca, "--token", token, "--task", "demo", "--name", "ward-7"];
    let models = Models::serve(&place, &from);
    models.until_answers(2).await;
    models.wait("what it says", async || listed(&served)[0]["report"]["version"] == 2).await;
    let all = listed(&served);
    assert_eq!((all.as_array().unwrap().len(), &all[0]["name"]), (1, &json!("ward-7")));
    let report = &all[0]["report"];
    assert_eq!((&report["requests"], &report["errors"], &report["canary"]), (&json!(0), &json!(0), &Value::Null));
    let text = served.read(&["infer", "servers", "demo"]);
    assert!(text.contains("ward-7") && !text.contains("behind"), "{text}");

    models.stop();
    assert_eq!(listed(&served), json!([]));
}
