//! Escapes characters that a terminal acts on. Names, labels, descriptions and problem details come from other machines, so
//! every text is escaped here, where it leaves the process.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a terminal, or a viewer that reorders text, acts on this character: controls of C0 and C1, separators of lines, and
/// controls of the direction of writing.
fn is_active(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, is_kept: fn(char) -> bool, escape: fn(&mut String, char)) -> Cow<'_, str> {
    let is_escaped = |letter: char| is_active(letter) && !is_kept(letter);
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_escaped(letter) { escape(&mut safe, letter) } else { safe.push(letter) }
    }
    Cow::Owned(safe)
}

fn as_escape(safe: &mut String, letter: char) {
    safe.extend(letter.escape_default());
}

/// `\u009b`, an escape of strings in JSON and TOML. All these characters have four digits.
fn as_json(safe: &mut String, letter: char) {
    let _ = write!(safe, "\\u{:04x}", u32::from(letter));
}

/// A text of several lines.
pub(super) fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| matches!(letter, '\n' | '\t'), as_escape)
}

/// A text that must stay on its line, such as a cell of a table.
pub(super) fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false, as_escape)
}

/// JSON, or a document in which strings are escaped as in JSON. Outside of strings only white space can need escaping.
pub(super) fn json(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| matches!(letter, '\n' | '\t'), as_json)
}

/// Text inside an element of HTML or SVG, or inside a quoted attribute.
pub(crate) fn markup(text: &str) -> String {
    lines(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\u{1b}]0;x\u{7}\u{9b}31m\u{202e}b\r\n\u{2066}\u{7f}é病";

    #[test]
    fn controls_and_directions_are_escaped() {
        let shown = "a\\u{1b}]0;x\\u{7}\\u{9b}31m\\u{202e}b\\r\n\\u{2066}\\u{7f}é病";
        assert_eq!(lines(HOSTILE), shown);
        assert_eq!(line(HOSTILE), shown.replace('\n', "\\n"));
        assert_eq!(lines(&lines(HOSTILE)), shown, "a second time changes nothing");
        for plain in ["", "plain\n\twords", "病院 – „quoted“ e\u{301}"] {
            assert!(matches!(lines(plain), Cow::Borrowed(same) if same == plain));
        }
    }

    #[test]
    fn markup_is_text_for_a_browser() {
        assert_eq!(markup("<b title=\"a\">&\u{202e}\n"), "&lt;b title=&quot;a&quot;&gt;&amp;\\u{202e}\n");
    }

    #[test]
    fn json_stays_json_and_has_only_letters() {
        let value = serde_json::json!({ "name\u{9f}": HOSTILE, "list": ["\u{202a}"] });
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let safe = json(&text);
            assert!(!safe.contains(|letter: char| is_active(letter) && letter != '\n'), "{safe}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
        }
    }
}
