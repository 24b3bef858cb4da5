//! `GET /v1/events` and `/v1/tasks/{task}/events`: live events, as server-sent events.
//!
//! The id of an event is its position in the log. A stream begins with the id of its start. After an interruption, a client resumes after
//! the last received id, on any coordinator, without loss or repetition. Clients with gzip receive parts compressed once for all such
//! streams, each decodable on arrival.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use federation::event::{EventKind, Fact};
use federation::id::{TaskId, TokenId};
use federation::time::Timestamp;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, header};
use listener::Waits;
use serde::Deserialize;
use store::entity::event::EventFilter;
use store::entity::sign_in::SignIn;
use store::{StoreError, Transaction};
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep_until};
use utoipa::IntoParams;
use wire::audit::Entry;
use wire::headers::LAST_EVENT_ID;
use wire::route;

use super::audit::kinds;
use crate::http::app::App;
use crate::http::auth::operators::{Bearer, InScope, OfTask, Viewer};
use crate::http::event_streams::StreamPlace;
use crate::http::extract::Query;
use crate::http::reply::encoding::accepts_gzip;
use crate::http::reply::problem::{Error, Result};
use crate::records::audit::entry;
use crate::records::event_feed::gzip::{GzipStream, Piece};
use crate::records::event_feed::{Batch, Chosen};

/// Interval of keep-alive comments.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// A client's reconnection delay, in milliseconds.
const RETRY_MS: u32 = 2_000;
/// Entries read at once for a stream behind the feed.
const PAGE: u32 = 200;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct EventsQuery {
    /// Begin after this position: 0 for the beginning of the log. Without it, and without the header `last-event-id`, at its end.
    after: Option<u64>,
    /// Kinds of events, separated by commas; default all.
    kind: Option<String>,
}

/// Follow the events of all tasks, participants and tokens.
#[utoipa::path(
    get, path = route::EVENTS, params(EventsQuery), security(("token" = ["viewer"])),
    responses((
        status = 200, body = String, content_type = "text/event-stream",
        headers(("content-encoding" = String, description = "`gzip` if `accept-encoding` allows it: each event can be read as it comes.")),
    )),
)]
pub(in crate::http) async fn all(
    InScope(bearer): InScope,
    State(app): State<Arc<App>>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    follow(app, bearer, None, &query, &headers).await
}

/// Follow the events of one task.
#[utoipa::path(
    get, path = route::TASK_EVENTS, params(EventsQuery), security(("token" = ["viewer"])),
    responses((
        status = 200, body = String, content_type = "text/event-stream",
        headers(("content-encoding" = String, description = "`gzip` if `accept-encoding` allows it: each event can be read as it comes.")),
    )),
)]
pub(in crate::http) async fn of_task(
    OfTask { bearer, task, .. }: OfTask<Viewer>,
    State(app): State<Arc<App>>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    follow(app, bearer, Some(task.id), &query, &headers).await
}

async fn follow(
    app: Arc<App>,
    bearer: Bearer,
    task: Option<TaskId>,
    query: &EventsQuery,
    headers: &HeaderMap,
) -> Result<Response> {
    if app.shutdown.is_cancelled() {
        return Err(Error::ShuttingDown);
    }
    let filter = EventFilter { task, kinds: kinds(query.kind.as_deref())?, since: None, scope: bearer.scope.clone() };
    let place = app.event_streams.take(bearer.key(), bearer.role)?;
    // Subscribes before reading the end, to include events in between.
    let feed = app.events.listen();
    let end = app.store.read("end of events", |tx| Box::pin(async move { tx.last_event().await })).await?;
    let end = end.map_or(0, |(position, _)| position);
    let after = match headers.get(LAST_EVENT_ID) {
        Some(id) => id.to_str().ok().and_then(|id| id.trim().parse().ok()).map(Some).ok_or_else(|| {
            Error::InvalidValue(format!("{LAST_EVENT_ID} must be the id of the last event that was received"))
        })?,
        None => query.after,
    };
    let after = after.unwrap_or(end);
    if after > end {
        return Err(Error::InvalidValue(format!("the log ends at position {end}: nothing comes after {after} yet")));
    }
    let encoding = if accepts_gzip(headers) { Encoding::Gzip(GzipStream::default()) } else { Encoding::Plain };
    let mut response = encoding.headers().into_response();
    let stream = EventStream {
        beat_at: next_beat(&app, &bearer),
        app,
        feed,
        filter,
        bearer,
        at: after,
        is_behind: after < end,
        has_greeted: false,
        is_over: false,
        encoding,
        _place: place,
    };
    let body = stream::unfold(Some(stream), |stream| async move {
        let mut stream = stream?;
        let (bytes, rest) = match stream.next().await {
            Some(bytes) => (bytes, Some(stream)),
            None => (stream.encoding.end()?, None),
        };
        Some((Ok::<_, Infallible>(bytes), rest))
    });
    *response.body_mut() = Body::from_stream(body);
    response.extensions_mut().insert(Waits);
    Ok(response)
}

