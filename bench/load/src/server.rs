//! Answers every request with the same bytes, immediately or with a configured delay, and records the true latencies.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: keep-alive\r\n\
                        Content-Length: 64\r\n\r\n0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    served: AtomicU64,
    received: AtomicU64,
    moods: Mutex<Moods>,
}

/// The configured behaviour of the server, and what it has recorded since.
#[derive(Default)]
struct Moods {
    mood: Mood,
    first: Option<Instant>,
    /// From a request's last byte to its answer's.
    took: Vec<Duration>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Prompt,
    /// One request in so many takes so long.
    RarelySlow { one_in: u64, taking: Duration },
    /// Stands still, so long after the first request.
    Freezing { after: Duration, lasting: Duration },
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

    /// Bytes that were sent to it.
    pub(crate) fn received(&self) -> u64 {
        self.shared.received.load(Relaxed)
    }

    /// Behaves like this from now on, and forgets what it has seen.
    pub(crate) fn set(&self, mood: Mood) {
        *self.shared.moods() = Moods { mood, ..Moods::default() };
    }

    /// A quantile of how long it took since then. A prompt server does not look at the clock.
    pub(crate) fn quantile(&self, quantile: f64) -> Duration {
        let mut took = self.shared.moods().took.clone();
        took.sort_unstable();
        let rank = (took.len() as f64 * quantile).ceil() as usize;
        took.get(rank.max(1) - 1).copied().unwrap_or_default()
    }
}

impl Shared {
    fn moods(&self) -> MutexGuard<'_, Moods> {
        self.moods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the `number`-th request is to be answered, if not at once.
    fn not_before(&self, number: u64, now: Instant) -> Option<Instant> {
        let mut moods = self.moods();
        let first = *moods.first.get_or_insert(now);
        match moods.mood {
            Mood::Prompt => None,
            Mood::RarelySlow { one_in, taking } => number.is_multiple_of(one_in).then(|| now + taking),
            Mood::Freezing { after, lasting } => {
                let (begin, end) = (first + after, first + after + lasting);
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
        let is_prompt = shared.moods().mood == Mood::Prompt;
        let begun = (!is_prompt).then(Instant::now);
        if let Some(until) = begun.and_then(|begun| shared.not_before(number, begun)) {
            tokio::time::sleep_until(until.into()).await;
        }
        if stream.write_all(ANSWER).await.is_err() {
            return;
        }
        if let Some(begun) = begun {
            shared.moods().took.push(begun.elapsed());
        }
    }
}
