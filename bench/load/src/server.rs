//! Answers every request with the same bytes, as fast as it can, or not at all for a while.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: keep-alive\r\n\
                        Content-Length: 64\r\n\r\n0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    served: AtomicU64,
    frozen: Mutex<Option<(Instant, Instant)>>,
}

impl Server {
    pub(crate) fn start() -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let (bound, address) = mpsc::channel();
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || -> Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                bound.send(listener.local_addr()?)?;
                loop {
                    let (stream, _) = listener.accept().await?;
                    tokio::spawn(serve(stream, Arc::clone(&serving)));
                }
            })
        });
        Ok(Self { address: address.recv()?, shared })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn served(&self) -> u64 {
        self.shared.served.load(Ordering::Relaxed)
    }

    /// Stands still later on.
    pub(crate) fn freeze_after(&self, after: Duration, lasting: Duration) {
        let begin = Instant::now() + after;
        *self.shared.frozen.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some((begin, begin + lasting));
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let mut buffer = [0; 4096];
    let mut filled = 0;
    loop {
        match stream.read(&mut buffer[filled..]).await {
            Ok(read) if read > 0 => filled += read,
            _ => return,
        }
        if !buffer[..filled].ends_with(b"\r\n\r\n") {
            continue;
        }
        filled = 0;
        let frozen = *shared.frozen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((begin, end)) = frozen
            && (begin..end).contains(&Instant::now())
        {
            tokio::time::sleep_until(end.into()).await;
        }
        shared.served.fetch_add(1, Ordering::Relaxed);
        if stream.write_all(ANSWER).await.is_err() {
            return;
        }
    }
}
