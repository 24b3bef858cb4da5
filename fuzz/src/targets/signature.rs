//! Requests with arbitrary signatures. An accepted one equals the signed request in all parts read by the coordinator.

use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request};
use secure_agg::IdentityKey;
use wire::Timestamp;
use wire::signature::{RequestKey, SignatureInput, SignedRequest, is_covered};

/// The Ed25519 key pair of RFC 9421 §B.1.4, for its examples and our own known answers.
const KEY: &str = "MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF";
const PUBLIC: &str = "JrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=";
const SERVER: &str = "fl.example:8443";

/// The signed request, reduced to the parts read by the coordinator.
fn honest() -> Parts {
    let request = Request::put("/v1/tasks/7/rounds/1?wait_ms=5")
        .header("content-type", "application/json")
        .header("tributary-attempt", "2")
        .header("range", "bytes=8-");
    let (mut parts, ()) = request.body(()).expect("a request").into_parts();
    let key = RequestKey::new(&wire::base64::decode(KEY).expect("base64"), b"certificate").expect("a key");
    key.sign(&mut parts, SERVER, Some(wire::Digest([7; 32])), Timestamp(1_750_000_000_000), [9; 16]);
    parts
}

fn covered(parts: &Parts) -> Vec<(String, Vec<String>)> {
    let mut names: Vec<_> = parts.headers.keys().filter(|name| is_covered(name.as_str())).cloned().collect();
    names.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    let values = |name: &HeaderName| {
        let texts = parts.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        // Several values are signed as one list.
        texts.flat_map(|text| text.split(',')).map(|text| text.trim().to_owned()).collect()
    };
    names.iter().map(|name| (name.as_str().to_owned(), values(name))).collect()
}

pub fn run(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(input) = SignatureInput::parse(text)
    {
        let again = SignatureInput::parse(&format!("tributary={}", input.parameters));
        assert!(again.as_ref() == Ok(&input), "what is signed is not what was read: {input:?} {again:?}");
    }
    let Some(parts) = read(data) else { return };
    let Ok(request) = SignedRequest::read(&parts, SERVER) else { return };
    let key = IdentityKey(wire::base64::decode(PUBLIC).expect("base64").try_into().expect("32 bytes"));
    if request.verify(&key).is_ok() {
        let honest = honest();
        let place = |parts: &Parts| (parts.method.clone(), parts.uri.path_and_query().cloned());
        assert!(place(&parts) == place(&honest), "another request counts as signed");
        assert!(covered(&parts) == covered(&honest), "another header counts as signed");
        assert!(request.content_digest == Some(wire::Digest([7; 32])), "another body counts as signed");
    }
}

/// Method and URI in the first line, then headers.
fn read(data: &[u8]) -> Option<Parts> {
    let mut lines = data.split(|byte| *byte == b'\n');
    let (method, uri) = std::str::from_utf8(lines.next()?).ok()?.split_once(' ')?;
    let mut parts = Request::builder().method(Method::try_from(method).ok()?).uri(uri).body(()).ok()?.into_parts().0;
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        parts.headers.try_append(name, value).ok()?;
    }
    Some(parts)
}

/// The honest request, and its `Signature-Input` alone.
pub fn seeds() -> Vec<Vec<u8>> {
    let parts = honest();
    let mut text = format!("{} {}", parts.method, parts.uri).into_bytes();
    for (name, value) in &parts.headers {
        text.extend([b"\n", name.as_str().as_bytes(), b": ", value.as_bytes()].concat());
    }
    assert!(read(&text).is_some_and(|read| SignedRequest::read(&read, SERVER).is_ok()), "the seed is no signed request");
    vec![text, parts.headers["signature-input"].as_bytes().to_vec()]
}
