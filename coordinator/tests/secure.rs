//! Rounds under secure aggregation: real participants, the real protocol, everything through the router, time that tests own.

#![expect(clippy::unwrap_used, reason = "helpers of tests are not tests themselves")]

mod support;

#[path = "secure/ahead.rs"]
mod ahead;
#[path = "secure/clocks.rs"]
mod clocks;
#[path = "secure/complaints.rs"]
mod complaints;
#[path = "secure/excused.rs"]
mod excused;
#[path = "secure/far.rs"]
mod far;
#[path = "secure/groups.rs"]
mod groups;
#[path = "secure/in_bucket.rs"]
mod in_bucket;
#[path = "secure/killed.rs"]
mod killed;
#[path = "secure/large.rs"]
mod large;
#[path = "secure/measured.rs"]
mod measured;
#[path = "secure/on_s3.rs"]
mod on_s3;
#[path = "secure/secrets.rs"]
mod secrets;
#[path = "secure/spent.rs"]
mod spent;
#[path = "secure/stalled.rs"]
mod stalled;
#[path = "secure/traced.rs"]
mod traced;
#[path = "secure/waiting_for.rs"]
mod waiting_for;
#[path = "secure/whole_rounds.rs"]
mod whole_rounds;
