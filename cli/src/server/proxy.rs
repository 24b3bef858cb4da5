//! The option `--proxy`.

use client_sdk::transport::Proxy;

use crate::failure::{Exit, Failure, Outcome};

/// Help of `--proxy`.
pub(crate) const HELP: &str = "HTTP proxy through which the coordinator is reached, http://[USER:PASSWORD@]HOST[:PORT]; none: \
                               ignore the environment [default: HTTPS_PROXY or ALL_PROXY, except for the hosts in NO_PROXY]";

/// The HTTP proxy before the coordinator.
#[derive(clap::Args, Default)]
pub(crate) struct ProxyArgs {
    // A text: clap would show a password in an address that cannot be parsed.
    #[arg(long, value_name = "URL", help = HELP)]
    proxy: Option<String>,
}

impl ProxyArgs {
    /// The setting; [`Exit::Usage`] if the address cannot be used.
    pub(crate) fn setting(&self) -> Outcome<Proxy> {
        setting(self.proxy.as_deref())
    }
}

/// The setting of `--proxy`; [`Exit::Usage`] if the address cannot be used.
pub(crate) fn setting(proxy: Option<&str>) -> Outcome<Proxy> {
    let Some(text) = proxy else { return Ok(Proxy::default()) };
    text.trim().parse().map_err(|error| Failure::new(Exit::Usage, format!("--proxy: {error}")))
}
