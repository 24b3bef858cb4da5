//! Numbers in sentences that people read.

/// A number and the word that goes with it: `1 participant`, `2 participants`, `0 are`.
#[must_use]
pub fn counted(count: impl Into<u64>, one: &str, many: &str) -> String {
    let count = count.into();
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        let told = |count: u32| counted(count, "is", "are");
        assert_eq!([0, 1, 2, 11].map(told), ["0 are", "1 is", "2 are", "11 are"]);
    }
}
