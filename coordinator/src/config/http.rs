//! `[http]`: the listener, its limits and how participants are paced.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::require::require;

/// The listener and what one peer may ask of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Address and port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where `/healthz`, `/readyz` and `/metrics` are answered, too, without TLS and whatever the other listener is busy with;
    /// for addresses that only whoever looks after the service can reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_listen: Option<SocketAddr>,
    /// Where participants' requests are taken without TLS if they are signed, for a balancer that ends TLS; only the balancer may
    /// reach it. Operators are not served there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_listen: Option<SocketAddr>,
    /// The balancer's host names, with the port unless it is 443, as participants name them: requests signed for another name are
    /// refused. Empty: `public_names`.
    pub signed_names: Vec<String>,
    /// DNS names and addresses the server certificate is issued for; the first is used in the URL that is printed.
    pub public_names: Vec<String>,
    /// A certificate chain in PEM to present instead of one of our own authority; needs `key_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_file: Option<PathBuf>,
    /// Its key in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// Whether the dashboard is served at `/` of `listen`.
    pub dashboard: bool,
    /// Largest JSON body.
    pub body_max_bytes: u64,
    /// Largest masked input; each task's exact length is checked as well.
    pub masked_input_max_bytes: u64,
    /// Time for a request, long-polls and transfers of models and inputs excepted.
    pub request_timeout_ms: u64,
    /// Time for a masked input to arrive.
    pub upload_timeout_ms: u64,
    /// Time for the TLS handshake, and again for a request's headers.
    pub header_timeout_ms: u64,
    /// How long a shutdown waits for what was accepted.
    pub shutdown_timeout_ms: u64,
    /// Connections with a certificate that a participant has held at once; more are answered 503 and when to come back.
    pub connections_max: u32,
    /// Of them, those of one participant; one more ends its oldest. At `signed_listen` requests in progress are counted so.
    pub connections_per_participant: u32,
    /// Connections without good credentials held at once; more are answered 503 and when to come back. An operator's connection is
    /// one of them until its first good token. At `signed_listen` requests in progress without a good signature are counted so.
    pub strangers_max: u32,
    /// Of them, those of one address.
    pub strangers_per_address: u32,
    /// How long a connection without good credentials may last.
    pub stranger_lifetime_ms: u64,
    /// How long a peer may leave a piece of an answer (64 KiB) unread until its connection is closed.
    pub unread_timeout_ms: u64,
    /// Bytes of model versions that were read and not yet sent, for all peers together; one peer may have a sixteenth of it.
    pub unsent_max_bytes: u32,
    /// Streams of events that are open at once; more are answered 503 and when to come back.
    pub event_streams_max: u32,
    /// Longest a check-in, or a watch on a round, is held open.
    pub poll_max_ms: u64,
    /// Check-ins per second that participants are spread over when told when to come back.
    pub check_ins_per_second: u32,
    /// Requests per second of one participant, on average.
    pub participant_rate: u32,
    /// Requests per second of one operator token, on average.
    pub operator_rate: u32,
    /// Requests per second of one address that has not said who it is, on average.
    pub address_rate: u32,
    /// How many seconds of its rate a peer may use at once.
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
    /// The names, with ports, that requests are signed for.
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
