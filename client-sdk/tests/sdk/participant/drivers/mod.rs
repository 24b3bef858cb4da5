//! What performs a machine's actions.

mod driven;
mod driver;
