//! What operators see.

mod assignments;
mod audit;
mod events;
mod presets;
mod rounds;
mod tasks;
