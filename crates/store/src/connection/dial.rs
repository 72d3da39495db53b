//! Opens a connection to one server: TCP or TLS, then credentials and database.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{AsyncStream, MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisError};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::address::{Access, Host, Tls};
use crate::error::{Error, Result};

/// How long a TCP connection, its TLS handshake and its credentials may take together.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(3);

type Stream = Pin<Box<dyn AsyncStream + Send>>;

/// The future that drives a connection's I/O; it ends with the connection.
pub(crate) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Opens connections that all use the same credentials and encryption.
#[derive(Clone)]
pub(crate) struct Dialer {
    info: RedisConnectionInfo,
    tls: Option<TlsConnector>,
}

impl Dialer {
    pub(crate) fn new(access: &Access, db: u32) -> Result<Self> {
        let mut info = RedisConnectionInfo::default()
            .set_db(i64::from(db))
            .set_lib_name("hob", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &access.user {
            info = info.set_username(user);
        }
        if let Some(password) = &access.password {
            info = info.set_password(password.reveal());
        }
        let tls = access.tls.as_ref().map(connector).transpose()?;
        Ok(Self { info, tls })
    }

    /// The same without credentials, for a sentinel that does not need any.
    pub(crate) fn anonymous(&self) -> Self {
        let info = RedisConnectionInfo::default().set_skip_set_lib_name();
        Self { info, tls: self.tls.clone() }
    }

    /// The same credentials without a database number, which a sentinel does not have.
    pub(crate) fn without_database(&self) -> Self {
        Self { info: self.info.clone().set_db(0).set_skip_set_lib_name(), tls: self.tls.clone() }
    }

    /// A connection for commands and the future that drives it.
    pub(crate) async fn commands(&self, host: &Host) -> Result<(MultiplexedConnection, Driver), RedisError> {
        let stream = self.stream(host).await?;
        // The library's timeout is disabled, because each call has its own deadline, and it would be unclear which of
        // the two expired.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let (connection, driver) = MultiplexedConnection::new_with_config(&self.info, stream, config).await?;
        Ok((connection, Box::pin(driver)))
    }

    /// A connection for subscriptions.
    pub(crate) async fn subscriptions(&self, host: &Host) -> Result<PubSub, RedisError> {
        PubSub::new(&self.info, self.stream(host).await?).await
    }

    async fn stream(&self, host: &Host) -> io::Result<Stream> {
        let tcp = TcpStream::connect((host.name.as_str(), host.port)).await?;
        tcp.set_nodelay(true)?;
        let keepalive =
            TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
        SockRef::from(&tcp).set_tcp_keepalive(&keepalive)?;
        let Some(tls) = &self.tls else {
            return Ok(Box::pin(tcp));
        };
        let name = ServerName::try_from(host.name.clone()).map_err(io::Error::other)?;
        Ok(Box::pin(tls.connect(name, tcp).await?))
    }
}

/// A TLS connector with ring as its cryptography provider, independent of the process-wide default.
fn connector(tls: &Tls) -> Result<TlsConnector> {
    let refuse = |reason: String| Error::Tls(reason);
    let mut roots = RootCertStore::empty();
    match &tls.ca_file {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            let shown = path.display();
            let certificates =
                CertificateDer::pem_file_iter(path).map_err(|e| refuse(format!("{shown}: {e}")))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|e| refuse(format!("{shown}: {e}")))?;
                roots.add(certificate).map_err(|e| refuse(format!("{shown}: {e}")))?;
            }
            if roots.is_empty() {
                return Err(refuse(format!("{shown} does not contain a certificate")));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| refuse(e.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
