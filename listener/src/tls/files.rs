//! A listener's certificate and key, from PEM files. Each error names the file and the expected contents.

use std::path::{Path, PathBuf};

use rustls::crypto::ring::default_provider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Reasons why a certificate or key is unusable.
#[derive(Debug, thiserror::Error)]
pub enum TlsFileError {
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} holds no certificate in PEM (`-----BEGIN CERTIFICATE-----`){hint}", .path.display())]
    NoCertificate { path: PathBuf, hint: &'static str },
    #[error("{} holds no private key in PEM (`-----BEGIN PRIVATE KEY-----`){hint}", .path.display())]
    NoKey { path: PathBuf, hint: &'static str },
    #[error("{} is not valid PEM: {source}", .path.display())]
    Damaged { path: PathBuf, source: pem::Error },
    #[error(
        "{} holds a key that is encrypted with a password; decrypt it, for example with `openssl pkey -in {} -out key.pem`",
        .path.display(), .path.display()
    )]
    Encrypted { path: PathBuf },
    #[error(
        "{} holds a key that is not supported ({source}); RSA of 2048 to 8192 bits, ECDSA on P-256 or P-384, and Ed25519 are",
        .path.display()
    )]
    Unsupported { path: PathBuf, source: rustls::Error },
    #[error("{} does not hold the key of the certificate in {}; give the two that belong together", .key.display(), .certificate.display())]
    Mismatch { certificate: PathBuf, key: PathBuf },
    #[error("{} holds a certificate that cannot be used: {source}", .path.display())]
    Unusable { path: PathBuf, source: rustls::Error },
}

/// The certificates of a PEM file: at least one.
///
/// # Errors
/// [`TlsFileError`].
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    certificates_of(path, &read(path)?)
}

/// Parses the certificates in the bytes of a PEM file: at least one.
///
/// # Errors
/// [`TlsFileError`].
pub fn certificates_of(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let damaged = |source| TlsFileError::Damaged { path: path.to_owned(), source };
    let found: Vec<_> = CertificateDer::pem_slice_iter(bytes).collect::<Result<_, _>>().map_err(damaged)?;
    if found.is_empty() {
        return Err(TlsFileError::NoCertificate { path: path.to_owned(), hint: hint(bytes, "certificate") });
    }
    Ok(found)
}

/// A certificate chain and its private key.
///
/// # Errors
/// [`TlsFileError`], also if the key belongs to another certificate.
pub fn read_certified_key(
    certificate: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsFileError> {
    let chain = read_certificates(certificate)?;
    let private = read_key(key)?;
    let provider = default_provider();
    provider
        .key_provider
        .load_private_key(private.clone_key())
        .map_err(|source| TlsFileError::Unsupported { path: key.to_owned(), source })?;
    match CertifiedKey::from_der(chain.clone(), private.clone_key(), &provider) {
        Ok(_) => Ok((chain, private)),
        Err(rustls::Error::InconsistentKeys(_)) => {
            Err(TlsFileError::Mismatch { certificate: certificate.to_owned(), key: key.to_owned() })
        }
        Err(source) => Err(TlsFileError::Unusable { path: certificate.to_owned(), source }),
    }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    let bytes = zeroize::Zeroizing::new(read(path)?);
    let path = || path.to_owned();
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        pem::Error::NoItemsFound if contains(&bytes, b"ENCRYPTED PRIVATE KEY") => {
            TlsFileError::Encrypted { path: path() }
        }
        pem::Error::NoItemsFound => TlsFileError::NoKey { path: path(), hint: hint(&bytes, "key") },
        // The older form of an encrypted key has headers, unsupported by this PEM reader.
        _ if contains(&bytes, b"Proc-Type: 4,ENCRYPTED") => TlsFileError::Encrypted { path: path() },
        source => TlsFileError::Damaged { path: path(), source },
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsFileError> {
    std::fs::read(path).map_err(|source| TlsFileError::Read { path: path.to_owned(), source })
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The apparent format of a file without a `wanted` item.
fn hint(bytes: &[u8], wanted: &str) -> &'static str {
    if contains(bytes, b"PRIVATE KEY-----") {
        return "; it holds a private key";
    }
    if contains(bytes, b"-----BEGIN CERTIFICATE-----") {
        return "; it holds a certificate";
    }
    match (bytes, wanted) {
        // The first byte of a sequence in DER; PKCS #12 begins with it, too.
        ([0x30, ..], "certificate") => {
            "; it seems to be DER: convert it with `openssl x509 -inform DER -in FILE -out FILE.pem`"
        }
        ([0x30, ..], _) => "; it seems to be DER: convert it with `openssl pkey -inform DER -in FILE -out FILE.pem`",
        ([], _) => "; it is empty",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// A certificate in PEM and DER, and its key in PEM.
    fn issued() -> (String, Vec<u8>, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), certificate.der().to_vec(), key.serialize_pem())
    }

    #[test]
    fn errors_name_the_file_and_what_would_be_right() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let (pem, der, key) = issued();
        let (_, _, other) = issued();
        let locked = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nMIIB\n\
                   -----END RSA PRIVATE KEY-----\n";
        let (pem, der, key) = (file("ok.pem", pem.as_bytes()), file("der.pem", &der), file("ok.key", key.as_bytes()));
        let other = file("other.key", other.as_bytes());
        let (locked, old) = (file("locked.key", locked.as_bytes()), file("old.key", old.as_bytes()));
        let (empty, missing) = (file("empty.pem", b""), folder.path().join("missing.pem"));
        assert!(read_certified_key(&pem, &key).is_ok());
        for (certificate, key, parts) in [
            (&missing, &key, &["cannot read", "missing.pem"][..]),
            (&pem, &missing, &["cannot read", "missing.pem"]),
            (&der, &key, &["der.pem holds no certificate in PEM", "openssl x509 -inform DER"]),
            (&empty, &key, &["empty.pem holds no certificate in PEM", "it is empty"]),
            (&key, &key, &["ok.key holds no certificate in PEM", "it holds a private key"]),
            (&pem, &pem, &["ok.pem holds no private key in PEM", "it holds a certificate"]),
            (&pem, &locked, &["locked.key holds a key that is encrypted with a password"]),
            (&pem, &old, &["old.key holds a key that is encrypted with a password"]),
            (&pem, &other, &["other.key does not hold the key of the certificate in", "ok.pem"]),
        ] {
            let said = read_certified_key(certificate, key).unwrap_err().to_string();
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        }
    }
}
