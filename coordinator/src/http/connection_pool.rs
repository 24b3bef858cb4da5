//! One connection: the classification of its peer, how long it may stay, and its limits.
//!
//! A participant is recognized by the handshake's certificate, if valid, or by the first request with such a
//! certificate; an operator by the first valid token. Every other peer, whatever its certificate, is a stranger.
//! Strangers share a few slots for a short time, so known peers never wait for them.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use federation::id::ParticipantId;
use http::{HeaderValue, Request, Response, StatusCode, header};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use wire::headers::MEDIA_PROBLEM;
use wire::problem::{Problem, ProblemType};
use wire::route;

use super::connection::Connection;
use super::crowds::Crowds;
use super::drain::lend;
use super::limits::Key;
use super::places::{Bounds, Crowded, Place, Places};
use super::unsent::{Account, Unsent};
use crate::config::HttpConfig;
use crate::guarded::Guarded;
use crate::identity::Peer;

/// When a rejected peer may come back.
const COME_BACK_S: u16 = 15;
/// Age after which a connection in the handshake, or being told that there is no room, may be closed to make room.
const ARRIVING_GRACE: Duration = Duration::from_secs(2);
/// Current connections of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// In the handshake, or being told that there is no room.
    pub arriving: usize,
    /// Without good credentials.
    pub strangers: usize,
    /// With a participant's certificate.
    pub members: usize,
    /// With an operator token.
    pub operators: usize,
    /// Bytes of answers that no socket has taken yet.
    pub unsent_bytes: usize,
}

/// All connections of a listener. Clones share them.
#[derive(Clone)]
pub(super) struct ConnectionPool {
    arriving: Places,
    strangers: Places,
    members: Places,
    operators: Places,
    unsent: Arc<Unsent>,
}

impl ConnectionPool {
    pub(super) fn new(crowds: Crowds, unsent: Unsent) -> Self {
        let grace = Crowded::EndOldest(ARRIVING_GRACE);
        let arriving = Bounds { all: (crowds.arriving, grace), each: (crowds.arriving.div_ceil(2), grace) };
        let strangers =
            Bounds { all: (crowds.strangers, Crowded::Refuse), each: (crowds.each_address, Crowded::Refuse) };
        // A device that lost its network leaves dead connections behind.
        let each_member = (crowds.each_member, Crowded::EndOldest(Duration::ZERO));
        let members = Bounds { all: (crowds.members, Crowded::Refuse), each: each_member };
        let operators = (crowds.operators, Crowded::Refuse);
        let operators = Bounds { all: operators, each: operators };
        Self {
            arriving: Places::new("arriving", arriving),
            strangers: Places::new("strangers", strangers),
            members: Places::new("participants", members),
            operators: Places::new("operators", operators),
            unsent: Arc::new(unsent),
        }
    }

    /// A slot for a new connection that `end` closes; `None` if there are too many new ones.
    pub(super) fn arrive(&self, address: std::net::IpAddr, end: &CancellationToken) -> Option<Place> {
        self.arriving.take(Key::address(address), end, Instant::now())
    }

    pub(super) fn held(&self) -> Held {
        Held {
            arriving: self.arriving.taken(),
            strangers: self.strangers.taken(),
            members: self.members.taken(),
            operators: self.operators.taken(),
            unsent_bytes: self.unsent.bytes(),
        }
    }
}

/// Classification of the peer.
enum Standing {
    Member {
        _place: Place,
    },
    Operator {
        _place: Place,
    },
    Stranger {
        _place: Place,
    },
    /// There is no slot for it, and it is told so.
    TurnedAway {
        _place: Place,
    },
}

impl Standing {
    fn is_known(&self) -> bool {
        match self {
            Self::Member { .. } | Self::Operator { .. } => true,
            Self::Stranger { .. } | Self::TurnedAway { .. } => false,
        }
    }
}

/// A connection after its handshake.
pub(super) struct ConnectionGuard {
    connection: Connection,
    pool: ConnectionPool,
    standing: Guarded<Standing>,
    account: Account,
    /// Closes the connection at once.
    end: CancellationToken,
    /// Closes it when all requests are answered.
    leave: CancellationToken,
}

