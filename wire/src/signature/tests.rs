//! Known answers of the RFCs, and effects of changes in transit.

use http::request::Parts;
use http::{Method, Request};
use ring::signature::{Ed25519KeyPair, KeyPair as _};

use federation::time::Timestamp;
use secure_agg::IdentityKey;

use super::content_digest::{read_content_digest, sha256};
use super::*;
use crate::headers::CERTIFICATE;

/// RFC 9421 §B.1.4, `test-key-ed25519`.
const PRIVATE: &str = "MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF";
const PUBLIC: &str = "JrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=";
const NOW: Timestamp = Timestamp(1_750_000_000_900);
const SERVER: &str = "fl.example:8443";
const BODY: &[u8] = br#"{"hello": "world"}"#;

fn pair() -> Ed25519KeyPair {
    Ed25519KeyPair::from_pkcs8_maybe_unchecked(&crate::base64::decode(PRIVATE).unwrap()).unwrap()
}

fn identity() -> IdentityKey {
    IdentityKey(pair().public_key().as_ref().try_into().unwrap())
}

/// RFC 9421 §2.1.1 and §B.2, `test-request`, without headers outside these test vectors.
fn test_request() -> Parts {
    let request = Request::post("/foo?param=Value&Pet=dog")
        .header("host", "example.com")
        .header("date", "Tue, 20 Apr 2021 02:07:55 GMT")
        .header("content-type", "application/json")
        .header("content-length", "18");
    request.body(()).unwrap().into_parts().0
}

#[test]
fn the_ed25519_signature_of_the_rfc_is_made_and_verified() {
    assert_eq!(crate::base64::decode(PUBLIC).unwrap(), pair().public_key().as_ref());
    let names = ["date", "@method", "@path", "@authority", "content-type", "content-length"];
    let parameters = r#"("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519""#;
    let base = signature_base(&test_request(), "example.com", &names.map(str::to_owned), parameters).unwrap();
    let expected = format!(
        "\"date\": Tue, 20 Apr 2021 02:07:55 GMT\n\"@method\": POST\n\"@path\": /foo\n\"@authority\": example.com\n\
         \"content-type\": application/json\n\"content-length\": 18\n\"@signature-params\": {parameters}"
    );
    assert_eq!(base, expected);
    let signature = "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==";
    assert_eq!(crate::base64::encode(pair().sign(base.as_bytes()).as_ref()), signature);
}

#[test]
fn queries_and_repeated_headers_are_written_as_the_rfc_has_them() {
    let base = |parts: &Parts, name: &str| signature_base(parts, "x", &[name.to_owned()], "()").unwrap();
    let parts = |uri: &str| Request::get(uri).body(()).unwrap().into_parts().0;
    // RFC 9421 §2.2.7.
    assert!(
        base(&parts("/path?param=value&foo=bar&baz=batman"), "@query")
            .starts_with("\"@query\": ?param=value&foo=bar&baz=batman\n")
    );
    assert!(base(&parts("/path"), "@query").starts_with("\"@query\": ?\n"));
    // RFC 9421 §2.1.
    let mut twice = parts("/");
    twice.headers.append("cache-control", " max-age=60 ".parse().unwrap());
    twice.headers.append("cache-control", "   must-revalidate".parse().unwrap());
    assert!(base(&twice, "cache-control").starts_with("\"cache-control\": max-age=60, must-revalidate\n"));
}

#[test]
fn a_digest_is_written_as_in_rfc_9530() {
    let text = "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:";
    assert_eq!(content_digest(sha256(BODY)), text);
    assert_eq!(read_content_digest(text), Ok(sha256(BODY)));
    assert_eq!(read_content_digest(&format!("sha-512=:AAAA:, {text}")), Ok(sha256(BODY)));
    for bad in ["sha-512=:AAAA:", "sha-256=:AAAA:", "sha-256=1", "sha-256", ""] {
        assert_eq!(read_content_digest(bad), Err(SignatureError::Malformed(CONTENT_DIGEST)), "{bad:?}");
    }
}

fn signed() -> Parts {
    let request = Request::put("/v1/rounds/7?wait_ms=5")
        .header("content-type", "application/json")
        .header("tributary-attempt", "2")
        .header("user-agent", "a browser");
    let mut parts = request.body(()).unwrap().into_parts().0;
    let key = RequestKey::new(&crate::base64::decode(PRIVATE).unwrap(), b"a certificate").unwrap();
    key.sign(&mut parts, SERVER, Some(sha256(BODY)), NOW, [7; 16]);
    parts
}

fn judge(parts: &Parts, server: &str) -> Result<SignedRequest, SignatureError> {
    let request = SignedRequest::read(parts, server)?;
    request.verify(&identity()).map(|()| request)
}

#[test]
fn what_was_signed_is_read_and_holds() {
    let request = judge(&signed(), SERVER).unwrap();
    assert_eq!(request.certificate, b"a certificate");
    assert_eq!((request.created, request.expires), (Timestamp(1_750_000_000_000), Timestamp(1_750_000_060_000)));
    assert_eq!((request.content_digest, request.time), (Some(sha256(BODY)), None));
    assert_eq!(request.nonce, crate::base64::encode(&[7; 16]));
    // The coordinator ignores these headers, so proxies may add or remove them.
    let mut parts = signed();
    parts.headers.insert("x-forwarded-for", "10.0.0.1".parse().unwrap());
    parts.headers.remove("user-agent");
    judge(&parts, SERVER).unwrap();
    // A second signature with another label has no effect.
    let ours = parts.headers[SIGNATURE_INPUT].to_str().unwrap().to_owned();
    parts.headers.insert(SIGNATURE_INPUT, format!("proxy=(\"@path\");created=1, {ours}").parse().unwrap());
    judge(&parts, SERVER).unwrap();
}

