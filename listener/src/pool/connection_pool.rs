//! One connection: the classification of its peer, how long it may stay, and its limits.
//!
//! A participant is recognized by the handshake's certificate, if valid, or by the first request with such a
//! certificate; an operator by the first valid token. Every other peer, whatever its certificate, is a stranger.
//! Strangers share a few slots for a short time, so known peers do not wait for them.
//!
//! A balancer's connection, where requests are signed, carries the requests of many peers, one after the other. It
//! belongs to none of them, and stays. Its request takes the slot there that a connection takes elsewhere, until its
//! answer is sent: that of the certificate that signed it, or a stranger's.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use federation::id::{Digest, ParticipantId};
use http::{HeaderValue, Request, Response, StatusCode, header};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use wire::headers::MEDIA_PROBLEM;
use wire::problem::{Problem, ProblemType};
use wire::route;

use super::answer_body::with_slot;
use super::connection_limits::ConnectionLimits;
use super::drain::lend;
use super::slots::{Slot, SlotLimits, Slots, WhenFull};
use crate::connection::Connection;
use crate::key::Key;
use crate::peer::Peer;
use crate::process::poison_free_mutex::PoisonFreeMutex;
use crate::timeouts::Timeouts;
use crate::unsent::{ConnectionBudget, Unsent, Waits};

/// When a rejected peer may come back.
pub const COME_BACK_S: u16 = 15;
/// Age after which a connection in the handshake, or being rejected for lack of room, may be closed to make room.
const ARRIVING_GRACE: Duration = Duration::from_secs(2);

/// Current connections of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// In the handshake, or being rejected for lack of room.
    pub arriving: usize,
    /// Without good credentials.
    pub strangers: usize,
    /// With a participant's certificate.
    pub members: usize,
    /// With an operator token.
    pub operators: usize,
    /// Bytes of answers that are still outside of sockets.
    pub unsent_bytes: usize,
}

/// All connections of a listener. Clones share them.
#[derive(Clone)]
pub(crate) struct ConnectionPool {
    arriving: Slots,
    strangers: Slots,
    members: Slots,
    balancers: Slots,
    /// Requests on balancers' connections.
    signed_requests: Slots,
    unsigned_requests: Slots,
    operators: Slots,
    unsent: Arc<Unsent>,
}

impl ConnectionPool {
    pub(crate) fn new(connection_limits: ConnectionLimits, unsent: Unsent) -> Self {
        let grace = WhenFull::CloseOldest(ARRIVING_GRACE);
        let arriving = SlotLimits {
            all: (connection_limits.arriving, grace),
            each: (connection_limits.arriving.div_ceil(2), grace),
        };
        let strangers = SlotLimits {
            all: (connection_limits.strangers, WhenFull::Refuse),
            each: (connection_limits.each_address, WhenFull::Refuse),
        };
        // A device that lost its network leaves dead connections behind.
        let each_member = (connection_limits.each_member, WhenFull::CloseOldest(Duration::ZERO));
        let members = SlotLimits { all: (connection_limits.members, WhenFull::Refuse), each: each_member };
        let balancers = (connection_limits.members, WhenFull::Refuse);
        let balancers = SlotLimits { all: balancers, each: balancers };
        // All of a balancer's strangers have its address.
        let unsigned = (connection_limits.strangers, WhenFull::Refuse);
        let unsigned = SlotLimits { all: unsigned, each: unsigned };
        let operators = (connection_limits.operators, WhenFull::Refuse);
        let operators = SlotLimits { all: operators, each: operators };
        Self {
            arriving: Slots::new("arriving", arriving),
            strangers: Slots::new("strangers", strangers),
            members: Slots::new("participants", members),
            signed_requests: Slots::new("signed_requests", members),
            unsigned_requests: Slots::new("unsigned_requests", unsigned),
            balancers: Slots::new("balancers", balancers),
            operators: Slots::new("operators", operators),
            unsent: Arc::new(unsent),
        }
    }

    /// A slot for a new connection that `end` closes; `None` if there are too many new ones.
    pub(crate) fn arrive(&self, address: std::net::IpAddr, end: &CancellationToken) -> Option<Slot> {
        self.arriving.take(Key::address(address), end, Instant::now())
    }

    pub(crate) fn held(&self) -> ConnectionCounts {
        ConnectionCounts {
            arriving: self.arriving.taken(),
            strangers: self.strangers.taken(),
            members: self.members.taken(),
            operators: self.operators.taken(),
            unsent_bytes: self.unsent.bytes(),
        }
    }
}

/// Classification of the peer.
enum PeerKind {
    Member {
        _slot: Slot,
    },
    Operator {
        _slot: Slot,
    },
    Balancer {
        _slot: Slot,
    },
    Stranger {
        _slot: Slot,
    },
    /// All slots are taken, and the peer gets an error.
    TurnedAway {
        _slot: Slot,
    },
}