impl ConnectionGuard {
    /// Takes a slot for a new peer: a participant's if its certificate is valid, otherwise a stranger's.
    pub(super) fn begin(
        pool: &ConnectionPool,
        connection: Connection,
        member: Option<ParticipantId>,
        arrived: Place,
        end: CancellationToken,
    ) -> Self {
        let (places, peer) = match member {
            Some(participant) => (&pool.members, Key::Participant(participant)),
            None => (&pool.strangers, Key::address(connection.address)),
        };
        let standing = match (places.take(peer, &end, Instant::now()), member) {
            (Some(place), Some(_)) => Standing::Member { _place: place },
            (Some(place), None) => Standing::Stranger { _place: place },
            (None, _) => {
                let what = if member.is_some() { "participants" } else { "strangers" };
                metrics::counter!("tributary_connections_refused_total", "kind" => what).increment(1);
                Standing::TurnedAway { _place: arrived }
            }
        };
        let account = pool.unsent.account(peer);
        let leave = CancellationToken::new();
        Self { connection, pool: pool.clone(), standing: Guarded::new(standing), account, end, leave }
    }

    fn is_turned_away(&self) -> bool {
        self.standing.with(|standing| matches!(standing, Standing::TurnedAway { .. }))
    }

    /// Whether the peer is authenticated and has a slot.
    pub(super) fn is_known(&self) -> bool {
        self.standing.with(|standing| standing.is_known())
    }

    /// The certificate of a participant's connection.
    pub(super) fn member(&self) -> Option<Peer> {
        self.connection.peer.filter(|_| self.standing.with(|standing| matches!(standing, Standing::Member { .. })))
    }

    /// A valid operator token was presented: the connection becomes an operator's.
    pub(super) fn promote_to_operator(&self) {
        let key = Key::address(self.connection.address);
        self.promote(&self.pool.operators, key, |place| Standing::Operator { _place: place });
    }

    /// A participant's certificate was valid: the connection becomes the participant's, and so do its answers.
    pub(super) fn promote_to_member(&self, participant: ParticipantId) {
        let peer = Key::Participant(participant);
        if self.promote(&self.pool.members, peer, |place| Standing::Member { _place: place }) {
            self.pool.unsent.turn_out(&self.account, peer);
        }
    }

    /// Whether the peer was unknown and becomes known.
    fn promote(&self, places: &Places, peer: Key, known: impl FnOnce(Place) -> Standing) -> bool {
        self.standing.with(|standing| {
            if standing.is_known() {
                return false;
            }
            let Some(place) = places.take(peer, &self.end, Instant::now()) else { return false };
            *standing = known(place);
            true
        })
    }

    pub(super) async fn answer(self: Arc<Self>, router: Router, request: Request<Body>) -> Response<Body> {
        let (request, rest) = lend(request);
        let response = self.judge(router, request).await;
        if let Some(rest) = rest {
            rest.drain().await;
        }
        self.count(response)
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
        if let Some(body) = self.account.send(body) {
            return Response::from_parts(parts, body);
        }
        metrics::counter!("tributary_answers_unread_total").increment(1);
        // Without a body, which would have to be read too.
        parts.status = StatusCode::SERVICE_UNAVAILABLE;
        parts.headers.clear();
        parts.headers.insert(header::RETRY_AFTER, COME_BACK_S.into());
        Response::from_parts(parts, Body::empty())
    }

    /// How long an unknown peer may stay, and how often a known one is checked.
    pub(super) fn lifetime(&self, config: &HttpConfig) -> Duration {
        if self.is_turned_away() { config.header_timeout() } else { config.stranger_lifetime() }
    }

    /// Closes the connection once all requests are answered.
    pub(super) fn leave(&self) {
        self.leave.cancel();
    }

    /// Resolves when the connection must close at once.
    pub(super) async fn ended(&self) {
        self.end.cancelled().await;
    }

    /// Resolves when the connection must close once all requests are answered.
    pub(super) async fn left(&self) {
        self.leave.cancelled().await;
    }

    /// Resolves when the peer has not read an answer for this long.
    pub(super) async fn stalled(&self, patience: Duration) {
        self.account.stalled(patience).await;
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
