//! Tables of text: whole in a file, and on a terminal as wide as it is.

use std::fmt::Write as _;

use super::escape::line;
use super::width::{measure, split, to_left, to_right};

/// Letters between two columns.
pub(super) const GAP: usize = 2;
/// Minimum width of a column of words in its row; with less room, words are below their row.
const WORDS_MIN: usize = 20;
/// A text is not shortened to less than this.
const TEXT_MIN: usize = 8;
/// Before words that are below their row.
const INDENT: &str = "    ";

/// Type of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cells {
    /// Text, to the left; shortened if all else fails.
    Text,
    /// An argument of other commands, such as an id: to the left, always in full.
    Key,
    /// Numbers, to the right; always in full.
    Number,
    /// Sentences, in the last column: they go on below.
    Words,
}

/// Rows under headings, each column as wide as its widest cell.
pub(crate) struct Table {
    columns: Vec<(String, Cells)>,
    rows: Vec<Vec<String>>,
    dispensable: &'static [&'static str],
}

/// How a table is drawn.
struct Layout {
    /// The columns that are shown, with their widths.
    shown: Vec<(usize, usize)>,
    /// The column whose words are below their row, and how wide they may be.
    below: Option<(usize, usize)>,
    /// The columns that are left out, though they say something.
    left_out: Vec<usize>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new(columns: &[(&str, Cells)]) -> Self {
        let columns = columns.iter().map(|&(heading, cells)| (heading.to_owned(), cells)).collect();
        Self { columns, rows: Vec::new(), dispensable: &[] }
    }

