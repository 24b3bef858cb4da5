//! Verification of tokens by the coordinator, cached by the digests of their secrets.
//!
//! Tokens are revalidated before the cached answer expires. If the coordinator is unreachable, cached tokens stay
//! valid. If it rejects the check as too frequent, they stay valid until the cached answer expires.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use client_sdk::clock::{Clock as _, SystemClock};
use operator_client::Server;
use operator_client::failure::{Exit, Failure};
use recipe::digest::sha256;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use wire::admin::BearerView;
use wire::problem::{Problem, ProblemType};
use wire::{Timestamp, route};

/// Validity of a cached answer. A revocation takes effect within this time.
const COUNTS: Duration = Duration::from_secs(30);
/// Age at which a cached answer is revalidated.
const REFRESH: Duration = Duration::from_secs(25);
/// Validity of a cached rejection.
const UNKNOWN: Duration = Duration::from_secs(5);
/// Pause after the coordinator was unreachable, and after it was busy.
const AWAY: Duration = Duration::from_secs(5);
const BUSY: Duration = Duration::from_secs(1);
/// Timeout of a check. After it the coordinator counts as unreachable.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of unknown tokens checked in parallel.
const STRANGERS: usize = 8;
/// Average interval between checks of unknown tokens, and the maximum backlog, which allows bursts.
const STRANGERS_EVERY: Duration = Duration::from_millis(100);
const STRANGERS_AHEAD: Duration = Duration::from_secs(5);
/// Maximum number of cached tokens. Above it rejected tokens are dropped first, then all.
const REMEMBERED: usize = 10_000;

/// The coordinator's answer about a token.
#[derive(Debug)]
enum CheckResult {
    Bearer(BearerView),
    Unknown,
    /// The coordinator is unreachable or fails.
    Away,
    /// The coordinator answers, but rejects the check as too frequent.
    Busy,
}

impl CheckResult {
    fn of(told: Result<BearerView, Failure>) -> Self {
        let failure = match told {
            Ok(bearer) => return Self::Bearer(bearer),
            Err(failure) => failure,
        };
        match failure.more.status {
            Some(401 | 403) => Self::Unknown,
            Some(500..) => Self::Away,
            Some(_) => Self::Busy,
            // The token cannot be sent.
            None if failure.exit == Exit::Usage => Self::Unknown,
            None => Self::Away,
        }
    }
}

#[derive(Clone, Debug)]
enum CachedAnswer {
    Nothing,
    Unknown,
    Bearer(BearerView),
}

/// The cached state of a token.
#[derive(Clone, Debug)]
struct CachedToken {
    said: CachedAnswer,
    /// Expiry of the cached answer.
    counts: Instant,
    /// Earliest time of the next check.
    again: Instant,
    /// Held during a check.
    asking: Arc<tokio::sync::Mutex<()>>,
}

/// The decision that follows from the cached state.
#[derive(Debug)]
enum TokenState {
    Counts {
        bearer: BearerView,
        /// The answer is valid, but should be revalidated for later requests.
        is_due: bool,
    },
    Unknown,
    /// There is no valid answer, and the coordinator must not be called now.
    Unjudged,
    Ask,
}

impl CachedToken {
    fn new(now: Instant) -> Self {
        Self { said: CachedAnswer::Nothing, counts: now, again: now, asking: Arc::default() }
    }

    fn standing(&self, now: Instant) -> TokenState {
        match &self.said {
            CachedAnswer::Bearer(bearer) if now < self.counts => {
                TokenState::Counts { bearer: bearer.clone(), is_due: now >= self.again }
            }
            CachedAnswer::Unknown if now < self.counts => TokenState::Unknown,
            CachedAnswer::Bearer(_) | CachedAnswer::Unknown | CachedAnswer::Nothing if now < self.again => {
                TokenState::Unjudged
            }
            CachedAnswer::Bearer(_) | CachedAnswer::Unknown | CachedAnswer::Nothing => TokenState::Ask,
        }
    }

    fn hear(&mut self, word: CheckResult, now: Instant) {
        match word {
            CheckResult::Bearer(bearer) => {
                (self.said, self.counts, self.again) = (CachedAnswer::Bearer(bearer), now + COUNTS, now + REFRESH);
            }
            CheckResult::Unknown => {
                (self.said, self.counts, self.again) = (CachedAnswer::Unknown, now + UNKNOWN, now + UNKNOWN)
            }
            CheckResult::Away => {
                self.again = now + AWAY;
                if !self.is_stranger() {
                    self.counts = now + COUNTS;
                }
            }
            CheckResult::Busy => self.again = now + BUSY,
        }
    }

    fn is_stranger(&self) -> bool {
        !matches!(self.said, CachedAnswer::Bearer(_))
    }
}

type Key = [u8; 32];

