//! Fuzz targets for two drivers: `drive` (stable, plain mutation, in CI) and libFuzzer (`fuzz_targets/`, coverage-guided).
//!
//! A target takes arbitrary bytes and panics if an invariant fails: decoding is canonical, a phase can be closed with its admitted
//! messages, and sums are opened correctly. Panics of the tested code fail, too.

pub mod mutate;
pub mod targets;

pub struct Target {
    /// Also the name of its corpus.
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Initial inputs, made from honest sessions and samples.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

pub const TARGETS: &[Target] = &[
    Target { name: "secagg_message", run: targets::messages::run, seeds: targets::messages::seeds },
    Target { name: "secagg_restore", run: targets::restore::run, seeds: targets::restore::seeds },
    Target { name: "secagg_client", run: targets::client::run, seeds: targets::client::seeds },
    Target { name: "secagg_server", run: targets::server::run, seeds: targets::server::seeds },
    Target { name: "secagg_packing", run: targets::packing::run, seeds: targets::packing::seeds },
    Target { name: "wire_body", run: targets::wire_body::run, seeds: targets::wire_body::seeds },
    Target { name: "wire_problem", run: targets::wire_problem::run, seeds: targets::wire_problem::seeds },
    Target { name: "wire_certificate", run: targets::certificate::run, seeds: targets::certificate::seeds },
    Target { name: "wire_signature", run: targets::signature::run, seeds: targets::signature::seeds },
    Target { name: "learning_checkpoint", run: targets::checkpoint::run, seeds: targets::checkpoint::seeds },
    Target { name: "learning_sum", run: targets::sum::run, seeds: targets::sum::seeds },
    Target { name: "learning_codec", run: targets::codec::run, seeds: targets::codec::seeds },
    Target { name: "learning_partition", run: targets::partition::run, seeds: targets::partition::seeds },
    Target { name: "learning_analytics", run: targets::analytics::run, seeds: targets::analytics::seeds },
    Target { name: "graph_decode", run: targets::graph_decode::run, seeds: targets::graph_decode::seeds },
    Target { name: "graph_import", run: targets::graph_import::run, seeds: targets::graph_import::seeds },
    Target { name: "datasets_idx", run: targets::idx::run, seeds: targets::idx::seeds },
];

#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
