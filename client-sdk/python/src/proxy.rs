//! The HTTP proxy before a coordinator, by the rules of the SDK.

use std::fmt::Display;

use client_sdk::transport::{Proxy, ProxyServer, proxy_towards};
use pyo3::prelude::*;

use crate::errors::ConfigurationError;

/// Name in messages, host, port, and the value of `Proxy-Authorization`.
type Address = (String, String, u16, Option<String>);

/// The proxy that leads to a coordinator, `https://HOST[:PORT]`, by this setting or the environment; `None` for a direct connection.
#[pyfunction]
pub(crate) fn forward_proxy(server: &str, setting: Option<&str>) -> PyResult<Option<Address>> {
    let wrong = |error: &dyn Display| ConfigurationError::new_err(error.to_string());
    let setting: Option<Proxy> = setting.map(str::parse).transpose().map_err(|error| wrong(&error))?;
    let found = proxy_towards(server, &setting.unwrap_or_default()).map_err(|error| wrong(&error))?;
    found.map(|proxy| address(&proxy)).transpose()
}

fn address(proxy: &ProxyServer) -> PyResult<Address> {
    let uri = proxy.address();
    if uri.scheme_str() == Some("https") {
        let text = format!(
            "an operator in Python cannot use {proxy}: it needs a proxy without TLS, http://…, or the command `tributary`"
        );
        return Err(ConfigurationError::new_err(text));
    }
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let authorization = proxy.authorization().and_then(|value| value.to_str().ok()).map(str::to_owned);
    Ok((proxy.to_string(), host, uri.port_u16().unwrap_or(80), authorization))
}
