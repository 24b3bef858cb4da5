//! Signed requests, for a coordinator behind a balancer that ends TLS. Each request carries a signature by the certificate's key
//! ([`wire::signature`]), in place of the client certificate in a TLS handshake.
//!
//! The balancer can read requests and answers, hold them back and answer in the coordinator's place. It cannot change a request,
//! repeat it, or keep it for another day: requests are dated by the coordinator's time alone. The device's clock is not used, since it
//! may be ahead.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use recipe::digest::sha256;
use ring::rand::{SecureRandom as _, SystemRandom};
use wire::Timestamp;
use wire::certificate::chain_der;
use wire::headers::TIME;
use wire::signature::{RequestKey, WINDOW, server_name};

use super::TransportError;
use crate::clock::Clock;
use crate::identity::Identity;

/// The date of a request sent before a coordinator time is known. The coordinator rejects it on any day and returns its time.
const NEVER: Timestamp = Timestamp(0);
/// How long a coordinator time is used: less than its validity, to allow for the transfer.
const TOLD_FOR: Duration = WINDOW.saturating_sub(Duration::from_secs(15));

/// Signs requests for one coordinator. An app's own [`Transport`](super::Transport) can use it, too: sign each request, pass the head
/// of each answer to [`RequestSigner::hear`], and if that returns true, sign and send the same request once more. This happens with
/// the first request, and with the first after a silence of more than 45 s.
pub struct RequestSigner {
    server: String,
    clock: Arc<dyn Clock>,
    key: RwLock<Option<RequestKey>>,
    told: Mutex<Option<ToldTime>>,
}

/// The coordinator's time.
///
/// A TLS-terminating balancer could report a false time, to have requests signed for a later day and send them then. The signature
/// therefore covers this header, and the coordinator accepts only a time with its own MAC.
struct ToldTime {
    header: HeaderValue,
    at: Timestamp,
    /// The time of receipt, by the monotonic clock.
    heard: Duration,
}

impl RequestSigner {
    /// For the coordinator whose balancer has this host, with or without its port.
    #[must_use]
    pub fn new(host: &str, clock: Arc<dyn Clock>) -> Self {
        Self { server: server_name(host), clock, key: RwLock::default(), told: Mutex::default() }
    }

    /// Signs with this identity from now on.
    ///
    /// # Errors
    /// [`TransportError::Protocol`] if its certificate or key cannot be read.
    pub fn identify(&self, identity: &Identity) -> Result<(), TransportError> {
        let chain = chain_der(&identity.certified.certificate_pem).map_err(TransportError::protocol)?;
        let own = chain.first().map(Vec::as_slice).unwrap_or_default();
        let key = RequestKey::new(identity.key.expose_pkcs8(), own).map_err(TransportError::protocol)?;
        *self.key.write().unwrap_or_else(PoisonError::into_inner) = Some(key);
        Ok(())
    }

    /// Signs a request as it is to be sent. Before there is an identity (the enrolment by a token), it stays as it is.
    ///
    /// # Errors
    /// [`TransportError::Protocol`] if the system's randomness is unavailable.
    pub fn sign(&self, request: http::Request<Bytes>) -> Result<http::Request<Bytes>, TransportError> {
        let key = self.key.read().unwrap_or_else(PoisonError::into_inner);
        let Some(key) = &*key else { return Ok(request) };
        let mut nonce = [0; 16];
        SystemRandom::new().fill(&mut nonce).map_err(|_| TransportError::protocol("the system gives no randomness"))?;
        let (mut parts, body) = request.into_parts();
        let created = match self.told() {
            Some((header, time)) => {
                parts.headers.insert(TIME, header);
                time
            }
            None => NEVER,
        };
        let sha256 = (!body.is_empty()).then(|| sha256(&body));
        key.sign(&mut parts, &self.server, sha256, created, nonce);
        Ok(http::Request::from_parts(parts, body))
    }

    /// Whether the next request serves only to get the time.
    #[must_use]
    pub fn lacks_time(&self) -> bool {
        self.key.read().unwrap_or_else(PoisonError::into_inner).is_some() && self.told().is_none()
    }

