//! An app's response is read in order, within limits, and to its end.

use std::sync::mpsc::{Receiver, Sender, channel};

use wire::Timestamp;
use wire::participant::{CheckInReply, CheckInRequest, ModelRef};

use super::*;
use crate::identity::{Certified, SigningKey};
use crate::runner::Options;
use crate::transport::{Download, HttpTransport, Request, Response, Transport as _};

/// Passes each request on.
struct Hands(Mutex<Sender<(OutgoingRequest, Exchange)>>);

impl HttpClient for Hands {
    fn begin(&self, request: OutgoingRequest, exchange: Exchange) {
        self.0.lock().unwrap().send((request, exchange)).unwrap();
    }

    fn identify(&self, _: &str, _: &[u8]) -> Result<(), TransportError> {
        Ok(())
    }
}

fn transport() -> (HttpTransport<OverClient<Hands>>, Receiver<(OutgoingRequest, Exchange)>) {
    let (begun, requests) = channel();
    (HttpTransport::new(OverClient(Hands(Mutex::new(begun)))), requests)
}

fn check_in() -> Request {
    Request::CheckIn(serde_json::from_value::<CheckInRequest>(serde_json::json!({ "examples": 1 })).unwrap())
}

fn json() -> [(String, String); 1] {
    [("content-type".to_owned(), "application/json".to_owned())]
}

/// The result of a check-in if an app's thread answers it like this.
async fn answered(answer: impl FnOnce(Exchange) + Send + 'static) -> Result<CheckInReply, TransportError> {
    let (transport, requests) = transport();
    let app = std::thread::spawn(move || {
        let (request, exchange) = requests.recv().unwrap();
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", wire::route::CHECK_IN));
        assert!(request.headers.iter().any(|(name, _)| name == "content-type") && !request.body.is_empty());
        answer(exchange);
    });
    let Response::CheckedIn(reply) = transport.send(&check_in()).await else { panic!("the answer to something else") };
    app.join().unwrap();
    reply
}

#[tokio::test]
async fn an_answer_comes_in_pieces_from_another_thread() {
    let reply = CheckInReply::ComeBack { after_ms: 5, waiting_for: vec![] };
    let bytes = serde_json::to_vec(&reply).unwrap();
    let (one, other) = (bytes[..7].to_vec(), bytes[7..].to_vec());
    let got = answered(move |exchange| {
        assert!(!exchange.is_over());
        assert!(exchange.head(200, json()) && exchange.piece(one) && exchange.piece(other));
        exchange.end();
        assert!(exchange.is_over() && !exchange.piece(vec![1]), "nothing follows the end");
    });
    assert_eq!(got.await.unwrap(), reply);
}

#[tokio::test]
async fn an_answer_that_is_none_is_an_error() {
    let said = |error: Result<CheckInReply, TransportError>| error.unwrap_err().to_string();
    assert!(said(answered(drop).await).contains("dropped the request"));
    assert!(said(answered(|exchange| exchange.fail("no route to host")).await).contains("no route to host"));
    assert!(said(answered(|exchange| exchange.end()).await).contains("without its head"));
    assert!(said(answered(|exchange| assert!(!exchange.head(7, json()))).await).contains("status code"));
    let cut = answered(|exchange| assert!(exchange.head(200, json()) && exchange.piece(b"{".to_vec())));
    assert!(said(cut.await).contains("dropped the request"));
}

#[tokio::test]
async fn a_request_that_is_not_wanted_any_more_says_so_and_nobody_waits_for_room() {
    let (transport, requests) = transport();
    let check_in = check_in();
    let mut sending = transport.send(&check_in);
    let waker = std::task::Waker::noop();
    assert!(sending.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
    let (_, exchange) = requests.recv().unwrap();
    assert!(exchange.head(200, json()) && exchange.piece(vec![b' '; ROOM + 1]));
    drop(sending);
    assert!(exchange.is_over() && !exchange.piece(vec![1]));
    exchange.wait_for_room();
}

#[tokio::test]
async fn a_model_is_read_while_its_file_still_comes() {
    let (transport, requests) = transport();
    let pieces = 5;
    let bytes = (pieces * (ROOM + 1)) as u64;
    let app = std::thread::spawn(move || {
        let (request, exchange) = requests.recv().unwrap();
        assert_eq!((request.method.as_str(), request.body.len()), ("GET", 0));
        assert!(exchange.head(200, []));
        for piece in 0..pieces {
            exchange.wait_for_room();
            assert!(exchange.piece(vec![u8::try_from(piece).unwrap(); ROOM + 1]));
        }
        exchange.end();
    });
    let model = ModelRef { version: 1, sha256: wire::Digest([0; 32]), bytes };
    let task = "00000000-0000-0000-0000-000000000001".parse().unwrap();
    let mut sink = Download::in_memory(Vec::new());
    transport.fetch_model(task, &model, &mut sink).await.unwrap();
    app.join().unwrap();
    let file = sink.into_bytes();
    assert_eq!((file.len() as u64, file.first(), file.last()), (bytes, Some(&0), Some(&4)));
}

/// Stores the certificate that it gets.
#[derive(Default)]
struct Given(Mutex<Vec<(String, Vec<u8>)>>);

impl HttpClient for Given {
    fn begin(&self, _: OutgoingRequest, _: Exchange) {}

    fn identify(&self, certificate_pem: &str, key_pkcs8: &[u8]) -> Result<(), TransportError> {
        self.0.lock().unwrap().push((certificate_pem.to_owned(), key_pkcs8.to_vec()));
        Ok(())
    }
}

#[test]
fn a_client_is_given_the_participants_key_unless_requests_are_signed() {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let certificate_pem = rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&pair).unwrap().pem();
    let participant = "00000000-0000-4000-8000-000000000000".parse().unwrap();
    let (name, expires_at, renew_at) = (String::new(), Timestamp(0), Timestamp(0));
    let certified = Certified { participant, name, certificate_pem: certificate_pem.clone(), expires_at, renew_at };
    let key = pair.serialize_der();
    let identity = Identity { key: Arc::new(SigningKey::from_pkcs8(&key).unwrap()), certified };
    for (is_signed, given) in [(false, vec![(certificate_pem, key)]), (true, Vec::new())] {
        let options = serde_json::json!({ "server": "https://here", "journal": "j", "signed_requests": is_signed });
        let options: Options = serde_json::from_value(options).unwrap();
        let transport = options.transport(OverClient(Given::default())).unwrap();
        transport.identify(&identity).unwrap();
        assert_eq!(*transport.carrier().0.0.lock().unwrap(), given);
    }
}
