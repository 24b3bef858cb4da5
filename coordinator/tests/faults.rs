//! What breaks from outside: workers that die at any line, leases that are lost, blobs and disks that are away or full,
//! clocks that jump.

#![expect(clippy::unwrap_used, reason = "helpers of tests are not tests themselves")]

#[path = "work/world.rs"]
#[expect(dead_code, reason = "shared with the tests of background work, which use the rest")]
mod world;

#[path = "faults/blobs.rs"]
mod blobs;
#[path = "faults/cancelled.rs"]
mod cancelled;
#[path = "faults/clock.rs"]
mod clock;
#[path = "faults/killed.rs"]
mod killed;
#[path = "faults/leases.rs"]
mod leases;
