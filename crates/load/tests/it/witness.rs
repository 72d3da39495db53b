//! A witness beside a run: how long this machine takes, during that very run, to carry a request to a thread that
//! answers at once and to carry the answer back.
//!
//! A server's own log cannot know this, and every generator has to count it: it is time that a user waits. On a machine
//! that does other things it is the largest part of the difference between what a server logs and what its users see.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(2);

pub(crate) struct Witness {
    over: Arc<AtomicBool>,
    watching: JoinHandle<Vec<Duration>>,
}

/// What it saw, shortest first.
pub(crate) struct Ways(Vec<Duration>);

impl Witness {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
        });
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let watching = thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            let mut ways = Vec::new();
            while !told.load(Ordering::Relaxed) {
                thread::sleep(EVERY);
                let begun = Instant::now();
                stream.write_all(&[1]).unwrap();
                stream.read_exact(&mut [0]).unwrap();
                ways.push(begun.elapsed());
            }
            ways
        });
        Self { over, watching }
    }

    pub(crate) fn tell(self) -> Ways {
        self.over.store(true, Ordering::Relaxed);
        let mut ways = self.watching.join().unwrap();
        ways.sort_unstable();
        Ways(ways)
    }
}

impl Ways {
    pub(crate) fn quantile(&self, quantile: f64) -> Duration {
        let rank = (self.0.len() as f64 * quantile).ceil() as usize;
        self.0[rank.clamp(1, self.0.len()) - 1]
    }
}
