//! HTTPS: TLS 1.3 through rustls with the ring provider, HTTP/2 or 1.1. Either one pinned CA and the participant's certificate
//! in the handshake, or signed requests to a balancer that ends TLS ([`RequestSigner`]).

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use bytes::Bytes;
use forward_proxy::{Proxy, ProxyServer};
use http::uri::Authority;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use wire::participant::ModelRef;
use wire::{Attempt, TaskId, TraceContext};

use super::address::authority;
use super::connection::client::{Client, Roots};
use super::{
    Carrier, Download, HttpAnswer, HttpTransport, Pieces, Request, RequestSigner, Response, Traffic, Transport,
    TransportError,
};
use crate::clock::Clock;
use crate::identity::Identity;

/// A connection to one coordinator.
pub struct HttpsTransport(HttpTransport<Https>);

/// The authorities for the certificate of a balancer that ends TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerRoots {
    /// The authorities that this device trusts, as a browser does.
    Device,
    /// Only these, in PEM.
    Pem(String),
}

impl HttpsTransport {
    /// Checks the address and the CA without connecting.
    ///
    /// # Errors
    /// [`TransportError::Protocol`] if the address is not `https://…` or the CA is not a certificate in PEM.
    pub fn new(server: &str, ca_pem: &str) -> Result<Self, TransportError> {
        Ok(Self(HttpTransport::new(Https::new(authority(server)?, Roots::pinned(ca_pem)?)?)))
    }

    /// Creates a transport to a coordinator behind a balancer that ends TLS: requests are signed, without a certificate in the
    /// handshake.
    ///
    /// # Errors
    /// [`TransportError::Protocol`] if the address is not `https://…`, or the authorities cannot be used.
    pub fn signed(server: &str, roots: &ServerRoots, clock: Arc<dyn Clock>) -> Result<Self, TransportError> {
        let server = authority(server)?;
        let roots = match roots {
            ServerRoots::Device => Roots::Device,
            ServerRoots::Pem(pem) => Roots::pinned(pem)?,
        };
        let signer = RequestSigner::new(server.as_str(), clock);
        Ok(Self(HttpTransport::signed(Https::new(server, roots)?, signer)))
    }

    /// The same through the proxy that this setting names, if any; without this call, directly.
    ///
    /// # Errors
    /// [`TransportError`] if the proxy's address in the environment cannot be used.
    pub fn through(mut self, proxy: &Proxy) -> Result<Self, TransportError> {
        let https = self.0.carrier_mut();
        https.proxy = proxy_towards(&format!("https://{}", https.server), proxy)?;
        let client = Client::new(https.server.clone(), &https.roots, None, https.proxy.as_ref())?;
        https.client = RwLock::new(client);
        Ok(self)
    }

    /// Host and port of the coordinator, without the port if it is 443.
    #[must_use]
    pub fn server(&self) -> &str {
        self.0.carrier().server.as_str()
    }
}

/// The forward proxy that leads to a coordinator, `https://HOST[:PORT]`; `None` for a direct connection.
///
/// # Errors
/// [`TransportError`] if the coordinator's address, or that of the proxy in the environment, cannot be used.
pub fn proxy_towards(server: &str, proxy: &Proxy) -> Result<Option<ProxyServer>, TransportError> {
    let server = format!("https://{}", authority(server)?).parse().map_err(TransportError::protocol)?;
    proxy.towards(&server).map_err(TransportError::unreachable)
}

#[async_trait]
impl Transport for HttpsTransport {
    fn identify(&self, identity: &Identity) -> Result<(), TransportError> {
        self.0.identify(identity)
    }

    fn follow(&self, place: Attempt, context: TraceContext) {
        self.0.follow(place, context);
    }

    fn traffic(&self) -> Traffic {
        self.0.traffic()
    }

    async fn send(&self, request: &Request) -> Response {
        self.0.send(request).await
    }

    async fn fetch_model(&self, task: TaskId, model: &ModelRef, sink: &mut Download) -> Result<(), TransportError> {
        self.0.fetch_model(task, model, sink).await
    }
}

/// The SDK's own client.
struct Https {
    server: Authority,
    roots: Roots,
    proxy: Option<ProxyServer>,
    /// Replaced with the certificate, unless requests are signed.
    client: RwLock<Client>,
}

impl Https {
    fn new(server: Authority, roots: Roots) -> Result<Self, TransportError> {
        let client = RwLock::new(Client::new(server.clone(), &roots, None, None)?);
        Ok(Self { server, roots, proxy: None, client })
    }

    fn client(&self) -> Client {
        self.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Carrier for Https {
    fn identify(&self, identity: &Identity) -> Result<(), TransportError> {
        let client = Client::new(self.server.clone(), &self.roots, Some(identity), self.proxy.as_ref())?;
        *self.client.write().unwrap_or_else(PoisonError::into_inner) = client;
        Ok(())
    }

    async fn send(&self, request: http::Request<Bytes>) -> Result<HttpAnswer, TransportError> {
        let answer = self.client().send(request).await?;
        Ok(answer.map(|body| Box::new(Frames(body)) as Box<dyn Pieces>))
    }
}

/// A body of hyper's.
struct Frames(Incoming);

#[async_trait]
impl Pieces for Frames {
    async fn next(&mut self) -> Option<Result<Bytes, TransportError>> {
        loop {
            match self.0.frame().await?.map(Frame::into_data) {
                Ok(Ok(data)) => return Some(Ok(data)),
                // Trailers are irrelevant to a participant.
                Ok(Err(_)) => {}
                Err(error) => return Some(Err(TransportError::unreachable(error))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ca() -> String {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap().pem()
    }

    #[test]
    fn addresses_and_authorities_are_checked_at_once() {
        assert!(HttpsTransport::new("https://localhost:8443", &ca()).is_ok());
        let error = |server: &str, ca: &str| HttpsTransport::new(server, ca).map(|_| ()).unwrap_err().to_string();
        assert!(error("http://localhost", &ca()).contains("https://"));
        assert!(error("localhost:8443", &ca()).contains("https://"));
        assert!(error("https://localhost", "").contains("no certificate"));
        let bad = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(error("https://localhost", bad).contains("the CA cannot be used"));
    }
}
