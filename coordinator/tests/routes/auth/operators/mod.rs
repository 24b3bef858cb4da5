//! Identity and access of an operator.

mod browsers;
mod identities;
mod scopes;
