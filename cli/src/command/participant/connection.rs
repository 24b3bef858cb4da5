//! Options for a participant's connection to its coordinator, and for the keys that it trusts.

use std::path::PathBuf;

use client_sdk::participant::Builder;
use client_sdk::transport::ServerRoots;
use url::Url;
use wire::audit::AuditKey;

use crate::failure::{Failure, Outcome};
use crate::server::proxy::ProxyArgs;
use crate::server::read_ca;

/// How to reach the coordinator, and whom to trust.
#[derive(clap::Args)]
pub(super) struct ConnectionArgs {
    /// URL of the coordinator
    #[arg(long, env = "TRIBUTARY_SERVER", value_name = "URL")]
    server: Url,
    /// PEM file of the CA that signed the coordinator's certificate and certifies participants
    #[arg(long, env = "TRIBUTARY_CA", value_name = "FILE", required_unless_present_all = ["signed", "members_ca"])]
    ca: Option<PathBuf>,
    /// Sign each request, for a coordinator behind a balancer that ends TLS and whose certificate this machine trusts
    #[arg(long)]
    signed: bool,
    /// PEM file of the CA that signed the balancer's certificate [default: the system's CAs]
    #[arg(long, value_name = "FILE", requires = "signed")]
    balancer_ca: Option<PathBuf>,
    #[command(flatten)]
    proxy: ProxyArgs,
    /// PEM file of the CA that certifies participants, if it differs from --ca; certificates of other CAs are
    /// rejected
    #[arg(long, env = "TRIBUTARY_MEMBERS_CA", value_name = "FILE")]
    members_ca: Option<PathBuf>,
    /// Key that must sign model versions, as shown by `tributary audit head`; may be repeated [default: the first key
    /// seen, pinned]
    #[arg(long = "coordinator-key", value_name = "HEX")]
    coordinator_keys: Vec<AuditKey>,
}

impl ConnectionArgs {
    /// Sets these options.
    ///
    /// # Errors
    /// The failure of a file of certificates, or of the proxy's address.
    pub(super) fn set(&self, builder: Builder) -> Outcome<Builder> {
        let ca = self.ca.as_deref().map(read_ca).transpose()?;
        let balancer_ca = self.balancer_ca.as_deref().map(read_ca).transpose()?;
        let of_members =
            |failure: Failure| Failure::new(failure.exit, format!("the authority of members: {}", failure.detail));
        let members_ca = self.members_ca.as_deref().map(read_ca).transpose().map_err(of_members)?;
        let pem = |pem: Option<Vec<u8>>| pem.map(|pem| String::from_utf8_lossy(&pem).into_owned());
        let roots = pem(balancer_ca).map_or(ServerRoots::Device, ServerRoots::Pem);
        Ok(builder
            .server(self.server.as_str())
            .proxy(self.proxy.setting()?)
            .coordinator_keys(self.coordinator_keys.iter().copied())
            .given(pem(ca), Builder::ca_pem)
            .given(self.signed.then_some(roots), Builder::signed_requests)
            .given(pem(members_ca), Builder::members_ca_pem))
    }
}
