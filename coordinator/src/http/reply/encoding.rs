//! Negotiation of content codings.

use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

/// Whether `accept-encoding` allows gzip, RFC 9110 §12.5.3.
pub(in crate::http) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let codings: Vec<_> = values.flat_map(|value| value.split(',')).map(coding).collect();
    let is_accepted = |wanted: &str| {
        let mut named = codings.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        named.next().map(|(_, is_accepted)| *is_accepted)
    };
    // `*` matches codings not listed.
    is_accepted("gzip").or_else(|| is_accepted("*")).unwrap_or(false)
}

/// The name of a coding, and whether its weight is more than 0.
fn coding(text: &str) -> (&str, bool) {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let mut weights = parts.filter_map(|parameter| {
        let (name, weight) = parameter.split_once('=')?;
        name.trim_end().eq_ignore_ascii_case("q").then(|| weight.trim_start())
    });
    (name, weights.next().is_none_or(|weight| weight.parse::<f32>().is_ok_and(|weight| weight > 0.0)))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn accepts(values: &[&'static str]) -> bool {
        accepts_gzip(&values.iter().map(|value| (ACCEPT_ENCODING, HeaderValue::from_static(value))).collect())
    }

    #[test]
    fn gzip_is_for_whoever_names_it_with_a_weight_or_without() {
        for values in [
            &["gzip"][..],
            &["GZip"],
            &["br, gzip;q=0.8"],
            &["gzip ; Q = 0.001"],
            &["deflate", "br,gzip"],
            &["*"],
            &["identity;q=1, *;q=0.5"],
            &["*;q=0, gzip"],
        ] {
            assert!(accepts(values), "{values:?}");
        }
    }

    #[test]
    fn gzip_is_not_for_anybody_else() {
        for values in [
            &[][..],
            &[""],
            &["identity"],
            &["gzip;q=0"],
            &["gzip;q=0.000, *"],
            &["gzip;q=x"],
            &["*;q=0"],
            &["br, deflate, xgzip"],
        ] {
            assert!(!accepts(values), "{values:?}");
        }
    }
}