    /// The coordinator's time now with its signed header, unless the header is too old.
    fn told(&self) -> Option<(HeaderValue, Timestamp)> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = self.clock.now().elapsed;
        told.take_if(|told| elapsed.saturating_sub(told.heard) > TOLD_FOR);
        told.as_ref().map(|told| (told.header.clone(), told.at.plus(elapsed.saturating_sub(told.heard))))
    }

    /// Stores the coordinator's time if an answer carries it. Returns whether the request was rejected for its date, so that signing
    /// it once more at once can succeed.
    pub fn hear(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        let Some(header) = headers.get(TIME) else { return false };
        let at = header.to_str().ok().and_then(|text| text.split_once('.')?.0.parse().ok());
        let Some(at) = at.map(Timestamp) else { return false };
        let told = ToldTime { header: header.clone(), at, heard: self.clock.now().elapsed };
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
        status == StatusCode::UNAUTHORIZED
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
    use wire::ParticipantId;
    use wire::signature::{SIGNATURE_INPUT, SignatureInput};

    use super::*;
    use crate::clock::Now;
    use crate::identity::{Certified, SigningKey};

    /// A clock that tests move: seconds since the start, and by how much the wall clock is wrong.
    #[derive(Default)]
    struct TestClock(Mutex<(u64, i64)>);

    const START: i64 = 1_750_000_000_000;

    impl Clock for TestClock {
        fn now(&self) -> Now {
            let (seconds, wrong) = *self.0.lock().unwrap();
            let elapsed = Duration::from_secs(seconds);
            Now { elapsed, wall: Timestamp(START + wrong).plus(elapsed) }
        }
    }

    fn identity() -> Identity {
        let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let certificate_pem = CertificateParams::new(vec![]).unwrap().self_signed(&pair).unwrap().pem();
        let participant = "00000000-0000-4000-8000-000000000000".parse::<ParticipantId>().unwrap();
        let (expires_at, renew_at) = (Timestamp(0), Timestamp(0));
        let certified = Certified { participant, name: String::new(), certificate_pem, expires_at, renew_at };
        Identity { key: Arc::new(SigningKey::from_pkcs8(&pair.serialize_der()).unwrap()), certified }
    }

    /// The date of a request: seconds from the start, and the coordinator's time if it is given.
    fn dated(signer: &RequestSigner) -> (i64, Option<String>) {
        let request = http::Request::get("/v1/x").body(Bytes::new()).unwrap();
        let request = signer.sign(request).unwrap();
        let text = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let input = SignatureInput::parse(&text(SIGNATURE_INPUT).unwrap()).unwrap();
        assert_eq!(input.components.iter().any(|name| name == TIME), text(TIME).is_some(), "it is signed, too");
        ((input.created.0 - START) / 1000, text(TIME))
    }

    fn told(ms: i64) -> (HeaderMap, String) {
        let time = format!("{ms}.abcd");
        (HeaderMap::from_iter([(http::HeaderName::from_static(TIME), time.parse().unwrap())]), time)
    }

    #[test]
    fn requests_are_dated_by_the_coordinators_time_and_never_by_the_own_clock() {
        // A day ahead: a request dated by it could be kept until then.
        let clock = Arc::new(TestClock(Mutex::new((0, 86_400_000))));
        let signer = RequestSigner::new("fl.example", Arc::<TestClock>::clone(&clock));
        let unsigned = signer.sign(http::Request::get("/v1/x").body(Bytes::new()).unwrap()).unwrap();
        assert!(unsigned.headers().is_empty(), "nobody yet");
        signer.identify(&identity()).unwrap();
        let never = (-START / 1000, None);
        assert_eq!(dated(&signer), never);
        // A TLS-terminating balancer may send any answer and withhold the time.
        for status in [StatusCode::UNAUTHORIZED, StatusCode::OK, StatusCode::BAD_GATEWAY] {
            assert!(!signer.hear(status, &HeaderMap::new()), "there is no time to sign it by");
            assert_eq!(dated(&signer), never);
        }

        let (headers, time) = told(START + 3_600_000);
        assert!(signer.hear(StatusCode::UNAUTHORIZED, &headers));
        // The wall clock may jump now: the signer does not read it.
        *clock.0.lock().unwrap() = (40, -99_000_000);
        assert_eq!(dated(&signer), (3640, Some(time)));
        let (headers, time) = told(START + 3_640_000);
        assert!(!signer.hear(StatusCode::OK, &headers), "a newer time needs no second request");
        *clock.0.lock().unwrap() = (85, 0);
        assert_eq!(dated(&signer), (3685, Some(time)));
        *clock.0.lock().unwrap() = (86, 0);
        assert_eq!(dated(&signer), never);
    }

    #[test]
    fn times_that_are_none_are_not_taken() {
        let clock = Arc::new(TestClock::default());
        let signer = RequestSigner::new("fl.example", clock);
        signer.identify(&identity()).unwrap();
        for text in ["", "1750000000000", "x.abcd", "99999999999999999999.abcd"] {
            let headers = HeaderMap::from_iter([(http::HeaderName::from_static(TIME), text.parse().unwrap())]);
            assert!(!signer.hear(StatusCode::UNAUTHORIZED, &headers), "{text:?}");
            assert_eq!(dated(&signer).1, None);
        }
    }
}
