//! The client below the transport, over HTTP/2: a server reports which requests it has not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use client_sdk::transport::{HttpsTransport, Request, Response, Transport as _, TransportError};
use h2::Reason;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use wire::participant::CheckInReply;

use crate::support::Ca;
use crate::transport::https::{check_in, tls};

/// What a check-in comes to, and how often it was sent, where the server resets the first `turned_away` streams for this reason.
async fn check_in_where(turned_away: usize, reason: Reason) -> (Result<CheckInReply, TransportError>, usize) {
    let authority = Ca::new("CA");
    let mut tls = tls(&authority);
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let came = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&came);
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let stream = TlsAcceptor::from(Arc::new(tls)).accept(socket).await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            if counted.fetch_add(1, Ordering::Relaxed) < turned_away {
                respond.send_reset(reason);
                continue;
            }
            let head = http::Response::builder().header("content-type", "application/json").body(()).unwrap();
            let reply = CheckInReply::ComeBack { after_ms: 5, waiting_for: vec![] };
            let body = Bytes::from(serde_json::to_vec(&reply).unwrap());
            respond.send_response(head, false).unwrap().send_data(body, true).unwrap();
        }
    });
    let transport = HttpsTransport::new(&address, &authority.pem).unwrap();
    let Response::CheckedIn(answer) = transport.send(&Request::CheckIn(check_in())).await else {
        unreachable!("the answer to something else")
    };
    (answer, came.load(Ordering::Relaxed))
}

#[tokio::test]
async fn what_was_not_read_is_sent_again_but_not_without_end() {
    for turned_away in 0..=2 {
        let (answer, came) = check_in_where(turned_away, Reason::REFUSED_STREAM).await;
        assert_eq!(answer.unwrap(), CheckInReply::ComeBack { after_ms: 5, waiting_for: vec![] });
        assert_eq!(came, turned_away + 1);
    }
    let (answer, came) = check_in_where(3, Reason::REFUSED_STREAM).await;
    assert!(matches!(answer, Err(TransportError::Unreachable(_))), "{answer:?}");
    assert_eq!(came, 3);
}

#[tokio::test]
async fn what_may_have_been_read_is_not_sent_again() {
    let (answer, came) = check_in_where(1, Reason::INTERNAL_ERROR).await;
    let error = answer.unwrap_err();
    assert!(matches!(error, TransportError::Unreachable(_)), "{error}");
    assert!(error.to_string().contains("no answer from localhost:"), "{error}");
    assert_eq!(came, 1);
}
