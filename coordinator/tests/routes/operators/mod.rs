//! Who an operator is, and what that one reaches.

mod browsers;
mod identities;
mod scopes;
