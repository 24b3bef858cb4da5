//! The engine, over many steps.

mod driver;
