//! TLS from certificate files, with client certificates of any holder.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

use super::base;
use super::files::{TlsFileError, read_certificates, read_certified_key};

/// Why files are no identity of a listener.
#[derive(Debug, thiserror::Error)]
pub enum AcceptorError {
    /// A certificate or key cannot be used.
    #[error(transparent)]
    File(#[from] TlsFileError),
    /// A certificate of the file is no authority.
    #[error("{} holds no authority", .path.display())]
    NoAuthority {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: rustls::Error,
    },
    /// They do not fit together.
    #[error("cannot set up TLS: {0}")]
    SetUp(String),
}

impl AcceptorError {
    fn set_up(error: impl Display) -> Self {
        Self::SetUp(error.to_string())
    }
}

/// Files of a listener's identity.
#[derive(Clone, Copy, Debug)]
pub struct AcceptorFiles<'a> {
    /// Certificate chain in PEM.
    pub certificate: &'a Path,
    /// Its key in PEM.
    pub key: &'a Path,
    /// CA of client certificates.
    pub client_ca: Option<&'a Path>,
}

/// The TLS configuration of these files. Client certificates are optional.
///
/// # Errors
/// [`AcceptorError`].
pub fn acceptor(files: AcceptorFiles<'_>) -> Result<TlsAcceptor, AcceptorError> {
    let (chain, key) = read_certified_key(files.certificate, files.key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = base::builder(Arc::clone(&provider)).map_err(AcceptorError::set_up)?;
    let builder = match files.client_ca {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in read_certificates(path)? {
                let unfit = |source| AcceptorError::NoAuthority { path: path.to_owned(), source };
                roots.add(certificate).map_err(unfit)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.allow_unauthenticated().build().map_err(AcceptorError::set_up)?)
        }
        None => builder.with_no_client_auth(),
    };
    let config = base::certified(builder, chain, key).map_err(AcceptorError::set_up)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
