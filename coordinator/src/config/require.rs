//! Notes what is wrong with a configuration.

/// Notes `problem` unless `holds`.
pub(super) fn require(problems: &mut Vec<String>, holds: bool, problem: impl Into<String>) {
    if !holds {
        problems.push(problem.into());
    }
}
