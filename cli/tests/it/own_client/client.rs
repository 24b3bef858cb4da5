//! An app's HTTP client: reqwest's, over TLS 1.3, on a network where each request fails a few times in one way or another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};

use bytes::Bytes;
use client_sdk::runner::{Exchange, HttpClient, OutgoingRequest};
use client_sdk::transport::TransportError;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::runtime::Handle;

/// Fate of one sending of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The request is dropped before it reaches the coordinator.
    NotSent,
    /// The coordinator answers, and the client drops the exchange.
    AnswerLost,
    /// Half of the answer's body arrives.
    CutOff,
    /// A second head comes in the middle of the body.
    TwoHeads,
    /// The whole answer arrives, and then comes once more.
    AnsweredTwice,
}

impl Fate {
    /// The faults of each request, in this order but for where it begins; afterwards all answers arrive.
    pub(super) const WRONG: [Self; 4] = [Self::NotSent, Self::AnswerLost, Self::CutOff, Self::TwoHeads];
}

/// One sending of a request.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    /// Method and path, such as `POST /v1/enroll`, without the query.
    pub(super) line: String,
    /// From which byte on a model is wanted.
    pub(super) range: Option<String>,
    pub(super) fate: Fate,
    /// The coordinator's status.
    pub(super) status: Option<u16>,
    /// Something was still wanted after the end of the answer.
    pub(super) was_taken_twice: bool,
}

/// The app's HTTP client of one participant. Clones are the same client.
#[derive(Clone)]
pub(super) struct Own(Arc<Inner>);

struct Inner {
    server: String,
    ca_pem: String,
    /// Where among [`Fate::WRONG`] the troubles of each request begin.
    first: usize,
    /// The client's own threads: a large answer waits there until it is read.
    threads: Handle,
    /// Replaced with the certificate.
    client: RwLock<reqwest::Client>,
    /// Number of certificates it was given, and its sent requests.
    told: Mutex<(u32, Vec<Sent>)>,
    tries: Mutex<HashMap<String, usize>>,
}

impl Own {
    pub(super) fn new(server: &str, ca_pem: &str, first: usize, threads: Handle) -> Self {
        Self(Arc::new(Inner {
            server: server.to_owned(),
            ca_pem: ca_pem.to_owned(),
            first,
            threads,
            client: RwLock::new(over_tls(ca_pem, None)),
            told: Mutex::default(),
            tries: Mutex::default(),
        }))
    }

    /// How often it was given a certificate to show.
    pub(super) fn identified(&self) -> u32 {
        self.0.told.lock().unwrap().0
    }

    /// All that it sent, in order.
    pub(super) fn sent(&self) -> Vec<Sent> {
        self.0.told.lock().unwrap().1.clone()
    }
}

impl HttpClient for Own {
    fn begin(&self, request: OutgoingRequest, exchange: Exchange) {
        let (place, fate) = self.0.note(&request);
        let inner = Arc::clone(&self.0);
        self.0.threads.spawn(async move { inner.carry_out(place, fate, request, exchange).await });
    }

    fn identify(&self, certificate_pem: &str, key_pkcs8: &[u8]) -> Result<(), TransportError> {
        let client = over_tls(&self.0.ca_pem, Some((certificate_pem, key_pkcs8)));
        *self.0.client.write().unwrap() = client;
        self.0.told.lock().unwrap().0 += 1;
        Ok(())
    }
}

impl Inner {
    /// Decides the fate of a request, and returns its position among those sent.
    fn note(&self, request: &OutgoingRequest) -> (usize, Fate) {
        let path = request.path.split('?').next().unwrap_or_default();
        let line = format!("{} {path}", request.method);
        let mut tries = self.tries.lock().unwrap();
        let tried = tries.entry(line.clone()).or_default();
        let wrong = (*tried < Fate::WRONG.len()).then(|| Fate::WRONG[(*tried + self.first) % Fate::WRONG.len()]);
        *tried += 1;
        let fate = wrong.unwrap_or(Fate::AnsweredTwice);
        let range = request.headers.iter().find(|(name, _)| name == "range").map(|(_, value)| value.clone());
        let mut told = self.told.lock().unwrap();
        told.1.push(Sent { line, range, fate, status: None, was_taken_twice: false });
        (told.1.len() - 1, fate)
    }

    async fn carry_out(&self, place: usize, fate: Fate, request: OutgoingRequest, exchange: Exchange) {
        if fate == Fate::NotSent {
            return exchange.fail("the radio is off");
        }
        let came = match self.send(request).await {
            Ok(answer) => self.pass_on(place, fate, answer, &exchange).await,
            Err(error) => Err(error),
        };
        if let Err(error) = came {
            exchange.fail(error.to_string());
        }
    }

    async fn send(&self, request: OutgoingRequest) -> reqwest::Result<reqwest::Response> {
        let OutgoingRequest { method, path, headers, body } = request;
        let client = self.client.read().unwrap().clone();
        let method = method.parse::<reqwest::Method>().unwrap();
        let mut request = client.request(method, format!("{}{path}", self.server));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.body(body).send().await
    }

    /// Puts an answer into the exchange, as is its fate.
    async fn pass_on(
        &self,
        place: usize,
        fate: Fate,
        mut answer: reqwest::Response,
        exchange: &Exchange,
    ) -> reqwest::Result<()> {
        let status = answer.status().as_u16();
        let text = |value: &reqwest::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = answer.headers().iter().map(|(name, value)| (name.as_str().to_owned(), text(value)));
        let headers: Vec<(String, String)> = headers.collect();
        self.told.lock().unwrap().1[place].status = Some(status);
        match fate {
            Fate::NotSent | Fate::AnswerLost => drop(answer.bytes().await?),
            Fate::CutOff | Fate::TwoHeads => {
                let body = answer.bytes().await?;
                let half = body.len() / 2;
                exchange.head(status, headers.clone());
                exchange.piece(body.slice(..half));
                if fate == Fate::TwoHeads {
                    exchange.head(status, headers);
                    exchange.piece(body.slice(half..));
                    exchange.end();
                } else {
                    exchange.fail("the connection was cut");
                }
            }
            Fate::AnsweredTwice => {
                exchange.head(status, headers.clone());
                while let Some(piece) = answer.chunk().await? {
                    exchange.wait_for_room();
                    if !exchange.piece(piece) {
                        break;
                    }
                }
                exchange.end();
                let is_wanted = exchange.head(status, headers) | exchange.piece(Bytes::from_static(b"once more"));
                exchange.end();
                self.told.lock().unwrap().1[place].was_taken_twice = is_wanted || !exchange.is_over();
            }
        }
        Ok(())
    }
}

/// A client that believes this authority alone, and shows this certificate with its key.
fn over_tls(ca_pem: &str, shown: Option<(&str, &[u8])>) -> reqwest::Client {
    let certificates = |pem: &str| -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().unwrap()
    };
    let mut roots = RootCertStore::empty();
    certificates(ca_pem).into_iter().for_each(|root| roots.add(root).unwrap());
    let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    let tls = match shown {
        Some((chain, key)) => {
            let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.to_vec()));
            tls.with_client_auth_cert(certificates(chain), key).unwrap()
        }
        None => tls.with_no_client_auth(),
    };
    let client = reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().http1_only();
    client.redirect(reqwest::redirect::Policy::none()).build().unwrap()
}
