//! Who an operator is, and what that one reaches.

mod identities;
mod scopes;