/// Verifies tokens with the coordinator.
pub(in crate::server) struct Tokens {
    server: Server,
    known: Mutex<BTreeMap<Key, CachedToken>>,
    strangers: Semaphore,
    /// Time of the next check of an unknown token.
    turn: Mutex<Instant>,
}

impl Tokens {
    pub(in crate::server) fn new(server: Server) -> Self {
        let (strangers, turn) = (Semaphore::new(STRANGERS), Mutex::new(Instant::now()));
        Self { server, known: Mutex::default(), strangers, turn }
    }

    /// Returns the owner of a token.
    ///
    /// # Errors
    /// The problem to answer with.
    pub(in crate::server) async fn judge(self: &Arc<Self>, secret: Option<&str>) -> Result<BearerView, Problem> {
        let missing = || Problem::new(ProblemType::Unauthenticated, "this needs a token: `Authorization: Bearer …`");
        let secret = secret.ok_or_else(missing)?;
        let key = sha256(secret.as_bytes()).0;
        let mut known = self.known(&key);
        if matches!(known.standing(Instant::now()), TokenState::Ask) {
            let _alone = Arc::clone(&known.asking).lock_owned().await;
            // Another request may have checked the token in the meantime.
            known = self.known(&key);
            if matches!(known.standing(Instant::now()), TokenState::Ask) {
                known = self.ask(key, &known, self.server.bearing(secret)).await?;
            }
        }
        match known.standing(Instant::now()) {
            TokenState::Counts { bearer, is_due } => {
                if is_due && let Ok(alone) = Arc::clone(&known.asking).try_lock_owned() {
                    let (tokens, server) = (Arc::clone(self), self.server.bearing(secret));
                    tokio::spawn(async move {
                        // A known token may always be revalidated.
                        let _ = tokens.ask(key, &known, server).await;
                        drop(alone);
                    });
                }
                unexpired(bearer, SystemClock::new().now().wall).map_err(|problem| *problem)
            }
            TokenState::Unknown => {
                Err(Problem::new(ProblemType::Unauthenticated, "the token is not known, or counts no more"))
            }
            TokenState::Unjudged | TokenState::Ask => {
                let detail = "the token cannot be judged now: the coordinator is away, or busy; try again later";
                Err(Problem::new(ProblemType::Unavailable, detail))
            }
        }
    }

    /// Checks a token with the coordinator, using that token.
    ///
    /// # Errors
    /// Too many unknown tokens are being checked.
    async fn ask(&self, key: Key, known: &CachedToken, server: Server) -> Result<CachedToken, Problem> {
        let asked = server.get::<BearerView>(route::OPERATOR_TOKEN, &[]);
        let told = if known.is_stranger() {
            let crowded = || {
                Problem::new(ProblemType::Unavailable, "too many unknown tokens are asked about now; try again later")
            };
            if !self.has_turn(Instant::now()) {
                return Err(crowded());
            }
            let permit = tokio::time::timeout(CHECK_TIMEOUT, self.strangers.acquire()).await;
            let _permit = permit.map_err(|_| crowded())?;
            tokio::time::timeout(CHECK_TIMEOUT, asked).await
        } else {
            tokio::time::timeout(CHECK_TIMEOUT, asked).await
        };
        let late = |_| Err(Failure::new(Exit::Connection, format!("no answer within {} s", CHECK_TIMEOUT.as_secs())));
        let told = told.unwrap_or_else(late);
        if let Err(failure) = &told {
            tracing::debug!("a token is not judged, or not known: {}", failure.detail);
        }
        let now = Instant::now();
        let mut all = self.lock();
        // The cache entry may have been dropped in the meantime.
        let heard = all.entry(key).or_insert_with(|| known.clone());
        heard.hear(CheckResult::of(told), now);
        Ok(heard.clone())
    }

    /// Whether another unknown token may be checked: bursts are allowed, ten per second on average.
    fn has_turn(&self, now: Instant) -> bool {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let next = (*turn).max(now);
        let is_admitted = next - now <= STRANGERS_AHEAD;
        if is_admitted {
            *turn = next + STRANGERS_EVERY;
        }
        is_admitted
    }

