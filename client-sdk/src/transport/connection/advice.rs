//! Likely causes and remedies of failed connections.

use std::error::Error;
use std::io;

use forward_proxy::ProxyError;
use rustls::{AlertDescription, CertificateError, InvalidMessage};
use rustls_pki_types::UnixTime;
use wire::Timestamp;

/// Beginning of the standard library's error for a name that does not resolve.
const NO_ADDRESS: &str = "failed to lookup address information";

/// Returns a sentence on the likely cause and remedy of a TLS connection error; `None` for unrecognized errors.
#[must_use]
pub fn advice(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        // Its cause is about the proxy, not about the coordinator.
        if let Some(error) = error.downcast_ref::<ProxyError>() {
            return Some(error.advice());
        }
        let found = match error.downcast_ref::<io::Error>() {
            Some(error) => of_io(error),
            None => error.downcast_ref().and_then(of_tls),
        };
        if found.is_some() {
            return found;
        }
        next = error.source();
    }
    None
}

fn of_io(error: &io::Error) -> Option<String> {
    // rustls' errors come inside of those of sockets, and these inside of each other.
    let inner = error.get_ref().and_then(|inner| match inner.downcast_ref::<io::Error>() {
        Some(inner) => of_io(inner),
        None => inner.downcast_ref().and_then(of_tls),
    });
    let advice = || match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            Some("nothing listens there: is the coordinator running, and are the name and the port its own?")
        }
        io::ErrorKind::TimedOut => Some(
            "nothing answers there: are the name and the port the coordinator's own, and does a firewall let this machine through?",
        ),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Some("no network leads there: is this machine online?")
        }
        // The standard library lacks an `ErrorKind` for it.
        _ => error
            .to_string()
            .contains(NO_ADDRESS)
            .then_some("no address is known for that name: is it spelt right, and is this machine online?"),
    };
    inner.or_else(|| advice().map(str::to_owned))
}

fn of_tls(error: &rustls::Error) -> Option<String> {
    let error = match error {
        rustls::Error::InvalidCertificate(error) => error,
        // The coordinator rejected a certificate of another authority, possibly of the same name.
        rustls::Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError) => {
            return Some(
                "the coordinator does not take this participant's certificate: if its authority was replaced, start with the CA file of \
                 the new one alone, a new token and the same journal"
                    .to_owned(),
            );
        }
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            return Some(
                "what answers there does not speak TLS: is the port that of another program, or of the coordinator's health checks?"
                    .to_owned(),
            );
        }
        _ => return None,
    };
    let clock = |now: UnixTime, what: &str, end: UnixTime| {
        let told = |time: UnixTime| Timestamp(i64::try_from(time.as_secs()).unwrap_or(i64::MAX).saturating_mul(1000));
        let (now, end) = (told(now), told(end));
        format!(
            "it is {now} by the clock of this machine, and the coordinator's certificate is valid {what} {end}: is the clock right?"
        )
    };
    match error {
        // Authorities of the same name have keys of their own.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Some(
            "no authority that is trusted here has signed the coordinator's certificate: the CA file has to be this coordinator's own"
                .to_owned(),
        ),
        CertificateError::NotValidYetContext { time, not_before } => Some(clock(*time, "from", *not_before)),
        CertificateError::ExpiredContext { time, not_after } => Some(clock(*time, "until", *not_after)),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Some(
            "the coordinator's certificate is for other names: `http.public_names` of its configuration are those that the URL may have"
                .to_owned(),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn said(error: CertificateError) -> String {
        // As hyper and tokio-rustls hand it on.
        let error = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(error));
        let error = io::Error::other(error);
        crate::transport::TransportError::unreachable(error).to_string()
    }

    #[test]
    fn what_a_refused_certificate_looks_like_is_said() {
        let time = |days: u64| UnixTime::since_unix_epoch(Duration::from_secs(days * 86_400));
        assert!(said(CertificateError::UnknownIssuer).contains("the CA file has to be this coordinator's own"));
        let early = said(CertificateError::NotValidYetContext { time: time(1), not_before: time(366) });
        assert!(
            early.contains("1970-01-02T00:00:00Z by the clock") && early.contains("from 1971-01-02T00:00:00Z"),
            "{early}"
        );
        let late = said(CertificateError::ExpiredContext { time: time(366), not_after: time(1) });
        assert!(late.contains("1971-01-02T00:00:00Z by the clock") && late.contains("until 1970-01-02"), "{late}");
    }

    #[test]
    fn a_participants_certificate_that_is_not_taken_is_told_what_to_do() {
        for alert in [AlertDescription::UnknownCA, AlertDescription::DecryptError] {
            let error = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::AlertReceived(alert));
            let said = advice(&error).unwrap();
            assert!(said.contains("a new token and the same journal"), "{said}");
        }
    }

    #[tokio::test]
    async fn a_server_without_tls_and_a_name_without_an_address_look_like_what_they_are() {
        let plain = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        let said = advice(&io::Error::new(io::ErrorKind::InvalidData, plain)).unwrap();
        assert!(said.contains("does not speak TLS"), "{said}");
        // The first label is longer than DNS allows, so the resolver fails without a query.
        let no_name = format!("{}.invalid:443", "a".repeat(64));
        let unknown = tokio::net::lookup_host(no_name.as_str()).await.map(|_| ()).unwrap_err();
        let said = advice(&unknown).unwrap();
        assert!(said.contains("no address is known for that name"), "{unknown}: {said}");
    }

    #[test]
    fn what_nobody_answers_is_told_what_to_look_at() {
        for (kind, expected) in [
            (io::ErrorKind::ConnectionRefused, "is the coordinator running"),
            (io::ErrorKind::TimedOut, "does a firewall let this machine through"),
            (io::ErrorKind::HostUnreachable, "is this machine online"),
            (io::ErrorKind::NetworkUnreachable, "is this machine online"),
        ] {
            // The error as a socket returns it, and as hyper reports a connection timeout.
            for error in [io::Error::from(kind), io::Error::new(kind, "deadline has elapsed")] {
                let said = advice(&error).unwrap();
                assert!(said.contains(expected), "{kind}: {said}");
            }
        }
    }

    #[test]
    fn what_looks_like_nothing_in_particular_is_left_as_it_is() {
        assert_eq!(advice(&io::Error::other("disk on fire")), None);
        assert_eq!(advice(&rustls::Error::DecryptError), None);
        assert_eq!(advice(&rustls::Error::AlertReceived(AlertDescription::InternalError)), None);
    }
}
