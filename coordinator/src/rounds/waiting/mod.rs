//! Reasons why a task or its participants wait.

pub(crate) mod abandon_detail;
pub(crate) mod retries;
pub(crate) mod shortage;
pub(crate) mod waiting_for;
pub(crate) mod waiting_for_cache;
