//! Matches a cell to one of a column's words: the same word, else the same number or truth value.
//!
//! Sites write one value in several ways: a column of numbers with an empty cell becomes `1.0`, and truth values are `True`, `TRUE`
//! or `true`.

/// A word that stands for a value.
#[derive(Clone, Copy)]
enum Value {
    Number(f64),
    Truth(bool),
}

fn value(word: &str) -> Option<Value> {
    if word.eq_ignore_ascii_case("true") {
        return Some(Value::Truth(true));
    }
    if word.eq_ignore_ascii_case("false") {
        return Some(Value::Truth(false));
    }
    word.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::Number)
}

/// Whether they are the same value; `true` is 1 and `false` is 0.
fn are_same(one: Value, other: Value) -> bool {
    let number = |value| match value {
        Value::Number(number) => number,
        Value::Truth(truth) => f64::from(u8::from(truth)),
    };
    number(one) == number(other)
}

/// The position of the only word that a cell matches; `None` if it matches zero or several words.
pub(super) fn position(words: &[String], cell: &str) -> Option<usize> {
    let exact = words.iter().position(|word| word == cell);
    exact.or_else(|| {
        let meant = value(cell)?;
        let is_meant = |word: &String| value(word).is_some_and(|value| are_same(value, meant));
        let mut found = (0..words.len()).filter(|&at| is_meant(&words[at]));
        found.next().filter(|_| found.next().is_none())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_truth_values_compare_as_values() {
        let positions = |words: &[&str], cells: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            cells.iter().map(|cell| position(&words, cell)).collect::<Vec<_>>()
        };
        assert_eq!(positions(&["0", "1"], &["0", "1.0", "1e0", "+1", "True", "FALSE"]), [0, 1, 1, 1, 1, 0].map(Some));
        assert_eq!(positions(&["0.0", "1.0"], &["0", "1", "-0.0"]), [0, 1, 0].map(Some));
        assert_eq!(positions(&["false", "true"], &["False", "TRUE", "true", "1", "0.0"]), [0, 1, 1, 1, 0].map(Some));
        assert_eq!(positions(&["no", "yes"], &["No", "true", "1", "nan", "inf"]), [None; 5]);
        assert_eq!(positions(&["nan", "inf"], &["nan", "NaN", "inf", "1e999"]), [Some(0), None, Some(1), None]);
        assert_eq!(positions(&["7", "07"], &["7", "07", "7.0"]), [Some(0), Some(1), None], "two words are this value");
    }
}
