//! The setting of a forward proxy, and the environment.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use http::uri::{Authority, Scheme};
use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use serde::Deserialize;

/// The setting that ignores the environment.
const NONE: &str = "none";
/// Variables with the address of a proxy; the first that is not empty is used.
const ADDRESS: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
/// Variables with the hosts for direct connections; the first non-empty one is used.
const EXEMPT: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// The setting of a forward proxy. In text: `none`, or `http://[USER:PASSWORD@]HOST[:PORT]`, also with `https://`.
///
/// Default: the environment, as other programs read it. The address is the first non-empty variable of `HTTPS_PROXY`, `https_proxy`,
/// `ALL_PROXY` and `all_proxy`. `NO_PROXY`, or `no_proxy`, lists the hosts for direct connections, each with or without a port:
/// `fl.example.org`, `.example.org` (with its subdomains, as `example.org`), `10.0.0.7`, `10.0.0.0/8`, `[::1]:8443`, or `*` for all.
#[derive(Clone, Default, Deserialize)]
#[serde(try_from = "String")]
pub struct Proxy(Choice);

#[derive(Clone, Default)]
enum Choice {
    #[default]
    Environment,
    Direct,
    Server(ProxyServer),
}

/// An unusable proxy setting. Its text omits the address, which may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{from} cannot be used: {problem}")]
pub struct BadProxy {
    from: &'static str,
    problem: &'static str,
}

/// A forward proxy. Its text form omits the password.
#[derive(Clone)]
pub struct ProxyServer {
    found: Arc<Intercept>,
    /// The variable that names it, if any.
    variable: Option<&'static str>,
}

impl Proxy {
    /// Connects directly and ignores the environment.
    #[must_use]
    pub const fn none() -> Self {
        Self(Choice::Direct)
    }

    /// The proxy for a server, `https://HOST[:PORT]`; `None` for a direct connection, as always without TLS.
    ///
    /// # Errors
    /// [`BadProxy`] if the address of the proxy in the environment cannot be used.
    pub fn towards(&self, server: &Uri) -> Result<Option<ProxyServer>, BadProxy> {
        if server.scheme() != Some(&Scheme::HTTPS) {
            return Ok(None);
        }
        match &self.0 {
            Choice::Direct => Ok(None),
            Choice::Server(proxy) => Ok(Some(proxy.clone())),
            Choice::Environment => from_variables(server, process),
        }
    }

    /// The proxy for servers that are not exempt.
    #[cfg(feature = "reqwest")]
    pub(crate) fn server(&self) -> Result<Option<ProxyServer>, BadProxy> {
        match &self.0 {
            Choice::Direct => Ok(None),
            Choice::Server(proxy) => Ok(Some(proxy.clone())),
            Choice::Environment => {
                first(&ADDRESS, &process).map(|(name, address)| ProxyServer::parse(&address, Some(name))).transpose()
            }
        }
    }
}

impl FromStr for Proxy {
    type Err = BadProxy;

    fn from_str(text: &str) -> Result<Self, BadProxy> {
        if text == NONE {
            return Ok(Self::none());
        }
        Ok(Self(Choice::Server(ProxyServer::parse(text, None)?)))
    }
}

impl TryFrom<String> for Proxy {
    type Error = BadProxy;

    fn try_from(text: String) -> Result<Self, BadProxy> {
        text.parse()
    }
}

