//! Sends requests at a constant rate from threads that sleep between requests. Each latency starts when its request is
//! sent.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// Requests per second of one thread. At higher rates, sleeps are too short to be accurate.
const PER_THREAD: f64 = 1500.0;

/// The p99 at this rate.
pub(crate) fn p99(address: SocketAddr, per_second: f64, duration: Duration) -> Result<Duration> {
    let threads = (per_second / PER_THREAD).ceil().max(1.0);
    let interval = Duration::from_secs_f64(threads / per_second);
    let mut latencies = std::thread::scope(|scope| {
        let send = |number: u32| {
            let first = interval * number / threads as u32;
            scope.spawn(move || send_requests(address, first, interval, duration))
        };
        let handles: Vec<_> = (0..threads as u32).map(send).collect();
        let mut latencies = Vec::new();
        for handle in handles {
            latencies.extend(handle.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??);
        }
        Ok::<_, anyhow::Error>(latencies)
    })?;
    latencies.sort_unstable();
    ensure!(!latencies.is_empty(), "no request was sent");
    Ok(latencies[latencies.len() * 99 / 100])
}

fn send_requests(
    address: SocketAddr,
    first: Duration,
    interval: Duration,
    duration: Duration,
) -> Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let request = format!("GET /api/things/7 HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let (mut latencies, mut response) = (Vec::new(), [0; 4096]);
    let started = Instant::now();
    let mut due = started + first;
    while started.elapsed() < duration {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        // A late request delays all later ones: a burst to catch up would distort the latencies.
        due = Instant::now() + interval;
        let sent = Instant::now();
        stream.write_all(request.as_bytes())?;
        let mut filled = 0;
        // Every response ends with the upstream's body.
        while !response[..filled].ends_with(b"abcdef") {
            let read = stream.read(&mut response[filled..])?;
            ensure!(read > 0, "{address} closed the connection");
            filled += read;
        }
        latencies.push(sent.elapsed());
        ensure!(response.starts_with(b"HTTP/1.1 200"), "{address} did not respond with 200");
    }
    // Drops the first requests, which run with cold caches.
    Ok(latencies.split_off(latencies.len() / 10))
}
