//! Answers that are not yet sent: bounded per connection, per peer and in total, and dropped when they stay unread.
//!
//! A peer decides how fast it reads. With HTTP/2 it can send hundreds of requests over one connection and read none of
//! the answers. So every answer is passed on in pieces that count until the socket has taken them, and a connection
//! with a piece that stays unread for too long is closed.

mod unread;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::unread::{UnreadStreams, WaitingStream};
use crate::key::Key;

use crate::process::poison_free_mutex::PoisonFreeMutex;

/// Bytes passed on at once. One per half minute is 2 kB/s, the slowest peer that is tolerated.
pub const PIECE: usize = 64 << 10;
/// Maximum number of concurrent streamed answers per peer: each uses a little memory while it waits.
const STREAMED_PER_PEER: usize = 32;

/// Limits on unsent bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    connection: usize,
    /// Per peer: a participant, or an address without a certificate.
    peer: usize,
    /// Of streamed model versions, in total.
    streamed: usize,
}

impl Bounds {
    /// A sixteenth of `streamed` bytes per peer and three quarters of that per connection, each at least one piece.
    pub(crate) fn of(streamed: usize) -> Self {
        let at_least_a_piece = |bytes: usize| bytes.clamp(PIECE, u32::MAX as usize);
        let streamed = at_least_a_piece(streamed);
        let peer = at_least_a_piece(streamed / 16);
        Self { connection: at_least_a_piece(peer / 4 * 3), peer, streamed }
    }
}

/// Marks an answer that mostly waits for something to happen, and whose number is limited elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Waits;

/// The unsent answers of a listener.
pub(crate) struct Unsent {
    bounds: Bounds,
    streamed: Arc<Semaphore>,
    peers: PoisonFreeMutex<HashMap<Key, Weak<PeerBudget>>>,
}

/// Budget of unsent data for one peer, over all of its connections.
struct PeerBudget {
    bytes: Arc<Semaphore>,
    /// Number of streamed answers.
    answers: Arc<Semaphore>,
}

impl Unsent {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, streamed: Arc::new(Semaphore::new(bounds.streamed)), peers: PoisonFreeMutex::default() }
    }

    /// Bytes of answers that are still outside of sockets.
    pub(crate) fn bytes(&self) -> usize {
        let peers = self.peers.lock();
        let debtors = peers.values().filter_map(Weak::upgrade);
        debtors.map(|peer_budget| self.bounds.peer - peer_budget.bytes.available_permits()).sum()
    }

    /// The account of one connection of this peer.
    pub(crate) fn budget(&self, peer: Key) -> ConnectionBudget {
        ConnectionBudget {
            bound: self.bounds.connection,
            connection: Arc::new(Semaphore::new(self.bounds.connection)),
            peer: self.peer_budget(peer),
            identified: PoisonFreeMutex::default(),
            streamed: Arc::clone(&self.streamed),
            unread: Arc::default(),
        }
    }

    /// Charges later answers to this peer, once the connection is authenticated. At most once; earlier answers stay
    /// charged to the first one.
    pub(crate) fn turn_out(&self, budget: &ConnectionBudget, peer: Key) {
        budget.identified.with(|identified| {
            identified.get_or_insert_with(|| self.peer_budget(peer));
        });
    }

    /// Charges the next answers of a balancer's connection to this peer, or to the balancer.
    pub(crate) fn charge(&self, budget: &ConnectionBudget, peer: Option<Key>) {
        let peer_budget = peer.map(|peer| self.peer_budget(peer));
        budget.identified.with(|identified| *identified = peer_budget);
    }

    fn peer_budget(&self, peer: Key) -> Arc<PeerBudget> {
        let mut peers = self.peers.lock();
        // Peers without a connection are forgotten when the map has about doubled since the last time.
        if peers.len() == peers.capacity() {
            peers.retain(|_, peer_budget| peer_budget.strong_count() > 0);
        }
        peers.get(&peer).and_then(Weak::upgrade).unwrap_or_else(|| {
            let semaphore = |permits| Arc::new(Semaphore::new(permits));
            let peer_budget = PeerBudget { bytes: semaphore(self.bounds.peer), answers: semaphore(STREAMED_PER_PEER) };
            let peer_budget = Arc::new(peer_budget);
            peers.insert(peer, Arc::downgrade(&peer_budget));
            peer_budget
        })
    }
}

