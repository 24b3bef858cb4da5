//! What operators watch.

mod events;
