//! Peers that want more than their share of connections and memory, over real ones.

#![expect(clippy::unwrap_used, reason = "helpers of tests are not tests themselves")]

mod connections {
    mod admitted;
    mod refused;
    mod strangers;
    mod unread;
}
mod support;
