//! The connections of a listener: their slots, and what becomes of their requests.

mod answer_body;
pub(crate) mod connection_limits;
pub(crate) mod connection_pool;
mod drain;
pub(crate) mod slots;
