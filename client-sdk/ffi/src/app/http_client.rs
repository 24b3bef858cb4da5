//! An HTTP client of the app's own, in the place of the library's HTTPS.

use std::sync::Arc;

use client_sdk::runner;
use client_sdk::transport::TransportError;

use super::callback::{CallbackError, call, is_in_callback};

/// A header of a request or of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Record))]
pub struct HttpHeader {
    /// Of a request in lower case.
    pub name: String,
    pub value: String,
}

/// A request to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Record))]
pub struct HttpRequest {
    /// `GET`, `POST` or `PUT`.
    pub method: String,
    /// Path and query; `server` of the options comes before it.
    pub path: String,
    /// To be sent as they are: some requests are signed.
    pub headers: Vec<HttpHeader>,
    /// 8 MiB at most; empty for a request without a body.
    pub body: Vec<u8>,
}

/// An HTTP client of the app's own. It sends each request once, only to the coordinator, over TLS 1.3, and does not
/// follow redirects. The library decides on retries, and gives a request up at its deadline.
#[cfg_attr(feature = "uniffi", uniffi::export(with_foreign))]
pub trait HttpClient: Send + Sync {
    /// Begins to send a request, and returns at once; called from any thread, also for a second request while one is under way. The answer is put
    /// into `exchange`; dropped without one, the request counts as lost. A coordinator may take 25 s until it answers.
    ///
    /// # Errors
    /// [`CallbackError`]: the request was not sent.
    fn begin(&self, request: HttpRequest, exchange: Arc<Exchange>) -> Result<(), CallbackError>;

    /// Presents this certificate in the TLS handshake from now on: the chain in PEM, and its private key in PKCS #8
    /// (DER). The client must present them only to the coordinator, and must not store the key. Not called with
    /// `signed_requests` in the options.
    ///
    /// # Errors
    /// [`CallbackError`]: then the participant ends.
    fn identify(&self, certificate_pem: String, key_pkcs8: Vec<u8>) -> Result<(), CallbackError>;
}

/// Takes the answer to one request: its head, its body in pieces, and its end. All methods may be called from any thread, also in `begin`.
#[cfg_attr(feature = "uniffi", derive(uniffi::Object))]
pub struct Exchange(runner::Exchange);

#[cfg_attr(feature = "uniffi", uniffi::export)]
impl Exchange {
    /// The head of the answer, before its body: its status, and its headers. Returns whether the answer is still wanted.
    pub fn head(&self, status: u16, headers: Vec<HttpHeader>) -> bool {
        self.0.head(status, headers.into_iter().map(|HttpHeader { name, value }| (name, value)))
    }

    /// The next bytes of the body. Waits while more than a megabyte waits to be read, but for a call in a callback. Returns whether more are
    /// wanted: if not, the client may cancel the request.
    pub fn piece(&self, bytes: Vec<u8>) -> bool {
        if !is_in_callback() {
            self.0.wait_for_room();
        }
        self.0.piece(bytes)
    }

    /// The answer is complete.
    pub fn end(&self) {
        self.0.end();
    }

    /// The answer, or the rest of it, cannot be had. `reason` is a text for people.
    pub fn fail(&self, reason: String) {
        self.0.fail(reason);
    }

    /// Whether the participant has stopped waiting for the answer, so that the client may cancel the request.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }
}

/// The app's client as the SDK uses it.
pub(crate) struct Own(pub(crate) Arc<dyn HttpClient>);

impl runner::HttpClient for Own {
    fn begin(&self, request: runner::OutgoingRequest, exchange: runner::Exchange) {
        let runner::OutgoingRequest { method, path, headers, body } = request;
        let headers = headers.into_iter().map(|(name, value)| HttpHeader { name, value }).collect();
        let request = HttpRequest { method, path, headers, body: body.to_vec() };
        let exchange = Arc::new(Exchange(exchange));
        let begun = call(|| self.0.begin(request, Arc::clone(&exchange)));
        if let Err(error) = begun {
            exchange.fail(error.to_string());
        }
    }

    fn identify(&self, certificate_pem: &str, key_pkcs8: &[u8]) -> Result<(), TransportError> {
        call(|| self.0.identify(certificate_pem.to_owned(), key_pkcs8.to_vec())).map_err(TransportError::protocol)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    use super::*;
    use crate::app::callbacks::Callbacks;
    use crate::participant::Participant;

    type Begun = (HttpRequest, Arc<Exchange>);

    /// Hands requests over, once it has refused the first.
    struct Hands(Mutex<(bool, Sender<Begun>)>);

    impl HttpClient for Hands {
        fn begin(&self, request: HttpRequest, exchange: Arc<Exchange>) -> Result<(), CallbackError> {
            let mut inner = self.0.lock().unwrap();
            if !std::mem::replace(&mut inner.0, true) {
                return Err(CallbackError::Failed { reason: "the radio is off".to_owned() });
            }
            inner.1.send((request, exchange)).map_err(|error| CallbackError::Failed { reason: error.to_string() })
        }

        fn identify(&self, _: String, _: Vec<u8>) -> Result<(), CallbackError> {
            Ok(())
        }
    }

    /// Certificate of an authority whose key was discarded.
    const CA: &str = "-----BEGIN CERTIFICATE-----
MIIBMDCB46ADAgECAhQVVsYmminoiswPOC99hfz0Wo81bjAFBgMrZXAwDTELMAkG
A1UEAwwCQ0EwIBcNMjYxMTI3MTczMTUxWhgPMjEyNjExMDMxNzMxNTFaMA0xCzAJ
BgNVBAMMAkNBMCowBQYDK2VwAyEAMw17OY9UyDUfjPS4hsX6XKjkacgyXaSnLvmy
Ue/EC6ajUzBRMB0GA1UdDgQWBBRFuVNvQ3+pCsFs8Xs9lwGX2fOh6jAfBgNVHSME
GDAWgBRFuVNvQ3+pCsFs8Xs9lwGX2fOh6jAPBgNVHRMBAf8EBTADAQH/MAUGAytl
cANBADM7d6ekFnI6IFm23is2cZsmSss8CVXpAMGoUNx1eBOZiKPYSJPD9uBjxTkF
WVh2CoJ05HEseozN5Ugl6nUiFQ4=
-----END CERTIFICATE-----
";

    #[test]
    fn a_request_that_was_not_sent_is_sent_again_and_one_under_way_is_over_after_a_close() {
        let folder = tempfile::tempdir().unwrap();
        let options = serde_json::json!({
            "server": "https://localhost:1", "journal": folder.path().join("journal"), "ca_pem": CA, "token": "token",
        });
        let (begun, requests) = channel();
        let client = Hands(Mutex::new((false, begun)));
        let callbacks = Callbacks { http_client: Some(Arc::new(client)), ..Callbacks::default() };
        let participant = Participant::start(options.to_string(), callbacks).unwrap();
        let (request, exchange) = requests.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/enroll"));
        assert!(request.headers.iter().any(|header| header.name == "content-type"));
        assert!(!exchange.is_over());
        assert!(participant.close(60_000).unwrap());
        assert!(exchange.is_over() && !exchange.piece(vec![1]));
    }
}