impl PeerKind {
    fn is_known(&self) -> bool {
        match self {
            Self::Member { .. } | Self::Operator { .. } | Self::Balancer { .. } => true,
            Self::Stranger { .. } | Self::TurnedAway { .. } => false,
        }
    }
}

/// A connection after its handshake.
pub struct ConnectionGuard {
    connection: Connection,
    pool: ConnectionPool,
    kind: PoisonFreeMutex<PeerKind>,
    /// The slot of the request on a balancer's connection.
    request: PoisonFreeMutex<Option<Slot>>,
    /// When its peer's credentials were last looked at.
    checked_at: PoisonFreeMutex<Instant>,
    budget: ConnectionBudget,
    /// Closes the connection at once.
    end: CancellationToken,
    /// Closes it when all requests are answered.
    leave: CancellationToken,
}

impl ConnectionGuard {
    /// Takes a slot for a new peer: a participant's if its certificate is valid, otherwise a stranger's.
    pub(crate) fn begin(
        pool: &ConnectionPool,
        connection: Connection,
        member: Option<ParticipantId>,
        arrived: Slot,
        end: CancellationToken,
    ) -> Self {
        let (slots, peer) = match member {
            Some(participant) => (&pool.members, Key::Participant(participant)),
            None => (&pool.strangers, Key::address(connection.address)),
        };
        let kind = match (slots.take(peer, &end, Instant::now()), member) {
            (Some(slot), Some(_)) => PeerKind::Member { _slot: slot },
            (Some(slot), None) => PeerKind::Stranger { _slot: slot },
            (None, _) => {
                let what = if member.is_some() { "participants" } else { "strangers" };
                metrics::counter!("tributary_connections_refused_total", "kind" => what).increment(1);
                PeerKind::TurnedAway { _slot: arrived }
            }
        };
        Self::of(pool, connection, kind, peer, end)
    }

    /// Takes a slot for a balancer's connection.
    pub(crate) fn begin_of_balancer(
        pool: &ConnectionPool,
        connection: Connection,
        arrived: Slot,
        end: CancellationToken,
    ) -> Self {
        let address = Key::address(connection.address);
        let kind = match pool.balancers.take(address, &end, Instant::now()) {
            Some(slot) => PeerKind::Balancer { _slot: slot },
            None => {
                metrics::counter!("tributary_connections_refused_total", "kind" => "balancers").increment(1);
                PeerKind::TurnedAway { _slot: arrived }
            }
        };
        Self::of(pool, connection, kind, address, end)
    }

    fn of(pool: &ConnectionPool, connection: Connection, kind: PeerKind, peer: Key, end: CancellationToken) -> Self {
        Self {
            connection,
            pool: pool.clone(),
            kind: PoisonFreeMutex::new(kind),
            request: PoisonFreeMutex::default(),
            checked_at: PoisonFreeMutex::new(Instant::now()),
            budget: pool.unsent.budget(peer),
            end,
            leave: CancellationToken::new(),
        }
    }

    fn is_balancers(&self) -> bool {
        self.kind.with(|kind| matches!(kind, PeerKind::Balancer { .. }))
    }

    /// Takes the slot of the request on a balancer's connection, by the certificate of its signer. A signer's request above its
    /// limit ends its oldest one, with that one's connection. Whether there is a slot.
    pub fn begin_request(&self, signer: Option<Digest>) -> bool {
        if !self.is_balancers() {
            return true;
        }
        let (slots, peer) = match signer {
            Some(certificate) => (&self.pool.signed_requests, Key::Signer(certificate)),
            None => (&self.pool.unsigned_requests, Key::address(self.connection.address)),
        };
        let slot = slots.take(peer, &self.end, Instant::now());
        let has_begun = slot.is_some();
        if !has_begun {
            metrics::counter!("tributary_connections_refused_total", "kind" => slots.kind()).increment(1);
        }
        *self.request.lock() = slot;
        has_begun
    }

    fn is_turned_away(&self) -> bool {
        self.kind.with(|kind| matches!(kind, PeerKind::TurnedAway { .. }))
    }

    /// Whether the peer is authenticated and has a slot.
    pub(crate) fn is_known(&self) -> bool {
        self.kind.with(|kind| kind.is_known())
    }

    /// The certificate of a participant's connection.
    pub(crate) fn member(&self) -> Option<Peer> {
        self.connection.peer.filter(|_| self.kind.with(|kind| matches!(kind, PeerKind::Member { .. })))
    }

    /// A valid operator token was presented: the connection becomes an operator's.
    pub fn promote_to_operator(&self) {
        let key = Key::address(self.connection.address);
        self.promote(&self.pool.operators, key, |slot| PeerKind::Operator { _slot: slot });
    }

