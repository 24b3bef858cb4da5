//! The options of commands that call a coordinator's REST API.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use operator_client::Part;
use url::Url;

use crate::arguments::parse_token;
use crate::failure::{Exit, Failure, Outcome, chain};

mod conditions;
pub(crate) mod proxy;
mod query;

pub(crate) use conditions::{IdempotencyArgs, IfMatchArgs};
pub(crate) use operator_client::{Server, Tagged, authorities};
pub(crate) use query::{given, listed, none_of};

/// The coordinator, and the operator's token.
#[derive(clap::Args)]
pub(crate) struct ServerArgs {
    /// URL of the coordinator, for example https://localhost:8443
    #[arg(long, env = "TRIBUTARY_SERVER", value_name = "URL")]
    pub(crate) server: Url,
    /// PEM file of the CA that signed the coordinator's certificate [default: the system's CAs]
    #[arg(long, env = "TRIBUTARY_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Operator token
    #[arg(long, env = "TRIBUTARY_TOKEN", value_name = "TOKEN", value_parser = parse_token, hide_env_values = true, allow_hyphen_values = true)]
    pub(crate) token: String,
    // Not flattened: clap takes an `Option<ServerArgs>` (`token create`) for absent if the group contains another one.
    #[arg(long, value_name = "URL", help = proxy::HELP)]
    proxy: Option<String>,
}

/// The part of a list to show.
#[derive(clap::Args)]
pub(crate) struct PartArgs {
    /// Maximum number of entries
    #[arg(long, alias = "most", default_value = "100")]
    limit: NonZeroUsize,
    /// Continue an earlier list: its `next_cursor` in JSON
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

impl From<PartArgs> for Part {
    fn from(args: PartArgs) -> Self {
        Self { limit: args.limit, cursor: args.cursor }
    }
}

/// The PEM text of a certificate authority: at least one certificate.
pub(crate) fn read_ca(path: &Path) -> Outcome<Vec<u8>> {
    let pem = std::fs::read(path)
        .map_err(Failure::because(Exit::Configuration, format!("cannot read the CA file {}", path.display())))?;
    listener::certificates_of(path, &pem)
        .map_err(|error| Failure::new(Exit::Configuration, format!("the CA file {}", chain(&error))))?;
    Ok(pem)
}

impl ServerArgs {
    /// Makes a client, without sending a request.
    pub(crate) fn client(&self) -> Outcome<Server> {
        let ca = self.ca.as_deref().map(read_ca).transpose()?;
        Server::with_ca(self.server.clone(), ca.as_deref(), self.token.clone(), &proxy::setting(self.proxy.as_deref())?)
    }
}
