//! What the server exchanges with a coordinator: versions, reports and tokens.

pub(super) mod follow;
pub(super) mod tell;
pub(super) mod tokens;
