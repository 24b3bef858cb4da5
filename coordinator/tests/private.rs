//! Tasks with a privacy mechanism, end to end: rejections, releases, charges, and stored and deleted data.

#![expect(clippy::cast_precision_loss, reason = "helpers of tests are not tests themselves")]

mod apart;
mod backed_up;
mod counted;
mod cursors;
mod ends;
mod forgotten;
mod in_bucket;
mod kept;
mod opendp;
mod refused;
mod released;
mod rolled_back;
mod sampled;
mod starved;
mod stopped;
