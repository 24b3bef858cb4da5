//! Answers that are not yet sent: bounded per connection, per peer and in total, and dropped when nobody reads them.
//!
//! A peer decides how fast it reads. With HTTP/2 it can send hundreds of requests over one connection and read none of
//! the answers. So every answer is passed on in pieces that count until the socket has taken them, and a connection
//! with a piece that stays unread for too long is closed.

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

use super::limits::Key;
use super::unread::{UnreadStreams, WaitingStream};

use crate::guarded::Guarded;

/// Bytes passed on at once. One per half minute is 2 kB/s, the slowest peer that is tolerated.
pub(super) const PIECE: usize = 64 << 10;
/// Maximum number of concurrent streamed answers per peer: each uses a little memory while it waits.
const STREAMED_PER_PEER: usize = 32;

/// Limits on unsent bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    connection: usize,
    /// Per peer: a participant, or an address without a certificate.
    peer: usize,
    /// Of streamed model versions, in total.
    streamed: usize,
}

impl Bounds {
    /// A sixteenth of `streamed` bytes per peer and three quarters of that per connection, each at least one piece.
    pub(super) fn of(streamed: usize) -> Self {
        let at_least_a_piece = |bytes: usize| bytes.clamp(PIECE, u32::MAX as usize);
        let streamed = at_least_a_piece(streamed);
        let peer = at_least_a_piece(streamed / 16);
        Self { connection: at_least_a_piece(peer / 4 * 3), peer, streamed }
    }
}

/// Marks an answer that mostly waits for something to happen, and whose number is limited elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits;

/// The unsent answers of a listener.
pub(super) struct Unsent {
    bounds: Bounds,
    streamed: Arc<Semaphore>,
    peers: Guarded<HashMap<Key, Weak<PeerBudget>>>,
}

/// Budget of unsent data for one peer, over all of its connections.
struct PeerBudget {
    bytes: Arc<Semaphore>,
    /// Number of streamed answers.
    answers: Arc<Semaphore>,
}

