//! What operators see.

mod assignments;
mod rounds;
mod tasks;
