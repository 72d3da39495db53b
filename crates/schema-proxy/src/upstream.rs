//! Opens connections to a server.

use std::io;
use std::time::Duration;

use hob_net::{TlsError, client_tls};
use hob_store::{Access, Host};
use rustls_pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How long a connection and its TLS handshake may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The server behind one listener.
#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) host: Host,
    tls: Option<TlsConnector>,
}

/// A connection to a server.
pub(crate) enum UpstreamStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Upstream {
    pub(crate) fn new(host: Host, access: &Access) -> Result<Upstream, TlsError> {
        let tls = match &access.tls {
            Some(tls) => Some(TlsConnector::from(client_tls(tls.ca_file.as_deref())?)),
            None => None,
        };
        Ok(Upstream { host, tls })
    }

    pub(crate) async fn connect(&self) -> io::Result<UpstreamStream> {
        timeout(CONNECT_LIMIT, self.dial()).await?
    }

    async fn dial(&self) -> io::Result<UpstreamStream> {
        let tcp = TcpStream::connect((self.host.name.as_str(), self.host.port)).await?;
        tune(&tcp)?;
        let Some(tls) = &self.tls else {
            return Ok(UpstreamStream::Plain(tcp));
        };
        let name = ServerName::try_from(self.host.name.clone()).map_err(io::Error::other)?;
        Ok(UpstreamStream::Tls(Box::new(tls.connect(name, tcp).await?)))
    }

    /// Whether the server accepts commands without credentials.
    pub(crate) async fn is_open(&self) -> io::Result<bool> {
        let asked = async {
            match self.dial().await? {
                UpstreamStream::Plain(stream) => answers(stream).await,
                UpstreamStream::Tls(stream) => answers(stream).await,
            }
        };
        timeout(CONNECT_LIMIT, asked).await?
    }
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("host", &self.host).finish_non_exhaustive()
    }
}

async fn answers(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<bool> {
    stream.write_all(b"*1\r\n$4\r\nPING\r\n").await?;
    Ok(stream.read_u8().await? == b'+')
}

/// Small commands are sent at once, and a dead peer is noticed.
pub(crate) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(20));
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
