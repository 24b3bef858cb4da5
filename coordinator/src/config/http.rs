//! `[http]`: the listeners, their limits and the pacing of participants.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::require::require;

/// The listeners and the limits of a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Address and port; port 0 selects a free one.
    pub listen: SocketAddr,
    /// Additional listener for `/healthz`, `/readyz` and `/metrics`, without TLS and independent of the load on the other listener; for
    /// addresses reachable only by operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_listen: Option<SocketAddr>,
    /// Listener without TLS for signed requests of participants, behind a TLS-terminating balancer; only the balancer may reach it. It does
    /// not serve operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_listen: Option<SocketAddr>,
    /// The balancer's host names as used by participants, with the port unless it is 443: requests signed for other names are rejected.
    /// Default: `public_names`.
    pub signed_names: Vec<String>,
    /// DNS names and addresses of the server certificate; the printed URL uses the first.
    pub public_names: Vec<String>,
    /// A certificate chain in PEM to present in place of our own authority's certificate; needs `key_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_file: Option<PathBuf>,
    /// Its key in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// Whether the dashboard is served at `/` of `listen`.
    pub dashboard: bool,
    /// Maximum bytes of a JSON body.
    pub body_max_bytes: u64,
    /// Maximum masked input; each task's exact length is checked as well.
    pub masked_input_max_bytes: u64,
    /// Timeout of a request, except for long polls and transfers of models and inputs.
    pub request_timeout_ms: u64,
    /// Timeout for receiving a masked input.
    pub upload_timeout_ms: u64,
    /// Timeout of the TLS handshake, and again of a request's headers.
    pub header_timeout_ms: u64,
    /// How long a shutdown waits for accepted requests.
    pub shutdown_timeout_ms: u64,
    /// Maximum concurrent connections with a participant's certificate; further ones get 503 with a retry time.
    pub connections_max: u32,
    /// Maximum of these per participant; one more ends its oldest. For `signed_listen`, limits requests in progress.
    pub connections_per_participant: u32,
    /// Maximum concurrent connections without valid credentials; further ones get 503 with a retry time. Operators' connections are
    /// included until their first valid token. For `signed_listen`, limits requests in progress without a valid signature.
    pub strangers_max: u32,
    /// Maximum of these per address.
    pub strangers_per_address: u32,
    /// Maximum lifetime of a connection without valid credentials.
    pub stranger_lifetime_ms: u64,
    /// How long a peer may leave a piece of a response (64 KiB) unread before its connection is closed.
    pub unread_timeout_ms: u64,
    /// Maximum bytes of model versions read but not yet sent, for all peers together; a sixteenth of it per peer.
    pub unsent_max_bytes: u32,
    /// Maximum concurrent event streams; further ones get 503 with a retry time. The last eighth is reserved for administrators.
    pub event_streams_max: u32,
    /// Maximum of these per operator token or identity of the provider.
    pub event_streams_per_token: u32,
    /// Maximum duration of a check-in or a watch on a round.
    pub poll_max_ms: u64,
    /// Target rate of check-ins per second, used to spread return times.
    pub check_ins_per_second: u32,
    /// Average requests per second of one participant.
    pub participant_rate: u32,
    /// Average requests per second of one operator token.
    pub operator_rate: u32,
    /// Average requests per second of one address without authentication.
    pub address_rate: u32,
    /// Burst of a peer, in seconds of its rate.
    pub burst_s: u32,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8443)),
            health_listen: None,
            signed_listen: None,
            signed_names: Vec::new(),
            public_names: vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
            certificate_file: None,
            key_file: None,
            dashboard: true,
            body_max_bytes: 1 << 20,
            masked_input_max_bytes: 1 << 31,
            request_timeout_ms: 30_000,
            upload_timeout_ms: 3_600_000,
            header_timeout_ms: 10_000,
            shutdown_timeout_ms: 30_000,
            connections_max: 10_000,
            connections_per_participant: 16,
            strangers_max: 1000,
            strangers_per_address: 250,
            stranger_lifetime_ms: 30_000,
            unread_timeout_ms: 30_000,
            unsent_max_bytes: 16 << 20,
            event_streams_max: 256,
            event_streams_per_token: 16,
            poll_max_ms: 30_000,
            check_ins_per_second: 1000,
            participant_rate: 200,
            operator_rate: 200,
            address_rate: 50,
            burst_s: 10,
        }
    }
}

impl HttpConfig {
    /// The names, with ports, accepted in signed requests.
    #[must_use]
    pub fn signed_names(&self) -> &[String] {
        if self.signed_names.is_empty() { &self.public_names } else { &self.signed_names }
    }

    pub(super) fn check(&self, problems: &mut Vec<String>) {
        require(problems, !self.public_names.is_empty(), "http.public_names: name at least one host");
        require(
            problems,
            self.signed_names.iter().all(|name| !name.is_empty() && !name.contains('/')),
            "http.signed_names: each is HOST or HOST:PORT, without https://",
        );
        require(
            problems,
            self.signed_names.is_empty() || self.signed_listen.is_some(),
            "http.signed_names: say where signed requests arrive (http.signed_listen)",
        );
        require(
            problems,
            self.certificate_file.is_some() == self.key_file.is_some(),
            "http.certificate_file and http.key_file: give both or neither",
        );
        for (key, value) in [
            ("body_max_bytes", self.body_max_bytes),
            ("masked_input_max_bytes", self.masked_input_max_bytes),
            ("request_timeout_ms", self.request_timeout_ms),
            ("upload_timeout_ms", self.upload_timeout_ms),
            ("header_timeout_ms", self.header_timeout_ms),
            ("poll_max_ms", self.poll_max_ms),
            ("stranger_lifetime_ms", self.stranger_lifetime_ms),
            ("unread_timeout_ms", self.unread_timeout_ms),
            ("unsent_max_bytes", self.unsent_max_bytes.into()),
            ("event_streams_max", self.event_streams_max.into()),
            ("event_streams_per_token", self.event_streams_per_token.into()),
            ("connections_max", self.connections_max.into()),
            ("connections_per_participant", self.connections_per_participant.into()),
            ("strangers_max", self.strangers_max.into()),
            ("strangers_per_address", self.strangers_per_address.into()),
            ("check_ins_per_second", self.check_ins_per_second.into()),
            ("participant_rate", self.participant_rate.into()),
            ("operator_rate", self.operator_rate.into()),
            ("address_rate", self.address_rate.into()),
            ("burst_s", self.burst_s.into()),
        ] {
            require(problems, value > 0, format!("http.{key}: must be at least 1"));
        }
        require(
            problems,
            self.poll_max_ms <= 300_000,
            "http.poll_max_ms: must be at most 300000, or proxies would cut the connection",
        );
    }
}

macro_rules! durations {
    ($($name:ident: $millis:ident),+ $(,)?) => {
        impl HttpConfig {$(
            #[must_use]
            pub fn $name(&self) -> Duration {
                Duration::from_millis(self.$millis)
            }
        )+}
    };
}

durations! {
    request_timeout: request_timeout_ms,
    upload_timeout: upload_timeout_ms,
    header_timeout: header_timeout_ms,
    shutdown_timeout: shutdown_timeout_ms,
    stranger_lifetime: stranger_lifetime_ms,
    unread_timeout: unread_timeout_ms,
    poll_max: poll_max_ms,
}
