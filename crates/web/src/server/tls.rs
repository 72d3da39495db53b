//! TLS from certificate files, read again when the configuration is.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::{Config, Error};

/// The certificate in use.
#[derive(Debug)]
pub(crate) struct Tls(RwLock<Arc<ServerConfig>>);

impl Tls {
    /// `None` where the configuration names no certificate.
    pub(crate) fn open(config: &Config) -> Result<Option<Self>, Error> {
        Ok(read(config)?.map(|tls| Self(RwLock::new(tls))))
    }

    /// Takes the certificate that the files hold by now. What cannot be read leaves the last one in use.
    pub(crate) fn reload(&self, config: &Config) -> Result<(), Error> {
        if let Some(tls) = read(config)? {
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = tls;
        }
        Ok(())
    }

    pub(crate) async fn accept<I>(&self, io: I) -> std::io::Result<TlsStream<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let now = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        TlsAcceptor::from(now).accept(io).await
    }
}

fn read(config: &Config) -> Result<Option<Arc<ServerConfig>>, Error> {
    let (certificate, key) = match (&config.tls_certificate, &config.tls_key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => return Ok(None),
        _ => return Err(Error::HalfTls),
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| refuse(certificate, &error))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| refuse(key, &error))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder =
        builder.with_safe_default_protocol_versions().map_err(|error| refuse(certificate, &error))?;
    let tls = builder.with_no_client_auth().with_single_cert(chain, private);
    let mut tls = tls.map_err(|error| refuse(certificate, &error))?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(Arc::new(tls)))
}

fn refuse(path: &Path, reason: &impl ToString) -> Error {
    Error::Tls { path: path.to_owned(), reason: reason.to_string() }
}
