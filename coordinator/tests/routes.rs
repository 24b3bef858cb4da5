//! Every endpoint keeps its contract: mirrors `src/http/` file for file (`cargo xtask tidy` checks it), through
//! the router without a socket.

#![expect(clippy::unwrap_used, reason = "helpers of tests are not tests themselves")]

mod support;

#[path = "routes/admin/mod.rs"]
mod admin;
#[path = "routes/authenticate.rs"]
mod authenticate;
#[path = "routes/compress.rs"]
mod compress;
#[path = "routes/dashboard.rs"]
mod dashboard;
#[path = "routes/extract.rs"]
mod extract;
#[path = "routes/inspect/mod.rs"]
mod inspect;
#[path = "routes/operations.rs"]
mod operations;
#[path = "routes/operators/mod.rs"]
mod operators;
#[path = "routes/participant/mod.rs"]
mod participant;
#[path = "routes/router.rs"]
mod router;
#[path = "routes/signed.rs"]
mod signed;
