//! TLS: certificate and key of a server from PEM files, which can be reloaded; trusted authorities of a client.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The PEM files of a server: certificate chain and private key.
#[derive(Clone, Copy, Debug)]
pub struct CertificateFiles<'a> {
    pub certificate: &'a Path,
    pub key: &'a Path,
}

/// The TLS configuration of a server.
#[derive(Debug)]
pub struct ServerTls(RwLock<Arc<ServerConfig>>);

/// Why a TLS file cannot be used. Names the file, never its contents.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the TLS file {path}: {reason}", path = path.display())]
pub struct TlsError {
    pub path: PathBuf,
    pub reason: String,
}

impl ServerTls {
    pub fn read(files: CertificateFiles<'_>) -> Result<Self, TlsError> {
        Ok(Self(RwLock::new(read(files)?)))
    }

    /// Reads the files again. After an error the previous certificate stays in use.
    pub fn reload(&self, files: CertificateFiles<'_>) -> Result<(), TlsError> {
        let tls = read(files)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = tls;
        Ok(())
    }

    pub(crate) async fn accept<I>(&self, io: I) -> std::io::Result<TlsStream<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let config = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        TlsAcceptor::from(config).accept(io).await
    }
}

fn read(CertificateFiles { certificate, key }: CertificateFiles<'_>) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| tls_error(key, &error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|error| tls_error(certificate, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A client configuration that trusts the public certificate authorities, or those in a PEM file.
pub fn client_tls(roots: Option<&Path>) -> Result<Arc<ClientConfig>, TlsError> {
    let mut trusted = RootCertStore::empty();
    match roots {
        None => trusted.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            for root in certificates(path)? {
                trusted.add(root).map_err(|error| tls_error(path, &error))?;
            }
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.expect("ring supports the default versions of TLS");
    Ok(Arc::new(builder.with_root_certificates(trusted).with_no_client_auth()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(|error| tls_error(path, &error))
}

fn tls_error(path: &Path, error: &dyn std::fmt::Display) -> TlsError {
    TlsError { path: path.to_owned(), reason: error.to_string() }
}
