//! Background work, step by step: SQLite and blobs in memory, a test clock, seeded randomness. Mirrors `src/work/` file by file; external
//! faults are in `faults/`.

mod close_phase;
mod collect_garbage;
mod engine;
mod grant;
mod number_events;
mod open_round;
mod publish_version;
mod releases;
mod selection;
mod summing;
