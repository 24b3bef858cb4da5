//! Background work, step by step: SQLite in memory, a clock that tests move, seeded chance, blobs in memory.
//! Mirrors `src/work/` file for file; what breaks from outside is in `faults/`.

#![expect(clippy::unwrap_used, reason = "helpers of tests are not tests themselves")]

#[path = "work/world.rs"]
#[expect(dead_code, reason = "shared with the tests of faults, which use the rest")]
mod world;

#[path = "work/ahead.rs"]
mod ahead;
#[path = "work/analysis.rs"]
mod analysis;
#[path = "work/close_phase.rs"]
mod close_phase;
#[path = "work/collect_garbage.rs"]
mod collect_garbage;
#[path = "work/compressed.rs"]
mod compressed;
#[path = "work/driver.rs"]
mod driver;
#[path = "work/open_round.rs"]
mod open_round;
#[path = "work/publish_version.rs"]
mod publish_version;
#[path = "work/release_sum.rs"]
mod release_sum;
#[path = "work/robust.rs"]
mod robust;
#[path = "work/select.rs"]
mod select;
#[path = "work/solver.rs"]
mod solver;
#[path = "work/sum_chunk.rs"]
mod sum_chunk;
