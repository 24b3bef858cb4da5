//! One connection: what its peer is taken for, how long it may stay, and what keeps it within its bounds.
//!
//! Participants are known by the certificate of the handshake, if one of them has it and it is good, or by the first
//! request that such a certificate makes; operators by the first good token. Everybody else, with whatever certificate, is a
//! stranger, who shares a few places with all other strangers and not for long: those who are known never wait for them.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};
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
use super::drain::lend;
use super::limits::Key;
use super::places::{Bounds, Crowded, Place, Places};
use super::settings::{Crowds, ServeSettings};
use super::unsent::{Account, Unsent};
use crate::identity::Peer;

/// When whoever got no place may come back.
const COME_BACK_S: u16 = 15;
/// A connection that shakes hands, or is told that there is no place, has this much time; then it goes for a new one when
/// there are too many.
const ARRIVING_GRACE: Duration = Duration::from_secs(2);
/// Connections that a listener holds now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Those that shake hands, or are told that there is no place.
    pub arriving: usize,
    /// Without good credentials.
    pub strangers: usize,
    /// With a certificate that a participant has.
    pub members: usize,
    /// With an operator's token.
    pub operators: usize,
    /// Bytes of answers that no socket has taken yet.
    pub unsent_bytes: usize,
}

/// Every connection of a listener. Clones share it.
#[derive(Clone)]
pub(super) struct Hall {
    arriving: Places,
    strangers: Places,
    members: Places,
    operators: Places,
    unsent: Arc<Unsent>,
}

impl Hall {
    pub(super) fn new(crowds: Crowds, unsent: Unsent) -> Self {
        let grace = Crowded::EndOldest(ARRIVING_GRACE);
        let arriving = Bounds { all: (crowds.arriving, grace), each: (crowds.arriving.div_ceil(2), grace) };
        let strangers =
            Bounds { all: (crowds.strangers, Crowded::Refuse), each: (crowds.each_address, Crowded::Refuse) };
        // A device that lost its line leaves connections behind that nobody has missed yet.
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

    /// A place for a connection that `end` ends; none if there are too many that have only just come.
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

/// What the peer is taken for.
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
    /// There is no place for it; it is told so.
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

/// A connection whose handshake is over.
pub(super) struct Visit {
    connection: Connection,
    hall: Hall,
    standing: Mutex<Standing>,
    account: Account,
    /// Ends the connection at once.
    end: CancellationToken,
    /// Ends it when what was asked is answered.
    leave: CancellationToken,
}

impl Visit {
    /// Finds a place for a peer that has arrived: the participant's whose certificate is good, or a stranger's.
    pub(super) fn begin(
        hall: &Hall,
        connection: Connection,
        member: Option<ParticipantId>,
        arrived: Place,
        end: CancellationToken,
    ) -> Self {
        let (places, peer) = match member {
            Some(participant) => (&hall.members, Key::Participant(participant)),
            None => (&hall.strangers, Key::address(connection.address)),
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
        let account = hall.unsent.account(peer);
        let leave = CancellationToken::new();
        Self { connection, hall: hall.clone(), standing: Mutex::new(standing), account, end, leave }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Standing) -> T) -> T {
        act(&mut self.standing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_turned_away(&self) -> bool {
        self.with(|standing| matches!(standing, Standing::TurnedAway { .. }))
    }

    /// Whether the peer has shown credentials, and there was a place for it.
    pub(super) fn is_known(&self) -> bool {
        self.with(|standing| standing.is_known())
    }

    /// The certificate that a participant's place was given for, if this has one.
    pub(super) fn member(&self) -> Option<Peer> {
        self.connection.peer.filter(|_| self.with(|standing| matches!(standing, Standing::Member { .. })))
    }

    /// An operator's token was good: the connection is an operator's from now on.
    pub(super) fn promote_to_operator(&self) {
        let key = Key::address(self.connection.address);
        self.promote(&self.hall.operators, key, |place| Standing::Operator { _place: place });
    }

    /// This participant's certificate was good: the connection is the participant's from now on, and so is what is answered.
    pub(super) fn promote_to_member(&self, participant: ParticipantId) {
        let peer = Key::Participant(participant);
        if self.promote(&self.hall.members, peer, |place| Standing::Member { _place: place }) {
            self.hall.unsent.turn_out(&self.account, peer);
        }
    }

    /// Whether it was not known and is from now on.
    fn promote(&self, places: &Places, peer: Key, known: impl FnOnce(Place) -> Standing) -> bool {
        self.with(|standing| {
            if standing.is_known() {
                return false;
            }
            let Some(place) = places.take(peer, &self.end, Instant::now()) else { return false };
            *standing = known(place);
            true
        })
    }

    /// Answers a request.
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

    /// Sees to it that what is unsent stays within bounds.
    fn count(&self, response: Response<Body>) -> Response<Body> {
        let (mut parts, body) = response.into_parts();
        if let Some(body) = self.account.send(body) {
            return Response::from_parts(parts, body);
        }
        metrics::counter!("tributary_answers_unread_total").increment(1);
        // Nothing that would have to be read, too.
        parts.status = StatusCode::SERVICE_UNAVAILABLE;
        parts.headers.clear();
        parts.headers.insert(header::RETRY_AFTER, COME_BACK_S.into());
        Response::from_parts(parts, Body::empty())
    }

    /// How long it may stay if its peer stays unknown, and how often it is asked whether a known one still is.
    pub(super) fn lifetime(&self, settings: &ServeSettings) -> Duration {
        if self.is_turned_away() { settings.header_timeout } else { settings.stranger_lifetime }
    }

    /// Ends the connection once what was asked is answered.
    pub(super) fn leave(&self) {
        self.leave.cancel();
    }

    /// Resolves when the connection has to end at once.
    pub(super) async fn ended(&self) {
        self.end.cancelled().await;
    }

    /// Resolves when the connection has to end once what was asked is answered.
    pub(super) async fn left(&self) {
        self.leave.cancelled().await;
    }

    /// Resolves when the peer has not read an answer for so long.
    pub(super) async fn stalled(&self, patience: Duration) {
        self.account.stalled(patience).await;
    }
}

/// What is answered even where there is no place: an operator may be among those for whom there was none, and whoever
/// looks after the service must not take it for dead.
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
