//! Limits of connections and of unsent responses.

mod pool;
mod unsent;
