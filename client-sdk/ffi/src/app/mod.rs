//! Interfaces that an app implements: conditions, key store, events and an HTTP client.

pub(crate) mod callback;
pub(crate) mod callbacks;
pub(crate) mod conditions;
pub(crate) mod http_client;
