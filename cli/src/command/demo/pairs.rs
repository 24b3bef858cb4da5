//! `KEY=VALUE,…`: the form of the demo's longer flags.

use std::str::FromStr;

/// The keys of `text` with their values, in its order; `example` is such a pair, for whom none was given.
pub(super) fn pairs<'a>(text: &'a str, example: &str) -> impl Iterator<Item = Result<(&'a str, &'a str), String>> {
    text.split(',').map(move |pair| match pair.split_once('=') {
        Some((key, value)) => Ok((key.trim(), value.trim())),
        None => Err(format!("`{pair}` is no KEY=VALUE, such as {example}")),
    })
}

/// A finite number: "NaN" and "inf" are numbers to a parser, and promises to nobody.
pub(super) fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    let is_number = value.parse::<f64>().is_ok_and(f64::is_finite);
    value.parse().ok().filter(|_| is_number).ok_or_else(|| format!("{key}={value}: a number is expected"))
}
