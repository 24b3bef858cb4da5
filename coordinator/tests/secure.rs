//! Rounds under secure aggregation: real participants, the real protocol, everything through the router, with a test clock.

mod ahead;
mod batches;
mod clocks;
mod complaints;
mod contests;
mod excused;
mod far;
mod groups;
mod in_bucket;
mod killed;
mod large;
mod measured;
mod on_s3;
mod secrets;
mod spent;
mod stalled;
mod traced;
mod waiting_for;
mod whole_rounds;
