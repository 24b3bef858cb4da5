//! Words that a message lists.

/// Most words that a message lists.
const SHOWN: usize = 12;

/// The first of these, and how many more there are.
pub(super) fn listed(words: &[&str]) -> Vec<String> {
    let mut shown: Vec<_> = words.iter().take(SHOWN).map(|word| format!("`{word}`")).collect();
    if words.len() > SHOWN {
        shown.push(format!("{} more", words.len() - SHOWN));
    }
    shown
}