/// The unsent answers of one connection.
pub(crate) struct ConnectionBudget {
    bound: usize,
    connection: Arc<Semaphore>,
    peer: Arc<PeerBudget>,
    identified: PoisonFreeMutex<Option<Arc<PeerBudget>>>,
    streamed: Arc<Semaphore>,
    unread: Arc<UnreadStreams>,
}

impl ConnectionBudget {
    /// Charges an answer, and passes it on in pieces. An answer in memory is charged at once; a streamed one is read as
    /// fast as the peer takes it. `None` if the connection or its peer has too many unsent bytes, or the peer too many
    /// streamed answers.
    pub(crate) fn send(&self, body: Body) -> Option<Body> {
        if body.is_end_stream() {
            return Some(body);
        }
        let identified = self.identified.lock().clone();
        let peer_budget = identified.as_ref().unwrap_or(&self.peer);
        let source = match body.size_hint().exact() {
            Some(bytes) => {
                // A large answer leaves room for small ones on the same connection: a roster must not block the answer
                // to a concurrent check-in.
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.bound() / 2);
                let connection = Arc::clone(&self.connection).try_acquire_many_owned(bytes).ok()?;
                let peer = Arc::clone(&peer_budget.bytes).try_acquire_many_owned(bytes).ok()?;
                Source::Whole(ByteCharge { connection, peer, streamed: None })
            }
            None => {
                let place = Arc::clone(&peer_budget.answers).try_acquire_owned().ok()?;
                Source::Streamed { admission: None, charge: None, is_charged_first: true, _place: Some(place) }
            }
        };
        Some(Body::new(Sending { body, rest: Bytes::new(), source, budget: self.answer(peer_budget) }))
    }

    /// Passes on an answer that mostly waits for something to happen: it is charged only while its peer has something to read.
    pub(crate) fn send_as_it_comes(&self, body: Body) -> Body {
        let peer = self.identified.lock().clone().unwrap_or_else(|| Arc::clone(&self.peer));
        let source = Source::Streamed { admission: None, charge: None, is_charged_first: false, _place: None };
        Body::new(Sending { body, rest: Bytes::new(), source, budget: self.answer(&peer) })
    }

    fn answer(&self, peer: &PeerBudget) -> AnswerBudget {
        AnswerBudget {
            connection: Arc::clone(&self.connection),
            peer: Arc::clone(&peer.bytes),
            streamed: Arc::clone(&self.streamed),
            unread: Arc::clone(&self.unread),
        }
    }

    fn bound(&self) -> u32 {
        u32::try_from(self.bound).unwrap_or(u32::MAX)
    }

    /// Resolves when a piece has not been taken for this long.
    pub(crate) async fn stalled(&self, patience: Duration) {
        self.unread.stalled(patience).await;
    }
}

/// Accounts for the pieces of one answer.
struct AnswerBudget {
    connection: Arc<Semaphore>,
    peer: Arc<Semaphore>,
    streamed: Arc<Semaphore>,
    unread: Arc<UnreadStreams>,
}

impl AnswerBudget {
    /// Room for one more piece of this size, if there is some now.
    fn admit_now(&self, bytes: u32) -> Option<ByteCharge> {
        let now = |semaphore: &Arc<Semaphore>| Arc::clone(semaphore).try_acquire_many_owned(bytes).ok();
        let (connection, peer) = (now(&self.connection)?, now(&self.peer)?);
        Some(ByteCharge { connection, peer, streamed: Some(now(&self.streamed)?) })
    }

