//! `Signature-Input`: covered components and parameters (RFC 9421 §4.1).

use federation::id::Digest;
use federation::time::Timestamp;
use sfv::{BareItem, Dictionary, FieldType as _, InnerList, Item, List, ListEntry, Parser};

use super::error::SignatureError;
use super::profile::{LABEL, SIGNATURE_INPUT};

/// Random bytes in base64: 16 of them have 24 characters.
const NONCE_CHARACTERS: std::ops::RangeInclusive<usize> = 22..=64;

/// Our member of `Signature-Input`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureInput {
    /// The covered components, in their order, each once.
    pub components: Vec<String>,
    pub created: Timestamp,
    pub expires: Timestamp,
    pub nonce: String,
    /// SHA-256 of the certificate.
    pub keyid: Digest,
    /// The inner list with its parameters as RFC 9651 serializes it: the last line of the signature base.
    pub parameters: String,
}

impl SignatureInput {
    /// # Errors
    /// [`SignatureError`]: our member is missing, cannot be read, names a component twice or with parameters, or lacks a parameter.
    pub fn parse(text: &str) -> Result<Self, SignatureError> {
        const MALFORMED: SignatureError = SignatureError::Malformed(SIGNATURE_INPUT);
        let mut members = Parser::new(text).parse::<Dictionary>().map_err(|_| MALFORMED)?;
        let list = match members.swap_remove(LABEL) {
            Some(ListEntry::InnerList(list)) => list,
            Some(ListEntry::Item(_)) => return Err(MALFORMED),
            None => return Err(SignatureError::Missing("member `tributary` of signature-input")),
        };
        let mut components: Vec<String> = Vec::with_capacity(list.items.len());
        for Item { bare_item, params } in &list.items {
            let name = bare_item.as_string().filter(|_| params.is_empty()).ok_or(MALFORMED)?.as_str();
            if components.iter().any(|known| known == name) || name.bytes().any(|byte| byte.is_ascii_uppercase()) {
                return Err(SignatureError::Component(name.to_owned()));
            }
            components.push(name.to_owned());
        }
        let seconds = |name: &'static str| -> Result<Timestamp, SignatureError> {
            let seconds = list.params.get(name).ok_or(SignatureError::Missing(name))?.as_integer().ok_or(MALFORMED)?;
            Ok(Timestamp(i64::from(seconds).saturating_mul(1000)))
        };
        let word = |name: &'static str| -> Result<&str, SignatureError> {
            let word = list.params.get(name).ok_or(SignatureError::Missing(name))?.as_string();
            word.map(sfv::StringRef::as_str).ok_or(MALFORMED)
        };
        let (created, expires) = (seconds("created")?, seconds("expires")?);
        let nonce = word("nonce")?.to_owned();
        let keyid = word("keyid")?.parse().map_err(|_| SignatureError::KeyId)?;
        let is_ours = list.params.get("alg").is_none_or(is_ed25519);
        if !NONCE_CHARACTERS.contains(&nonce.len()) || !is_ours {
            return Err(MALFORMED);
        }
        let parameters = serialized(list).ok_or(MALFORMED)?;
        Ok(Self { components, created, expires, nonce, keyid, parameters })
    }

    pub(super) fn covers(&self, component: &str) -> bool {
        self.components.iter().any(|covered| covered == component)
    }
}

fn is_ed25519(item: &BareItem) -> bool {
    item.as_string().is_some_and(|name| name.as_str() == "ed25519")
}

fn serialized(list: InnerList) -> Option<String> {
    List::from([ListEntry::InnerList(list)]).serialize()
}

/// Our member of a dictionary of byte sequences, as `Signature` is.
pub(super) fn member(text: &str) -> Option<Vec<u8>> {
    let entry = Parser::new(text).parse::<Dictionary>().ok()?.swap_remove(LABEL)?;
    let ListEntry::Item(item) = entry else { return None };
    bytes(item)
}

/// A header that is one byte sequence.
pub(super) fn byte_sequence(text: &str) -> Option<Vec<u8>> {
    bytes(Parser::new(text).parse::<Item>().ok()?)
}

fn bytes(item: Item) -> Option<Vec<u8>> {
    match item.bare_item {
        BareItem::ByteSequence(bytes) if item.params.is_empty() => Some(bytes),
        _ => None,
    }
}
