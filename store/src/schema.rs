//! The migrations that a database needs for this program, and when to refuse it.

use crate::error::{Result, StoreError};

/// A migration, up and down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    pub(crate) version: u32,
    /// File name without number and extension.
    pub(crate) name: &'static str,
    pub(crate) up: &'static str,
    #[cfg_attr(not(feature = "conformance"), expect(dead_code, reason = "only tests go down by themselves"))]
    pub(crate) down: &'static str,
}

/// Every migration, in order, embedded from a database's folder. Each is two files, named by its number in four digits
/// and by its name, which are the same for all databases.
macro_rules! migrations {
    ($database:literal) => {
        crate::schema::migrations!($database:
            1 "0001" "initial",
            2 "0002" "privacy",
            3 "0003" "optimizer_state",
            4 "0004" "groups",
            5 "0005" "training",
            6 "0006" "unopened",
            7 "0007" "token_participant",
            8 "0008" "replicas",
            9 "0009" "doomed",
            10 "0010" "retention",
            11 "0011" "counts",
            12 "0012" "used_nonce",
            13 "0013" "parts",
            14 "0014" "events",
            15 "0015" "sign_in",
            16 "0016" "token_expiry",
            17 "0017" "token_scope",
            18 "0018" "filters",
            19 "0019" "promoted",
            20 "0020" "provenance",
            21 "0021" "identity_sign_in",
            22 "0022" "device_reason",
            23 "0023" "model_server",
            24 "0024" "sum_coordinator",
            25 "0025" "lists",
            26 "0026" "drop_unopened",
            27 "0027" "refusals",
            28 "0028" "batches",
            29 "0029" "model_upload",
            30 "0030" "record_below")
    };
    ($database:literal: $($version:literal $digits:literal $name:literal),+) => {
        &[$(crate::schema::Migration {
            version: $version,
            name: $name,
            up: crate::schema::migrations!(file $database $digits $name ".up.sql"),
            down: crate::schema::migrations!(file $database $digits $name ".down.sql"),
        }),+]
    };
    (file $database:literal $digits:literal $name:literal $ending:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/", $database, "/", $digits, "_", $name, $ending))
    };
}
pub(crate) use migrations;

/// The version that a database has after all of these.
pub(crate) fn newest(known: &[Migration]) -> u32 {
    known.last().map_or(0, |step| step.version)
}

/// The migrations missing from a database at version `found` (0: empty).
///
/// # Errors
/// `Schema` if it has migrations that `known` lacks.
pub(crate) fn missing(known: &'static [Migration], found: u32) -> Result<&'static [Migration]> {
    let newest = newest(known);
    if found > newest {
        return Err(StoreError::Schema(format!(
            "the database has schema version {found}, this program knows versions up to {newest}: run the newer program \
             that wrote it"
        )));
    }
    Ok(&known[known.partition_point(|step| step.version <= found)..])
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
        assert_eq!((newest(KNOWN), newest(&[])), (2, 0));
    }
}
