//! Frequency of the words of a private idiom in comments and pages, per 10,000 words.
//!
//! A component returns, stores or rejects. [`MARKERS`] are words typical of prose without a named subject.

use std::path::{Path, PathBuf};

/// Words typical of prose that is hard to read.
const MARKERS: [&str; 13] = [
    "told",
    "tells",
    "asked",
    "asks",
    "says",
    "whoever",
    "whom",
    "nobody",
    "everybody",
    "somebody",
    "beside",
    "apart",
    "meanwhile",
];

/// Maximum number of markers per 10,000 words. This number only shrinks.
const MARKERS_MAX: u64 = 6;
/// Distance below [`MARKERS_MAX`] at which the maximum must be lowered.
const SLACK: u64 = 5;

/// Words of prose, and the markers among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    words: u64,
    markers: u64,
}

impl Count {
    fn add(&mut self, text: &str) {
        let parts = |ends: fn(char) -> bool| text.split(ends).filter(|part| !part.is_empty());
        let is_marker = |part: &&str| MARKERS.iter().any(|marker| part.eq_ignore_ascii_case(marker));
        self.words += parts(|letter| !letter.is_ascii_alphabetic() && letter != '\'').count() as u64;
        self.markers += parts(|letter| !letter.is_alphanumeric() && letter != '_').filter(is_marker).count() as u64;
    }

    /// Markers per 10,000 words, rounded up.
    fn index(self) -> u64 {
        (10_000 * self.markers).div_ceil(self.words.max(1))
    }
}

/// Rejects an index above the maximum, and a maximum far above the index.
pub(crate) fn check(root: &Path, files: &[PathBuf], wrong: &mut Vec<String>) -> anyhow::Result<()> {
    let mut count = Count::default();
    for file in files {
        let is_page = file.extension().is_some_and(|ext| ext == "md") && !file.ends_with("CHANGELOG.md");
        let is_source = file.extension().is_some_and(|ext| ext == "rs");
        let path = root.join(file);
        if !(is_page || is_source) || !path.exists() {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        if is_page {
            outside_fences(&text).for_each(|part| count.add(part));
        } else {
            comments(&text).for_each(|comment| count.add(comment));
        }
    }
    wrong.extend(judge(count.index()));
    Ok(())
}

fn judge(index: u64) -> Option<String> {
    if index > MARKERS_MAX {
        return Some(format!(
            "comments and pages have {index} markers per 10,000 words; at most {MARKERS_MAX}. Rewrite sentences with: {}",
            MARKERS.join(", ")
        ));
    }
    let low = MARKERS_MAX.saturating_sub(SLACK);
    (index < low).then(|| {
        format!("comments and pages have {index} markers per 10,000 words: lower MARKERS_MAX (xtask/src/english.rs)")
    })
}

/// The comments of a source file, each from its slashes to the end of the line.
fn comments(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| line.split_once("//").map(|(_, comment)| comment))
}

/// The parts of a page outside fenced blocks.
fn outside_fences(page: &str) -> impl Iterator<Item = &str> {
    page.split("```").step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_counted_in_prose_alone() {
        let source = "//! Told twice: TOLD.\nlet told = 1; // nobody asks\nlet url = told;\n";
        let mut count = Count::default();
        comments(source).for_each(|comment| count.add(comment));
        assert_eq!(count, Count { words: 5, markers: 4 });
        let page = "It asks.\n```sh\necho told\n```\nNobody's told_id is beside-b.\n";
        let mut count = Count::default();
        outside_fences(page).for_each(|part| count.add(part));
        assert_eq!(count, Count { words: 8, markers: 3 });
    }

    #[test]
    fn index_rounds_up_and_allows_no_words() {
        assert_eq!(Count::default().index(), 0);
        assert_eq!(Count { words: 30_000, markers: 100 }.index(), 34);
    }

    #[test]
    fn judge_rejects_growth_and_a_stale_maximum() {
        assert!(judge(MARKERS_MAX + 1).is_some_and(|wrong| wrong.contains("at most")));
        assert_eq!([MARKERS_MAX, MARKERS_MAX - SLACK].map(judge), [None, None]);
        assert!(judge(MARKERS_MAX - SLACK - 1).is_some_and(|wrong| wrong.contains("MARKERS_MAX")));
    }
}
