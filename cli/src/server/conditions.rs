//! Headers that make a write conditional: only once, or only if the view has not changed.

use operator_client::Condition;
use wire::headers::IDEMPOTENCY_KEY;

/// Header with the tags of which the view must have one (RFC 9110 §13.1.1).
const IF_MATCH: &str = "if-match";

/// The option of commands that create something.
#[derive(clap::Args)]
pub(crate) struct IdempotencyArgs {
    /// Idempotency key, valid for 24 hours: repeating `task create` returns the first task; repeating `token create` fails and
    /// names the first token, whose secret is shown only once
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
    /// Only proceed if the ETag, as printed by `show`, is still current; otherwise change nothing and exit with code 8
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
