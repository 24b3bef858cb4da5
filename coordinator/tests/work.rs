//! Background work, step by step: SQLite in memory, a clock that tests move, seeded chance, blobs in memory.
//! Mirrors `src/work/` file for file; what breaks from outside is in `faults/`.

#![expect(clippy::unwrap_used, reason = "helpers of tests are not tests themselves")]

#[path = "support/world.rs"]
#[expect(dead_code, reason = "shared with the tests of faults, which use the rest")]
mod world;

mod work {
    mod close_phase;
    mod collect_garbage;
    mod driver;
    mod grant;
    mod number_events;
    mod open_round;
    mod publish_version;
    mod release_sum;
    mod robust;
    mod select;
    mod sum_chunk;
}
