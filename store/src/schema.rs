//! Which steps a database has to take so that this program can run on it, and when to refuse.

use crate::error::{Result, StoreError};

/// One step, up and down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    /// Counts from 1.
    pub(crate) version: u32,
    /// The file's name without number and ending.
    pub(crate) name: &'static str,
    /// Takes the step.
    pub(crate) up: &'static str,
    /// Takes it back.
    #[cfg_attr(not(feature = "conformance"), expect(dead_code, reason = "only tests go down by themselves"))]
    pub(crate) down: &'static str,
}

/// The steps missing from a database whose newest step is `found` (0: it is empty).
///
/// # Errors
/// `Schema` if it has steps that `known` lacks.
pub(crate) fn missing(known: &'static [Migration], found: u32) -> Result<&'static [Migration]> {
    known.get(found as usize..).ok_or_else(|| {
        StoreError::Schema(format!(
            "the database has schema version {found}, this program knows versions up to {}: run the newer program that \
             wrote it",
            known.len()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Migration] = &[
        Migration { version: 1, name: "one", up: "", down: "" },
        Migration { version: 2, name: "two", up: "", down: "" },
    ];

    #[test]
    fn takes_the_missing_steps_in_order_and_refuses_unknown_ones() {
        let versions = |found| missing(KNOWN, found).map(|steps| steps.iter().map(|step| step.version).collect());
        assert_eq!(versions(0).ok(), Some(vec![1, 2]));
        assert_eq!(versions(1).ok(), Some(vec![2]));
        assert_eq!(versions(2).ok(), Some(vec![]));
        assert!(matches!(versions(3), Err(StoreError::Schema(_))));
    }
}
