//! The contract of every endpoint: mirrors `src/http/` file by file (`cargo xtask tidy` checks it), through the router without a socket.

mod admin;
mod auth;
mod dashboard;
mod extract;
mod inspect;
mod operations;
mod participant;
mod reply;
mod router;
