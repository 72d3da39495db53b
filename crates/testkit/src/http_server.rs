//! An HTTP server with a configurable latency per request and a log of its requests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The reply to the `n`-th request.
type Behaviour = Arc<dyn Fn(u64) -> Reply + Send + Sync>;

/// How the server answers a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// With status 200, this long after the request.
    After(Duration),
    /// Sends these bytes.
    Raw(Vec<u8>),
    /// Closes the connection.
    Close,
}

/// The server. It runs until the process ends.
#[derive(Debug)]
pub struct HttpServer {
    pub address: SocketAddr,
    log: Arc<Log>,
}

#[derive(Debug, Default)]
struct Log {
    requests: AtomicU64,
    /// When each request was received, and when its response was ready.
    spans: Mutex<Vec<(Instant, Instant)>>,
    last: Mutex<Option<Instant>>,
    received: Mutex<Vec<String>>,
    frozen_until: Mutex<Option<Instant>>,
}

impl HttpServer {
    /// Runs on its own thread and runtime, so that the generator does not delay it.
    pub fn start(behaviour: impl Fn(u64) -> Reply + Send + Sync + 'static) -> Self {
        let log = Arc::new(Log::default());
        let (bound, address) = mpsc::channel();
        let serving = Arc::clone(&log);
        let behaviour: Behaviour = Arc::new(behaviour);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                bound.send(listener.local_addr().unwrap()).unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    tokio::spawn(serve(stream, Arc::clone(&serving), Arc::clone(&behaviour)));
                }
            });
        });
        Self { address: address.recv().unwrap(), log }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn requests(&self) -> u64 {
        self.log.requests.load(Ordering::SeqCst)
    }

    /// The first 1000 requests, head and body.
    pub fn received(&self) -> Vec<String> {
        self.log.received.lock().unwrap().clone()
    }

    /// The time from each request to its response.
    pub fn latencies(&self) -> Vec<Duration> {
        self.log.spans.lock().unwrap().iter().map(|(received, responded)| *responded - *received).collect()
    }

    /// When each response was ready.
    pub fn response_times(&self) -> Vec<Instant> {
        self.log.spans.lock().unwrap().iter().map(|(_, responded)| *responded).collect()
    }

    /// When the newest request arrived.
    pub fn last(&self) -> Option<Instant> {
        *self.log.last.lock().unwrap()
    }

    /// Sends no response for a while.
    pub fn freeze(&self, duration: Duration) {
        *self.log.frozen_until.lock().unwrap() = Some(Instant::now() + duration);
    }
}

async fn serve(mut stream: TcpStream, log: Arc<Log>, behaviour: Behaviour) {
    stream.set_nodelay(true).unwrap();
    let mut buffer = vec![0; 1 << 16];
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await.unwrap_or(0);
        if read == 0 {
            return;
        }
        filled += read;
        let Some(len) = request_len(&buffer[..filled]) else { continue };
        let received_at = Instant::now();
        *log.last.lock().unwrap() = Some(received_at);
        {
            let mut received = log.received.lock().unwrap();
            if received.len() < 1000 {
                received.push(String::from_utf8_lossy(&buffer[..len]).into_owned());
            }
        }
        buffer.copy_within(len..filled, 0);
        filled -= len;
        let frozen = *log.frozen_until.lock().unwrap();
        if let Some(until) = frozen {
            tokio::time::sleep_until(until.into()).await;
        }
        let response = match behaviour(log.requests.fetch_add(1, Ordering::SeqCst)) {
            Reply::After(latency) => {
                // Precise to a millisecond, which is enough: the log has the actual latency.
                if !latency.is_zero() {
                    tokio::time::sleep_until((received_at + latency).into()).await;
                }
                b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec()
            }
            Reply::Raw(bytes) => bytes,
            Reply::Close => return,
        };
        // Logged before it is written, so that the log has every response that a client has read.
        log.spans.lock().unwrap().push((received_at, Instant::now()));
        if stream.write_all(&response).await.is_err() {
            return;
        }
    }
}

/// The length of the first request, once it is complete.
fn request_len(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let body = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    (bytes.len() >= head + body).then_some(head + body)
}
