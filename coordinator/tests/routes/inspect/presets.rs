//! The list of presets contains their settings.

use serde_json::json;
use wire::route;

use crate::support::TestCoordinator;

#[tokio::test]
async fn presets_are_listed_by_name_with_their_keys() {
    let t = TestCoordinator::start().await;
    let presets = t.get(&t.viewer, route::PRESETS).await.json();
    let names: Vec<_> = presets["items"].as_array().unwrap().iter().map(|preset| preset["name"].clone()).collect();
    assert_eq!(names, ["asynchronous", "compressed", "heterogeneous", "personalized", "private", "robust"]);
    let private = &presets["items"][4];
    assert_eq!(private["spec"]["privacy"]["epsilon"], json!(8.0));
    assert!(private["description"].as_str().unwrap().contains("noise"));
    assert!(private["spec"].get("description").is_none());
}
