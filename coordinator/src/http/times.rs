//! Time limits of requests, by the kind of endpoint.

use std::sync::Arc;
use std::time::Duration;

use axum::middleware::from_fn_with_state;
use axum::routing::MethodRouter;
use utoipa_axum::router::UtoipaMethodRouter;

use super::app::{App, Settings};
use super::trace::within;

/// Handlers of one path with their descriptions.
type Endpoint = UtoipaMethodRouter<Arc<App>>;

#[derive(Clone, Copy)]
pub(super) struct Times(Settings);

impl Times {
    pub(super) fn new(settings: Settings) -> Self {
        Self(settings)
    }

    /// Answers at once.
    pub(super) fn short(self, endpoint: Endpoint) -> Endpoint {
        limit_all(endpoint, self.0.request_timeout)
    }

    /// May wait for a change.
    pub(super) fn poll(self, endpoint: Endpoint) -> Endpoint {
        limit_all(endpoint, self.0.poll_max + self.0.request_timeout)
    }

    /// Receives an update.
    pub(super) fn upload(self, endpoint: Endpoint) -> Endpoint {
        limit_all(endpoint, self.0.upload_timeout)
    }

    /// Answers at once, and is not described.
    pub(super) fn short_undescribed(self, routes: MethodRouter<Arc<App>>) -> MethodRouter<Arc<App>> {
        limit(routes, self.0.request_timeout)
    }
}

fn limit_all((schemas, paths, routes): Endpoint, time: Duration) -> Endpoint {
    (schemas, paths, limit(routes, time))
}

fn limit(routes: MethodRouter<Arc<App>>, time: Duration) -> MethodRouter<Arc<App>> {
    routes.layer(from_fn_with_state(time, within))
}
