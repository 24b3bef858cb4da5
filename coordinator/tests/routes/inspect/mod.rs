//! What operators see.

mod assignments;
mod presets;
mod rounds;
mod tasks;