    fn known(&self, key: &Key) -> CachedToken {
        let mut all = self.lock();
        if all.len() >= REMEMBERED && !all.contains_key(key) {
            all.retain(|_, known| !known.is_stranger());
            if all.len() >= REMEMBERED {
                all.clear();
            }
        }
        all.entry(*key).or_insert_with(|| CachedToken::new(Instant::now())).clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, CachedToken>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unexpired(bearer: BearerView, now: Timestamp) -> Result<BearerView, Box<Problem>> {
    match bearer.expires_at.filter(|end| *end <= now) {
        None => Ok(bearer),
        Some(end) => Err(Box::new(Problem::new(ProblemType::Unauthenticated, format!("the token expired at {end}")))),
    }
}

#[cfg(test)]
mod tests {
    use client_sdk::transport::Proxy;
    use tokio::net::TcpListener;
    use wire::admin::Role;

    use super::*;

    fn bearer() -> BearerView {
        BearerView { name: "ward".to_owned(), role: Role::Predictor, expires_at: None, tasks: None }
    }

    /// Tokens with a coordinator that accepts connections and sends nothing.
    async fn of_a_silent_coordinator() -> (Arc<Tokens>, TcpListener) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        (Arc::new(Tokens::new(Server::with_ca(url, None, "viewer".to_owned(), &Proxy::none()).unwrap())), listener)
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_coordinator_holds_nobody_up_whom_it_knew() {
        let (tokens, _listener) = of_a_silent_coordinator().await;
        let key = sha256(b"secret").0;
        let mut known = CachedToken::new(Instant::now());
        known.hear(CheckResult::Bearer(bearer()), Instant::now());
        tokens.lock().insert(key, known);
        let took = async || {
            let began = Instant::now();
            assert!(tokens.judge(Some("secret")).await.is_ok());
            began.elapsed()
        };
        tokio::time::advance(REFRESH).await;
        assert_eq!(took().await, Duration::ZERO, "it is asked for those who come later");
        tokio::time::sleep(10 * COUNTS).await;
        let first = took().await;
        assert!(first >= CHECK_TIMEOUT && first < 2 * CHECK_TIMEOUT, "{first:?}");
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(took().await, Duration::ZERO);
        }
        let began = Instant::now();
        let (one, other) = tokio::join!(tokens.judge(Some("other")), tokens.judge(Some("other")));
        assert_eq!((one.unwrap_err().status, other.unwrap_err().status), (503, 503));
        assert!(began.elapsed() < 2 * CHECK_TIMEOUT, "it is asked once");
        assert_eq!(tokens.judge(Some("other")).await.unwrap_err().status, 503);
        assert!(began.elapsed() < 2 * CHECK_TIMEOUT, "and not again at once");
    }

    #[tokio::test(start_paused = true)]
    async fn many_invented_tokens_are_not_all_asked_about() {
        let (tokens, _listener) = of_a_silent_coordinator().await;
        let now = Instant::now();
        assert_eq!((0..1000).filter(|_| tokens.has_turn(now)).count(), 51);
        assert!(tokens.has_turn(now + STRANGERS_EVERY) && !tokens.has_turn(now + STRANGERS_EVERY));
        assert!(tokens.judge(Some("invented")).await.unwrap_err().detail.unwrap().contains("too many unknown tokens"));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_coordinator_that_is_away_prolongs_its_last_word() {
        let second = Duration::from_secs(1);
        let refused = |status: u16| {
            let mut failure = Failure::new(Exit::Unavailable, "refused");
            failure.more.status = Some(status);
            CheckResult::of(Err(failure))
        };
        for (word, is_away) in [
            (CheckResult::of(Err(Failure::new(Exit::Connection, "no answer"))), true),
            (refused(500), true),
            (refused(503), true),
            (refused(429), false),
            (refused(404), false),
        ] {
            let told = format!("{word:?}");
            let (mut known, now) = (CachedToken::new(Instant::now()), Instant::now());
            known.hear(CheckResult::Bearer(bearer()), now);
            known.hear(word, now + 29 * second);
            assert!(matches!(known.standing(now + 29 * second), TokenState::Counts { .. }), "{told}");
            let later = known.standing(now + 31 * second);
            assert_eq!(matches!(later, TokenState::Counts { .. }), is_away, "{told}: {later:?}");
        }
        let (mut known, now) = (CachedToken::new(Instant::now()), Instant::now());
        known.hear(CheckResult::Bearer(bearer()), now);
        known.hear(refused(429), now + 40 * second);
        assert!(matches!(known.standing(now + 40 * second), TokenState::Unjudged));
        assert!(matches!(known.standing(now + 41 * second), TokenState::Ask));
        known.hear(refused(401), now + 41 * second);
        assert!(matches!(known.standing(now + 42 * second), TokenState::Unknown));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_is_remembered_ends_when_it_expires() {
        let (tokens, _listener) = of_a_silent_coordinator().await;
        let ends = |end: Timestamp| BearerView { expires_at: Some(end), ..bearer() };
        for (secret, end, refused) in [("past", Timestamp(1), Some(401)), ("2096", Timestamp(4_000_000_000_000), None)]
        {
            let mut known = CachedToken::new(Instant::now());
            known.hear(CheckResult::Bearer(ends(end)), Instant::now());
            tokens.lock().insert(sha256(secret.as_bytes()).0, known);
            let judged = tokens.judge(Some(secret)).await;
            assert_eq!(judged.err().map(|problem| problem.status), refused, "{secret}");
        }
        let end = Timestamp(1000);
        assert!(unexpired(ends(end), Timestamp(999)).is_ok());
        assert!(unexpired(ends(end), end).unwrap_err().detail.as_ref().unwrap().contains("expired at"));
    }
}
