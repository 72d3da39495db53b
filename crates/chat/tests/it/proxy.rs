//! A proxy between clients and a server, whose connections can be cut.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

pub(crate) struct Proxy {
    address: SocketAddr,
    inner: Arc<Inner>,
    ended: CancellationToken,
}

struct Inner {
    whole: AtomicBool,
    /// Cancels all current connections.
    connections: Mutex<CancellationToken>,
}

impl Proxy {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Inner { whole: AtomicBool::new(true), connections: Mutex::default() });
        let ended = CancellationToken::new();
        let (forwarding, end) = (Arc::clone(&inner), ended.clone());
        tokio::spawn(end.run_until_cancelled_owned(async move {
            while let Ok((client, _)) = listener.accept().await {
                forwarding.forward(client, server);
            }
        }));
        Self { address, inner, ended }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections and rejects new ones.
    pub(crate) fn cut(&self) {
        self.inner.whole.store(false, Ordering::SeqCst);
        let mut connections = self.inner.connections.lock().unwrap();
        std::mem::take(&mut *connections).cancel();
    }

    pub(crate) fn restore(&self) {
        self.inner.whole.store(true, Ordering::SeqCst);
    }
}

impl Inner {
    fn forward(&self, mut client: TcpStream, server: SocketAddr) {
        if !self.whole.load(Ordering::SeqCst) {
            return;
        }
        let cut = self.connections.lock().unwrap().clone();
        tokio::spawn(cut.run_until_cancelled_owned(async move {
            if let Ok(mut server) = TcpStream::connect(server).await {
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
        }));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}
