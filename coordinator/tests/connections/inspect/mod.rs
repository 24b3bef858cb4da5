//! Streams for operators.

mod events;
