//! Width of texts on a terminal: a Chinese letter takes two columns, a combining accent zero.

/// Columns that a text takes.
pub(super) fn measure(text: &str) -> usize {
    console::measure_text_width(text)
}

/// A text to the left of so many columns.
pub(super) fn to_left(text: &str, width: usize) -> String {
    format!("{text}{}", gap(text, width))
}

/// A text to the right of so many columns.
pub(super) fn to_right(text: &str, width: usize) -> String {
    format!("{}{text}", gap(text, width))
}

fn gap(text: &str, width: usize) -> String {
    " ".repeat(width.saturating_sub(measure(text)))
}

/// The beginning of a text that fits into so many columns, with the accents on its last letter, and the rest.
pub(super) fn split(text: &str, width: usize) -> (&str, &str) {
    let ends = text.char_indices().map(|(begin, letter)| begin + letter.len_utf8());
    let fitting = ends.take_while(|&end| text.get(..end).is_some_and(|begin| measure(begin) <= width));
    text.split_at(fitting.last().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_as_wide_as_a_terminal_shows_it() {
        for (text, width) in [("", 0), ("ward", 4), ("病院", 4), ("e\u{301}cole", 5), ("école", 5), ("한국", 4)] {
            assert_eq!(measure(text), width, "{text}");
        }
        assert_eq!((to_left("病院", 6), to_right("病院", 6)), ("病院  ".to_owned(), "  病院".to_owned()));
        assert_eq!(to_left("e\u{301}", 3), "e\u{301}  ");
        assert_eq!(to_left("wide", 2), "wide");
    }

    #[test]
    fn a_cut_is_by_columns_and_leaves_no_accent_alone() {
        assert_eq!(split("病院の", 4), ("病院", "の"));
        assert_eq!(split("病院の", 5), ("病院", "の"));
        assert_eq!(split("e\u{301}te\u{301}", 1), ("e\u{301}", "te\u{301}"));
        assert_eq!(split("abc", 9), ("abc", ""));
        assert_eq!(split("病", 1), ("", "病"));
    }
}