#[expect(clippy::disallowed_methods, reason = "the only place that reads the environment for proxies")]
fn process(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The first of these variables that is not empty, and its value.
fn first(names: &[&'static str], read: &impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    names.iter().find_map(|name| Some((*name, read(name)?.trim().to_owned())).filter(|(_, value)| !value.is_empty()))
}

/// The proxy that these variables name for this server.
fn from_variables(server: &Uri, read: impl Fn(&str) -> Option<String>) -> Result<Option<ProxyServer>, BadProxy> {
    let Some((name, address)) = first(&ADDRESS, &read) else { return Ok(None) };
    if first(&EXEMPT, &read).is_some_and(|(_, list)| is_exempt(&list, server)) {
        return Ok(None);
    }
    ProxyServer::parse(&address, Some(name)).map(Some)
}

/// Whether a list of hosts, as in `NO_PROXY`, has this server.
fn is_exempt(list: &str, server: &Uri) -> bool {
    let port = server.port_u16().unwrap_or(443);
    let entries = list.split(|c: char| c == ',' || c.is_whitespace());
    let hosts: Vec<_> = entries.filter_map(|entry| host_of(entry, port)).collect();
    // The matcher supports hosts, domains and networks. It ignores ports, and applies `*` only to names.
    if hosts.contains(&"*") {
        return true;
    }
    let matcher = Matcher::builder().https("http://proxy").no(hosts.join(",")).build();
    matcher.intercept(server).is_none()
}

/// The host of an entry that is for this port or for all.
fn host_of(entry: &str, port: u16) -> Option<&str> {
    let (host, only) = match entry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => match entry.split_once(':') {
            // More than one colon: an IPv6 address.
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            Some(_) | None => (entry, None),
        },
    };
    // `*.example.org` is common, although curl does not know it.
    let host = host.strip_prefix('*').filter(|domain| domain.starts_with('.')).unwrap_or(host);
    only.is_none_or(|only| only.parse() == Ok(port)).then_some(host)
}

impl ProxyServer {
    fn parse(text: &str, variable: Option<&'static str>) -> Result<Self, BadProxy> {
        let bad = |problem| BadProxy { from: variable.unwrap_or("the proxy's address"), problem };
        let any = Uri::from_static("https://server");
        let found = Matcher::builder().https(text).build().intercept(&any);
        let found = found.ok_or_else(|| bad("it is http://[USER:PASSWORD@]HOST[:PORT], or none"))?;
        let uri = found.uri();
        if uri.scheme() != Some(&Scheme::HTTP) && uri.scheme() != Some(&Scheme::HTTPS) {
            return Err(bad("only proxies of HTTP are supported, http://… or https://…, no SOCKS"));
        }
        let host = uri.host().unwrap_or_default();
        let rest = uri.authority().and_then(|all| all.as_str().strip_prefix(host)).unwrap_or_default();
        if host.is_empty()
            || !(rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok()))
        {
            return Err(bad("it has no host, or a port that is not between 0 and 65535"));
        }
        Ok(Self { found: Arc::new(found), variable })
    }

    /// Its address without name and password.
    #[must_use]
    pub fn address(&self) -> &Uri {
        self.found.uri()
    }

    /// The value of `Proxy-Authorization` (Basic), if the setting has a name and a password.
    #[must_use]
    pub fn authorization(&self) -> Option<&HeaderValue> {
        self.found.basic_auth()
    }
}

