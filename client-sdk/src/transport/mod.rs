//! The connection to the coordinator: [requests and responses](request), their HTTP encoding ([`contract`]), and
//! errors that distinguish whether a retry can help.
//!
//! The trait is small, to be wrapped (a flaky network in a test, a vanishing participant in a demo) or replaced, as in a simulation.
//! It transfers bytes and has no state; [`retry`] decides on retries. An app with its own HTTP client implements [`Carrier`], over
//! which [`HttpTransport`] is a transport.

pub(crate) mod address;
pub mod carried;
#[cfg(feature = "https")]
mod connection;
pub mod contract;
mod download;
mod error;
#[cfg(feature = "https")]
pub mod https;
pub mod request;
pub mod retry;
mod signed;
mod traffic;

use std::sync::Arc;

use async_trait::async_trait;
use wire::participant::ModelRef;
use wire::{Attempt, TaskId, TraceContext};

use crate::identity::Identity;

pub use carried::{Carrier, HttpAnswer, HttpTransport, Pieces};
#[cfg(feature = "https")]
pub use connection::advice::advice;
pub use contract::HttpRequest;
pub use download::Download;
pub use error::TransportError;
pub(crate) use error::with_causes;
#[cfg(feature = "https")]
pub use forward_proxy::{BadProxy, Proxy, ProxyServer};
#[cfg(feature = "https")]
pub use https::{HttpsTransport, ServerRoots, proxy_towards};
pub use request::{Abandonment, Manifest, Part, Request, RequestProperties, Response, Upload};
pub use signed::RequestSigner;
pub use traffic::Traffic;

/// A way to the coordinator.
///
/// Futures may be dropped at any time; every request may be repeated.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Uses this identity from now on. Called before the first request that needs one, and after each renewal.
    ///
    /// # Errors
    /// [`TransportError::Protocol`] if the certificate cannot be used.
    fn identify(&self, identity: &Identity) -> Result<(), TransportError>;

    /// Adds this trace context to later requests about this attempt only. Called on entering a round with tracing by
    /// the coordinator. A transport without traces ignores it.
    fn follow(&self, _place: Attempt, _context: TraceContext) {}

    /// Bytes sent and received since creation. The default, for a transport without counters, is zero.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    /// Sends a request and returns the response of its kind.
    async fn send(&self, request: &Request) -> Response;

    /// Appends a model version's safetensors file, from byte `sink.bytes()` on, to `sink`, which must not grow beyond
    /// `model.bytes`. After an error `sink` keeps the bytes received, and the next call continues from there.
    async fn fetch_model(&self, task: TaskId, model: &ModelRef, sink: &mut Download) -> Result<(), TransportError>;
}

#[async_trait]
impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn identify(&self, identity: &Identity) -> Result<(), TransportError> {
        (**self).identify(identity)
    }

    fn follow(&self, place: Attempt, context: TraceContext) {
        (**self).follow(place, context);
    }

    fn traffic(&self) -> Traffic {
        (**self).traffic()
    }

    async fn send(&self, request: &Request) -> Response {
        (**self).send(request).await
    }

    async fn fetch_model(&self, task: TaskId, model: &ModelRef, sink: &mut Download) -> Result<(), TransportError> {
        (**self).fetch_model(task, model, sink).await
    }
}
