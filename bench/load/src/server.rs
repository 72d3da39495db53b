//! A server that responds to every request with the same bytes, immediately or with a configured delay, and records the
//! true latencies.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: keep-alive\r\n\
                        Content-Length: 64\r\n\r\n0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    served: AtomicU64,
    received: AtomicU64,
    state: Mutex<State>,
}

/// The configured behaviour of the server, and the latencies since it was set.
#[derive(Default)]
struct State {
    behaviour: Behaviour,
    first: Option<Instant>,
    /// From the last byte of a request to the last byte of its response.
    latencies: Vec<Duration>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Behaviour {
    #[default]
    Immediate,
    /// One request in `one_in` takes `latency`.
    RarelySlow { one_in: u64, latency: Duration },
    /// Sends no responses for `duration`, starting `after` the first request.
    Freezing { after: Duration, duration: Duration },
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
        self.shared.served.load(Relaxed)
    }

    /// The number of bytes received.
    pub(crate) fn received(&self) -> u64 {
        self.shared.received.load(Relaxed)
    }

    /// Sets the behaviour and clears the recorded latencies.
    pub(crate) fn set(&self, behaviour: Behaviour) {
        *self.shared.state() = State { behaviour, ..State::default() };
    }

    /// A quantile of the latencies since then. An immediate server records none.
    pub(crate) fn quantile(&self, quantile: f64) -> Duration {
        let mut latencies = self.shared.state().latencies.clone();
        latencies.sort_unstable();
        let rank = (latencies.len() as f64 * quantile).ceil() as usize;
        latencies.get(rank.max(1) - 1).copied().unwrap_or_default()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The earliest time for the response to the `number`-th request; `None` for an immediate response.
    fn not_before(&self, number: u64, now: Instant) -> Option<Instant> {
        let mut state = self.state();
        let first = *state.first.get_or_insert(now);
        match state.behaviour {
            Behaviour::Immediate => None,
            Behaviour::RarelySlow { one_in, latency } => number.is_multiple_of(one_in).then(|| now + latency),
            Behaviour::Freezing { after, duration } => {
                let (begin, end) = (first + after, first + after + duration);
                (begin..end).contains(&now).then_some(end)
            }
        }
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
        let number = shared.served.fetch_add(1, Relaxed);
        shared.received.fetch_add(filled as u64, Relaxed);
        filled = 0;
        let is_immediate = shared.state().behaviour == Behaviour::Immediate;
        let received_at = (!is_immediate).then(Instant::now);
        if let Some(until) = received_at.and_then(|received_at| shared.not_before(number, received_at)) {
            tokio::time::sleep_until(until.into()).await;
        }
        if stream.write_all(RESPONSE).await.is_err() {
            return;
        }
        if let Some(received_at) = received_at {
            shared.state().latencies.push(received_at.elapsed());
        }
    }
}
