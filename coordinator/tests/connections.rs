//! Peers that want more than their share of connections and memory, over real ones: mirrors `src/http/` where the listener is
//! tested.

#![expect(clippy::unwrap_used, reason = "helpers of tests are not tests themselves")]

mod connections {
    mod connection_pool;
    mod drain;
    mod inspect;
    mod slots;
    mod unsent;
}
mod support;
