//! Untrusted certificates and chains. A certificate is accepted only with an authority's own signature.

use secure_agg::IdentityVerifier as _;
use wire::Timestamp;
use wire::certificate::{Authority, chain_der, holder};

/// An authority and a participant, created once with `rcgen`; kept in the corpus.
const ISSUER: &[u8] = include_bytes!("../../corpus/wire_certificate/issuer.der");
const LEAF: &[u8] = include_bytes!("../../corpus/wire_certificate/leaf.der");

pub fn run(data: &[u8]) {
    drop(holder(data));
    let at = |now| Authority::new(ISSUER.to_vec(), Timestamp(now));
    // The leaf's id is 16 bytes of value 2; any accepted certificate must be the leaf's own signed content.
    for now in [0, 1_800_000_000_000, i64::MAX] {
        if at(now).verify(&[2; 16], data).is_ok() {
            assert!(holder(data) == holder(LEAF), "an authority's word was forged");
        }
    }
    // A hostile certificate as the issuer.
    let _ = Authority::new(data.to_vec(), Timestamp(1_800_000_000_000)).verify(&[2; 16], LEAF);
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(chain) = chain_der(text)
    {
        assert!(!chain.is_empty() && chain.len() <= 8);
        chain.iter().for_each(|der| drop(holder(der)));
    }
}

/// Both certificates, as DER and as PEM.
pub fn seeds() -> Vec<Vec<u8>> {
    let pem = |der: &[u8]| {
        let lines: Vec<String> = wire::base64::encode(der)
            .as_bytes()
            .chunks(64)
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    };
    vec![ISSUER.to_vec(), LEAF.to_vec(), [pem(LEAF), pem(ISSUER)].concat().into_bytes()]
}
