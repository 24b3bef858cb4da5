//! Headers that make a write conditional: only once, or only if the view has not changed.

use reqwest::RequestBuilder;
use wire::headers::IDEMPOTENCY_KEY;

/// Header with the tags of which the view must have one (RFC 9110 §13.1.1).
const IF_MATCH: &str = "if-match";

/// A header that a write may carry, with its value.
pub(crate) type Condition = (&'static str, String);

/// The option of commands that create something.
#[derive(clap::Args)]
pub(crate) struct IdempotencyArgs {
    /// Create it once, however often this is sent with the same key within 24 hours: of a task a repeat returns the first one, of a
    /// token, whose secret is shown once, it is refused and names the first one
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

impl IdempotencyArgs {
    pub(crate) fn condition(self) -> Option<Condition> {
        self.idempotency_key.map(|key| (IDEMPOTENCY_KEY, key))
    }
}

/// The option of commands that change something.
#[derive(clap::Args)]
pub(crate) struct IfMatchArgs {
    /// Do it only if nobody else has changed it since it was shown: the ETag that `show` printed. Otherwise nothing is done, and the
    /// exit code is 8
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
}

impl IfMatchArgs {
    pub(crate) fn condition(&self) -> Option<Condition> {
        self.if_match.as_deref().map(|tag| (IF_MATCH, quoted(tag)))
    }
}

/// A tag in quotation marks, which it may lack after a shell removed them.
fn quoted(tag: &str) -> String {
    if tag == "*" || tag.contains('"') { tag.to_owned() } else { format!("\"{tag}\"") }
}

/// Adds the condition to a request, if there is one.
pub(super) fn under(request: RequestBuilder, condition: Option<Condition>) -> RequestBuilder {
    match condition {
        Some((name, value)) => request.header(name, value),
        None => request,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_sent_in_its_quotation_marks() {
        let sent = |tag: &str| IfMatchArgs { if_match: Some(tag.to_owned()) }.condition().unwrap();
        let header = ("if-match", "\"0a-1b\"".to_owned());
        assert_eq!([sent("0a-1b"), sent("\"0a-1b\"")], [header.clone(), header]);
        assert_eq!(["*", "\"0a-1b\", \"2c-3d\""].map(|tag| sent(tag).1), ["*", "\"0a-1b\", \"2c-3d\""]);
        assert_eq!(IfMatchArgs { if_match: None }.condition(), None);
    }
}
