//! ChaCha20-Poly1305 (RFC 8439 §2.8) under keys for exactly one message, hence with the zero nonce.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use thiserror::Error;
use zeroize::Zeroize;

use crate::participants::Index;
use crate::secret::Secret;

/// Length of a dealer's two shares for a holder, in bytes.
pub(crate) const PLAIN_BYTES: usize = 64;
/// Length of a sealed pair of shares, in bytes: plaintext and tag.
pub(crate) const SEALED_BYTES: usize = PLAIN_BYTES + 16;

/// The ciphertext was not made with this key for this session, dealer and holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the sealed shares do not open under this key, session, dealer and holder")]
pub(crate) struct DoesNotOpen;

/// The context of a ciphertext: `sid || u32be(dealer) || u32be(holder)`.
pub(crate) fn associated_data(sid: &[u8; 32], dealer: Index, holder: Index) -> [u8; 40] {
    let mut data = [0; 40];
    data[..32].copy_from_slice(sid);
    data[32..36].copy_from_slice(&u32::from(dealer).to_be_bytes());
    data[36..].copy_from_slice(&u32::from(holder).to_be_bytes());
    data
}

/// Seals `plain`. The key must never seal anything else.
pub(crate) fn seal(key: &Secret<[u8; 32]>, aad: &[u8], plain: &Secret<[u8; PLAIN_BYTES]>) -> [u8; SEALED_BYTES] {
    let mut sealed = [0; SEALED_BYTES];
    let (body, tag) = sealed.split_at_mut(PLAIN_BYTES);
    body.copy_from_slice(plain.expose());
    let made = cipher(key)
        .seal_in_place_separate_tag(Nonce::assume_unique_for_key([0; 12]), Aad::from(aad), body)
        .expect("64 bytes are far below the cipher's limit");
    tag.copy_from_slice(made.as_ref());
    sealed
}

/// Opens the output of [`seal`].
pub(crate) fn open(
    key: &Secret<[u8; 32]>,
    aad: &[u8],
    sealed: &[u8; SEALED_BYTES],
) -> Result<Secret<[u8; PLAIN_BYTES]>, DoesNotOpen> {
    let mut buffer = *sealed;
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    cipher(key).open_in_place(nonce, Aad::from(aad), &mut buffer).map_err(|_| DoesNotOpen)?;
    let mut plain = [0; PLAIN_BYTES];
    plain.copy_from_slice(&buffer[..PLAIN_BYTES]);
    buffer.zeroize();
    Ok(Secret::take(&mut plain))
}

pub(crate) fn cipher(key: &Secret<[u8; 32]>) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key.expose()).expect("the key has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_pair_opens_only_under_its_key_session_dealer_and_holder() {
        let (key, sid) = (Secret::new([1; 32]), [2; 32]);
        let plain = Secret::new([3; 64]);
        let aad = associated_data(&sid, 4, 5);
        let sealed = seal(&key, &aad, &plain);
        assert_eq!(open(&key, &aad, &sealed).unwrap().expose(), plain.expose());
        for wrong in [associated_data(&[9; 32], 4, 5), associated_data(&sid, 5, 4), associated_data(&sid, 4, 6)] {
            assert!(open(&key, &wrong, &sealed).is_err());
        }
        assert!(open(&Secret::new([0; 32]), &aad, &sealed).is_err());
        for position in 0..SEALED_BYTES {
            let mut bent = sealed;
            bent[position] ^= 0x80;
            assert!(open(&key, &aad, &bent).is_err(), "byte {position}");
        }
    }
}