    /// Waits for room for one more piece of this size.
    fn admit(&self, bytes: u32) -> BoxFuture<'static, Option<ByteCharge>> {
        let (connection, peer) = (Arc::clone(&self.connection), Arc::clone(&self.peer));
        let streamed = Arc::clone(&self.streamed);
        let unread = Arc::clone(&self.unread);
        Box::pin(async move {
            // A stream that is blocked by its peer on another connection counts as unread, too.
            let behind = WaitingStream::begin(unread);
            // `None` only if one were closed, which none ever is.
            let connection = connection.acquire_many_owned(bytes).await.ok()?;
            let peer = peer.acquire_many_owned(bytes).await.ok()?;
            drop(behind);
            let streamed = streamed.acquire_many_owned(bytes).await.ok()?;
            Some(ByteCharge { connection, peer, streamed: Some(streamed) })
        })
    }
}

/// Bytes that count as unsent until this is dropped.
struct ByteCharge {
    connection: OwnedSemaphorePermit,
    peer: OwnedSemaphorePermit,
    streamed: Option<OwnedSemaphorePermit>,
}

impl ByteCharge {
    /// Splits off this many bytes, or all that are left.
    fn split(&mut self, bytes: usize) -> Self {
        let take = |permit: &mut OwnedSemaphorePermit| {
            let bytes = permit.num_permits().min(bytes);
            permit.split(bytes).or_else(|| permit.split(0))
        };
        let connection = take(&mut self.connection);
        let peer = take(&mut self.peer);
        let streamed = self.streamed.as_mut().and_then(take);
        match (connection, peer) {
            (Some(connection), Some(peer)) => Self { connection, peer, streamed },
            // A permit can always be split by at most its size.
            _ => unreachable!("a part of a permit is no larger than the permit"),
        }
    }
}

/// Source of an answer.
enum Source {
    /// In memory; already charged.
    Whole(ByteCharge),
    /// A file, for example: the next piece is read when there is room for it.
    Streamed {
        admission: Option<BoxFuture<'static, Option<ByteCharge>>>,
        charge: Option<ByteCharge>,
        /// Whether room is waited for before the next piece is read, and not after.
        is_charged_first: bool,
        /// Slot among the streamed answers of its peer.
        _place: Option<OwnedSemaphorePermit>,
    },
}

/// An answer being sent.
struct Sending {
    body: Body,
    /// Read but not yet passed on.
    rest: Bytes,
    source: Source,
    budget: AnswerBudget,
}

impl HttpBody for Sending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        loop {
            if let Source::Streamed { admission, charge, is_charged_first, .. } = &mut this.source
                && charge.is_none()
                && (*is_charged_first || !this.rest.is_empty())
            {
                let bytes = if *is_charged_first { PIECE } else { this.rest.len().min(PIECE) };
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                if admission.is_none() {
                    *charge = this.budget.admit_now(bytes);
                }
                if charge.is_none() {
                    let waiting = admission.get_or_insert_with(|| this.budget.admit(bytes));
                    *charge = std::task::ready!(waiting.as_mut().poll(cx));
                    *admission = None;
                }
            }
            if !this.rest.is_empty() {
                let bytes = this.rest.split_to(this.rest.len().min(PIECE));
                let charge = match &mut this.source {
                    Source::Whole(charge) => Some(charge.split(bytes.len())),
                    Source::Streamed { charge, .. } => charge.take().map(|mut charge| charge.split(bytes.len())),
                };
                let piece =
                    Piece { bytes, _waiting: WaitingStream::begin(Arc::clone(&this.budget.unread)), _charge: charge };
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(piece)))));
            }
            match std::task::ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                end @ (Some(Err(_)) | None) => return Poll::Ready(end),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, mut hint) = (self.rest.len() as u64, self.body.size_hint());
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

/// A part of an answer; dropped when the socket has taken it, or the stream or connection has ended.
struct Piece {
    bytes: Bytes,
    _waiting: WaitingStream,
    _charge: Option<ByteCharge>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests;