#[test]
fn whatever_is_changed_on_the_way_is_noticed() {
    let changed = |change: &dyn Fn(&mut Parts)| {
        let mut parts = signed();
        change(&mut parts);
        judge(&parts, SERVER).map(drop).unwrap_err()
    };
    let set = |name: &'static str, text: &'static str| {
        changed(&move |parts: &mut Parts| drop(parts.headers.insert(name, text.parse().unwrap())))
    };
    assert_eq!(changed(&|parts| parts.method = Method::POST), SignatureError::Forged);
    assert_eq!(changed(&|parts| parts.uri = "/v1/rounds/8?wait_ms=5".parse().unwrap()), SignatureError::Forged);
    assert_eq!(changed(&|parts| parts.uri = "/v1/rounds/7?wait_ms=6".parse().unwrap()), SignatureError::Forged);
    assert_eq!(changed(&|parts| parts.uri = "/v1/rounds/7".parse().unwrap()), SignatureError::Forged);
    assert_eq!(judge(&signed(), "other.example:8443").map(drop), Err(SignatureError::Forged));
    assert_eq!(set("tributary-attempt", "3"), SignatureError::Forged);
    assert_eq!(set("content-type", "text/plain"), SignatureError::Forged);
    assert_eq!(set(CONTENT_DIGEST, "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"), SignatureError::Forged);
    let twice = changed(&|parts| assert!(parts.headers.append("tributary-attempt", "9".parse().unwrap())));
    assert_eq!(twice, SignatureError::Forged);
    assert_eq!(set("range", "bytes=5-"), SignatureError::NotCovered("range".to_owned()));
    assert_eq!(set("tributary-new", "1"), SignatureError::NotCovered("tributary-new".to_owned()));
    let gone = changed(&|parts| drop(parts.headers.remove(CONTENT_DIGEST)));
    assert_eq!(gone, SignatureError::Component(CONTENT_DIGEST.to_owned()));
    assert_eq!(set(CERTIFICATE, ":AAAA:"), SignatureError::KeyId);
    assert_eq!(set(CERTIFICATE, "AAAA"), SignatureError::Malformed(CERTIFICATE));
    for name in [CERTIFICATE, SIGNATURE_INPUT, SIGNATURE] {
        assert_eq!(changed(&|parts| drop(parts.headers.remove(name))), SignatureError::Missing(name));
    }
}

#[test]
fn a_server_has_one_name_however_it_is_written() {
    for same in ["fl.example", "FL.Example", "fl.example:443", "Fl.example:443"] {
        assert_eq!(server_name(same), "fl.example");
    }
    assert_eq!(server_name("FL.example:8443"), SERVER);
    assert_eq!(server_name("[FE80::1]:443"), "[fe80::1]");
    assert_eq!(server_name("[fe80::443]"), "[fe80::443]");
}

/// Changes each byte of the signed text: another list of components, another parameter, another order.
#[test]
fn every_byte_of_the_parameters_and_of_the_signature_counts() {
    for name in [SIGNATURE_INPUT, SIGNATURE] {
        let text = signed().headers[name].to_str().unwrap().to_owned();
        for place in LABEL.len() + 1..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[place] = if bytes[place] == b'1' { b'2' } else { b'1' };
            let mut parts = signed();
            parts.headers.insert(name, http::HeaderValue::from_bytes(&bytes).unwrap());
            assert!(judge(&parts, SERVER).is_err(), "{name}: {}", String::from_utf8_lossy(&bytes));
        }
    }
}

#[test]
fn parameters_are_demanded_and_bounded() {
    let keyid = sha256(b"a certificate").to_string();
    let good =
        format!("tributary=(\"@method\");created=1;expires=2;nonce=\"0123456789012345678901==\";keyid=\"{keyid}\"");
    let input = SignatureInput::parse(&good).unwrap();
    assert_eq!((input.created, input.expires), (Timestamp(1000), Timestamp(2000)));
    let without = |part: &str| SignatureInput::parse(&good.replace(part, "")).unwrap_err();
    assert_eq!(without(";created=1"), SignatureError::Missing("created"));
    assert_eq!(without(";expires=2"), SignatureError::Missing("expires"));
    assert_eq!(without(";nonce=\"0123456789012345678901==\""), SignatureError::Missing("nonce"));
    assert_eq!(without(&format!(";keyid=\"{keyid}\"")), SignatureError::Missing("keyid"));
    assert_eq!(without("tributary="), SignatureError::Malformed(SIGNATURE_INPUT));
    let with = |from: &str, to: &str| SignatureInput::parse(&good.replace(from, to)).unwrap_err();
    assert_eq!(with("0123456789012345678901==", "short"), SignatureError::Malformed(SIGNATURE_INPUT));
    assert_eq!(with("expires=2", "expires=\"2\""), SignatureError::Malformed(SIGNATURE_INPUT));
    assert_eq!(with("expires=2", "expires=2;alg=\"hmac-sha256\""), SignatureError::Malformed(SIGNATURE_INPUT));
    assert_eq!(with("\"@method\"", "\"@method\";req"), SignatureError::Malformed(SIGNATURE_INPUT));
    assert_eq!(with("\"@method\"", "\"a\" \"a\""), SignatureError::Component("a".to_owned()));
    assert_eq!(with(&keyid, "x"), SignatureError::KeyId);
    assert_eq!(with("tributary", "other"), SignatureError::Missing("member `tributary` of signature-input"));
}