/// The encoding of a stream.
enum Encoding {
    Plain,
    Gzip(GzipStream),
}

impl Encoding {
    fn headers(&self) -> HeaderMap {
        let headers = [
            (header::CONTENT_TYPE, "text/event-stream"),
            (header::CACHE_CONTROL, "no-store"),
            (header::VARY, "accept-encoding"),
        ];
        let encoding = match self {
            Self::Plain => None,
            Self::Gzip(_) => Some((header::CONTENT_ENCODING, "gzip")),
        };
        let headers = headers.into_iter().chain(encoding);
        headers.map(|(name, value)| (name, HeaderValue::from_static(value))).collect()
    }

    /// Encodes the next part.
    fn encode(&mut self, part: Part) -> Bytes {
        match (self, part) {
            (Self::Plain, Part::Short(text)) => text,
            (Self::Plain, Part::Entries(entries)) => entries.text(),
            (Self::Gzip(stream), Part::Short(text)) => stream.push(&Piece::stored(&text)),
            (Self::Gzip(stream), Part::Entries(entries)) => stream.push(&entries.compressed()),
        }
    }

    /// The bytes after the last part, if any.
    fn end(self) -> Option<Bytes> {
        match self {
            Self::Plain => None,
            Self::Gzip(stream) => Some(stream.end()),
        }
    }
}

/// A part of a stream.
enum Part {
    /// A text too short for compression.
    Short(Bytes),
    Entries(Chosen),
}

/// A stream of events.
struct EventStream {
    app: Arc<App>,
    feed: broadcast::Receiver<Batch>,
    filter: EventFilter,
    /// The bearer; the stream ends with its token or sign-in.
    bearer: Bearer,
    /// The last position sent or filtered out.
    at: u64,
    /// Whether the database has later entries missing from the feed.
    is_behind: bool,
    has_greeted: bool,
    is_over: bool,
    beat_at: Instant,
    encoding: Encoding,
    _place: StreamPlace,
}

