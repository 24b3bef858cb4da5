//! Damaged data, its repair, and the retention of model versions.

pub(crate) mod damage;
pub mod fsck;
pub(crate) mod retention;
