//! The HTTP client below object_store: it counts requests, notes the server's time and uses a forward proxy.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use federation::time::Timestamp;
use forward_proxy::Proxy;
use http::Uri;
use object_store::client::{
    ClientConfigKey, ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpService,
};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The host's service for credentials is near, or absent.
const CREDENTIALS_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const NEVER: i64 = i64::MIN;

/// The server's time of its last answer that was dated.
pub(super) struct Watch {
    /// Milliseconds since 1970, or [`NEVER`].
    told_ms: AtomicI64,
}

impl Default for Watch {
    fn default() -> Self {
        Self { told_ms: AtomicI64::new(NEVER) }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl Watch {
    fn note(&self, response: &HttpResponse) {
        let date = response.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
        if let Some(date) = date.and_then(|date| OffsetDateTime::parse(date, &Rfc2822).ok()) {
            self.told_ms.store(date.unix_timestamp().saturating_mul(1000), Ordering::Relaxed);
        }
    }

    /// `None` if no answer was dated.
    pub(super) fn server_time(&self) -> Option<Timestamp> {
        Some(self.told_ms.load(Ordering::Relaxed)).filter(|told| *told != NEVER).map(Timestamp)
    }
}

/// Makes the clients of one bucket.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) watch: Arc<Watch>,
    pub(super) timeout: Duration,
    /// Whether the bucket itself has no TLS.
    pub(super) plain: bool,
}

impl HttpConnector for Watched {
    /// Requests in TLS use the proxy of the environment; others, as those to the host's service for credentials, none.
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let may_be_plain = options.get_config_value(&ClientConfigKey::AllowHttp).as_deref() == Some("true");
        let is_near = may_be_plain && !self.plain;
        let within = if is_near { CREDENTIALS_CONNECT_TIMEOUT } else { CONNECT_TIMEOUT };
        let inner = reqwest::Client::builder()
            .user_agent(concat!("tributary-coordinator/", env!("CARGO_PKG_VERSION")))
            .proxy(Proxy::default().for_reqwest())
            .http1_only()
            .https_only(!may_be_plain)
            .connect_timeout(within)
            .timeout(self.timeout)
            .build();
        let failed = |error| object_store::Error::Generic { store: "S3", source: Box::new(error) };
        Ok(HttpClient::new(WatchedClient { inner: inner.map_err(failed)?, within, watch: Arc::clone(&self.watch) }))
    }
}

#[derive(Debug)]
struct WatchedClient {
    inner: reqwest::Client,
    within: Duration,
    watch: Arc<Watch>,
}

#[async_trait]
impl HttpService for WatchedClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        metrics::counter!("tributary_blob_requests_total", "method" => request.method().to_string()).increment(1);
        let server = request.uri().clone();
        let response = HttpService::call(&self.inner, request).await;
        let is_served = response.as_ref().is_ok_and(|response| !response.status().is_server_error());
        if !is_served {
            metrics::counter!("tributary_blob_request_failures_total").increment(1);
        }
        match response {
            Ok(response) => {
                self.watch.note(&response);
                Ok(response)
            }
            Err(error) => Err(self.explained(error, &server).await),
        }
    }
}

impl WatchedClient {
    /// Names the proxy's failure, if it is one.
    async fn explained(&self, error: HttpError, server: &Uri) -> HttpError {
        let Some(cause) = error.source().and_then(|source| source.downcast_ref::<reqwest::Error>()) else {
            return error;
        };
        match Proxy::default().blame(cause, server, self.within).await {
            Some(failed) => HttpError::new(HttpErrorKind::Connect, std::io::Error::other(failed.report())),
            None => error,
        }
    }
}
