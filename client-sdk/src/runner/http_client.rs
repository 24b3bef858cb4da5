//! The app's own HTTP client, for languages with asynchronous clients: the client starts a request and writes the
//! response to an [`Exchange`].

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use http::StatusCode;
use tokio::sync::Notify;

use crate::identity::Identity;
use crate::transport::{Carrier, HttpAnswer, Pieces, TransportError};

/// Maximum number of buffered bytes of a response.
const ROOM: usize = 1 << 20;

/// A request for the app's client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingRequest {
    /// `GET`, `POST` or `PUT`.
    pub method: String,
    /// Path and query, relative to the coordinator's address.
    pub path: String,
    /// Lower-case names, and values.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

impl From<http::Request<Bytes>> for OutgoingRequest {
    fn from(request: http::Request<Bytes>) -> Self {
        let (head, body) = request.into_parts();
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value)));
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Self { method: head.method.as_str().to_owned(), path, headers: headers.collect(), body }
    }
}

/// The app's HTTP client.
pub trait HttpClient: Send + Sync {
    /// Starts a request to the coordinator without blocking. The client writes the response to `exchange`, from any
    /// thread. If `exchange` is dropped without a response, the request counts as lost.
    fn begin(&self, request: OutgoingRequest, exchange: Exchange);

    /// Uses this client certificate in TLS handshakes from now on: the chain in PEM, and its key in PKCS #8 (DER). Not
    /// called if requests are signed.
    ///
    /// # Errors
    /// [`TransportError::Protocol`] if the client cannot use the certificate: the participant ends.
    fn identify(&self, certificate_pem: &str, key_pkcs8: &[u8]) -> Result<(), TransportError>;
}

/// Adapter of the app's client to the transport.
pub struct OverClient<C>(pub C);

#[async_trait]
impl<C: HttpClient> Carrier for OverClient<C> {
    fn identify(&self, identity: &Identity) -> Result<(), TransportError> {
        self.0.identify(&identity.certified.certificate_pem, identity.key.expose_pkcs8())
    }

    async fn send(&self, request: http::Request<Bytes>) -> Result<HttpAnswer, TransportError> {
        let line = Arc::<Line>::default();
        let mut coming = Coming { line: Arc::clone(&line), is_at_end: false };
        self.0.begin(request.into(), Exchange { line });
        let said = coming.said().await;
        match said {
            ResponsePart::Head(head) => Ok(head.map(|()| Box::new(coming) as Box<dyn Pieces>)),
            ResponsePart::Failed(error) => Err(error),
            ResponsePart::Piece(_) | ResponsePart::End => {
                Err(TransportError::protocol("an answer came without its head"))
            }
        }
    }
}

/// A part of a response.
enum ResponsePart {
    Head(http::Response<()>),
    Piece(Bytes),
    End,
    Failed(TransportError),
}

/// The state shared by the app, which writes, and the participant, which reads.
#[derive(Default)]
struct Line {
    state: Mutex<Waiting>,
    /// Notifies the participant of new parts.
    news: Notify,
    /// Notifies the app that a part was read or the participant has stopped reading.
    room: Condvar,
}

#[derive(Default)]
struct Waiting {
    said: VecDeque<ResponsePart>,
    /// Number of buffered body bytes.
    bytes: usize,
    /// The response has ended.
    is_complete: bool,
    /// The participant has stopped reading.
    is_over: bool,
}

impl Line {
    fn state(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a part. Returns whether the participant still reads. Parts after the end are dropped.
    fn say(&self, said: ResponsePart) -> bool {
        let mut state = self.state();
        if state.is_over || state.is_complete {
            return false;
        }
        state.is_complete = matches!(said, ResponsePart::End | ResponsePart::Failed(_));
        if let ResponsePart::Piece(bytes) = &said {
            state.bytes += bytes.len();
        }
        state.said.push_back(said);
        drop(state);
        self.news.notify_one();
        true
    }

    fn hear(&self) -> Option<ResponsePart> {
        let mut state = self.state();
        let said = state.said.pop_front();
        if let Some(ResponsePart::Piece(bytes)) = &said {
            state.bytes -= bytes.len();
        }
        drop(state);
        self.room.notify_all();
        said
    }
}

/// Receives the response to one request. All methods may be called from any thread.
pub struct Exchange {
    line: Arc<Line>,
}

impl Exchange {
    /// The head of the response: status and headers. Returns whether the response is still wanted.
    pub fn head(&self, status: u16, headers: impl IntoIterator<Item = (String, String)>) -> bool {
        match head_of(status, headers) {
            Ok(head) => self.line.say(ResponsePart::Head(head)),
            Err(error) => {
                self.line.say(ResponsePart::Failed(TransportError::protocol(error)));
                false
            }
        }
    }

    /// The next bytes of the body. Returns whether more are wanted; otherwise the client may cancel the request.
    pub fn piece(&self, bytes: impl Into<Bytes>) -> bool {
        self.line.say(ResponsePart::Piece(bytes.into()))
    }

    /// Waits until there is room for another piece, so that a large response is not buffered completely.
    pub fn wait_for_room(&self) {
        let state = self.line.state();
        let is_full = |state: &mut Waiting| state.bytes > ROOM && !state.is_over;
        drop(self.line.room.wait_while(state, is_full).unwrap_or_else(PoisonError::into_inner));
    }

    /// The answer is complete.
    pub fn end(&self) {
        self.line.say(ResponsePart::End);
    }

    /// The request failed, or the response is incomplete.
    pub fn fail(&self, reason: impl Into<String>) {
        let reason: String = reason.into();
        self.line.say(ResponsePart::Failed(TransportError::unreachable(reason)));
    }

    /// Whether the participant has stopped reading, so that the client may cancel the request.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let state = self.line.state();
        state.is_over || state.is_complete
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.fail("the app's HTTP client dropped the request");
    }
}

fn head_of(
    status: u16,
    headers: impl IntoIterator<Item = (String, String)>,
) -> Result<http::Response<()>, http::Error> {
    let head = http::Response::builder().status(StatusCode::from_u16(status)?);
    headers.into_iter().fold(head, |head, (name, value)| head.header(name, value)).body(())
}

/// The participant's end of the exchange.
struct Coming {
    line: Arc<Line>,
    is_at_end: bool,
}

impl Coming {
    async fn said(&mut self) -> ResponsePart {
        loop {
            if let Some(said) = self.line.hear() {
                return said;
            }
            self.line.news.notified().await;
        }
    }
}

#[async_trait]
impl Pieces for Coming {
    async fn next(&mut self) -> Option<Result<Bytes, TransportError>> {
        if self.is_at_end {
            return None;
        }
        match self.said().await {
            ResponsePart::Piece(bytes) => Some(Ok(bytes)),
            ResponsePart::End => {
                self.is_at_end = true;
                None
            }
            ResponsePart::Failed(error) => {
                self.is_at_end = true;
                Some(Err(error))
            }
            ResponsePart::Head(_) => Some(Err(TransportError::protocol("an answer came with two heads"))),
        }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        let mut state = self.line.state();
        state.is_over = true;
        state.said.clear();
        state.bytes = 0;
        drop(state);
        self.line.room.notify_all();
    }
}

#[cfg(test)]
mod tests;