impl EventStream {
    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.has_greeted, true) {
            // A client cut off before the first event resumes here instead of at the end of the log.
            let text = format!("retry: {RETRY_MS}\nid: {}\n\n", self.at);
            return Some(self.encoding.encode(Part::Short(text.into())));
        }
        while !self.is_over {
            let app = Arc::clone(&self.app);
            let step = async { if self.is_behind { self.catch_up().await } else { self.listen().await } };
            let part = app.shutdown.run_until_cancelled(step).await?;
            if self.bearer.until.is_some_and(|until| until <= app.now()) {
                return None;
            }
            match part {
                Ok(None) => {}
                Ok(Some(part)) => {
                    self.beat_at = next_beat(&app, &self.bearer);
                    return Some(self.encoding.encode(part));
                }
                Err(error) => {
                    // The client reconnects.
                    tracing::debug!(%error, "a stream of events ends: {error}");
                    return None;
                }
            }
        }
        None
    }

    /// Reads entries from the database, unless the token or the sign-in has ended.
    async fn catch_up(&mut self) -> Result<Option<Part>, StoreError> {
        let (at, filter, bearer, now) = (self.at, &self.filter, &self.bearer, self.app.now());
        let read = self.app.store.read("missed events", |tx| {
            Box::pin(async move {
                // The event that ends the bearer's access may be filtered out or on a later page.
                if !counts(tx, bearer, now).await? {
                    return Ok(None);
                }
                Ok::<_, StoreError>(Some((tx.last_event().await?, tx.events_after(at, filter, PAGE).await?)))
            })
        });
        let Some((end, rows)) = read.await? else {
            self.is_over = true;
            return Ok(None);
        };
        self.is_behind = rows.len() >= PAGE as usize;
        let last = rows.last().map_or(at, |row| row.position);
        self.at = if self.is_behind { last } else { last.max(end.map_or(0, |(position, _)| position)) };
        Ok(of_entries(Batch::new(at, rows.into_iter().map(entry)).choose(|_| true)))
    }

    /// Waits for new entries or the next keep-alive.
    async fn listen(&mut self) -> Result<Option<Part>, StoreError> {
        let batch = tokio::select! {
            batch = self.feed.recv() => batch,
            () = sleep_until(self.beat_at) => return self.beat().await,
        };
        let Ok(batch) = batch else {
            // The receiver was too slow, or the feed has closed; the next read distinguishes them.
            self.is_over = matches!(batch, Err(broadcast::error::RecvError::Closed));
            self.is_behind = true;
            return Ok(None);
        };
        if batch.after() > self.at {
            self.is_behind = true;
            return Ok(None);
        }
        self.is_over |= batch.entries_after(self.at).any(|entry| ends(entry, &self.bearer));
        let wanted = batch.choose(|entry| entry.position > self.at && self.filter.takes(&entry.event));
        self.at = self.at.max(batch.last());
        Ok(of_entries(wanted))
    }

    /// Sends a keep-alive comment, unless the token or the sign-in has ended.
    async fn beat(&mut self) -> Result<Option<Part>, StoreError> {
        let (bearer, now) = (&self.bearer, self.app.now());
        let found =
            self.app.store.read("token of a stream", |tx| Box::pin(async move { counts(tx, bearer, now).await }));
        self.is_over = !found.await?;
        Ok((!self.is_over).then_some(Part::Short(Bytes::from_static(b":\n\n"))))
    }
}

/// Entries as a part of a stream, unless empty.
fn of_entries(entries: Chosen) -> Option<Part> {
    (!entries.is_empty()).then_some(Part::Entries(entries))
}

/// Whether the bearer's token and sign-in are still valid.
async fn counts(tx: &mut Transaction<'_>, bearer: &Bearer, now: Timestamp) -> std::result::Result<bool, StoreError> {
    if let Some(sign_in) = &bearer.sign_in
        && tx.sign_in(sign_in.id).await?.is_none_or(|sign_in| sign_in.ended_at.is_some())
    {
        return Ok(false);
    }
    match bearer.token() {
        Some(id) => Ok(tx.operator_token(id).await?.is_some_and(|token| token.ended(now).is_none())),
        None => Ok(true),
    }
}

/// When to send the next keep-alive or end the stream.
fn next_beat(app: &App, bearer: &Bearer) -> Instant {
    let left = |until: Timestamp| Duration::from_millis(until.0.saturating_sub(app.now().0).max(0).unsigned_abs());
    Instant::now() + bearer.until.map_or(HEARTBEAT, |until| left(until).min(HEARTBEAT))
}

/// Whether an entry ends the bearer's token or sign-in.
fn ends(entry: &Entry, bearer: &Bearer) -> bool {
    let names = |fact: &str, id: String| entry.event.body.get(fact) == Some(&Fact::Text(id));
    let token_ended =
        |token: TokenId| entry.event.kind == EventKind::OperatorTokenRevoked && names("token", token.to_string());
    let sign_in_ended =
        |sign_in: &SignIn| entry.event.kind == EventKind::SignedOut && names("sign_in", sign_in.id.to_string());
    bearer.token().is_some_and(token_ended) || bearer.sign_in.as_ref().is_some_and(sign_in_ended)
}
