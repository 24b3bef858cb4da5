//! HTTP: every route, who may call it, and what it answers.

mod admin;
mod app;
mod authenticate;
mod drain;
mod extract;
mod inspect;
mod limits;
mod openapi;
mod operations;
mod participant;
mod places;
mod problem;
mod prompt;
mod router;
mod serve;
mod tls;
mod trace;
mod unsent;
mod visit;

pub use admin::operator_tokens::TokenError;
pub(crate) use admin::operator_tokens::{issue as issue_operator_token, issue_shown as issue_shown_operator_token};
pub(crate) use app::{App, Settings};
pub use authenticate::Connection;
pub(crate) use authenticate::Identities;
pub(crate) use inspect::round_view::EndedRounds;
pub(crate) use limits::{Limiter, Rate, Rates};
pub(crate) use openapi::Document;
pub use participant::check_in::KeepsTime;
pub(crate) use router::{health_router, router};
pub(crate) use serve::{Listener, Looker, ServeSettings};
pub(crate) use tls::server_config;
pub(crate) use visit::Crowds;
pub use visit::Held;
