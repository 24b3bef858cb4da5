//! Slots of connections, and unread bodies of requests.

mod connection_pool;
mod drain;
mod slots;
