//! Every endpoint keeps its contract: mirrors `src/http/` file for file, through the router without a socket.

#![expect(clippy::unwrap_used, reason = "helpers of tests are not tests themselves")]

mod support;

#[path = "routes/admin.rs"]
mod admin;
#[path = "routes/authenticate.rs"]
mod authenticate;
#[path = "routes/inspect.rs"]
mod inspect;
#[path = "routes/operations.rs"]
mod operations;
#[path = "routes/participant/mod.rs"]
mod participant;
