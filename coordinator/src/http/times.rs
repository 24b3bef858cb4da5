//! Time limits of requests, by the kind of endpoint.

use std::sync::Arc;
use std::time::Duration;

use axum::middleware::from_fn_with_state;
use axum::routing::MethodRouter;
use utoipa_axum::router::UtoipaMethodRouter;

use super::app::App;
use super::trace::within;
use crate::config::HttpConfig;

/// Handlers of one path with their descriptions.
type Endpoint = UtoipaMethodRouter<Arc<App>>;

/// Maximum durations of requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    request: Duration,
    poll: Duration,
    upload: Duration,
}

impl Times {
    pub(super) fn new(config: &HttpConfig) -> Self {
        let request = config.request_timeout();
        Self { request, poll: config.poll_max() + request, upload: config.upload_timeout() }
    }

    /// For endpoints with immediate responses.
    pub(super) fn short(self, endpoint: Endpoint) -> Endpoint {
        limit_all(endpoint, self.request)
    }

    pub(super) fn poll(self, endpoint: Endpoint) -> Endpoint {
        limit_all(endpoint, self.poll)
    }

    /// For uploads of updates.
    pub(super) fn upload(self, endpoint: Endpoint) -> Endpoint {
        limit_all(endpoint, self.upload)
    }

    /// For undocumented endpoints with immediate responses.
    pub(super) fn short_undescribed(self, routes: MethodRouter<Arc<App>>) -> MethodRouter<Arc<App>> {
        limit(routes, self.request)
    }
}

fn limit_all((schemas, paths, routes): Endpoint, time: Duration) -> Endpoint {
    (schemas, paths, limit(routes, time))
}

fn limit(routes: MethodRouter<Arc<App>>, time: Duration) -> MethodRouter<Arc<App>> {
    routes.layer(from_fn_with_state(time, within))
}
