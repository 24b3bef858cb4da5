//! Tasks with a privacy mechanism, end to end: what they refuse, release, charge, keep and forget.

#![expect(clippy::unwrap_used, clippy::cast_precision_loss, reason = "helpers of tests are not tests themselves")]

mod support;

#[path = "private/apart.rs"]
mod apart;
#[path = "private/cursors.rs"]
mod cursors;
#[path = "private/forgotten.rs"]
mod forgotten;
#[path = "private/in_bucket.rs"]
mod in_bucket;
#[path = "private/kept.rs"]
mod kept;
#[path = "private/opendp.rs"]
mod opendp;
#[path = "private/refused.rs"]
mod refused;
#[path = "private/released.rs"]
mod released;
#[path = "private/rolled_back.rs"]
mod rolled_back;
#[path = "private/sampled.rs"]
mod sampled;
#[path = "private/stopped.rs"]
mod stopped;
