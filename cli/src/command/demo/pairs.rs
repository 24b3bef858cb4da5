//! `KEY=VALUE,…` and `NAME,KEY=VALUE,…`: the forms of the demo's longer flags.

use std::str::FromStr;

use serde_json::Value;

/// The keys of `text` with their values, in its order; `example` is such a pair, for whom none was given.
pub(super) fn pairs<'a>(text: &'a str, example: &str) -> impl Iterator<Item = Result<(&'a str, &'a str), String>> {
    text.split(',').map(move |pair| match pair.split_once('=') {
        Some((key, value)) => Ok((key.trim(), value.trim())),
        None => Err(format!("`{pair}` is no KEY=VALUE, such as {example}")),
    })
}

/// The name that `text` begins with, and the pairs after its first comma, if it has one.
pub(super) fn named<'a>(
    text: &'a str,
    example: &str,
) -> (&'a str, impl Iterator<Item = Result<(&'a str, &'a str), String>>) {
    let (name, rest) = text.split_once(',').map_or((text, None), |(name, rest)| (name, Some(rest)));
    (name.trim(), rest.into_iter().flat_map(move |rest| pairs(rest, example)))
}

/// A finite number: "NaN" and "inf" are numbers to a parser, and promises to nobody.
pub(super) fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    let is_number = value.parse::<f64>().is_ok_and(f64::is_finite);
    value.parse().ok().filter(|_| is_number).ok_or_else(|| format!("{key}={value}: a number is expected"))
}

/// What a task file would hold: a finite number where it is one, else a word.
pub(super) fn field(value: &str) -> Value {
    let whole = value.parse::<u64>().ok().map(Value::from);
    let real = || value.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from);
    whole.or_else(real).unwrap_or_else(|| value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_stand_alone_or_before_pairs() {
        for (text, name, count) in [("median", "median", 0), (" top_k , k=3 ,feedback=no", "top_k", 2)] {
            let (found, pairs) = named(text, "k=1%");
            assert_eq!((found, pairs.collect::<Result<Vec<_>, _>>().unwrap().len()), (name, count));
        }
        let (_, pairs) = named("top_k,k=3,", "k=1%");
        assert!(pairs.last().unwrap().unwrap_err().contains("such as k=1%"));
    }

    #[test]
    fn fields_are_numbers_where_they_can_be() {
        let fields = ["7", "-0.5", "1e3", "rounds", "inf", "NaN"].map(field);
        assert_eq!(serde_json::json!(fields), serde_json::json!([7, -0.5, 1000.0, "rounds", "inf", "NaN"]));
    }
}
