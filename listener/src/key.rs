//! What connections, unsent bytes and rates are counted by.

use std::net::IpAddr;

use federation::id::{Digest, ParticipantId, TokenId};

/// The subject of a rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// A participant with a valid certificate.
    Participant(ParticipantId),
    /// An operator, by its token.
    Operator(TokenId),
    /// An account at the identity provider, by the SHA-256 in the log.
    Identity(Digest),
    /// A holder of the certificate with this SHA-256 who signs requests; the certificate's validity is unchecked.
    Signer(Digest),
    /// An unauthenticated peer. An IPv6 peer usually has a whole /64, counted as one.
    Address(IpAddr),
}

impl Key {
    /// The key of a peer at this address.
    #[must_use]
    pub fn address(address: IpAddr) -> Self {
        Self::Address(match address {
            IpAddr::V6(v6) if v6.to_ipv4_mapped().is_none() => {
                IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into())
            }
            other => other.to_canonical(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_v6_network_is_one_peer() {
        let key = |text: &str| Key::address(text.parse().unwrap());
        assert_eq!(key("2001:db8::1"), key("2001:db8::2:3"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_eq!(key("::ffff:10.0.0.1"), key("10.0.0.1"));
    }
}
