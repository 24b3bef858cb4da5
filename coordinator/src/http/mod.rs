//! HTTP: all routes with their authorization and handlers.

mod admin;
mod app;
mod auth;
mod dashboard;
mod event_streams;
mod extract;
mod inspect;
mod limits;
mod openapi;
mod operations;
mod participant;
mod reply;
mod router;
mod times;
mod trace;
mod unserved;

pub use admin::operator_tokens::TokenError;
pub(crate) use admin::operator_tokens::{issue as issue_operator_token, issue_shown as issue_shown_operator_token};
pub(crate) use app::App;
pub(crate) use auth::identities::Identities;
pub(crate) use auth::nonces::Nonces;
pub(crate) use auth::refusals::Refusals;
pub(crate) use event_streams::EventStreams;
pub(crate) use inspect::ended_rounds::EndedRounds;
pub(crate) use limits::{Limiter, Rate, Rates};
pub use listener::{Connection, ConnectionCounts};
pub(crate) use openapi::Document;
pub use participant::check_in::VirtualTime;
pub use router::document;
pub(crate) use router::{health_router, router, signed_router};
