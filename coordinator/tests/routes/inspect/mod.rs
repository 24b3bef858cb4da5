//! What operators see.

mod assignments;
mod audit;
mod events;
mod rounds;
mod tasks;