impl fmt::Display for ProxyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uri = self.address();
        write!(f, "{}://{}", uri.scheme_str().unwrap_or("http"), uri.authority().map_or("", Authority::as_str))?;
        self.variable.map_or(Ok(()), |name| write!(f, " ({name})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The proxy of `server` in the environment.
    fn named(server: &str, variables: &[(&str, &str)]) -> Result<Option<String>, String> {
        let read = |name: &str| Some((*variables.iter().find(|(variable, _)| *variable == name)?.1).to_owned());
        let found = from_variables(&server.parse().unwrap(), read);
        found.map(|proxy| proxy.map(|proxy| proxy.to_string())).map_err(|error| error.to_string())
    }

    #[test]
    fn environment_names_the_first_proxy_that_is_set() {
        let server = "https://fl.example.org:8443";
        let proxy = |variables: &[(&str, &str)]| named(server, variables).unwrap();
        assert_eq!(proxy(&[]), None);
        assert_eq!(proxy(&[("HTTP_PROXY", "http://a"), ("http_proxy", "http://a")]), None);
        assert_eq!(proxy(&[("HTTPS_PROXY", ""), ("all_proxy", " ")]), None);
        for name in ADDRESS {
            assert_eq!(proxy(&[(name, "http://a:3128/")]).unwrap(), format!("http://a:3128 ({name})"));
        }
        let all = [("all_proxy", "d"), ("ALL_PROXY", "c"), ("https_proxy", "http://b"), ("HTTPS_PROXY", "https://a:1")];
        assert_eq!(proxy(&all).unwrap(), "https://a:1 (HTTPS_PROXY)");
        assert_eq!(proxy(&all[..3]).unwrap(), "http://b (https_proxy)");
        assert_eq!(proxy(&all[..2]).unwrap(), "http://c (ALL_PROXY)");
    }

    #[test]
    fn exempt_hosts_are_reached_directly() {
        let is_exempt = |list: &str, server: &str| is_exempt(list, &server.parse().unwrap());
        for (list, server) in [
            ("fl.example.org", "https://fl.example.org:8443"),
            ("FL.example.ORG", "https://fl.example.org"),
            ("example.org", "https://fl.example.org"),
            (".example.org", "https://fl.example.org"),
            (".example.org", "https://example.org"),
            ("*.example.org", "https://fl.example.org"),
            ("a.test, example.org", "https://fl.example.org"),
            ("a.test example.org", "https://fl.example.org"),
            ("*", "https://fl.example.org:8443"),
            ("*", "https://127.0.0.1:8443"),
            ("a.test, *", "https://[::1]:8443"),
            ("10.1.2.3", "https://10.1.2.3:8443"),
            ("10.0.0.0/8", "https://10.1.2.3:8443"),
            ("fl.example.org:8443", "https://fl.example.org:8443"),
            ("fl.example.org:443", "https://fl.example.org"),
            ("10.1.2.3:8443", "https://10.1.2.3:8443"),
            ("::1", "https://[::1]:8443"),
            ("[::1]", "https://[::1]:8443"),
            ("[::1]:8443", "https://[::1]:8443"),
            ("fd00::/8", "https://[fd00::7]"),
            ("localhost,127.0.0.1", "https://localhost:8443"),
        ] {
            assert!(is_exempt(list, server), "{list} {server}");
        }
        for (list, server) in [
            ("", "https://fl.example.org"),
            (",", "https://fl.example.org"),
            ("fl.example.org", "https://example.org"),
            ("ample.org", "https://fl.example.org"),
            ("example.org:8444", "https://fl.example.org:8443"),
            ("example.org:443", "https://fl.example.org:8443"),
            ("example.org:no", "https://fl.example.org"),
            ("10.0.0.0/8", "https://11.1.2.3"),
            ("[::1]:8444", "https://[::1]:8443"),
            ("::1", "https://[::2]:8443"),
            ("127.0.0.1", "https://localhost:8443"),
        ] {
            assert!(!is_exempt(list, server), "{list} {server}");
        }
        let exempt = [("NO_PROXY", "example.org"), ("ALL_PROXY", "socks5://a")];
        assert_eq!(named("https://fl.example.org", &exempt), Ok(None));
        assert!(named("https://fl.example.com", &exempt).unwrap_err().contains("ALL_PROXY cannot be used"));
    }

    #[test]
    fn loopback_is_exempt_only_if_listed() {
        let proxy = ("HTTPS_PROXY", "http://a");
        assert!(named("https://localhost:8443", &[proxy]).unwrap().is_some());
        assert!(named("https://127.0.0.1:8443", &[proxy]).unwrap().is_some());
        assert_eq!(named("https://127.0.0.1:8443", &[proxy, ("no_proxy", "127.0.0.0/8")]), Ok(None));
    }

    #[test]
    fn setting_overrides_the_environment_and_hides_its_password() {
        let server = Uri::from_static("https://fl.example.org");
        assert!(Proxy::none().towards(&server).unwrap().is_none());
        assert!("none".parse::<Proxy>().unwrap().towards(&server).unwrap().is_none());
        let proxy: Proxy = "http://ward:p%40ss@proxy.site:3128".parse().unwrap();
        let proxy = proxy.towards(&server).unwrap().unwrap();
        assert_eq!(proxy.to_string(), "http://proxy.site:3128");
        // `ward:p@ss`
        assert_eq!(proxy.authorization().unwrap(), "Basic d2FyZDpwQHNz");
        assert!(!format!("{:?}", proxy.authorization()).contains("d2FyZDpwQHNz"));
        let plain: Proxy = "proxy.site:3128".parse().unwrap();
        assert_eq!(plain.towards(&server).unwrap().unwrap().to_string(), "http://proxy.site:3128");
    }

    #[test]
    fn unusable_addresses_are_rejected_without_the_password() {
        for (text, why) in [
            ("", "it is http://"),
            ("http://", "it is http://"),
            ("http://ward:secret@proxy site", "it is http://"),
            ("ftp://ward:secret@proxy", "it is http://"),
            ("socks5://ward:secret@proxy:1080", "no SOCKS"),
            ("http://ward:secret@proxy:99999", "a port"),
        ] {
            let error = text.parse::<Proxy>().map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("secret"), "{text}: {error}");
        }
        let error =
            serde_json::from_str::<Proxy>(r#""socks5://ward:secret@proxy""#).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("no SOCKS") && !error.contains("secret"), "{error}");
    }
}
