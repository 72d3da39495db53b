//! Measures round trips to an echo thread on this machine during a run.
//!
//! A user waits for the round trip, so a generator counts it, but the log of a server does not contain it. On a busy machine
//! it is the largest part of the difference.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(2);

pub(crate) struct LatencyProbe {
    stop: Arc<AtomicBool>,
    probing: JoinHandle<Vec<Duration>>,
}

/// The measured round trips, shortest first.
pub(crate) struct RoundTrips(Vec<Duration>);

impl LatencyProbe {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
        });
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let probing = thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            let mut round_trips = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                thread::sleep(INTERVAL);
                let sent_at = Instant::now();
                stream.write_all(&[1]).unwrap();
                stream.read_exact(&mut [0]).unwrap();
                round_trips.push(sent_at.elapsed());
            }
            round_trips
        });
        Self { stop, probing }
    }

    pub(crate) fn finish(self) -> RoundTrips {
        self.stop.store(true, Ordering::Relaxed);
        let mut round_trips = self.probing.join().unwrap();
        round_trips.sort_unstable();
        RoundTrips(round_trips)
    }
}

impl RoundTrips {
    pub(crate) fn quantile(&self, quantile: f64) -> Duration {
        let rank = (self.0.len() as f64 * quantile).ceil() as usize;
        self.0[rank.clamp(1, self.0.len()) - 1]
    }
}
