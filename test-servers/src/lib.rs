//! Throw-away servers for tests: started from what the machine has, removed with the test process. A dev-dependency only.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::io::Write as _;

pub mod line;
pub mod postgres;
pub mod s3;

/// Set to `1` where every server can be had: then a test that would skip itself fails.
pub const REQUIRE: &str = "TRIBUTARY_REQUIRE_SERVERS";

/// Says that a server is absent, and that the test is skipped for it.
///
/// # Panics
/// If [`REQUIRE`] is `1`.
#[expect(clippy::disallowed_methods, reason = "tests have no configuration but this")]
pub fn skip(missing: &str) {
    assert!(std::env::var_os(REQUIRE).is_none_or(|required| required != "1"), "{REQUIRE}=1, but {missing}");
    skipped(missing);
}

/// Says that a test is skipped, and why. `cargo test` keeps back what a test that passes prints by `eprintln!`, and not this.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}
