//! Temporary servers for tests: started from installed programs, removed with the test process. A dev-dependency only.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::io::Write as _;

pub mod line;
pub mod postgres;
pub mod s3;

/// Set to `1` if all servers are available: tests then fail instead of being skipped.
pub const REQUIRE: &str = "TRIBUTARY_REQUIRE_SERVERS";

/// Reports a missing server and the skipped test.
///
/// # Panics
/// If [`REQUIRE`] is `1`.
#[expect(clippy::disallowed_methods, reason = "tests have no configuration but this")]
pub fn skip(missing: &str) {
    assert!(std::env::var_os(REQUIRE).is_none_or(|required| required != "1"), "{REQUIRE}=1, but {missing}");
    skipped(missing);
}

/// Reports a skipped test with its reason. Unlike `eprintln!`, this is not captured by `cargo test`.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}
