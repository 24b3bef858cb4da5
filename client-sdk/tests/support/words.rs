//! What the updates of the cohort's task look like on the wire.
#![allow(
    clippy::allow_attributes,
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test uses a part of this"
)]

use client_sdk::learning::{Codec, QuantizationParams};
use wire::participant::Encoding;

pub fn encoding() -> Encoding {
    Encoding {
        modulus_bits: 32,
        clip_range: 1.0,
        clip_norm: None,
        max_weight: 100,
        max_cohort: 10,
        compression: None,
        analytics: None,
        personalization: None,
        staleness: None,
        groups: None,
        solver: None,
    }
}

pub fn metrics() -> Vec<String> {
    vec!["loss".into(), "train_loss".into()]
}

pub fn codec(personal: bool) -> Codec {
    let Encoding { modulus_bits, clip_range, clip_norm, max_weight, max_cohort, .. } = encoding();
    let (parameters, metrics) = (if personal { 3 } else { 5 }, metrics().len());
    Codec::new(QuantizationParams { parameters, modulus_bits, clip_range, clip_norm, max_weight, max_cohort, metrics })
        .unwrap()
}
