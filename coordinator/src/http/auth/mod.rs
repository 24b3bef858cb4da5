//! Authentication of participants and operators.

pub(super) mod authenticate;
pub(super) mod identities;
pub(super) mod nonces;
pub(super) mod operators;
pub(super) mod refusals;
pub(super) mod sign_in;
pub(super) mod signed;
mod signed_request;
