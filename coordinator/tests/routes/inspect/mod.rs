//! What operators see.

mod assignments;
mod audit;
mod events;
mod narrow;
mod presets;
mod rounds;
mod shape;
mod tasks;
