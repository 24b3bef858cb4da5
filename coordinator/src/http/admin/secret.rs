//! One-time secrets.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::random::Random;

/// A new secret of 256 random bits, as 43 characters. Only its SHA-256 is stored.
pub(crate) fn secret(random: &Random) -> String {
    loop {
        let token = URL_SAFE_NO_PAD.encode(random.bytes::<32>());
        // A leading hyphen would look like a flag when pasted into a command line.
        if !token.starts_with('-') {
            return token;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_looks_like_a_flag() {
        let random = Random::from_seed(1);
        assert!((0..1000).map(|_| secret(&random)).all(|token| !token.starts_with('-') && token.len() == 43));
    }
}
