//! Proxies for clients of reqwest, which open tunnels themselves and whose errors omit the proxy's answer.

use std::future::poll_fn;
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use tower_service::Service as _;

use crate::dial::{Dialer, failed, with_port};
use crate::error::{BoxError, ProxyError, Reason};
use crate::setting::{Proxy, ProxyServer};

impl Proxy {
    /// The same choice of a proxy for each server that a client of reqwest connects to. Replaces reqwest's own reading of the
    /// environment. An unusable address in the environment counts as none: see [`Self::towards`].
    #[must_use]
    pub fn for_reqwest(&self) -> reqwest::Proxy {
        let setting = self.clone();
        let found = reqwest::Proxy::custom(move |url| {
            let server = url.as_str().parse().ok()?;
            setting.towards(&server).ok()?.map(|proxy| proxy.address().to_string())
        });
        match self.server().ok().flatten().as_ref().and_then(ProxyServer::authorization) {
            Some(authorization) => found.custom_http_auth(authorization.clone()),
            None => found,
        }
    }

    /// The proxy's failure behind a failed request to this server, if there is one. Opens another tunnel to see it.
    /// `within`: the time that the client had to connect.
    pub async fn blame(&self, error: &reqwest::Error, server: &Uri, within: Duration) -> Option<ProxyError> {
        let proxy = self.towards(server).ok().flatten().filter(|_| error.is_connect())?;
        if error.is_timeout() {
            return Some(failed(&proxy, with_port(server).ok()?, Reason::Late(within)));
        }
        check(&proxy, server).await.err()?.downcast::<ProxyError>().ok().map(|failure| *failure)
    }
}

/// Opens a tunnel and closes it.
async fn check(proxy: &ProxyServer, server: &Uri) -> Result<(), BoxError> {
    let mut dialer = Dialer::new(HttpConnector::new(), Some(proxy))?;
    poll_fn(|context| dialer.poll_ready(context)).await?;
    dialer.call(server.clone()).await.map(drop)
}
