//! The reported version of this program.
//!
//! The builder sets the commit in `TRIBUTARY_COMMIT`. The build does not use git: sources may have changes, and an archive of them has no
//! history. So the same sources and the same variable give the same version.

use std::sync::LazyLock;

/// The version of the release, as in `Cargo.toml`.
pub(crate) const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// The source commit, 7 to 64 hexadecimal digits; `None` if the build did not set it.
pub(crate) const COMMIT: Option<&str> = match option_env!("TRIBUTARY_COMMIT") {
    Some(commit) if !commit.is_empty() => {
        assert!(is_commit(commit), "TRIBUTARY_COMMIT names no commit: it is 7 to 64 digits, 0 to 9 and a to f");
        Some(commit)
    }
    Some(_) | None => None,
};

/// The version of the program: `0.1.0+COMMIT`, in the form of semantic versions, or `0.1.0` without a commit.
#[must_use]
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| named(RELEASE, COMMIT));
    &VERSION
}

fn named(release: &str, commit: Option<&str>) -> String {
    commit.map_or_else(|| release.to_owned(), |commit| format!("{release}+{commit}"))
}

/// Whether a text is the full or shortened id of a commit: 7 to 64 lowercase hexadecimal digits.
const fn is_commit(text: &str) -> bool {
    let digits = text.as_bytes();
    let mut at = 0;
    while at < digits.len() {
        if !matches!(digits[at], b'0'..=b'9' | b'a'..=b'f') {
            return false;
        }
        at += 1;
    }
    matches!(digits.len(), 7..=64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_names_the_commit_that_the_build_was_told() {
        assert_eq!(named("1.2.3", None), "1.2.3");
        assert_eq!(named("1.2.3", Some("0123abc")), "1.2.3+0123abc");
        assert_eq!(
            version(),
            named(env!("CARGO_PKG_VERSION"), option_env!("TRIBUTARY_COMMIT").filter(|it| !it.is_empty()))
        );
    }

    #[test]
    fn a_commit_is_hexadecimal() {
        for commit in ["0123abc", &"f".repeat(40), &"0".repeat(64)] {
            assert!(is_commit(commit), "{commit}");
        }
        for other in ["", "unknown", "0123ab", "0123ABC", "0123abc-dirty", "HEAD", &"0".repeat(65)] {
            assert!(!is_commit(other), "{other}");
        }
    }
}
