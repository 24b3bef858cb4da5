//! What breaks from outside: workers that die at any line, leases that are lost, blobs and disks that are away or full,
//! clocks that jump.

#![expect(clippy::unwrap_used, reason = "helpers of tests are not tests themselves")]

#[path = "support/world.rs"]
#[expect(dead_code, reason = "shared with the tests of background work, which use the rest")]
mod world;

mod faults {
    mod blobs;
    mod cancelled;
    mod clock;
    mod killed;
    mod leases;
}