    /// The headings of columns that a narrow terminal omits, first to last, as far as needed.
    pub(crate) fn dispensable(mut self, headings: &'static [&'static str]) -> Self {
        self.dispensable = headings;
        self
    }

    /// Adds a row; cells beyond the last column are left out.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| line(cell).into_owned()).collect());
    }

    /// Renders the table for a terminal with so many columns, or whole if `terminal` is `None`; returns `nothing` for a
    /// table without rows. Columns that a narrow terminal omits are named below the table.
    pub(crate) fn render(&self, terminal: Option<usize>, nothing: &str) -> String {
        if self.rows.is_empty() {
            return nothing.to_owned();
        }
        let natural: Vec<usize> = (0..self.columns.len()).map(|column| self.widest(column)).collect();
        let layout = match terminal {
            Some(columns) => self.fit(&natural, columns),
            None => Layout { shown: natural.iter().copied().enumerate().collect(), below: None, left_out: Vec::new() },
        };
        let headings: Vec<String> = self.columns.iter().map(|(heading, _)| heading.clone()).collect();
        let mut text = String::new();
        for row in std::iter::once(&headings).chain(&self.rows) {
            self.draw(row, &layout, &mut text);
        }
        if let Some(columns) = terminal {
            text.push_str(&self.concealed(&layout, &natural, columns));
        }
        text
    }

    /// The width of a column's widest cell.
    fn widest(&self, column: usize) -> usize {
        let heading = self.columns.get(column).map_or(0, |(heading, _)| measure(heading));
        let cells = self.rows.iter().map(|row| row.get(column).map_or(0, |cell| measure(cell)));
        cells.fold(heading, usize::max)
    }

    /// Which columns a terminal shows, and how.
    fn fit(&self, natural: &[usize], columns: usize) -> Layout {
        let words = self.columns.len().checked_sub(1).filter(|&last| self.is(last, Cells::Words));
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let mut left_out = Vec::new();
        let least =
            |column: usize| if Some(column) == words { natural[column].min(WORDS_MIN) } else { natural[column] };
        for column in self.order_of_leaving() {
            if total(shown.iter().map(|&column| least(column))) <= columns {
                break;
            }
            shown.retain(|&other| other != column);
            if !self.is_empty(column) {
                left_out.push(column);
            }
        }
        let is_beside = total(shown.iter().map(|&column| least(column))) <= columns;
        let words = words.filter(|words| shown.contains(words));
        let below = words.filter(|_| !is_beside).map(|column| (column, columns.saturating_sub(INDENT.len()).max(1)));
        shown.retain(|&column| below.is_none_or(|(below, _)| below != column));
        let others: Vec<usize> = shown.iter().copied().filter(|&column| Some(column) != words).collect();
        let mut widths: Vec<(usize, usize)> = others.iter().map(|&column| (column, natural[column])).collect();
        if let (Some(column), None) = (words, below) {
            let beside = columns.saturating_sub(total(others.iter().map(|&column| natural[column])) + GAP);
            widths.push((column, natural[column].min(beside)));
        }
        self.shorten(&mut widths, columns);
        Layout { shown: widths, below, left_out }
    }

    /// Shortens the widest texts until all fits, or all are as short as allowed.
    fn shorten(&self, widths: &mut [(usize, usize)], columns: usize) {
        while total(widths.iter().map(|(_, width)| *width)) > columns {
            let heading = |column: usize| self.columns.get(column).map_or(0, |(heading, _)| measure(heading));
            let can_give = |&(column, width): &(usize, usize)| {
                self.is(column, Cells::Text) && width > heading(column).max(TEXT_MIN)
            };
            let widest = widths.iter_mut().filter(|one| can_give(one)).max_by_key(|one| one.1);
            let Some((_, width)) = widest else { break };
            *width -= 1;
        }
    }

    /// Columns in the order of omission: empty ones, then dispensable ones.
    fn order_of_leaving(&self) -> Vec<usize> {
        let empty = (0..self.columns.len()).filter(|&column| self.is_empty(column));
        let spared = self.dispensable.iter().filter_map(|name| self.columns.iter().position(|(own, _)| own == name));
        empty.chain(spared).collect()
    }

    fn is(&self, column: usize, cells: Cells) -> bool {
        self.columns.get(column).is_some_and(|(_, own)| *own == cells)
    }

    fn is_empty(&self, column: usize) -> bool {
        self.rows.iter().all(|row| row.get(column).is_none_or(|cell| matches!(cell.as_str(), "" | "-")))
    }

    fn draw(&self, row: &[String], layout: &Layout, text: &mut String) {
        let cell = |column: usize| row.get(column).map_or("", String::as_str);
        let (mut line, mut more) = (String::new(), Vec::new());
        for &(column, width) in &layout.shown {
            let cells = self.columns.get(column).map_or(Cells::Text, |(_, cells)| *cells);
            let _ = match cells {
                Cells::Text | Cells::Key => write!(line, "{}  ", to_left(&shortened(cell(column), width), width)),
                Cells::Number => write!(line, "{}  ", to_right(cell(column), width)),
                Cells::Words => {
                    let before = " ".repeat(measure(&line));
                    let mut lines = wrapped(cell(column), width).into_iter();
                    let first = lines.next().unwrap_or_default();
                    more.extend(lines.map(|rest| format!("{before}{rest}")));
                    write!(line, "{first}  ")
                }
            };
        }
        if let Some((column, width)) = layout.below {
            let lines = wrapped(cell(column), width).into_iter();
            more.extend(lines.filter(|rest| !rest.is_empty()).map(|rest| format!("{INDENT}{rest}")));
        }
        for line in std::iter::once(line).chain(more) {
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }

    /// The names of omitted and shortened columns, as text.
    fn concealed(&self, layout: &Layout, natural: &[usize], columns: usize) -> String {
        let names = |columns: &[usize]| {
            columns.iter().map(|&column| self.columns[column].0.as_str()).collect::<Vec<_>>().join(", ")
        };
        let is_short = |&(column, width): &(usize, usize)| self.is(column, Cells::Text) && width < natural[column];
        let short: Vec<usize> = layout.shown.iter().copied().filter(is_short).map(|(column, _)| column).collect();
        let mut parts = Vec::new();
        if !layout.left_out.is_empty() {
            parts.push(format!("without {}", names(&layout.left_out)));
        }
        if !short.is_empty() {
            parts.push(format!("{} shortened", names(&short)));
        }
        if parts.is_empty() {
            return String::new();
        }
        let words = format!("({columns} columns: {}; `--format json` has everything)", parts.join(", "));
        format!("{}\n", wrapped(&words, columns.max(1)).join("\n"))
    }
}

/// The total width of adjacent columns.
fn total(widths: impl Iterator<Item = usize>) -> usize {
    widths.fold(0, |sum, width| sum + width + GAP).saturating_sub(GAP)
}

/// Whether a text fits a terminal of eighty columns.
#[cfg(test)]
pub(crate) fn fits_eighty(text: &str) -> bool {
    text.lines().all(|line| measure(line) <= 80)
}

/// A text in at most so many columns, the last of them `…` if that is not all.
fn shortened(text: &str, width: usize) -> String {
    if measure(text) <= width {
        return text.to_owned();
    }
    format!("{}…", split(text, width.saturating_sub(1)).0)
}

