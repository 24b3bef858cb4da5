//! An app's own HTTP client, in languages whose clients answer later and on threads of their own: it is told to begin a request, and puts
//! what comes back into an [`Exchange`].

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use http::StatusCode;
use tokio::sync::Notify;

use crate::identity::Identity;
use crate::transport::{Carrier, HttpAnswer, Pieces, TransportError};

/// Bytes of an answer that wait to be read, beyond which more have to wait.
const ROOM: usize = 1 << 20;

/// A request as an app's client sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingRequest {
    /// `GET`, `POST` or `PUT`.
    pub method: String,
    /// Path and query; the coordinator's address comes before it.
    pub path: String,
    /// Names in lower case, and values.
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

/// An HTTP client of the app's own.
pub trait HttpClient: Send + Sync {
    /// Begins to send a request to the coordinator, and returns at once. The answer is put into `exchange`, from any thread; dropped
    /// without one, the request counts as lost.
    fn begin(&self, request: OutgoingRequest, exchange: Exchange);

    /// Shows this certificate in the handshake of TLS from now on: the chain in PEM, and its key in PKCS #8 (DER). Not called where requests
    /// are signed.
    ///
    /// # Errors
    /// [`TransportError::Protocol`] if it cannot: the participant ends.
    fn identify(&self, certificate_pem: &str, key_pkcs8: &[u8]) -> Result<(), TransportError>;
}

/// An app's client as the transport uses it.
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
            Said::Head(head) => Ok(head.map(|()| Box::new(coming) as Box<dyn Pieces>)),
            Said::Failed(error) => Err(error),
            Said::Piece(_) | Said::End => Err(TransportError::protocol("an answer came without its head")),
        }
    }
}

/// What an app says of an answer.
enum Said {
    Head(http::Response<()>),
    Piece(Bytes),
    End,
    Failed(TransportError),
}

/// Between the app, which says, and the participant, which hears.
#[derive(Default)]
struct Line {
    state: Mutex<Waiting>,
    /// The app has said something: the participant is to look.
    news: Notify,
    /// Something was heard, or nobody listens any more.
    room: Condvar,
}

#[derive(Default)]
struct Waiting {
    said: VecDeque<Said>,
    /// Of the pieces in it.
    bytes: usize,
    /// The last word was said.
    is_complete: bool,
    /// Nobody listens any more.
    is_over: bool,
}

impl Line {
    fn state(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anybody still listens. Nothing follows the last word.
    fn say(&self, said: Said) -> bool {
        let mut state = self.state();
        if state.is_over || state.is_complete {
            return false;
        }
        state.is_complete = matches!(said, Said::End | Said::Failed(_));
        if let Said::Piece(bytes) = &said {
            state.bytes += bytes.len();
        }
        state.said.push_back(said);
        drop(state);
        self.news.notify_one();
        true
    }

    fn hear(&self) -> Option<Said> {
        let mut state = self.state();
        let said = state.said.pop_front();
        if let Some(Said::Piece(bytes)) = &said {
            state.bytes -= bytes.len();
        }
        drop(state);
        self.room.notify_all();
        said
    }
}

/// Takes the answer to one request. All methods may be called from any thread.
pub struct Exchange {
    line: Arc<Line>,
}

impl Exchange {
    /// The head of the answer, before its body: its status, and its headers. Returns whether the answer is still wanted.
    pub fn head(&self, status: u16, headers: impl IntoIterator<Item = (String, String)>) -> bool {
        match head_of(status, headers) {
            Ok(head) => self.line.say(Said::Head(head)),
            Err(error) => {
                self.line.say(Said::Failed(TransportError::protocol(error)));
                false
            }
        }
    }

    /// The next bytes of the body. Returns whether more are wanted: if not, the client may cancel the request.
    pub fn piece(&self, bytes: impl Into<Bytes>) -> bool {
        self.line.say(Said::Piece(bytes.into()))
    }

    /// Waits until there is room for another piece; before one that may wait, so that a large answer is not kept whole.
    pub fn wait_for_room(&self) {
        let state = self.line.state();
        let is_full = |state: &mut Waiting| state.bytes > ROOM && !state.is_over;
        drop(self.line.room.wait_while(state, is_full).unwrap_or_else(PoisonError::into_inner));
    }

    /// The answer is complete.
    pub fn end(&self) {
        self.line.say(Said::End);
    }

    /// There is no answer, or no more of it.
    pub fn fail(&self, reason: impl Into<String>) {
        let reason: String = reason.into();
        self.line.say(Said::Failed(TransportError::unreachable(reason)));
    }

    /// Whether nobody waits for the answer any more: the client may cancel the request.
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

/// The participant's end of the line.
struct Coming {
    line: Arc<Line>,
    is_at_end: bool,
}

impl Coming {
    async fn said(&mut self) -> Said {
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
            Said::Piece(bytes) => Some(Ok(bytes)),
            Said::End => {
                self.is_at_end = true;
                None
            }
            Said::Failed(error) => {
                self.is_at_end = true;
                Some(Err(error))
            }
            Said::Head(_) => Some(Err(TransportError::protocol("an answer came with two heads"))),
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
