//! Looks for many secrets at once, in every way in which bytes and numbers are written.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Bytes of a secret that are enough to know it by.
const KNOWN_BY: usize = 15;

/// The ways in which a secret can be written.
pub(crate) fn spellings(secret: &[u8]) -> Vec<Vec<u8>> {
    let start = &secret[..secret.len().min(KNOWN_BY)];
    let list: Vec<_> = start.iter().map(u8::to_string).collect();
    let escaped: String = start.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    let mut spelt = vec![
        start.to_vec(),
        hex::encode(start).into_bytes(),
        hex::encode_upper(start).into_bytes(),
        list.join(", ").into_bytes(),
        list.join(",").into_bytes(),
        escaped.into_bytes(),
    ];
    // Wherever in a longer text it begins: without the digits that its neighbours have a part in.
    for skipped in 0..3 {
        let shifted = [&vec![0; skipped][..], start].concat();
        let whole = shifted.len() / 3 * 3;
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            let text = engine.encode(&shifted[..whole]).into_bytes();
            spelt.push(text[if skipped == 0 { 0 } else { 4 }..].to_vec());
        }
    }
    spelt
}

/// A search for many secrets, each with its kind.
pub(super) struct Search {
    /// Pairs of bytes that begin some spelling: this alone skips most of the text.
    first_two: Vec<bool>,
    spelt: HashMap<[u8; 8], Vec<(&'static str, Vec<u8>)>>,
}

impl Search {
    pub(super) fn of(secrets: &[(&'static str, Vec<u8>)]) -> Self {
        let mut search = Self { first_two: vec![false; 1 << 16], spelt: HashMap::new() };
        for (what, secret) in secrets {
            for spelling in spellings(secret) {
                let start = *spelling.first_chunk::<8>().unwrap();
                search.first_two[usize::from(u16::from_be_bytes([start[0], start[1]]))] = true;
                search.spelt.entry(start).or_default().push((what, spelling));
            }
        }
        search
    }

    /// The first secret in there.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<&'static str> {
        bytes.array_windows::<8>().enumerate().find_map(|(at, start)| {
            if !self.first_two[usize::from(u16::from_be_bytes([start[0], start[1]]))] {
                return None;
            }
            let candidates = self.spelt.get(start)?.iter();
            candidates.filter(|(_, spelling)| bytes[at..].starts_with(spelling)).map(|(what, _)| *what).next()
        })
    }
}

#[test]
fn bytes_are_found_wherever_base64_puts_them() {
    let secret: Vec<u8> = (100..132).collect();
    let search = Search::of(&[("it", secret.clone())]);
    for before in 0..7 {
        let bytes = [&vec![9; before][..], &secret, &[7; 5]].concat();
        for text in [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes), hex::encode(&bytes)] {
            assert_eq!(search.find(text.as_bytes()), Some("it"), "{before}: {text}");
        }
        assert_eq!(search.find(&bytes), Some("it"));
        assert_eq!(search.find(format!("{bytes:?}").as_bytes()), Some("it"));
    }
    assert_eq!(search.find(&secret[1..]), None);
}