/// A text in lines of at most so many columns, broken between words; within one only if it is longer than a line.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    if measure(text) <= width {
        return vec![text.to_owned()];
    }
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && measure(&line) + 1 + measure(word) > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        while measure(&line) > width.max(1) && line.chars().nth(1).is_some() {
            let (mut begin, mut rest) = split(&line, width.max(1));
            if begin.is_empty() {
                // One letter is wider than the line.
                (begin, rest) = line.split_at(line.chars().next().map_or(0, char::len_utf8));
            }
            lines.push(begin.to_owned());
            line = rest.to_owned();
        }
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists() -> Table {
        let mut table = Table::new(&[
            ("ID", Cells::Text),
            ("NAME", Cells::Text),
            ("ROUNDS", Cells::Number),
            ("NONE", Cells::Text),
            ("ABOUT", Cells::Words),
        ])
        .dispensable(&["ID"]);
        let cells = ["0123456789", "a name of some length", "7", "-", "the quick brown fox jumps over the dog"];
        table.row(cells.map(str::to_owned).to_vec());
        table
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[("NAME", Cells::Text), ("ROUND", Cells::Number)]);
        assert_eq!(table.render(Some(80), "No tasks."), "No tasks.");
        table.row(vec!["a".into(), "7".into()]);
        table.row(vec!["longer".into(), "1234567".into()]);
        for width in [None, Some(15), Some(200)] {
            assert_eq!(table.render(width, ""), "NAME      ROUND\na             7\nlonger  1234567\n", "{width:?}");
        }
    }

    #[test]
    fn a_file_and_a_wide_terminal_have_everything() {
        // 10 + 21 + 6 + 4 + 38, and four gaps.
        let whole = "ID          NAME                   ROUNDS  NONE  ABOUT\n\
                     0123456789  a name of some length       7  -     the quick brown fox jumps over the dog\n";
        assert_eq!(lists().render(None, ""), whole);
        assert_eq!(lists().render(Some(87), ""), whole);
    }

    #[test]
    fn words_go_on_below_before_a_column_is_left_out() {
        // 10 + 21 + 6 + 4 + 20, and four gaps: the narrowest with all columns.
        let narrow = "ID          NAME                   ROUNDS  NONE  ABOUT\n\
                      0123456789  a name of some length       7  -     the quick brown fox\n\
                      \x20                                                jumps over the dog\n";
        assert_eq!(lists().render(Some(69), ""), narrow);
    }

    #[test]
    fn what_says_nothing_leaves_first_and_the_rest_is_named() {
        // Without NONE: 10 + 21 + 6 + 20, and three gaps.
        let narrower = "ID          NAME                   ROUNDS  ABOUT\n\
                        0123456789  a name of some length       7  the quick brown fox\n\
                        \x20                                          jumps over the dog\n";
        assert_eq!(lists().render(Some(63), ""), narrower);
        // Without ID: 21 + 6 + 20, and two gaps.
        let without = "NAME                   ROUNDS  ABOUT\n\
                       a name of some length       7  the quick brown fox\n\
                       \x20                              jumps over the dog\n\
                       (51 columns: without ID; `--format json` has\n\
                       everything)\n";
        assert_eq!(lists().render(Some(51), ""), without);
    }

    #[test]
    fn words_are_below_their_row_and_texts_shortened_where_nothing_else_helps() {
        // 21 + 6, and a gap, are too many: the name keeps 16.
        let least = "NAME              ROUNDS\n\
                     \x20   ABOUT\n\
                     a name of some …       7\n\
                     \x20   the quick brown fox\n\
                     \x20   jumps over the dog\n\
                     (24 columns: without ID,\n\
                     NAME shortened;\n\
                     `--format json` has\n\
                     everything)\n";
        assert_eq!(lists().render(Some(24), ""), least);
    }

    #[test]
    fn neither_keys_nor_numbers_are_shortened() {
        let mut table = Table::new(&[("ID", Cells::Key), ("COUNT", Cells::Number), ("NAME", Cells::Text)]);
        table.row(vec!["0123456789abcdef".into(), "1234567890".into(), "nightly-backup".into()]);
        let drawn = table.render(Some(20), "");
        assert_eq!(drawn.lines().nth(1), Some("0123456789abcdef  1234567890  nightly…"), "{drawn}");
    }

    #[test]
    fn a_word_that_is_longer_than_a_line_is_broken() {
        assert_eq!(wrapped("ab cdefghij k", 4), ["ab", "cdef", "ghij", "k"]);
        assert_eq!(wrapped("abcdefgh", 4), ["abcd", "efgh"]);
        assert_eq!(wrapped("", 4), [""]);
        assert_eq!(wrapped("two  spaces", 20), ["two  spaces"]);
        assert_eq!(wrapped("病院の", 4), ["病院", "の"]);
        assert_eq!(wrapped("病院", 1), ["病", "院"]);
    }

    #[test]
    fn wide_letters_and_accents_stand_in_their_columns() {
        let mut table = Table::new(&[("NAME", Cells::Text), ("ROUND", Cells::Number)]);
        for (name, round) in [("東京病院", "7"), ("e\u{301}cole", "12"), ("ward", "3")] {
            table.row(vec![name.to_owned(), round.to_owned()]);
        }
        let whole = "NAME      ROUND\n東京病院      7\ne\u{301}cole        12\nward          3\n";
        assert_eq!(table.render(Some(80), ""), whole);
        let mut table = Table::new(&[("NAME", Cells::Text)]);
        table.row(vec!["東京大学附属病院".to_owned()]);
        assert_eq!(table.render(Some(10), "").lines().nth(1), Some("東京大学…"), "nine columns of ten");
    }
}
