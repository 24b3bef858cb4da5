//! The HTTP contract, without a socket: timeouts of requests and parsing of answers. `contract.txt` has the encoding of each request,
//! and the HTTPS transport is tested against it.

use std::time::Duration;

use bytes::Bytes;
use client_sdk::transport::retry::{Verdict, judge};
use client_sdk::transport::{Abandonment, HttpRequest, Request, Response, TransportError, Upload};
use http::StatusCode;
use wire::Attempt;
use wire::participant::{AbandonReason, Announcement, Answer, CheckInRequest};

use crate::support::{participant, sha256, task};

const MIB: usize = 1 << 20;

fn place() -> Attempt {
    Attempt { task: task(), round: 4, attempt: 2 }
}

fn announcement(what: Announcement) -> Request {
    Request::Announcement { what, place: place(), participant: participant(), wait: Duration::from_millis(1500) }
}

fn upload(bytes: usize) -> Request {
    let body = Bytes::from(vec![0; bytes]);
    let (place, participant, signed) = (place(), participant(), None);
    Request::Upload(Upload { place, participant, sha256: sha256(&body), body, signed, below: None })
}

fn check_in(wait_ms: u64) -> Request {
    let request = serde_json::json!({ "examples": 1, "wait_ms": wait_ms });
    Request::CheckIn(serde_json::from_value::<CheckInRequest>(request).unwrap())
}

fn answered(bytes: usize) -> Request {
    let body = Bytes::from(vec![0; bytes]);
    Request::Answer { what: Answer::KeyShares, place: place(), participant: participant(), body }
}

fn abandon() -> Request {
    let (reason, refusal) = (AbandonReason::Conditions, None);
    Request::Abandon(Abandonment { place: place(), participant: participant(), reason, refusal })
}

fn response(request: &Request, status: u16, media: &str, body: impl Into<Bytes>) -> Response {
    let answer = http::Response::builder().status(status).header("content-type", media).header("retry-after", "7");
    HttpRequest::of(request).read(Ok(answer.body(body.into()).unwrap()))
}

fn announced(status: u16, media: &str, body: impl Into<Bytes>) -> Result<Option<Bytes>, TransportError> {
    match response(&announcement(Announcement::Agreement), status, media, body) {
        Response::Announced(answer) => answer,
        _ => unreachable!("the answer to something else"),
    }
}

#[test]
fn whoever_waits_or_sends_much_has_so_much_more_time() {
    let seconds = |request: &Request| HttpRequest::of(request).timeout.as_secs_f64();
    assert_eq!(seconds(&check_in(0)), 30.0);
    assert_eq!(seconds(&check_in(20_000)), 50.0);
    assert_eq!(HttpRequest::of(&check_in(u64::MAX)).timeout, Duration::from_secs(30) + Duration::from_millis(u64::MAX));
    assert_eq!(seconds(&announcement(Announcement::Roster)), 31.5);
    assert_eq!(seconds(&Request::Evidence { place: place(), dealer: participant() }), 30.0);
    assert_eq!(seconds(&abandon()), 30.0);
    // 8 KiB in a second.
    assert_eq!(seconds(&upload(8191)), 30.0);
    assert_eq!(seconds(&upload(MIB)), 158.0);
    assert_eq!(seconds(&answered(MIB)), 158.0);
}

#[test]
fn no_more_is_read_than_shows_that_it_is_too_much() {
    let needs = |request: &Request, status: u16| HttpRequest::of(request).needs(StatusCode::from_u16(status).unwrap());
    assert_eq!(needs(&check_in(0), 200), 8 * MIB + 1);
    for request in [abandon(), answered(1)] {
        assert_eq!((needs(&request, 204), needs(&request, 409)), (0, 8 * MIB + 1));
    }
    let most = needs(&announcement(Announcement::Agreement), 200) - 1;
    let media = "application/vnd.tributary.secure-agg";
    assert_eq!(announced(200, media, vec![7; most]).unwrap().unwrap().len(), most);
    let error = announced(200, media, vec![7; most + 1]).unwrap_err().to_string();
    assert!(error.contains(&format!("longer than {most} bytes")), "{error}");
}

#[test]
fn what_is_no_answer_of_the_coordinator_is_called_so() {
    let page = vec![b' '; 9 * MIB];
    let error = announced(200, "text/html", page.clone()).unwrap_err();
    assert!(matches!(error, TransportError::Protocol(_)) && error.to_string().contains("is not application/vnd"));
    assert_eq!(announced(204, "text/html", page.clone()).unwrap(), None);
    let dealer = participant();
    let evidence = response(&Request::Evidence { place: place(), dealer }, 204, "text/html", "");
    assert!(matches!(evidence, Response::Evidenced(Err(TransportError::Protocol(_)))));
    assert!(matches!(response(&answered(1), 200, "text/html", page), Response::Answered(Ok(()))));
    let problem = r#"{"type":"urn:tributary:problem:phase-closed","title":"t","status":409}"#;
    let error = announced(409, "application/problem+json; charset=utf-8", problem).unwrap_err();
    assert_eq!(judge(&error), Verdict::RoundOver);
    // A proxy's, and one that was cut off: the status alone counts.
    for (media, body) in [("application/json", problem), ("application/problem+json", &problem[..40])] {
        let error = announced(503, media, body).unwrap_err();
        assert_eq!(judge(&error), Verdict::Again(Some(Duration::from_secs(7))));
        assert!(error.to_string().contains("HTTP status 503"), "{error}");
    }
}