    /// A participant's certificate was valid: the connection becomes the participant's, and so do its answers. Of a balancer's
    /// connection, the answer to this request does.
    pub fn promote_to_member(&self, participant: ParticipantId) {
        let peer = Key::Participant(participant);
        self.note_check();
        if self.is_balancers() {
            self.pool.unsent.charge(&self.budget, Some(peer));
        } else if self.promote(&self.pool.members, peer, |slot| PeerKind::Member { _slot: slot }) {
            self.pool.unsent.turn_out(&self.budget, peer);
        }
    }

    /// Whether the peer was unknown and becomes known.
    fn promote(&self, slots: &Slots, peer: Key, known: impl FnOnce(Slot) -> PeerKind) -> bool {
        self.kind.with(|kind| {
            if kind.is_known() {
                return false;
            }
            let Some(slot) = slots.take(peer, &self.end, Instant::now()) else { return false };
            *kind = known(slot);
            true
        })
    }

    pub(crate) async fn answer(self: Arc<Self>, router: Router, request: Request<Body>) -> Response<Body> {
        if self.is_balancers() {
            self.pool.unsent.charge(&self.budget, None);
        }
        let (request, rest) = lend(request);
        let response = self.judge(router, request).await;
        let slot = self.request.lock().take();
        if let Some(rest) = rest
            && (slot.is_some() || !self.is_balancers())
        {
            rest.drain().await;
        }
        let response = self.count(response);
        match slot {
            Some(slot) => response.map(|body| with_slot(body, slot)),
            None => response,
        }
    }

    async fn judge(self: &Arc<Self>, router: Router, mut request: Request<Body>) -> Response<Body> {
        let response = if self.is_turned_away() && !is_worth_a_look(&request) {
            turn_away()
        } else {
            request.extensions_mut().insert(self.connection);
            request.extensions_mut().insert(Arc::clone(self));
            match router.oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        };
        if self.is_turned_away() {
            self.leave();
        }
        response
    }

    /// Keeps unsent answers within limits.
    fn count(&self, response: Response<Body>) -> Response<Body> {
        let (mut parts, body) = response.into_parts();
        let body = match parts.extensions.remove::<Waits>() {
            Some(Waits) => Some(self.budget.send_as_it_comes(body)),
            None => self.budget.send(body),
        };
        if let Some(body) = body {
            return Response::from_parts(parts, body);
        }
        metrics::counter!("tributary_answers_unread_total").increment(1);
        // Without a body, which would have to be read too.
        parts.status = StatusCode::SERVICE_UNAVAILABLE;
        parts.headers.clear();
        parts.headers.insert(header::RETRY_AFTER, COME_BACK_S.into());
        Response::from_parts(parts, Body::empty())
    }

    /// How long an unknown peer may stay, and after how long without a request that was served a known one is checked.
    pub(crate) fn lifetime(&self, timeouts: &Timeouts) -> Duration {
        if self.is_turned_away() { timeouts.header } else { timeouts.stranger }
    }

    /// The peer's credentials were just looked at.
    pub(crate) fn note_check(&self) {
        *self.checked_at.lock() = Instant::now();
    }

    /// Resolves when the peer's credentials have not been looked at for its [`Self::lifetime`].
    pub(crate) async fn unchecked(&self, timeouts: &Timeouts) {
        loop {
            let due = *self.checked_at.lock() + self.lifetime(timeouts);
            if due <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(due).await;
        }
    }

    /// Closes the connection once all requests are answered.
    pub(crate) fn leave(&self) {
        self.leave.cancel();
    }

    /// Resolves when the connection must close at once.
    pub(crate) async fn ended(&self) {
        self.end.cancelled().await;
    }

    /// Resolves when the connection must close once all requests are answered.
    pub(crate) async fn left(&self) {
        self.leave.cancelled().await;
    }

    /// Resolves when the peer has not read an answer for this long.
    pub(crate) async fn stalled(&self, patience: Duration) {
        self.budget.stalled(patience).await;
    }
}

/// Requests that are served even without a slot: the peer may turn out to be an operator, and health checks must not
/// fail.
fn is_worth_a_look(request: &Request<Body>) -> bool {
    request.headers().contains_key(header::AUTHORIZATION) || request.uri().path() == route::HEALTHZ
}

fn turn_away() -> Response<Body> {
    static PROBLEM: LazyLock<Bytes> = LazyLock::new(|| {
        let detail = format!("the limit of connections is reached; come back in {COME_BACK_S} s");
        serde_json::to_vec(&Problem::new(ProblemType::Unavailable, detail)).unwrap_or_default().into()
    });
    let mut response = Response::new(Body::from(PROBLEM.clone()));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_PROBLEM));
    response.headers_mut().insert(header::RETRY_AFTER, COME_BACK_S.into());
    response
}
