//! A provider's keys (RFC 7517, RFC 7518 §6, RFC 8037), and verification of signatures.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::Value;

use super::token::Token;
use crate::config::SigningAlgorithm;

/// Maximum number of keys; providers publish two or three.
const KEYS_MAX: usize = 100;

/// The signing keys of a provider.
pub(super) struct KeySet(Vec<Key>);

struct Key {
    kid: String,
    /// The only permitted algorithm, if the key names one.
    algorithm: Option<String>,
    material: Material,
}

/// The type of a key. It determines the permitted algorithms independently of the token.
enum Material {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// An uncompressed point.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct Published {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: String,
    #[serde(rename = "use")]
    purpose: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Parses a published key set. Skips keys of other types and for other purposes.
    ///
    /// # Errors
    /// The reason why the set is invalid.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let published: Published = serde_json::from_slice(bytes).map_err(|error| format!("no set of keys: {error}"))?;
        if published.keys.len() > KEYS_MAX {
            return Err(format!("{} keys, and at most {KEYS_MAX} are taken", published.keys.len()));
        }
        let keys: Vec<_> = published.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).collect();
        let keys: Vec<_> = keys.into_iter().filter_map(Key::of).collect();
        if keys.is_empty() {
            Err("no key with a name (kid) that could sign a token".to_owned())
        } else {
            Ok(Self(keys))
        }
    }

    /// Whether there is a key with this id for this algorithm.
    pub(super) fn has(&self, kid: &str, algorithm: SigningAlgorithm) -> bool {
        self.fit(kid, algorithm).next().is_some()
    }

    /// Verifies a signature by the key named in the token.
    pub(super) fn verify(&self, token: &Token<'_>) -> bool {
        self.fit(&token.kid, token.algorithm).any(|key| key.has_signed(token))
    }

    fn fit(&self, kid: &str, algorithm: SigningAlgorithm) -> impl Iterator<Item = &Key> {
        self.0.iter().filter(move |key| key.kid == kid && key.fits(algorithm))
    }
}

impl Key {
    fn of(key: Jwk) -> Option<Self> {
        let decoded = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?).ok();
        if key.purpose.is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let coordinate = |text| decoded(text).filter(|bytes| bytes.len() == 32);
        let material = match (key.kty.as_str(), key.crv.as_deref()) {
            ("RSA", _) => {
                // Some providers include the sign byte.
                let number =
                    |text| decoded(text).map(|bytes| bytes.into_iter().skip_while(|byte| *byte == 0).collect());
                Material::Rsa { modulus: number(key.n)?, exponent: number(key.e)? }
            }
            ("EC", Some("P-256")) => {
                let (x, y) = (coordinate(key.x)?, coordinate(key.y)?);
                Material::P256([vec![4], x, y].concat())
            }
            ("OKP", Some("Ed25519")) => Material::Ed25519(coordinate(key.x)?),
            _ => return None,
        };
        Some(Self { kid: key.kid, algorithm: key.alg, material })
    }

    fn fits(&self, algorithm: SigningAlgorithm) -> bool {
        let is_of_kind = match algorithm {
            SigningAlgorithm::Rs256 | SigningAlgorithm::Ps256 => matches!(self.material, Material::Rsa { .. }),
            SigningAlgorithm::Es256 => matches!(self.material, Material::P256(_)),
            SigningAlgorithm::EdDsa => matches!(self.material, Material::Ed25519(_)),
        };
        // RFC 9864 renames EdDSA on this curve.
        let is_named = |name: &String| {
            name == algorithm.as_str() || (algorithm == SigningAlgorithm::EdDsa && name.as_str() == "Ed25519")
        };
        is_of_kind && self.algorithm.as_ref().is_none_or(is_named)
    }

    fn has_signed(&self, token: &Token<'_>) -> bool {
        let (signed, signature) = (token.signed.as_bytes(), token.signature.as_slice());
        let verified = match (&self.material, token.algorithm) {
            (Material::Rsa { modulus, exponent }, algorithm) => {
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                match algorithm {
                    SigningAlgorithm::Rs256 => key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature),
                    SigningAlgorithm::Ps256 => key.verify(&RSA_PSS_2048_8192_SHA256, signed, signature),
                    SigningAlgorithm::Es256 | SigningAlgorithm::EdDsa => return false,
                }
            }
            (Material::P256(point), _) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature)
            }
            (Material::Ed25519(key), _) => UnparsedPublicKey::new(&ED25519, key).verify(signed, signature),
        };
        verified.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(keys: &Value) -> Result<KeySet, String> {
        KeySet::read(json!({ "keys": keys }).to_string().as_bytes())
    }

    #[test]
    fn a_key_signs_in_the_ways_of_its_kind_alone() {
        let x = URL_SAFE_NO_PAD.encode([7; 32]);
        let keys = read(&json!([
            { "kty": "RSA", "kid": "rsa", "n": x, "e": "AQAB" },
            { "kty": "RSA", "kid": "pss", "n": x, "e": "AQAB", "alg": "PS256" },
            { "kty": "EC", "crv": "P-256", "kid": "ec", "x": x, "y": x, "use": "sig" },
            { "kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": x, "alg": "EdDSA" },
        ]))
        .unwrap();
        let ways = |kid: &str| SigningAlgorithm::ALL.into_iter().filter(|way| keys.has(kid, *way)).collect::<Vec<_>>();
        assert_eq!(ways("rsa"), [SigningAlgorithm::Rs256, SigningAlgorithm::Ps256]);
        assert_eq!(ways("pss"), [SigningAlgorithm::Ps256]);
        assert_eq!((ways("ec"), ways("ed")), (vec![SigningAlgorithm::Es256], vec![SigningAlgorithm::EdDsa]));
        assert!(ways("other").is_empty());
    }

    #[test]
    fn other_keys_are_passed_over_and_nothing_else_is_no_set() {
        let x = URL_SAFE_NO_PAD.encode([7; 32]);
        let good = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "good", "x": x });
        let others = [
            json!({ "kty": "oct", "kid": "a", "k": x }),
            json!({ "kty": "OKP", "crv": "X25519", "kid": "b", "x": x }),
            json!({ "kty": "OKP", "crv": "Ed25519", "kid": "c", "x": x, "use": "enc" }),
            json!({ "kty": "OKP", "crv": "Ed25519", "kid": "d", "x": "AAAA" }),
            json!({ "kty": "OKP", "crv": "Ed25519", "x": x }),
            json!({ "kty": "RSA", "kid": "e", "n": "!", "e": "AQAB" }),
            json!(7),
        ];
        for other in others {
            let keys = read(&json!([other, good])).unwrap();
            assert_eq!(keys.0.iter().map(|key| key.kid.as_str()).collect::<Vec<_>>(), ["good"], "{other}");
            assert!(read(&json!([other])).is_err());
        }
        assert!(read(&json!(vec![good.clone(); 101])).is_err_and(|why| why.contains("101 keys")));
        assert!(read(&json!(vec![good; 100])).is_ok());
        assert!(KeySet::read(b"<html>").is_err() && KeySet::read(b"{}").is_err());
    }
}