impl Unsent {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, streamed: Arc::new(Semaphore::new(bounds.streamed)), peers: Guarded::default() }
    }

    /// Bytes of answers that no socket has taken yet.
    pub(super) fn bytes(&self) -> usize {
        let peers = self.peers.lock();
        let debtors = peers.values().filter_map(Weak::upgrade);
        debtors.map(|peer_budget| self.bounds.peer - peer_budget.bytes.available_permits()).sum()
    }

    /// The account of one connection of this peer.
    pub(super) fn budget(&self, peer: Key) -> ConnectionBudget {
        ConnectionBudget {
            bound: self.bounds.connection,
            connection: Arc::new(Semaphore::new(self.bounds.connection)),
            peer: self.peer_budget(peer),
            identified: Guarded::default(),
            streamed: Arc::clone(&self.streamed),
            unread: Arc::default(),
        }
    }

    /// Charges later answers to this peer, once the connection is authenticated. At most once; earlier answers stay
    /// charged to the first one.
    pub(super) fn turn_out(&self, budget: &ConnectionBudget, peer: Key) {
        budget.identified.with(|identified| {
            identified.get_or_insert_with(|| self.peer_budget(peer));
        });
    }

    /// Charges the next answers of a balancer's connection to this peer, or to the balancer.
    pub(super) fn charge(&self, budget: &ConnectionBudget, peer: Option<Key>) {
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
pub(super) struct ConnectionBudget {
    bound: usize,
    connection: Arc<Semaphore>,
    peer: Arc<PeerBudget>,
    identified: Guarded<Option<Arc<PeerBudget>>>,
    streamed: Arc<Semaphore>,
    unread: Arc<UnreadStreams>,
}

impl ConnectionBudget {
    /// Charges an answer, and passes it on in pieces. An answer in memory is charged at once; a streamed one is read as
    /// fast as the peer takes it. `None` if the connection or its peer has too many unsent bytes, or the peer too many
    /// streamed answers.
    pub(super) fn send(&self, body: Body) -> Option<Body> {
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
    pub(super) fn send_as_it_comes(&self, body: Body) -> Body {
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
    pub(super) async fn stalled(&self, patience: Duration) {
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
    /// Waits for room for one more piece.
    fn admit(&self) -> BoxFuture<'static, Option<ByteCharge>> {
        let (connection, peer) = (Arc::clone(&self.connection), Arc::clone(&self.peer));
        let (streamed, bytes) = (Arc::clone(&self.streamed), u32::try_from(PIECE).unwrap_or(u32::MAX));
        let unread = Arc::clone(&self.unread);
        Box::pin(async move {
            // A stream that waits because its peer does not read makes no progress either, on any of its connections.
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
                let waiting = admission.get_or_insert_with(|| this.budget.admit());
                *charge = std::task::ready!(waiting.as_mut().poll(cx));
                *admission = None;
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
mod tests {
    use std::net::Ipv4Addr;

    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;
    use tokio::time::Instant;

    use super::*;

    fn unsent(streamed: usize) -> Unsent {
        Unsent::new(Bounds::of(streamed))
    }

    fn here() -> Key {
        Key::Address(Ipv4Addr::LOCALHOST.into())
    }

    async fn piece(body: &mut Body) -> Bytes {
        body.frame().await.unwrap().unwrap().into_data().unwrap()
    }

    #[tokio::test]
    async fn an_answer_arrives_whole_in_pieces_and_its_length_is_known() {
        let budget = unsent(1 << 20).budget(here());
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 7] {
            let bytes: Bytes = (0..length).map(|n| n.to_le_bytes()[0]).collect();
            let body = budget.send(Body::from(bytes.clone())).unwrap();
            assert_eq!(body.size_hint().exact(), Some(length as u64));
            assert_eq!(body.collect().await.unwrap().to_bytes(), bytes);
            let chunks: Vec<_> = bytes.chunks(1000).map(|c| Ok::<_, axum::Error>(Bytes::copy_from_slice(c))).collect();
            let mut body = budget.send(Body::from_stream(futures_util::stream::iter(chunks))).unwrap();
            // Each taken before the next: there need not be room for two.
            let mut taken = Vec::new();
            while let Some(frame) = body.frame().await {
                taken.extend_from_slice(frame.unwrap().data_ref().unwrap());
            }
            assert_eq!(taken, bytes);
        }
        assert_eq!(budget.connection.available_permits(), budget.bound, "all of it was given back");
        assert_eq!(budget.streamed.available_permits(), 1 << 20);
    }

    #[tokio::test]
    async fn whole_answers_are_refused_beyond_what_a_connection_or_its_peer_may_have_unsent() {
        let unsent = unsent(16 * 8 * PIECE);
        let (first, second) = (unsent.budget(here()), unsent.budget(here()));
        let answer = || Body::from(vec![0; PIECE]);
        let mut held: Vec<_> = (0..6).map(|_| first.send(answer()).unwrap()).collect();
        assert!(first.send(answer()).is_none(), "the connection has enough");
        held.extend((0..2).map(|_| second.send(answer()).unwrap()));
        let third = unsent.budget(here());
        assert!(second.send(answer()).is_none() && third.send(answer()).is_none(), "the peer has enough");
        let taken = piece(&mut held[0]).await;
        assert!(first.send(answer()).is_none(), "handed on is not yet sent");
        drop(taken);
        assert!(first.send(answer()).is_some());
    }

    #[tokio::test]
    async fn what_waits_takes_room_only_while_there_is_something_to_read() {
        let budget = unsent(PIECE).budget(here());
        let mut idle =
            budget.send_as_it_comes(Body::from_stream(futures_util::stream::pending::<Result<Bytes, axum::Error>>()));
        assert!(idle.frame().now_or_never().is_none() && budget.streamed.available_permits() == PIECE);
    }

    #[tokio::test]
    async fn a_large_answer_leaves_room_for_a_small_one_on_the_same_connection() {
        let unsent = unsent(16 * 8 * PIECE);
        let budget = unsent.budget(here());
        let roster = budget.send(Body::from(vec![0; 99 * PIECE])).unwrap();
        let check_in = budget.send(Body::from(vec![0; 1000])).unwrap();
        assert!(budget.send(Body::from(vec![0; 99 * PIECE])).is_none(), "not for another like it");
        drop((roster, check_in));
        assert_eq!(budget.connection.available_permits(), budget.bound);
    }

    #[tokio::test]
    async fn a_stream_is_read_no_faster_than_its_pieces_are_taken() {
        let unsent = unsent(PIECE);
        let budget = unsent.budget(here());
        let endless = || {
            Body::from_stream(futures_util::stream::repeat_with(|| Ok::<_, axum::Error>(Bytes::from_static(&[7; 100]))))
        };
        let mut one = budget.send(endless()).unwrap();
        let mut other = unsent.budget(Key::Address(Ipv4Addr::BROADCAST.into())).send(endless()).unwrap();
        let taken = piece(&mut one).await;
        // A short piece gives the rest of its room back, but less than a piece is left.
        assert!(one.frame().now_or_never().is_none());
        assert!(other.frame().now_or_never().is_none(), "all share one bound");
        drop((taken, one));
        assert_eq!(piece(&mut other).await.len(), 100);
    }

    #[tokio::test]
    async fn a_peer_has_so_many_answers_at_once_that_are_read_from_somewhere() {
        let unsent = unsent(1 << 20);
        let (first, second) = (unsent.budget(here()), unsent.budget(here()));
        let answer = || Body::from_stream(futures_util::stream::iter([Ok::<_, axum::Error>(Bytes::from_static(b"7"))]));
        let held: Vec<_> = (0..STREAMED_PER_PEER).map(|_| first.send(answer()).unwrap()).collect();
        assert!(second.send(answer()).is_none(), "over all of its connections");
        assert!(second.send(Body::from("whole")).is_some(), "what is whole is counted in bytes");
        assert!(unsent.budget(Key::Address(Ipv4Addr::BROADCAST.into())).send(answer()).is_some(), "nor for others");
        drop(held);
        assert!(second.send(answer()).is_some());
    }

    #[tokio::test]
    async fn a_connection_whose_peer_turns_out_later_owes_what_it_is_sent_from_then_on() {
        let unsent = unsent(16 * 8 * PIECE);
        let (budget, other) = (unsent.budget(here()), Key::Address(Ipv4Addr::BROADCAST.into()));
        let answer = || Body::from(vec![0; PIECE]);
        let before = budget.send(answer()).unwrap();
        unsent.turn_out(&budget, other);
        unsent.turn_out(&budget, here());
        let after = budget.send(answer()).unwrap();
        let left = |key| unsent.peer_budget(key).bytes.available_permits();
        assert_eq!((left(here()), left(other)), (7 * PIECE, 7 * PIECE));
        let rest: Vec<_> = (0..4).map(|_| budget.send(answer()).unwrap()).collect();
        assert!(budget.send(answer()).is_none(), "it is the same connection");
        drop((before, after, rest));
        assert_eq!((left(here()), left(other)), (8 * PIECE, 8 * PIECE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_piece_that_is_not_taken_in_time_is_noticed() {
        let budget = unsent(1 << 20).budget(here());
        let patience = Duration::from_secs(30);
        assert!(budget.stalled(patience).now_or_never().is_none());
        for _ in 0..5 {
            // Slow, but it goes on.
            let taken = piece(&mut budget.send(Body::from("slow")).unwrap()).await;
            assert!(tokio::time::timeout(patience * 9 / 10, budget.stalled(patience)).await.is_err());
            drop(taken);
        }
        assert!(
            tokio::time::timeout(patience * 100, budget.stalled(patience)).await.is_err(),
            "an idle peer owes nothing"
        );
        let _untaken = piece(&mut budget.send(Body::from("never")).unwrap()).await;
        let began = Instant::now();
        budget.stalled(patience).await;
        assert_eq!(began.elapsed(), patience);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_behind_what_the_same_peer_does_not_read_is_noticed_too() {
        let unsent = unsent(1 << 20);
        let endless = || {
            Body::from_stream(futures_util::stream::repeat_with(|| {
                Ok::<_, axum::Error>(Bytes::from_static(&[7; PIECE]))
            }))
        };
        let (first, second) = (unsent.budget(here()), unsent.budget(here()));
        let _untaken = piece(&mut first.send(endless()).unwrap()).await;
        let mut behind = second.send(endless()).unwrap();
        assert!(behind.frame().now_or_never().is_none(), "the peer has enough");
        let (patience, began) = (Duration::from_secs(30), Instant::now());
        second.stalled(patience).await;
        assert_eq!(began.elapsed(), patience);
        // Another peer that waits because all together have enough is not to blame.
        let (small, elsewhere) = (super::Unsent::new(Bounds::of(PIECE)), Key::Address(Ipv4Addr::BROADCAST.into()));
        let (deaf, honest) = (small.budget(here()), small.budget(elsewhere));
        let _untaken = piece(&mut deaf.send(endless()).unwrap()).await;
        let mut waits = honest.send(endless()).unwrap();
        assert!(waits.frame().now_or_never().is_none());
        assert!(tokio::time::timeout(patience * 10, honest.stalled(patience)).await.is_err());
    }

    #[tokio::test]
    async fn peers_without_a_connection_are_forgotten() {
        let unsent = unsent(1 << 20);
        for n in 0..10_000_u32 {
            drop(unsent.budget(Key::Address(Ipv4Addr::from(n).into())));
        }
        assert!(unsent.peers.lock().len() < 10);
    }
}
