//! The names of rows that R writes as a first column without a heading.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

/// Most rows with words as names; more names are not recognized. Their hashes are kept.
const MAX_WORDS: usize = 1 << 24;

/// Whether the cells of a column are the names of rows: 1, 2, 3 and so on, or words that are quoted and differ.
pub(super) struct RowNames {
    rows: usize,
    count_rows: bool,
    /// Hashes of the words, as long as all are quoted and differ.
    words: Option<HashSet<u64>>,
    hasher: RandomState,
}

impl RowNames {
    pub(super) fn new() -> Self {
        Self { rows: 0, count_rows: true, words: Some(HashSet::new()), hasher: RandomState::new() }
    }

    /// A record's first cell is not quoted, as a word would be.
    pub(super) fn see_unquoted(&mut self) {
        self.words = None;
    }

    /// The first cell of the next row.
    pub(super) fn see(&mut self, name: &[u8]) {
        self.rows += 1;
        self.count_rows = self.count_rows && name == self.rows.to_string().as_bytes();
        let is_word = |word: &str| !word.is_empty() && word.parse::<f64>().is_err();
        let hash = self.hasher.hash_one(name);
        let is_next = |words: &mut HashSet<u64>| {
            std::str::from_utf8(name).is_ok_and(is_word) && words.len() < MAX_WORDS && words.insert(hash)
        };
        self.words = self.words.take().and_then(|mut words| is_next(&mut words).then_some(words));
    }

    pub(super) fn are_names(&self) -> bool {
        self.count_rows || self.words.is_some()
    }
}
