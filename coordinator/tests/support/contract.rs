//! Checks that every response in a test is documented in OpenAPI.

use std::sync::LazyLock;

use http::{HeaderMap, Method, StatusCode};
use serde_json::Value;

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_slice(&coordinator::http::document()).expect("a document in JSON"));

/// The documented operation of the path; `None` if undocumented.
fn operation(method: &Method, path: &str) -> Option<&'static Value> {
    let parts: Vec<_> = path.split('/').collect();
    let fits = |template: &&String| {
        let template: Vec<_> = template.split('/').collect();
        template.len() == parts.len()
            && template.iter().zip(&parts).all(|(wanted, part)| wanted.starts_with('{') || wanted == part)
    };
    let paths = DOCUMENT["paths"].as_object()?;
    // `…/current` rather than `…/{id}`.
    let template = paths.keys().filter(fits).min_by_key(|template| template.matches('{').count())?;
    Some(&paths[template][method.as_str().to_lowercase()]).filter(|operation| !operation.is_null())
}

/// Checks the status and the media type of a response.
#[track_caller]
pub(crate) fn check(method: &Method, path: &str, status: StatusCode, headers: &HeaderMap, body: &[u8]) {
    let Some(operation) = operation(method, path) else { return };
    let answer = &operation["responses"][status.as_str()];
    assert!(
        !answer.is_null(),
        "{method} {path} is not described to answer {status}: {}",
        String::from_utf8_lossy(body)
    );
    let media = headers.get("content-type").map(|media| media.to_str().unwrap().split(';').next().unwrap());
    match (&answer["content"], media) {
        (Value::Null, _) => assert!(body.is_empty(), "{method} {path}: {status} has a body that is not described"),
        (content, Some(media)) => {
            assert!(!content[media].is_null(), "{method} {path}: {status} with {media}: {content}")
        }
        (content, None) => panic!("{method} {path}: {status} has no media type, and {content} is described"),
    }
}
