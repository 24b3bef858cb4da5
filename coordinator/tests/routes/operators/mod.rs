//! Who an operator is, and what that one reaches.

mod scopes;
