//! External faults: crashed workers, lost leases, unavailable or full storage, clock jumps.

mod blobs;
mod cancelled;
mod clock;
mod killed;
mod leases;
