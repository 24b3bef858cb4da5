//! Collects problems of a configuration.

/// Adds `problem` unless `holds`.
pub(super) fn require(problems: &mut Vec<String>, holds: bool, problem: impl Into<String>) {
    if !holds {
        problems.push(problem.into());
    }
}
