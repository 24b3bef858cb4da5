//! Wraps sentences at the width of a terminal, with a hanging indent.

use textwrap::core::Word;
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

use super::width::measure;

/// Fewest columns that text is wrapped at, however narrow the terminal is.
const COLUMNS_MIN: usize = 40;

/// The text in lines of at most `columns` columns. Words and text in backquotes stay whole, however wide. A line with
/// further gaps of two spaces is a row of a table, and stays as it is.
pub(super) fn wrap(text: &str, columns: usize) -> String {
    let columns = columns.max(COLUMNS_MIN);
    text.split('\n').map(|line| wrap_line(line, columns)).collect::<Vec<_>>().join("\n")
}

fn wrap_line(line: &str, columns: usize) -> String {
    let (label, text) = line.split_at(beginning(line));
    let indent = measure(label);
    if measure(line) <= columns || text.contains("  ") || indent > columns / 2 {
        return line.to_owned();
    }
    let below = " ".repeat(indent);
    let options = Options::new(columns)
        .initial_indent(label)
        .subsequent_indent(&below)
        .word_separator(WordSeparator::Custom(words))
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit)
        .break_words(false);
    textwrap::fill(text, options)
}

/// Byte at which the words of a line begin: after its indentation and, if two spaces follow a label, after those.
fn beginning(line: &str) -> usize {
    let indent = line.len() - line.trim_start().len();
    match line[indent..].find("  ") {
        Some(gap) => {
            let rest = line[indent + gap..].trim_start();
            line.len() - rest.len()
        }
        None => indent,
    }
}

/// The words of a text; text in backquotes is one word.
fn words(text: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
    let mut is_quoted = false;
    let is_end = move |letter: char| {
        is_quoted ^= letter == '`';
        letter == ' ' && !is_quoted
    };
    Box::new(text.split_inclusive(is_end).map(Word::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_go_on_where_they_began() {
        let label = "Updates      can be read by nobody: sums alone are opened, while at most 10 % of a cohort collude";
        assert_eq!(
            wrap(label, 60),
            "Updates      can be read by nobody: sums alone are opened,\n             while at most 10 % of a cohort collude"
        );
        let indented = "  the file FOLDER/task.toml has no name, and a task must have one";
        assert_eq!(wrap(indented, 40), "  the file FOLDER/task.toml has no name,\n  and a task must have one");
        let plain = "the coordinator cannot be reached now; again in 2 s\n\nthen ever less often";
        assert_eq!(wrap(plain, 40), "the coordinator cannot be reached now;\nagain in 2 s\n\nthen ever less often");
    }

    #[test]
    fn no_line_is_wider_but_for_what_stays_together() {
        let text = "Stopped     PAUSED since 2026-11-27 21:30:22Z: no round opens. `tributary task resume digits` goes on, \
                    and 病院の患者 are asked again by those who know";
        for columns in [50, 60, 80, 200] {
            let wrapped = wrap(text, columns);
            assert!(wrapped.lines().all(|line| measure(line) <= columns), "{wrapped}");
            assert!(wrapped.contains("`tributary task resume digits`"), "{wrapped}");
            let again: Vec<_> = wrapped.split_whitespace().collect();
            assert_eq!(again, text.split_whitespace().collect::<Vec<_>>());
        }
        let path = "/".repeat(90);
        assert_eq!(wrap(&format!("it is in {path} now"), 80), format!("it is in\n{path}\nnow"));
    }

    #[test]
    fn what_is_not_of_words_stays_as_it_is() {
        let row =
            "    1  COMPLETED      20        20        0    103 kB    356 kB   0.05s   0.10s    0.07s   0.09s    0.07s";
        assert_eq!(wrap(row, 80), row);
        let wide = format!("{}  words that have no room", "l".repeat(60));
        assert_eq!(wrap(&wide, 80), wide);
        for text in
            ["", "\n", "short", "  short", "a `quote that is never closed and goes on for more than forty columns"]
        {
            assert_eq!(wrap(text, 40).replace('\n', " "), text.replace('\n', " "));
        }
    }
}
