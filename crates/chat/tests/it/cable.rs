//! A cable between clients and a server that can be cut.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

pub(crate) struct Cable {
    address: SocketAddr,
    inner: Arc<Inner>,
    ended: CancellationToken,
}

struct Inner {
    whole: AtomicBool,
    /// Cancelled with all connections of the moment.
    connections: Mutex<CancellationToken>,
}

impl Cable {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Inner { whole: AtomicBool::new(true), connections: Mutex::default() });
        let ended = CancellationToken::new();
        let (carrying, end) = (Arc::clone(&inner), ended.clone());
        tokio::spawn(end.run_until_cancelled_owned(async move {
            while let Ok((client, _)) = listener.accept().await {
                carrying.carry(client, server);
            }
        }));
        Self { address, inner, ended }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections, and lets none through.
    pub(crate) fn cut(&self) {
        self.inner.whole.store(false, Ordering::SeqCst);
        let mut connections = self.inner.connections.lock().unwrap();
        std::mem::take(&mut *connections).cancel();
    }

    pub(crate) fn mend(&self) {
        self.inner.whole.store(true, Ordering::SeqCst);
    }
}

impl Inner {
    fn carry(&self, mut client: TcpStream, server: SocketAddr) {
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

impl Drop for Cable {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}
