//! Peers exceeding their share of connections and memory, over real connections: mirrors `src/http/` for the listener.

mod inspect;
